"""Features of several images whose logits differ by some units between classes, for methods that use text features only."""

import torch
import torch.nn.functional as F
from support.cases import model_of
from support.prompting import words

import tpt_lib

CLASSES = ["cat", "red panda", "kite (bird of prey)", "dog", "hen", "ant"]


def case_of(images=4, number=64, seed=0, spread=0.03):
    """Return a model at scale 100, its prompts, features ``(B, N, E)`` and the text features ``(K, E)``."""
    model = model_of()
    prompts = words(model, CLASSES)
    text = tpt_lib.encode_prompts(model, prompts).detach()
    draw = torch.Generator().manual_seed(seed)
    center = F.normalize(torch.randn(images, 1, text.shape[1], generator=draw), dim=-1)
    noise = torch.randn(images, number, text.shape[1], generator=draw)
    return model, prompts, F.normalize(center + 10 * spread * noise, dim=-1), text

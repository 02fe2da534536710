"""Streams of images whose logits differ by some units between classes, some clear and some doubtful."""

import torch
import torch.nn.functional as F
from support.cases import model_of
from support.prompting import words

import tpt_lib
from tpt_lib.methods import boostadapter, dmn, dpe, dynaprompt, ecalp, onzeta, tda

CLASSES = ["cat", "red panda", "kite (bird of prey)", "dog", "hen"]
EXPECTED = 30


def stream_of(images=30, number=12, seed=0, names=CLASSES):
    """Return a model at scale 100, its prompts, features ``(B, N, E)``, and text features."""
    model = model_of()
    prompts = words(model, names)
    text = tpt_lib.encode_prompts(model, prompts).detach()
    draw = torch.Generator().manual_seed(seed)
    of = torch.randint(len(names), (images,), generator=draw)
    toward = F.normalize(text - text.mean(dim=0) + 1e-9, dim=-1)[of][:, None]
    strength = torch.rand(images, 1, 1, generator=draw)
    noise = torch.randn(images, number, text.shape[1], generator=draw)
    common = F.normalize(text.mean(dim=0), dim=0)
    shared = 0.08 * noise[:, :1]
    return model, prompts, F.normalize(common + 0.5 * strength * toward + shared + 0.03 * noise, dim=-1), text


METHODS = {
    "tda": tda(),
    "tda with views": tda(recipe="views"),
    "boostadapter": boostadapter(),
    "dmn": dmn(capacity=3),
    "dpe": dpe(),
    "dpe of views": dpe(read="views"),
    "dynaprompt": dynaprompt(size=3),
    "dynaprompt as released": dynaprompt(size=5, rule="released"),
    "ecalp": ecalp(capacity=6),
    "onzeta": onzeta(expected=EXPECTED),
}


def close(found, want, atol=2e-3):
    """Compare predictions with the logits of a plain program, image by image."""
    for i, (one, other) in enumerate(zip(found, want, strict=True)):
        torch.testing.assert_close(
            one.logits.double(), other, atol=atol, rtol=0, msg=lambda text, i=i: f"image {i}: {text}"
        )

"""Prompts of every kind for four classes, features to give them, and a model that says what it is told."""

import torch
import torch.nn.functional as F
from support.cases import meta_net, model_of

import tpt_lib
from tpt_lib import class_prompts
from tpt_lib.prompts.contexts import LearnedPrompt

NAMES = ["cat", "red panda", "kite (bird of prey)", "dog"]


def unit(*shape, seed=0):
    return F.normalize(torch.randn(shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


def words(model=None, names=NAMES):
    return class_prompts(model or model_of(), names)


def coop(model=None, names=NAMES, seed=0):
    model = model or model_of()
    return class_prompts(model, names, context=3 * tpt_lib.gaussian_context(model, 4, sigma=1.0, seed=seed))


def cocoop(model=None, names=NAMES, seed=0):
    model = model or model_of()
    context = tpt_lib.gaussian_context(model, 4, sigma=1.0, seed=seed)
    return class_prompts(model, names, context=LearnedPrompt(context, meta_net()))


class Said:
    """A model of the classes a, b, c and d, whose text features are the first four of five unit vectors."""

    image_spec, logit_scale, logit_bias = tpt_lib.ImageSpec((8, 8)), 2048.0, 0.0
    vocabulary = ("", "[", "]", "my", ".", "a", "b", "c", "d")

    def tokenize(self, texts):
        rows = [["[", *text.replace(".", " .").split(), "]"] for text in texts]
        return torch.tensor([[self.vocabulary.index(w) for w in row + [""] * (8 - len(row))] for row in rows])

    def embed_tokens(self, ids):
        return F.one_hot(ids, len(self.vocabulary)).float()

    def encode_image(self, pixels):
        return pixels.flatten(1)[:, :5]

    def encode_embeddings(self, embeddings, _ids):
        return F.pad(embeddings.sum(dim=1)[:, -4:], (0, 1))


def saying(probabilities):
    """A model, its prompts, and the features of views that have the given probabilities."""
    model = Said()
    prompts = class_prompts(model, ["a", "b", "c", "d"], template="my {}.")
    return model, prompts, with_logits(torch.tensor(probabilities).clamp(min=1e-30).log())


def with_logits(logits):
    """The features of unit length that have these logits in the eyes of ``Said``, to the last bit."""
    features = logits / Said.logit_scale
    return torch.cat([features, (1 - features.square().sum(dim=-1, keepdim=True)).sqrt()], dim=-1)

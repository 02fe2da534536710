"""Prompts of every kind of model, and comparisons of their text features with the plain program of ``oracles/tpt.py``."""

import functools
import math
from types import SimpleNamespace

import pytest
import torch
from oracles.tpt import Put, float64, plain_loss, plain_selection, plain_text, plain_tpt
from support.cases import assert_same_tokens, largest, views_for
from support.zoo import ZOO, build, fresh

from tpt_lib import class_prompts, encode_prompts
from tpt_lib.text import text_engine
from tpt_lib.text.encode import open_encoder
from tpt_lib.text.initial import initial_text

PACKED = [name for name, (_, _, engine) in ZOO.items() if engine == "packed"]
BOTH = pytest.mark.parametrize("engine", ["packed", "full_length"])
NAMES = ["cat", "red panda", "kite (bird of prey)", "dog", "tabby"]
WORDINGS = {  # words before the name, what touches it, words after it
    "end": ("a photo of a", ".", ""),
    "middle": ("a photo of a", ",", "a type of pet"),
    "front": ("", "", "of the bird"),
}
SPECIALS = {"sentencepiece_tokenizer": (0, 1), "bert_tokenizer": (1, 102)}  # start tokens, id of the end
CLIP_SPECIALS = (1, 49407)
SCALE = 100.0


def initial_of(model, prompts, **options):
    """Return the kept text features at the prompts' own context."""
    return initial_text(open_encoder(model, prompts, **options))


@functools.cache
def vivid(name):
    """Return a model of the zoo; the two whose features hardly depend on the text are made to."""
    if name not in ("transformers-chinese-clip", "transformers-altclip"):
        return build(name)
    model = fresh(name)
    with torch.no_grad():
        for weight in model.module.text_model.parameters():
            weight.mul_(8 if weight.ndim == 2 else 1)
    return model


@functools.cache
def plain_model(name):
    return float64(vivid(name).module)


def prompt_text(before, name, touch, after, stop=""):
    return " ".join(word for word in (before, f"{name}{touch}", f"{after}{stop}") if word)


def count(tokenize, words, specials):
    """Return how many tokens some words have."""
    start, end = specials
    return tokenize([words])[0, start:].tolist().index(end) if words else 0


def context_columns(tokenize, ids, before, after, stop, specials):
    """Return where the context is: right after the start, and right before the end of the text and its full stop."""
    start, end = specials
    leading, trailing, stops = (count(tokenize, words, specials) for words in (before, after, stop))
    rows = []
    for row in ids.tolist():
        last = row.index(end, start) - stops
        rows.append([*range(start, start + leading), *range(last - trailing, last)])
    return torch.tensor(rows, dtype=torch.int64)


@functools.cache
def example(name, where):
    """Return a model, its prompts, and what five steps of plain TPT do to them."""
    model, (before, touch, after) = vivid(name), WORDINGS[where]
    tokenizer = ZOO[name][1]
    specials = SPECIALS.get(getattr(tokenizer, "__name__", ""), CLIP_SPECIALS)
    stop = "." if after and specials == CLIP_SPECIALS else ""
    ids = model.tokenize([prompt_text(before, n, touch, after, stop) for n in NAMES])
    columns = context_columns(model.tokenize, ids, before, after, stop, specials)
    module = plain_model(name)
    with torch.no_grad():
        context = model.embed_tokens(ids[:1])[0, columns[0]].float()
        views = views_for(plain_text(module, ids, Put(columns, context.double())))
    return SimpleNamespace(
        model=model,
        prompts=class_prompts(model, NAMES, template=prompt_text(before, "{}", touch, after, stop)),
        context=context,
        views=views,
        plain=plain_tpt(module, ids, columns, context, views, SCALE, float(model.logit_bias), steps=5),
    )


def vit(engine="packed"):
    """Return the model and prompts that most tests use, fresh, because they change them."""
    model = fresh("open_clip-vit" if engine == "packed" else "open_clip-not-causal")
    prompts = class_prompts(model, NAMES)
    assert text_engine(model, prompts).startswith(engine)
    return model, prompts


def logits_of(model, text, views):
    return SCALE * views @ text.T + model.logit_bias


def relative(got, want):
    return ((got.double() - want.double()).norm() / want.double().norm()).item()


def gradients(features, leaves, seed=0):
    """Return the gradients of a fixed random function of the features."""
    upstream = torch.randn(features.shape, generator=torch.Generator().manual_seed(seed)).to(features.dtype)
    return torch.autograd.grad(features, leaves, upstream)


def features_and_gradient(model, prompts, context=None, **kwargs):
    context = (prompts.context if context is None else context).clone().requires_grad_()
    features = encode_prompts(model, prompts, context, **kwargs)
    return features.detach(), gradients(features, context)[0]


def assert_same(got, want, tolerance=1e-5):
    """Compare features to an absolute tolerance, gradients to a relative one."""
    assert largest(got[0], want[0]) <= tolerance
    assert relative(got[1], want[1]) <= 10 * tolerance


def check_features(case, engine, **options):
    """Compare features, logits, selection and the gradient of the loss with the plain ones."""
    assert torch.equal(case.prompts.context, case.context)
    context = case.prompts.context.clone().requires_grad_()
    features = encode_prompts(case.model, case.prompts, context, engine=engine, **options)
    assert features.dtype == torch.float32
    assert largest(features, case.plain.features) <= 1e-5
    logits, want = (
        logits_of(case.model, text.double(), case.views.double()) for text in (features, case.plain.features)
    )
    assert largest(logits, want) <= 1e-3
    selected = plain_selection(logits.detach())
    assert torch.equal(selected, case.plain.selected)
    (gradient,) = torch.autograd.grad(plain_loss(logits_of(case.model, features, case.views[selected])), context)
    assert relative(gradient, case.plain.gradients[0]) <= 1e-4


def check_five_steps(case, engine, **options):
    """Compare five steps of tuning, the first from the kept graph, with the plain ones."""
    model, prompts = case.model, case.prompts
    initial = initial_of(model, prompts, engine=engine, **options)
    start = initial.features.detach().requires_grad_()
    selected = plain_selection(logits_of(model, start.detach(), case.views))
    assert torch.equal(selected, case.plain.selected)
    upstream = torch.autograd.grad(plain_loss(logits_of(model, start, case.views[selected])), start)
    context = prompts.context.clone().requires_grad_()
    optimizer = torch.optim.AdamW([context], lr=5e-3)
    for step in range(5):
        if step == 0:
            (context.grad,) = initial.gradients(*upstream)
        else:
            features = encode_prompts(model, prompts, context, engine=engine, **options)
            loss = plain_loss(logits_of(model, features, case.views[selected]))
            (context.grad,) = torch.autograd.grad(loss, context)
        optimizer.step()
        assert_same_tokens(context.detach(), case.plain.contexts[step], case.plain.gradients[: step + 1])
        after = encode_prompts(model, prompts, context.detach(), engine=engine, **options)
        logits = logits_of(model, after, case.views[:1])[0]
        assert largest(logits, case.plain.logits[step]) <= 1e-3 * (1 + step)  # rounding adds up over the steps


def varied(values, batch):
    noise = torch.randn(*batch, *values.shape, generator=torch.Generator().manual_seed(2))
    return (values + 0.02 * noise).requires_grad_()


def plain_results(module, ids, columns, leaves, batch=(), class_specific=False):
    """Return plain features and gradients of context and free names, one member of the batch at a time."""
    leaves = [leaf.detach().double().requires_grad_() for leaf in leaves]
    wide = []
    for leaf, own in zip(leaves, (3 if class_specific else 2, 3), strict=False):
        wide.append(leaf.expand(*batch, *leaf.shape[-own:]).reshape(math.prod(batch), *leaf.shape[-own:]))
    members = [[Put(c, v) for c, v in zip(columns, values, strict=False)] for values in zip(*wide, strict=True)]
    features = torch.stack([plain_text(module, ids, *puts) for puts in members])
    features = features.reshape(*batch, *features.shape[1:])
    return [features.detach(), *gradients(features, leaves)]


def plain_photo(module, model, prompts):
    """Return plain features and gradient of ``a photo of a {}.``"""
    ids = model.tokenize([f"a photo of a {name}." for name in prompts.names])
    return plain_results(module, ids, [torch.arange(1, 5).expand(len(ids), 4)], [prompts.context])


def cosine(a, b):
    return torch.nn.functional.cosine_similarity(a.flatten().double(), b.flatten().double(), dim=0).item()

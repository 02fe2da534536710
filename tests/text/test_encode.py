"""Text features on both paths against the plain full-length computation of ``plain.py``, forward and backward."""

import copy
import functools
import math
import types
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import open_clip
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from oracles.tpt import Put, float64, plain_loss, plain_selection, plain_text, plain_tpt
from support.cases import largest, views_for
from support.zoo import TEXT, VISION, ZOO, build, fresh, liven, open_clip_model, transformers_model
from torch import nn

import tpt_lib
from tpt_lib import class_prompts, encode_prompts, gaussian_context, initial_text
from tpt_lib.text import text_engine

FAST = [name for name, (_, _, path) in ZOO.items() if path == "fast"]
PATHS = [(name, "auto") for name in ZOO] + [(name, "general") for name in FAST]
BOTH = pytest.mark.parametrize("path", ["fast", "general"])
NAMES = ["cat", "red panda", "kite (bird of prey)", "dog", "tabby"]
WORDINGS = {  # words before the name, what touches it, words after it
    "end": ("a photo of a", ".", ""),
    "middle": ("a photo of a", ",", "a type of pet"),
    "front": ("", "", "of the bird"),
}
SPECIALS = {"sentencepiece_tokenizer": (0, 1), "bert_tokenizer": (1, 102)}  # start tokens, id of the end
CLIP_SPECIALS = (1, 49407)
SCALE = 100.0


@pytest.fixture(autouse=True)
def many_tokens(monkeypatch):
    """Few tokens are attended to at once; all but the tests that say so are of the way that many take."""
    monkeypatch.setattr(tpt_lib.text.packed, "FEW", 0)


def prompt_text(before, name, touch, after, stop=""):
    return " ".join(word for word in (before, f"{name}{touch}", f"{after}{stop}") if word)


def count(tokenize, words, specials):
    """How many tokens some words have."""
    start, end = specials
    return tokenize([words])[0, start:].tolist().index(end) if words else 0


def context_columns(tokenize, ids, before, after, stop, specials):
    """Where the context stands: right after the start, and right before the end of the text and its full stop."""
    start, end = specials
    leading, trailing, stops = (count(tokenize, words, specials) for words in (before, after, stop))
    rows = []
    for row in ids.tolist():
        last = row.index(end, start) - stops
        rows.append([*range(start, start + leading), *range(last - trailing, last)])
    return torch.tensor(rows, dtype=torch.int64)


@functools.cache
def model_of(name):
    """A model of the zoo; the two whose features hardly depend on the text made to."""
    if name not in ("transformers-chinese-clip", "transformers-altclip"):
        return build(name)
    model = fresh(name)
    with torch.no_grad():
        for weight in model.module.text_model.parameters():
            weight.mul_(8 if weight.ndim == 2 else 1)
    return model


@functools.cache
def plain_model(name):
    return float64(model_of(name).module)


@functools.cache
def example(name, where):
    """A model, its prompts, and what five steps of plain TPT do to them."""
    model, (before, touch, after) = model_of(name), WORDINGS[where]
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


def logits_of(model, text, views):
    return SCALE * views @ text.T + model.logit_bias


def relative(got, want):
    return ((got.double() - want.double()).norm() / want.double().norm()).item()


def gradients(features, leaves, seed=0):
    """Of a fixed random function of the features."""
    upstream = torch.randn(features.shape, generator=torch.Generator().manual_seed(seed)).to(features.dtype)
    return torch.autograd.grad(features, leaves, upstream)


def features_and_gradient(model, prompts, context=None, **kwargs):
    context = (prompts.context if context is None else context).clone().requires_grad_()
    features = encode_prompts(model, prompts, context, **kwargs)
    return features.detach(), gradients(features, context)[0]


def assert_same(got, want, tolerance=1e-5):
    """Features to an absolute tolerance, gradients to a relative one."""
    assert largest(got[0], want[0]) <= tolerance
    assert relative(got[1], want[1]) <= 10 * tolerance


def vit(engine="packed"):
    """The model and prompts most tests use, fresh, because they change it."""
    model = fresh("open_clip-vit" if path == "fast" else "open_clip-not-causal")
    prompts = class_prompts(model, NAMES)
    assert text_engine(model, prompts).startswith(path)
    return model, prompts


# Against the plain computation


@pytest.mark.parametrize("where", WORDINGS)
@pytest.mark.parametrize("name", ZOO)
def test_the_path_is_the_expected_one(name, where):
    case = example(name, where)
    path, reason = [*text_engine(case.model, case.prompts).split(": ", 1), ""][:2]
    assert path == ZOO[name][2]
    assert (reason == "") == (path == "fast")


@pytest.mark.parametrize("where", WORDINGS)
@pytest.mark.parametrize(("name", "path"), PATHS)
def test_features_logits_and_gradients_are_the_plain_ones(name, where, path):
    case = example(name, where)
    assert torch.equal(case.prompts.context, case.context)
    context = case.prompts.context.clone().requires_grad_()
    features = encode_prompts(case.model, case.prompts, context, path=path)
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


@pytest.mark.parametrize("where", WORDINGS)
@pytest.mark.parametrize("name", FAST)
def test_few_tokens_give_the_same(name, where, monkeypatch):
    monkeypatch.setattr(tpt_lib.text.packed, "FEW", 1000)
    test_features_logits_and_gradients_are_the_plain_ones(name, where, "fast")
    test_a_batch_of_contexts_gives_what_one_at_a_time_gives("fast", where)
    test_five_steps_of_tuning_are_the_plain_ones(name, where, "fast")


@pytest.mark.parametrize("where", WORDINGS)
@pytest.mark.parametrize(("name", "path"), PATHS)
def test_five_steps_of_tuning_are_the_plain_ones(name, where, path):
    case = example(name, where)
    model, prompts = case.model, case.prompts
    initial = initial_text(model, prompts, path=path)
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
            features = encode_prompts(model, prompts, context, path=path)
            loss = plain_loss(logits_of(model, features, case.views[selected]))
            (context.grad,) = torch.autograd.grad(loss, context)
        optimizer.step()
        assert_tuned(case, step, context.detach())
        logits = logits_of(model, encode_prompts(model, prompts, context.detach(), path=path), case.views[:1])[0]
        assert largest(logits, case.plain.logits[step]) <= 1e-3


def assert_tuned(case, step, context):
    """Equal contexts, but for coordinates whose gradient was near zero at some step, where Adam divides by nothing."""
    clear = torch.ones_like(context, dtype=torch.bool)
    for gradient in case.plain.gradients[: step + 1]:
        clear &= gradient.abs() > 1e-3 * gradient.square().mean().sqrt()
    share = 1 - clear.double().mean().item()
    print(f"step {step + 1}: {share:.2%} of the coordinates are near zero")  # noqa: T201
    assert share <= 0.05
    assert (context - case.plain.contexts[step])[clear].abs().max() <= 1e-5


def real_tower(architecture):
    """The text tower of an architecture of open_clip, beside a small image tower."""
    config = open_clip.get_model_config(architecture)
    torch.manual_seed(0)
    return liven(open_clip.CLIP(config["embed_dim"], vision_cfg=VISION, text_cfg=config["text_cfg"])).eval()


def imagenet(model, number):
    """Prompts of ImageNet names, their ids and the places of ``a photo of a``."""
    names = open_clip.IMAGENET_CLASSNAMES[:number]
    ids = model.tokenize([f"a photo of a {name}." for name in names])
    return class_prompts(model, names), ids, torch.arange(1, 5).expand(number, 4)


def test_vit_b_16():
    """Forward at 50 classes, backward at the first 12 of them."""
    model = tpt_lib.wrap(real_tower("ViT-B-16"))
    module = float64(model.module)
    prompts, ids, columns = imagenet(model, 50)
    assert text_engine(model, prompts) == "fast"
    plain_context = prompts.context.double().requires_grad_()
    first = plain_text(module, ids[:12], Put(columns[:12], plain_context))
    with torch.no_grad():
        want = torch.cat([first, plain_in_chunks(module, ids[12:], columns[12:], prompts.context, 10)])
        assert largest(encode_prompts(model, prompts), want) <= 1e-5
    views = views_for(want, 64)
    context = prompts.context.clone().requires_grad_()
    logits = logits_of(model, encode_prompts(model, imagenet(model, 12)[0], context), views)
    plain_logits = logits_of(model, first, views.double())
    assert largest(logits, plain_logits) <= 1e-3
    selected = plain_selection(plain_logits.detach())
    assert torch.equal(plain_selection(logits.detach()), selected)
    (gradient,) = torch.autograd.grad(plain_loss(logits[selected]), context)
    (plain_gradient,) = torch.autograd.grad(plain_loss(plain_logits[selected]), plain_context)
    assert relative(gradient, plain_gradient) <= 1e-4


def plain_in_chunks(module, ids, columns, context, size):
    parts = zip(ids.split(size), columns.split(size), strict=True)
    return torch.cat([plain_text(module, part, Put(places, context.double())) for part, places in parts])


@torch.no_grad()
def test_rn50():
    model = tpt_lib.wrap(real_tower("RN50"))
    prompts, ids, columns = imagenet(model, 5)
    assert text_engine(model, prompts) == "fast"
    want = plain_text(float64(model.module), ids, Put(columns, prompts.context.double()))
    assert largest(encode_prompts(model, prompts), want) <= 1e-5


@torch.no_grad()
def test_a_thousand_classes():
    model = build("open_clip-vit")
    prompts, ids, columns = imagenet(model, 1000)
    context = prompts.context + torch.stack([torch.zeros_like(prompts.context), torch.randn_like(prompts.context)])
    want = plain_in_chunks(plain_model("open_clip-vit"), ids, columns, context[1], 100)
    got = encode_prompts(model, prompts, context, engine="packed")
    assert largest(got[1], want) <= 1e-5
    assert largest(encode_prompts(model, prompts, context[1], engine="full_length"), want) <= 1e-5
    assert largest(encode_prompts(model, prompts), got[0]) <= 1e-5


def without_start(texts):
    """CLIP's tokens, but for the first."""
    ids = build("open_clip-vit").tokenize(texts)
    return torch.cat([ids[:, 1:], torch.zeros_like(ids[:, :1])], dim=1)


def with_a_small_end(texts):
    """CLIP's tokens, with 5 as the end of text."""
    ids = build("open_clip-vit").tokenize(texts)
    return torch.where(ids == 49407, 5, ids)


OTHERS = {
    "no start token": lambda: tpt_lib.wrap(open_clip_model(), without_start),
    "pooled at an id": lambda: tpt_lib.wrap(
        open_clip_model("CustomTextCLIP", text={"pool_type": "eos", "eos_id": 5}), with_a_small_end
    ),
    "no projection": lambda: tpt_lib.wrap(open_clip_model("CustomTextCLIP", text={"proj_type": "none", "width": 16})),
    "an old config": lambda: tpt_lib.wrap(transformers_model(eos_token_id=2)),
    "one layer": lambda: tpt_lib.wrap(open_clip_model(text={"layers": 1})),
}


@pytest.mark.parametrize("where", WORDINGS)
@pytest.mark.parametrize("kind", OTHERS)
def test_other_towers_are_fast_and_exact(kind, where):
    model, (before, touch, after) = OTHERS[kind](), WORDINGS[where]
    prompts = class_prompts(model, NAMES, template=prompt_text(before, "{}", touch, after))
    assert text_engine(model, prompts) == "fast"
    ids = model.tokenize([prompt_text(before, name, touch, after) for name in NAMES])
    specials = {"no start token": (0, 49407), "pooled at an id": (1, 5)}.get(kind, CLIP_SPECIALS)
    columns = context_columns(model.tokenize, ids, before, after, "", specials)
    want = plain_results(float64(model.module), ids, [columns], [prompts.context])
    for path in ("fast", "general"):
        assert_same(features_and_gradient(model, prompts, path=path), want)


ONE_TOKEN = ["cat", "dog", "red", "panda", "bird", "kite", "car", "tree", "blue", "X", "photo", "of", "the"]


def test_the_words_below_have_one_token_each():
    tokenize = build("open_clip-vit").tokenize
    assert [count(tokenize, word, CLIP_SPECIALS) for word in ONE_TOKEN] == [1] * len(ONE_TOKEN)


@pytest.mark.parametrize("kind", ["words", "gaussian", "class-specific", "free names"])
@given(data=st.data())
def test_any_prompts_on_either_path(kind, data):
    draw = data.draw
    words = st.sampled_from(ONE_TOKEN)
    name = draw(st.sampled_from(["open_clip-vit", "openai", "transformers-clip"]))
    classes = draw(st.lists(st.lists(words, min_size=1, max_size=20), min_size=1, max_size=12))
    before, after = draw(st.lists(words, max_size=4)), draw(st.lists(words, max_size=4))
    touch, stop = draw(st.sampled_from(["", ",", "."])), draw(st.sampled_from(["", "."])) if after else ""
    batch = draw(st.sampled_from([(), (1,), (3,), (2, 1)]))
    shared = draw(st.booleans())  # one context for a batch of names
    model, names, extra = build(name), [" ".join(c) for c in classes], {}
    template = prompt_text(" ".join(before), "{}", touch, " ".join(after), stop)
    if kind in ("gaussian", "class-specific"):
        length = len(before + after) if before and after else draw(st.integers(1, 16))
        extra["context"] = gaussian_context(model, length, classes=len(names) if kind == "class-specific" else None)
        if not (before and after):
            before, after = ([], ["X"] * length) if after else (["X"] * length, [])
    if kind == "free names":
        extra["name_tokens"] = gaussian_context(model, draw(st.integers(1, 4)), classes=len(names), seed=1)
        classes = [["X"] * extra["name_tokens"].shape[1]] * len(names)
    prompts = class_prompts(model, names, template=template, **extra)
    assert text_engine(model, prompts) == "fast"

    leaves = [varied(prompts.context, () if shared and kind == "free names" else batch)]
    if prompts.name_tokens is not None:
        leaves.append(varied(prompts.name_tokens, batch))
    ids = model.tokenize([prompt_text(" ".join(before), " ".join(c), touch, " ".join(after), stop) for c in classes])
    columns = [context_columns(model.tokenize, ids, " ".join(before), " ".join(after), stop, CLIP_SPECIALS)]
    columns.append(torch.arange(len(classes[0])).expand(len(names), -1) + 1 + len(before))
    want = plain_results(plain_model(name), ids, columns, leaves, batch, kind == "class-specific")
    for path in ("fast", "general"):
        features = encode_prompts(model, prompts, *leaves, path=path)
        assert features.shape == (*batch, len(names), 16)
        assert largest(features, want[0]) <= 1e-5
        for got, plain in zip(gradients(features, leaves), want[1:], strict=True):
            assert got.numel() == 0 or relative(got, plain) <= 1e-4


def varied(values, batch):
    noise = torch.randn(*batch, *values.shape, generator=torch.Generator().manual_seed(2))
    return (values + 0.02 * noise).requires_grad_()


def plain_results(module, ids, columns, leaves, batch_size=(), class_specific=False):
    """Plain features and gradients of context and free names, one member of the batch at a time."""
    leaves = [leaf.detach().double().requires_grad_() for leaf in leaves]
    wide = []
    for leaf, own in zip(leaves, (3 if class_specific else 2, 3), strict=False):
        wide.append(leaf.expand(*batch, *leaf.shape[-own:]).reshape(math.prod(batch), *leaf.shape[-own:]))
    members = [[Put(c, v) for c, v in zip(columns, values, strict=False)] for values in zip(*wide, strict=True)]
    features = torch.stack([plain_text(module, ids, *puts) for puts in members])
    features = features.reshape(*batch, *features.shape[1:])
    return [features.detach(), *gradients(features, leaves)]


# Laws


@BOTH
@pytest.mark.parametrize("others", [[0], [3, 1], [4, 3, 2, 1, 0], [2, 0, 2, 2, 1, 1]])
def test_a_class_does_not_depend_on_which_others_are_there(path, others):
    model = build("open_clip-vit")
    everyone = encode_prompts(model, class_prompts(model, NAMES), path=path)
    some = encode_prompts(model, class_prompts(model, [NAMES[i] for i in others]), path=path)
    assert largest(some, everyone[others]) <= 1e-6


@BOTH
@pytest.mark.parametrize("where", WORDINGS)
def test_a_batch_of_contexts_gives_what_one_at_a_time_gives(path, where):
    case = example("open_clip-vit", where)
    contexts = varied(case.prompts.context, (2, 3)).detach()
    features, gradient = features_and_gradient(case.model, case.prompts, contexts, path=path)
    upstream = torch.randn(features.shape, generator=torch.Generator().manual_seed(0))
    for i in range(2):
        for j in range(3):
            context = contexts[i, j].clone().requires_grad_()
            alone = encode_prompts(case.model, case.prompts, context, path=path)
            (alone_gradient,) = torch.autograd.grad(alone, context, upstream[i, j])
            assert_same((features[i, j], gradient[i, j]), (alone, alone_gradient), 1e-6)


@BOTH
def test_a_batch_of_contexts_with_the_same_names(path):
    model = build("open_clip-vit")
    prompts = class_prompts(model, NAMES, name_tokens=gaussian_context(model, 2, classes=5))
    contexts = varied(prompts.context, (3,)).detach()
    got = encode_prompts(model, prompts, contexts, prompts.name_tokens, path=path)
    for features, context in zip(got, contexts, strict=True):
        assert largest(features, encode_prompts(model, prompts, context, path=path)) <= 1e-6


@pytest.mark.parametrize("path", ["fast", "general"])
def test_a_batch_may_be_empty(path):
    model = build("open_clip-vit")
    assert encode_prompts(model, class_prompts(model, NAMES), torch.zeros(0, 4, 32), path=path).shape == (0, 5, 16)


@pytest.mark.parametrize("chunk", [1, 3])
@BOTH
@pytest.mark.parametrize("where", WORDINGS)
def test_chunks_give_what_the_whole_gives(path, where, chunk):
    case = example("open_clip-vit", where)
    contexts = varied(case.prompts.context, (2,)).detach()
    want = features_and_gradient(case.model, case.prompts, contexts, path=path)
    assert_same(features_and_gradient(case.model, case.prompts, contexts, path=path, chunk=chunk), want, 1e-6)
    initial, in_chunks = (initial_text(case.model, case.prompts, path=path, chunk=c) for c in (None, chunk))
    assert in_chunks is not initial
    upstream = torch.randn_like(initial.features)
    assert_same(*((text.features, *text.gradients(upstream)) for text in (in_chunks, initial)), 1e-6)


@BOTH
def test_a_chunk_bounds_what_the_graph_holds(path):
    model = build("open_clip-vit")
    prompts = class_prompts(model, NAMES)

    def held(chunk):
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
            encode_prompts(model, prompts, prompts.context.clone().requires_grad_(), path=path, chunk=chunk)
        return sum(sizes)

    assert held(1) < 0.2 * held(None)


# Half precision


def with_weights_in(name, dtype):
    model = fresh(name)
    for part in model.module.modules():
        if not (name == "openai" and isinstance(part, nn.LayerNorm)):  # whose norms compute in float32
            part._apply(lambda t: t.to(dtype) if t.is_floating_point() else t, recurse=False)
    return model


def cosine(a, b):
    return F.cosine_similarity(a.flatten().double(), b.flatten().double(), dim=0).item()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 0.05), (torch.float16, 0.005)])
@pytest.mark.parametrize(("name", "path"), [*PATHS[: len(ZOO)], ("open_clip-vit", "general"), ("openai", "general")])
def test_half_precision_weights(name, path, dtype, tolerance):
    exact, model = build(name), with_weights_in(name, dtype)
    prompts, exact_prompts = class_prompts(model, NAMES), class_prompts(exact, NAMES)
    assert text_engine(model, prompts).split(":")[0] == ZOO[name][2]
    features, gradient = features_and_gradient(model, prompts, exact_prompts.context, path=path)
    want = features_and_gradient(exact, exact_prompts, path=path)
    assert (features.dtype, gradient.dtype) == (torch.float32, torch.float32)
    assert largest(features, want[0]) <= tolerance
    assert cosine(gradient, want[1]) > 1 - tolerance


def mixed():
    """As open_clip and OpenAI make float16 models: token embedding and norms in float32."""
    module = open_clip_model()
    open_clip.model.convert_weights_to_fp16(module)
    return tpt_lib.wrap(module)


HALVES = {
    "weights": lambda: with_weights_in("open_clip-vit", torch.float16),
    "some weights": mixed,
    "autocast": lambda: build("open_clip-vit"),
}


@BOTH
@pytest.mark.parametrize("kind", ["weights", "some weights", "autocast"])
def test_tiny_gradients_do_not_underflow_in_float16(kind, path, monkeypatch):
    model, exact = HALVES[kind](), build("open_clip-vit")
    names, upstream = gaussian_context(exact, 2, classes=5), 1e-7 * torch.randn(5, 16)
    want = initial_text(exact, class_prompts(exact, NAMES, name_tokens=names)).gradients(upstream)

    def agreement():
        with torch.autocast("cpu", torch.float16, enabled=kind == "autocast"):
            initial = initial_text(model, class_prompts(model, NAMES, name_tokens=names), path=path)
        pairs = list(zip(initial.gradients(upstream), want, strict=True))
        assert all(a.norm() < 1.1 * b.norm() for a, b in pairs)
        return min(cosine(a, b) for a, b in pairs)

    assert agreement() > 0.99
    monkeypatch.setattr(tpt_lib.text.encode, "HALF_SCALE", 1.0)
    assert agreement() < 0.9


# The caller's modes


@BOTH
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_grad(mode, path):
    model, prompts = vit(path)
    want = initial_text(model, prompts)
    upstream = torch.randn_like(want.features)
    with mode():
        features = encode_prompts(model, prompts)
        initial = initial_text(model, class_prompts(model, NAMES))
        got = initial.gradients(torch.zeros_like(upstream) + upstream)
    assert not features.requires_grad
    assert largest(features, want.features) <= 1e-6
    assert_same((initial.features, *got), (want.features, *want.gradients(upstream)), 1e-6)
    assert not any(tensor.is_inference() for tensor in (initial.features, *got))


@BOTH
def test_autocast(path):
    model, prompts = vit(path)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = initial_text(model, prompts)
        assert rough is initial_text(model, prompts)
    exact = initial_text(model, prompts)
    want = features_and_gradient(model, class_prompts(model, NAMES))
    upstream = torch.randn(want[0].shape, generator=torch.Generator().manual_seed(0))
    assert_same((exact.features, *exact.gradients(upstream)), want, 1e-6)
    assert rough.features.dtype == torch.float32
    assert 1e-5 < largest(rough.features, want[0]) <= 0.05
    assert cosine(*rough.gradients(upstream), want[1]) > 0.99


@pytest.mark.parametrize("chunk", [None, 2])
@BOTH
def test_four_threads_at_once(path, chunk):
    model, prompts = vit(path)
    contexts = varied(prompts.context, (4,)).detach()
    shared = initial_text(model, prompts, chunk=chunk)
    upstreams = torch.randn(4, *shared.features.shape)

    def work(i):
        own = initial_text(model, class_prompts(model, NAMES[i:]), chunk=chunk)
        results = features_and_gradient(model, prompts, contexts[i], chunk=chunk)
        assert initial_text(model, prompts, chunk=chunk) is shared
        return [*results, *shared.gradients(upstreams[i]), *own.gradients(upstreams[i, i:])]

    want = [work(i) for i in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for got, alone in zip(pool.map(work, [0, 1, 2, 3] * 2), want * 2, strict=True):
            for a, b in zip(got, alone, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
        again = class_prompts(model, NAMES)
        assert len({id(text) for text in pool.map(lambda _: initial_text(model, again), range(8))}) == 1


# The state of the module


def compiled(module):
    return torch.compile(module, backend="eager")


def with_a_compiled_part(module):
    module.transformer = torch.compile(module.transformer, backend="eager")
    return module


def in_train_mode(module):
    for block in module.transformer.resblocks:
        block.attn.dropout = 0.5
    return module.train()


def with_checkpointing(module):
    module.set_grad_checkpointing()
    return module


def with_a_hook(module):
    module.transformer.resblocks[1].register_forward_hook(lambda _module, _inputs, x: 2 * x)
    return module


STATES = {
    compiled: "fast",
    with_a_compiled_part: "fast",
    in_train_mode: "fast",
    with_checkpointing: "general: gradient checkpointing is on",
    with_a_hook: "general: ResidualAttentionBlock has hooks, which only the model's own forward runs",
}


@pytest.mark.parametrize("change", STATES)
def test_the_state_a_module_may_be_in(change):
    module = open_clip_model()
    plain = float64(with_a_hook(copy.deepcopy(module)) if change is with_a_hook else module)
    model = tpt_lib.wrap(change(module))
    prompts = class_prompts(model, NAMES)
    assert text_engine(model, prompts) == STATES[change]
    assert_same(features_and_gradient(model, prompts), plain_photo(plain, model, prompts))


def plain_photo(module, model, prompts):
    """Plain features and gradient of ``a photo of a {}.``"""
    ids = model.tokenize([f"a photo of a {name}." for name in prompts.names])
    return plain_results(module, ids, [torch.arange(1, 5).expand(len(ids), 4)], [prompts.context])


def test_checkpointing_of_transformers():
    module = transformers_model()
    module.gradient_checkpointing_enable()
    model = tpt_lib.wrap(module.train())
    prompts = class_prompts(model, NAMES)
    assert text_engine(model, prompts) == "general: gradient checkpointing is on"
    exact = build("transformers-clip")
    assert_same(features_and_gradient(model, prompts), features_and_gradient(exact, class_prompts(exact, NAMES)))


def test_weights_made_in_inference_mode():
    with torch.inference_mode():
        module = open_clip_model()
    model, exact = tpt_lib.wrap(module), build("open_clip-vit")
    prompts, want = class_prompts(model, NAMES), initial_text(exact, class_prompts(exact, NAMES))
    assert text_engine(model, prompts) == "fast"
    initial = initial_text(model, prompts)
    assert initial is initial_text(model, prompts)
    upstream = torch.randn_like(want.features)
    assert_same((initial.features, *initial.gradients(upstream)), (want.features, *want.gradients(upstream)))


class Odd(open_clip.CLIP):
    """Its structure promises a plain CLIP, its forward does not."""

    def encode_text(self, text, **_):
        x = self.token_embedding(text) + self.positional_embedding
        x = self.ln_final(self.transformer(x, attn_mask=self.attn_mask) + 0.3 * x.roll(1, dims=-1))
        return x[range(len(x)), text.argmax(dim=-1)] @ self.text_projection


def test_a_forward_unlike_its_structure_takes_the_general_path():
    torch.manual_seed(0)
    model = tpt_lib.wrap(liven(Odd(16, vision_cfg=VISION, text_cfg=TEXT)).eval())
    prompts = class_prompts(model, NAMES)
    reason = "general: the tower laid open gives other features than the model's own forward"
    assert text_engine(model, prompts) == reason
    want = plain_photo(float64(model.module), model, prompts)
    assert_same(features_and_gradient(model, prompts), want)


@pytest.mark.parametrize("bind", [types.MethodType, functools.partial])
def test_an_encode_text_put_on_the_instance_sees_the_context(bind):
    module = open_clip_model()
    module.encode_text = bind(Odd.encode_text, module)
    model = tpt_lib.wrap(module)
    prompts = class_prompts(model, NAMES)
    assert text_engine(model, prompts).startswith("general")
    assert_same(features_and_gradient(model, prompts), plain_photo(float64(module), model, prompts))


# What is kept


def step(module):
    for weight in module.parameters():
        weight.grad = torch.ones_like(weight)
    torch.optim.SGD(module.parameters(), lr=0.01).step()
    module.zero_grad()


def load(module, *, assign=False):
    module.load_state_dict({k: 1.1 * v for k, v in module.state_dict().items()}, assign=assign)


@torch.no_grad()
def write_one_element(module):
    module.transformer.resblocks[1].mlp.c_fc.weight[3, 5] += 5


def replace_norm(module):
    module.ln_final = nn.LayerNorm(32, eps=0.1)


def replace_activation(module):
    module.transformer.resblocks[0].mlp.gelu = nn.ReLU()


def raise_eps(module):
    module.ln_final.eps = 0.1


def patch_forward(module):
    block = module.transformer.resblocks[1]
    block.forward = functools.partial(lambda forward, *args, **kwargs: 2 * forward(*args, **kwargs), block.forward)


def patch_tower(module):
    tower = module.transformer
    tower.forward = functools.partial(lambda forward, x, **kwargs: forward(x, **kwargs) + x.roll(1, -1), tower.forward)


def write_one_row(module):
    module.token_embedding.weight.data[49407] *= 3  # the end of text


def write_part_of_a_bias(module):
    module.ln_final.bias.data[:4] += 1


CHANGES = {
    "an optimizer's step": step,
    "load_state_dict": load,
    "load_state_dict, assigned": lambda m: load(m, assign=True),
    "one element of a weight": write_one_element,
    "data of one weight": lambda m: m.transformer.resblocks[1].mlp.c_fc.weight.data.mul_(1.5),
    "data of every weight": lambda m: [w.data.mul_(1.1) for w in m.parameters()],
    "one row of the embedding": write_one_row,
    "part of a bias": write_part_of_a_bias,
    "double": lambda m: m.double(),
    "another norm": replace_norm,
    "another activation": replace_activation,
    "another eps": raise_eps,
    "a hook": with_a_hook,
    "a patched forward": patch_forward,
    "a patched tower": patch_tower,
}


@BOTH
@pytest.mark.parametrize("change", CHANGES)
def test_what_is_kept_is_never_stale(change, path):
    model, prompts = vit(path)
    before = initial_text(model, prompts)
    old = before.features.detach().clone()
    assert before is initial_text(model, prompts)
    target = model.module if path == "fast" else model.module.text
    CHANGES[change](target)
    again = class_prompts(model, NAMES, context=prompts.context)
    want = features_and_gradient(model, again)
    assert change == "double" or largest(want[0], old) > 1e-4
    after = initial_text(model, prompts)
    assert after is not before
    upstream = torch.randn(want[0].shape, generator=torch.Generator().manual_seed(0))
    assert_same((after.features, *after.gradients(upstream)), want, 1e-6)
    assert after is initial_text(model, prompts)
    assert largest(encode_prompts(model, prompts), want[0]) <= 1e-6


@BOTH
def test_gradients_go_nowhere_else_and_can_be_asked_for_again(path):
    model, prompts = vit(path)
    initial = initial_text(model, prompts)
    assert initial is initial_text(model, prompts)
    assert initial is not initial_text(model, prompts, engine="full_length")
    upstream = torch.randn_like(initial.features)
    first = initial.gradients(upstream)
    assert all(torch.equal(a, b) for a, b in zip(first, initial.gradients(upstream), strict=True))
    encode_prompts(model, prompts, prompts.context.clone().requires_grad_()).sum().backward()
    assert all(weight.grad is None for weight in model.module.parameters())


@BOTH
def test_gradients_in_free_names(path):
    model = build("open_clip-vit")
    prompts = class_prompts(model, ["yes", "no"], name_tokens=gaussian_context(model, 2, classes=2))
    initial = initial_text(model, prompts, path=path)
    upstream = torch.randn_like(initial.features)
    leaves = [t.clone().requires_grad_() for t in (prompts.context, prompts.name_tokens)]
    want = torch.autograd.grad(encode_prompts(model, prompts, *leaves, path=path), leaves, upstream)
    for got, plain in zip(initial.gradients(upstream), want, strict=True):
        assert relative(got, plain) <= 1e-5


def test_a_backward_through_the_kept_features_does_not_spoil_them():
    model, prompts = vit()
    upstream = torch.randn(len(NAMES), 16)
    want = initial_text(model, prompts).gradients(upstream)[0]
    features = initial_text(model, prompts).features
    if features.requires_grad:
        features.sum().backward()
    assert torch.equal(initial_text(model, prompts).gradients(upstream)[0], want)


# Bad input


def test_bad_input(no_shape_checks):
    model, other = build("open_clip-vit"), build("open_clip-quickgelu")
    prompts = class_prompts(model, NAMES)
    free = class_prompts(model, NAMES, name_tokens=torch.zeros(5, 2, 32))
    own = class_prompts(model, NAMES, context=torch.zeros(5, 3, 32))
    siglip = build("open_clip-siglip")
    float32, integer = r"torch\.float32", r"torch\.int64"
    for message, call in {
        rf"context must be floats of shape \(\*batch, 4, 32\), but got {float32} of shape \(5, 32\)":
            lambda: encode_prompts(model, prompts, torch.zeros(5, 32)),
        rf"context must be floats of shape \(\*batch, 4, 32\), but got {float32} of shape \(32,\)":
            lambda: encode_prompts(model, prompts, torch.zeros(32)),
        rf"context must be floats of shape \(\*batch, 5, 3, 32\), but got {float32} of shape \(3, 32\)":
            lambda: encode_prompts(model, own, torch.zeros(3, 32)),
        rf"context must be floats of shape \(\*batch, 4, 32\), but got {integer} of shape \(4, 32\)":
            lambda: encode_prompts(model, prompts, torch.zeros(4, 32, dtype=torch.int64)),
        rf"names must be floats of shape \(\*batch, 5, 2, 32\), but got {float32} of shape \(5, 1, 32\)":
            lambda: encode_prompts(model, free, names=torch.zeros(5, 1, 32)),
        "names were given, but these prompts have no free names":
            lambda: encode_prompts(model, prompts, names=torch.zeros(5, 1, 32)),
        "these prompts were made for another model": lambda: encode_prompts(other, prompts),
        "chunk must be at least 1, but got 0": lambda: encode_prompts(model, prompts, chunk=0),
        "this model has no fast path: the pooled position is 'last', not the end of the text":
            lambda: encode_prompts(siglip, class_prompts(siglip, ["cat"]), engine="packed"),
    }.items():  # fmt: skip
        with pytest.raises(ValueError, match=f"^encode_prompts: {message}"):
            call()


@pytest.mark.parametrize("function", [encode_prompts, initial_text])
def test_a_cocoop_prompt_needs_an_image(function):
    model = build("open_clip-vit")
    net = tpt_lib.prompts.MetaNet(torch.zeros(2, 16), torch.zeros(2), torch.zeros(32, 2), torch.ones(32))
    prompts = class_prompts(model, NAMES, context=tpt_lib.prompts.LearnedPrompt(torch.zeros(4, 32), net))
    with pytest.raises(ValueError, match="a CoCoOp context depends on the image"):
        function(model, prompts)
    context = tpt_lib.prompts.conditional_context(prompts, torch.zeros(16))
    words = class_prompts(model, NAMES, context=torch.ones(4, 32))
    assert torch.equal(encode_prompts(model, prompts, context), encode_prompts(model, words))


@pytest.mark.parametrize("function", [encode_prompts, initial_text])
def test_an_unknown_path_is_refused(function, no_shape_checks):
    model = build("open_clip-vit")
    with pytest.raises(ValueError, match="quick"):
        function(model, class_prompts(model, NAMES), path="quick")


# A model that is no torch module


class Letters:
    """The seven members and nothing else: a text is the weighted mean of its letters."""

    image_spec, logit_scale, logit_bias = tpt_lib.ImageSpec((8, 8)), 10.0, 0.0

    def __init__(self):
        self.table, self.weights = torch.randn(128, 6), torch.rand(24, 1)

    def tokenize(self, texts):
        rows = [[1, *(ord(c) for c in text.replace(" ", "")), 2] for text in texts]
        return torch.tensor([row + [0] * (24 - len(row)) for row in rows])

    def embed_tokens(self, ids):
        return self.table[ids]

    def encode_image(self, pixels):
        return pixels.flatten(1)[:, :6]

    def encode_embeddings(self, embeddings, ids):
        return (embeddings.tanh() * self.weights * (ids != 0)[..., None]).sum(dim=1)


def test_a_model_that_is_no_torch_module():
    model, names = Letters(), ["cat", "dog", "bee"]
    assert isinstance(model, tpt_lib.ClipLike)
    prompts = class_prompts(model, names, template="my {}")
    assert text_engine(model, prompts) == "general: the model does not lay its text tower open (causal_tower)"
    context = prompts.context.double().requires_grad_()
    ids = model.tokenize([f"my {name}" for name in names])
    embedded = torch.cat([model.table[ids[:, :1]].double(), context.expand(3, 2, 6), model.table[ids[:, 3:]]], dim=1)
    features = F.normalize((embedded.tanh() * model.weights * (ids != 0)[..., None]).sum(dim=1), dim=-1)
    want = features.detach(), gradients(features, context)[0]
    assert_same(features_and_gradient(model, prompts), want)
    assert_same(features_and_gradient(model, prompts, chunk=1), want)
    model.table += 1
    changed = initial_text(model, prompts)
    assert largest(changed.features, want[0]) > 0.01
    assert changed.gradients(torch.ones(3, 6))[0].shape == (2, 6)

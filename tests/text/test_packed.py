"""The packed engine against the plain program, forward and backward: towers, wordings, real sizes, any prompts."""

import itertools

import open_clip
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles.tpt import Put, float64, plain_loss, plain_selection, plain_text
from support.cases import largest, views_for
from support.marking import slow_but
from support.text_cases import (
    CLIP_SPECIALS,
    NAMES,
    PACKED,
    WORDINGS,
    assert_same,
    check_features,
    check_five_steps,
    context_columns,
    count,
    example,
    features_and_gradient,
    gradients,
    initial_of,
    logits_of,
    plain_model,
    plain_results,
    prompt_text,
    relative,
    varied,
)
from support.zoo import VISION, build, liven, open_clip_model, transformers_model

import tpt_lib
from tpt_lib import class_prompts, encode_prompts, gaussian_context
from tpt_lib.text import text_engine
from tpt_lib.text.attention import attention
from tpt_lib.text.packing import Packing


@pytest.fixture(params=["ragged", "padded", "few"])
def layout(request, monkeypatch):
    """A layout of the packed engine; prompts that tests share start without what was kept in another one."""
    monkeypatch.setattr(tpt_lib.text.packing, "FEW", 1000 if request.param == "few" else 0)
    return "padded" if request.param == "padded" else "ragged"


QUICK = [(name, "end") for name in PACKED] + [("open_clip-vit", "middle"), ("open_clip-vit", "front")]


@pytest.mark.parametrize(("name", "where"), slow_but(QUICK, list(itertools.product(PACKED, WORDINGS))))
def test_features_logits_and_gradients_are_the_plain_ones(name, where, layout):
    example(name, where).prompts.forget()
    check_features(example(name, where), "packed", layout=layout)


@pytest.mark.parametrize("where", WORDINGS)
@pytest.mark.parametrize("name", PACKED)
@pytest.mark.slow
def test_five_steps_of_tuning_are_the_plain_ones(name, where, layout):
    example(name, where).prompts.forget()
    check_five_steps(example(name, where), "packed", layout=layout)


def real_tower(architecture):
    """Return the text tower of an architecture of open_clip with a small image tower."""
    config = open_clip.get_model_config(architecture)
    torch.manual_seed(0)
    return liven(open_clip.CLIP(config["embed_dim"], vision_cfg=VISION, text_cfg=config["text_cfg"])).eval()


def imagenet(model, number):
    """Return prompts of ImageNet names, their ids and the places of ``a photo of a``."""
    names = open_clip.IMAGENET_CLASSNAMES[:number]
    ids = model.tokenize([f"a photo of a {name}." for name in names])
    return class_prompts(model, names), ids, torch.arange(1, 5).expand(number, 4)


@pytest.mark.slow
def test_vit_b_16():
    """Forward at 50 classes, backward at the first 12 of them."""
    model = tpt_lib.wrap(real_tower("ViT-B-16"))
    module = float64(model.module)
    prompts, ids, columns = imagenet(model, 50)
    assert text_engine(model, prompts) == "packed"
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
@pytest.mark.slow
def test_rn50():
    model = tpt_lib.wrap(real_tower("RN50"))
    prompts, ids, columns = imagenet(model, 5)
    assert text_engine(model, prompts) == "packed"
    want = plain_text(float64(model.module), ids, Put(columns, prompts.context.double()))
    assert largest(encode_prompts(model, prompts), want) <= 1e-5


@torch.no_grad()
@pytest.mark.slow
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
    """Return CLIP's tokens without the first."""
    ids = build("open_clip-vit").tokenize(texts)
    return torch.cat([ids[:, 1:], torch.zeros_like(ids[:, :1])], dim=1)


def with_a_small_end(texts):
    """Return CLIP's tokens with 5 as the end of text."""
    ids = build("open_clip-vit").tokenize(texts)
    return torch.where(ids == 49407, 5, ids)


ENGINES = (
    {"engine": "packed", "layout": "ragged"},
    {"engine": "packed", "layout": "padded"},
    {"engine": "full_length"},
)
OTHERS = {
    "no start token": lambda: tpt_lib.wrap(open_clip_model(), without_start),
    "pooled at an id": lambda: tpt_lib.wrap(
        open_clip_model("CustomTextCLIP", text={"pool_type": "eos", "eos_id": 5}), with_a_small_end
    ),
    "no projection": lambda: tpt_lib.wrap(open_clip_model("CustomTextCLIP", text={"proj_type": "none", "width": 16})),
    "an old config": lambda: tpt_lib.wrap(transformers_model(eos_token_id=2)),
    "one layer": lambda: tpt_lib.wrap(open_clip_model(text={"layers": 1})),
}


@pytest.mark.parametrize("where", slow_but(["middle"], list(WORDINGS)))
@pytest.mark.parametrize("kind", OTHERS)
def test_other_towers_are_packed_and_exact(kind, where):
    model, (before, touch, after) = OTHERS[kind](), WORDINGS[where]
    prompts = class_prompts(model, NAMES, template=prompt_text(before, "{}", touch, after))
    assert text_engine(model, prompts) == "packed"
    ids = model.tokenize([prompt_text(before, name, touch, after) for name in NAMES])
    specials = {"no start token": (0, 49407), "pooled at an id": (1, 5)}.get(kind, CLIP_SPECIALS)
    columns = context_columns(model.tokenize, ids, before, after, "", specials)
    want = plain_results(float64(model.module), ids, [columns], [prompts.context])
    for how in ENGINES:
        assert_same(features_and_gradient(model, prompts, **how), want)


ONE_TOKEN = ["cat", "dog", "red", "panda", "bird", "kite", "car", "tree", "blue", "X", "photo", "of", "the"]


def test_the_words_below_have_one_token_each():
    tokenize = build("open_clip-vit").tokenize
    assert [count(tokenize, word, CLIP_SPECIALS) for word in ONE_TOKEN] == [1] * len(ONE_TOKEN)


@pytest.mark.parametrize("kind", ["words", "gaussian", "class-specific", "free names"])
@given(data=st.data())
@pytest.mark.slow
def test_any_prompts_with_either_engine(kind, data):
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
        extra["context"] = gaussian_context(model, length, n_classes=len(names) if kind == "class-specific" else None)
        if not (before and after):
            before, after = ([], ["X"] * length) if after else (["X"] * length, [])
    if kind == "free names":
        extra["name_tokens"] = gaussian_context(model, draw(st.integers(1, 4)), n_classes=len(names), seed=1)
        classes = [["X"] * extra["name_tokens"].shape[1]] * len(names)
    prompts = class_prompts(model, names, template=template, **extra)
    assert text_engine(model, prompts) == "packed"

    leaves = [varied(prompts.context, () if shared and kind == "free names" else batch)]
    if prompts.name_tokens is not None:
        leaves.append(varied(prompts.name_tokens, batch))
    ids = model.tokenize([prompt_text(" ".join(before), " ".join(c), touch, " ".join(after), stop) for c in classes])
    columns = [context_columns(model.tokenize, ids, " ".join(before), " ".join(after), stop, CLIP_SPECIALS)]
    columns.append(torch.arange(len(classes[0])).expand(len(names), -1) + 1 + len(before))
    want = plain_results(plain_model(name), ids, columns, leaves, batch, kind == "class-specific")
    for how in ENGINES:
        features = encode_prompts(model, prompts, *leaves, **how)
        assert features.shape == (*batch, len(names), 16)
        assert largest(features, want[0]) <= 1e-5
        for got, plain in zip(gradients(features, leaves), want[1:], strict=True):
            assert got.numel() == 0 or relative(got, plain) <= 1e-4


def test_few_padded_groups_hold_names_of_very_different_lengths():
    """Neither is a short name padded to a long one, nor are there as many groups as lengths."""
    model = build("open_clip-vit")
    prompts = class_prompts(model, [" ".join(["cat"] * n) for n in [*range(1, 15), 55, 60]])
    packing = Packing.of(prompts, torch.arange(16), "padded")
    sizes = [grid.classes for grid in packing.grids]
    assert (len(sizes), sum(sizes)) == (2, 16)
    cells = sum(grid.tokens.numel() for grid in packing.grids)
    assert cells <= 3 * int(prompts.lengths.sum()) + 2 * packing.grids[0].tokens.numel() // packing.grids[0].rows
    want = features_and_gradient(model, prompts, engine="full_length")
    assert_same(features_and_gradient(model, prompts, layout="padded"), want)


def test_a_prefix_longer_than_all_names_is_padded_right():
    model = build("open_clip-vit")
    prompts = class_prompts(model, NAMES, context=gaussian_context(model, 40))
    want = features_and_gradient(model, prompts, engine="full_length")
    assert_same(features_and_gradient(model, prompts, layout="padded"), want)


@pytest.mark.parametrize("kind", ["words", "class-specific", "free names"])
def test_a_batch_is_pulled_back_together_as_one_by_one(kind):
    model = build("open_clip-vit")
    extra = {
        "words": {"template": "a photo of a {}, a type of pet."},
        "class-specific": {"context": gaussian_context(model, 3, n_classes=5)},
        "free names": {"name_tokens": gaussian_context(model, 2, n_classes=5)},
    }
    prompts = class_prompts(model, NAMES, **extra[kind])
    together, apart = (initial_of(model, prompts, layout=layout) for layout in ("padded", "ragged"))
    assert (together.together, apart.together) == (True, False)
    assert not initial_of(model, prompts, layout="padded", chunk=2).together
    upstream = torch.randn(4, *together.features.shape)
    for got, want in zip(together.gradients_of_each(upstream), apart.gradients_of_each(upstream), strict=True):
        assert got.shape == want.shape
        for one, other in zip(got, want, strict=True):
            assert relative(one, other) <= 1e-5


@pytest.mark.parametrize("kind", ["ragged", "padded"])
def test_a_mask_of_all_pairs_of_tokens_is_for_few_of_them(kind, monkeypatch):
    """Its size is the square of the number of tokens."""
    monkeypatch.setattr(tpt_lib.text.packing, "FEW", 20)
    prompts = class_prompts(build("open_clip-vit"), ["cat", *(f"cat {n}" for n in range(30))])
    few, many = (Packing.of(prompts, torch.arange(count), kind) for count in (2, 31))
    assert few.seen is not None
    assert many.seen is None
    assert (bool(few.grids), bool(many.grids)) == (False, kind == "padded")


def test_a_batch_of_contexts_in_a_float16_tower(layout):
    """Its positions are float32, as open_clip and OpenAI make it."""
    exact, module = build("open_clip-vit"), open_clip_model()
    open_clip.model.convert_weights_to_fp16(module)
    assert module.positional_embedding.dtype == torch.float32
    prompts = class_prompts(tpt_lib.wrap(module), NAMES)
    contexts = varied(prompts.context, (3,)).detach()
    want = encode_prompts(exact, class_prompts(exact, NAMES), contexts, engine="full_length")
    assert largest(encode_prompts(prompts.model, prompts, contexts, engine="packed", layout=layout), want) <= 0.005


@pytest.mark.parametrize("last", [False, True])
def test_masks_take_the_dtype_of_what_attends(last):
    prompts = class_prompts(build("open_clip-vit"), NAMES)
    ragged, padded = (Packing.of(prompts, prompts.lengths.argsort(), layout) for layout in ("ragged", "padded"))
    qkv = torch.randn(3, 1, len(ragged.ids), 32).half()
    want = attention(ragged, tuple(qkv.double()), 4, last=last)
    for packing in (padded, padded.unfused()):
        got = attention(packing, tuple(qkv), 4, last=last)
        assert got.dtype == torch.float16
        assert largest(got, want) <= 0.005


def test_a_padded_group_moves_to_a_device_as_a_whole():
    prompts = class_prompts(build("open_clip-vit"), NAMES)
    (grid,) = Packing.of(prompts, prompts.lengths.argsort(), "padded").grids
    moved = grid.to(torch.device("meta"))
    assert [each.device.type for each in (moved.tokens, moved.mask, moved.last)] == ["meta"] * 3


def test_padded_groups_without_a_prefix(layout):
    model = tpt_lib.wrap(open_clip_model(), without_start)
    prompts = class_prompts(model, NAMES, context=gaussian_context(model, 3, n_classes=5))
    assert prompts.prefix == 0
    want = features_and_gradient(model, prompts, engine="full_length")
    assert_same(features_and_gradient(model, prompts, engine="packed", layout=layout), want)

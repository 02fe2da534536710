"""The laws of ``encode_prompts``: classes, batches and chunks do not meet; several templates; what is refused."""

import copy
import dataclasses

import pytest
import torch
import torch.nn.functional as F
from oracles.tpt import plain_text
from support.cases import largest
from support.marking import slow_but
from support.simulated import to_simulated
from support.text_cases import (
    BOTH,
    NAMES,
    WORDINGS,
    assert_same,
    example,
    features_and_gradient,
    initial_of,
    plain_model,
    varied,
)
from support.zoo import TEXT, build, fresh

import tpt_lib
from tpt_lib import class_prompts, encode_prompts, gaussian_context
from tpt_lib.text import encode
from tpt_lib.text.encode import class_chunk


@BOTH
@pytest.mark.parametrize("others", [[0], [3, 1], [4, 3, 2, 1, 0], [2, 0, 2, 2, 1, 1]])
def test_a_class_does_not_depend_on_which_others_are_there(engine, others):
    model = build("open_clip-vit")
    everyone = encode_prompts(model, class_prompts(model, NAMES), engine=engine)
    some = encode_prompts(model, class_prompts(model, [NAMES[i] for i in others]), engine=engine)
    assert largest(some, everyone[others]) <= 1e-6


@BOTH
@pytest.mark.parametrize("where", WORDINGS)
def test_a_batch_of_contexts_gives_what_one_at_a_time_gives(engine, where):
    case = example("open_clip-vit", where)
    contexts = varied(case.prompts.context, (2, 3)).detach()
    features, gradient = features_and_gradient(case.model, case.prompts, contexts, engine=engine)
    upstream = torch.randn(features.shape, generator=torch.Generator().manual_seed(0))
    for i in range(2):
        for j in range(3):
            context = contexts[i, j].clone().requires_grad_()
            alone = encode_prompts(case.model, case.prompts, context, engine=engine)
            (alone_gradient,) = torch.autograd.grad(alone, context, upstream[i, j])
            assert_same((features[i, j], gradient[i, j]), (alone, alone_gradient), 1e-6)


@BOTH
def test_a_batch_of_contexts_with_the_same_names(engine):
    model = build("open_clip-vit")
    prompts = class_prompts(model, NAMES, name_tokens=gaussian_context(model, 2, n_classes=5))
    contexts = varied(prompts.context, (3,)).detach()
    got = encode_prompts(model, prompts, contexts, prompts.name_tokens, engine=engine)
    for features, context in zip(got, contexts, strict=True):
        assert largest(features, encode_prompts(model, prompts, context, engine=engine)) <= 1e-6


@BOTH
def test_a_batch_of_names_with_the_same_context(engine):
    model = build("open_clip-vit")
    prompts = class_prompts(model, NAMES, name_tokens=gaussian_context(model, 2, n_classes=5))
    names = varied(prompts.name_tokens, (3,)).detach()
    got = encode_prompts(model, prompts, None, names, engine=engine)
    for features, own in zip(got, names, strict=True):
        assert largest(features, encode_prompts(model, prompts, prompts.context, own, engine=engine)) <= 1e-6
    assert largest(got[0], got[1]) > 1e-4


@pytest.mark.parametrize("how", [{"engine": "packed"}, {"layout": "padded"}, {"engine": "full_length"}])
def test_a_batch_may_be_empty(how):
    model = build("open_clip-vit")
    assert encode_prompts(model, class_prompts(model, NAMES), torch.zeros(0, 4, 32), **how).shape == (0, 5, 16)


@pytest.mark.parametrize("chunk", slow_but([3], [1, 3]))
@BOTH
@pytest.mark.parametrize("where", WORDINGS)
def test_chunks_give_what_the_whole_gives(engine, where, chunk):
    case = example("open_clip-vit", where)
    contexts = varied(case.prompts.context, (2,)).detach()
    want = features_and_gradient(case.model, case.prompts, contexts, engine=engine)
    assert_same(features_and_gradient(case.model, case.prompts, contexts, engine=engine, chunk=chunk), want, 1e-6)
    initial, in_chunks = (initial_of(case.model, case.prompts, engine=engine, chunk=c) for c in (None, chunk))
    assert in_chunks is not initial
    upstream = torch.randn_like(initial.features)
    assert_same(*((text.features, *text.gradients(upstream)) for text in (in_chunks, initial)), 1e-6)


@BOTH
def test_a_chunk_bounds_what_the_graph_holds(engine):
    model = build("open_clip-vit")
    prompts = class_prompts(model, NAMES)

    def held(chunk):
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
            encode_prompts(model, prompts, prompts.context.clone().requires_grad_(), engine=engine, chunk=chunk)
        return sum(sizes)

    assert held(1) < 0.2 * held(None)


@pytest.mark.parametrize(("batch", "bound", "chunk"), [(1, 20, 5), (1, 19, 2), (2, 40, 5), (2, 39, 2), (2, 13, 1)])
def test_a_chunk_has_as_many_classes_as_fit_by_the_longest(batch, bound, chunk, monkeypatch):
    """After what they share, the prompts have 3, 4, 7, 3 and 3 tokens."""
    monkeypatch.setattr("tpt_lib.text.encode.TOKENS_A_GRAPH", bound)
    prompts = class_prompts(build("open_clip-vit"), NAMES)
    assert class_chunk(prompts, batch, None, full_length=False) == chunk


@pytest.mark.parametrize(("batch", "chunk"), [(0, 32), (1, 32), (3, 10), (32, 1), (33, 1)])
def test_a_chunk_of_full_length_prompts_has_32_rows_or_one_class(batch, chunk):
    prompts = class_prompts(build("open_clip-vit"), NAMES)
    assert class_chunk(prompts, batch, None, full_length=True) == chunk


def test_attention_is_fused_unless_asked_otherwise(monkeypatch):
    model, calls = build("open_clip-vit"), []
    encoder = encode.open_encoder(model, class_prompts(model, NAMES), layout="padded")
    fused = F.scaled_dot_product_attention
    monkeypatch.setattr(
        F, "scaled_dot_product_attention", lambda *args, **more: calls.append(args) or fused(*args, **more)
    )
    want = encoder(None, None)
    assert len(calls) == TEXT["layers"]
    assert largest(dataclasses.replace(encoder, fused=False)(None, None), want) <= 1e-6
    assert len(calls) == TEXT["layers"]


@pytest.mark.parametrize(
    ("batch", "bound", "chunk", "sizes"),
    [
        (1, 20, None, [5]),
        (1, 19, None, [3, 2]),
        (1, 7, None, [2, 2, 1]),
        (1, 5, None, [1, 2, 1, 1]),
        (1, 1, None, [1, 1, 1, 1, 1]),
        (2, 39, None, [3, 2]),
        (1, 19, 2, [2, 1, 1, 1]),
    ],
)
def test_passes_on_a_cpu_have_equal_shares_of_the_tokens_and_do_not_change_results(
    batch, bound, chunk, sizes, monkeypatch
):
    """After what they share, the prompts have 3, 3, 3, 4 and 7 tokens in order. A graph held in chunks is computed again."""
    model = build("open_clip-vit")
    passes, packed_features = [], encode.packed_features

    def counted(tower, packing, *tokens):
        passes.append(len(packing.ends))
        return packed_features(tower, packing, *tokens)

    def features_and_gradient():
        prompts = class_prompts(model, NAMES)
        context = prompts.context.expand(batch, -1, -1).clone().requires_grad_()
        features = encode_prompts(model, prompts, context, chunk=chunk)
        return features, *torch.autograd.grad(features[..., 0].sum(), context)

    want = features_and_gradient()
    monkeypatch.setattr(encode, "packed_features", counted)
    monkeypatch.setattr(encode, "FLOATS_A_PASS", bound * TEXT["width"])
    torch.testing.assert_close(features_and_gradient(), want, atol=1e-6, rtol=1e-5)
    assert passes == (sizes if chunk is None else [*sizes, *passes[len(sizes) :]])
    assert (len(passes) > len(sizes)) == (chunk is not None)
    encode_prompts(model, class_prompts(model, NAMES), layout="padded")
    assert passes[-1] == len(NAMES)


def test_an_accelerator_has_no_passes(simulated, monkeypatch):
    monkeypatch.setattr(encode, "FLOATS_A_PASS", 1)
    model = tpt_lib.wrap(to_simulated(fresh("open_clip-vit").module))
    encoder = encode.open_encoder(model, class_prompts(model, NAMES), layout="ragged")
    assert len(encoder.plan(1).parts) == 1


TEMPLATES = ["a photo of a {}.", "my {} here", "{}", "a drawing of the {}, a type of pet."]


@BOTH
@pytest.mark.parametrize("name", ["open_clip-vit", "transformers-clip"])
def test_several_templates_give_the_normalized_mean_of_each(name, engine):
    model, module = build(name), plain_model(name)
    rows = [model.tokenize([template.format(n) for n in NAMES]) for template in TEMPLATES]
    with torch.no_grad():
        mean = sum(plain_text(module, ids) for ids in rows) / len(rows)
    prompts = class_prompts(model, NAMES, template=TEMPLATES)
    got = encode_prompts(model, prompts, engine=engine)
    assert largest(got, mean / mean.norm(dim=-1, keepdim=True)) <= 1e-5
    assert got.dtype == torch.float32
    reordered = class_prompts(model, NAMES, template=TEMPLATES[::-1])
    assert largest(encode_prompts(model, reordered, engine=engine), got) <= 1e-6
    assert largest(encode_prompts(model, class_prompts(model, NAMES, template=TEMPLATES[:1])), got) > 1e-3
    views = F.normalize(torch.randn(2, 4, 16), dim=-1)
    want = [tpt_lib.class_logits(model, v[:1], got)[0] for v in views]
    torch.testing.assert_close(tpt_lib.zero_shot_predict(model, prompts, views).logits, torch.stack(want).detach())


def test_one_template_in_a_list_is_one_template():
    model = build("open_clip-vit")
    listed, alone = (
        class_prompts(model, NAMES, template=TEMPLATES[1:2]),
        class_prompts(model, NAMES, template=TEMPLATES[1]),
    )
    assert listed.others == ()
    assert torch.equal(encode_prompts(model, listed, listed.context), encode_prompts(model, alone))


@pytest.mark.usefixtures("no_shape_checks")
def test_several_templates_take_no_context_and_cannot_be_tuned():
    model = build("open_clip-vit")
    prompts = class_prompts(model, NAMES, template=TEMPLATES[:3])
    for given in ({"context": prompts.context}, {"name_tokens": torch.zeros(5, 1, 32)}):
        with pytest.raises(
            ValueError, match="encode_prompts: these prompts have 3 templates, so they take no context or name tokens"
        ):
            encode_prompts(model, prompts, **given)
        with pytest.raises(
            ValueError, match=r"class_prompts: a context or name tokens belong to one template, but got 3"
        ):
            class_prompts(model, NAMES, template=TEMPLATES[:3], **given)
    for steps in (0, 1):
        with pytest.raises(
            ValueError,
            match=r"tune_prompt: tunes the context of one template, but these prompts have 3; build them with one",
        ):
            tpt_lib.tune_prompt(model, prompts, torch.eye(16)[:4], steps=steps)


@pytest.mark.parametrize("templates", [["a {}."], ["a {}.", "my {}", "{}"]])
def test_a_copy_of_a_model_is_refused_and_the_advice_works(templates):
    model = build("open_clip-vit")
    prompts, copied = class_prompts(model, NAMES, template=templates), copy.deepcopy(model)
    want = encode_prompts(model, prompts)
    with pytest.raises(
        ValueError, match=r"if this model is a copy of that one, use dataclasses.replace\(prompts, model=model\)"
    ):
        encode_prompts(copied, prompts)
    with pytest.raises(ValueError, match=r"dataclasses.replace\(prompts, model=model\)"):
        tpt_lib.zero_shot_predict(copied, prompts, torch.eye(16)[:2])
    moved = dataclasses.replace(prompts, model=copied)
    assert torch.equal(encode_prompts(copied, moved), want)
    found = tpt_lib.zero_shot_predict(copied, moved, torch.eye(16)[:2])
    assert torch.equal(found.logits, tpt_lib.zero_shot_predict(model, prompts, torch.eye(16)[:2]).logits)


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
        rf"name_tokens must be floats of shape \(\*batch, 5, 2, 32\), but got {float32} of shape \(5, 1, 32\)":
            lambda: encode_prompts(model, free, name_tokens=torch.zeros(5, 1, 32)),
        "name_tokens were given, but these prompts have no free name tokens":
            lambda: encode_prompts(model, prompts, name_tokens=torch.zeros(5, 1, 32)),
        "these prompts were made for another model": lambda: encode_prompts(other, prompts),
        "layout must be one of auto, ragged, padded, but got 'tight'":
            lambda: encode_prompts(model, prompts, layout="tight"),
        "chunk must be at least 1, but got 0": lambda: encode_prompts(model, prompts, chunk=0),
        "this model has no packed engine: the pooled position is 'last', not the end of the text":
            lambda: encode_prompts(siglip, class_prompts(siglip, ["cat"]), engine="packed"),
    }.items():  # fmt: skip
        with pytest.raises(ValueError, match=f"^encode_prompts: {message}"):
            call()


def test_a_cocoop_prompt_needs_an_image():
    model = build("open_clip-vit")
    net = tpt_lib.prompts.MetaNet(torch.zeros(2, 16), torch.zeros(2), torch.zeros(32, 2), torch.ones(32))
    prompts = class_prompts(model, NAMES, context=tpt_lib.prompts.LearnedPrompt(torch.zeros(4, 32), net))
    with pytest.raises(ValueError, match="a CoCoOp context depends on the image"):
        encode_prompts(model, prompts)
    context = tpt_lib.prompts.conditional_context(prompts, torch.zeros(16))
    words = class_prompts(model, NAMES, context=torch.ones(4, 32))
    assert torch.equal(encode_prompts(model, prompts, context), encode_prompts(model, words))


@pytest.mark.parametrize("function", [encode_prompts, initial_of])
def test_an_unknown_engine_is_refused(function, no_shape_checks):
    model = build("open_clip-vit")
    with pytest.raises(ValueError, match="engine must be one of auto, packed, full_length, but got 'quick'"):
        function(model, class_prompts(model, NAMES), engine="quick")


def test_names_are_no_prompts(no_shape_checks):
    with pytest.raises(TypeError, match="encode_prompts: prompts must be what class_prompts"):
        encode_prompts(build("open_clip-vit"), NAMES)

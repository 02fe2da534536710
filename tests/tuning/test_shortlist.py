"""Tuning few of many classes, against a plain program that masks the logits of all."""

import functools
import itertools

import pytest
import torch
import torch.nn.functional as F
from support.cases import meta_net, model_of, views_for
from support.marking import slow_but
from support.zoo import fresh

import tpt_lib
from tpt_lib import class_logits, class_prompts, encode_prompts, marginal_entropy, select_confident, tune_prompt
from tpt_lib.prompts.contexts import LearnedPrompt
from tpt_lib.text.encode import open_encoder
from tpt_lib.tuning import shortlist
from tpt_lib.tuning.shortlist import Shortlist, some_prompts

NAMES = ["cat", "red panda", "kite (bird of prey)", "dog", "tabby", "car", "blue bird", "tree", "photo of a car"]
KINDS = {
    "words": lambda model: {},
    "around": lambda model: {"template": "a photo of a {}, a type of pet."},
    "class-specific": lambda model: {"context": 2 * tpt_lib.gaussian_context(model, 4, n_classes=9)},
    "free names": lambda model: {"name_tokens": tpt_lib.gaussian_context(model, 2, n_classes=9)},
    "cocoop": lambda model: {"context": LearnedPrompt(tpt_lib.gaussian_context(model, 4), meta_net())},
}


def setting(kind, images=2, number=20):
    model = model_of()
    prompts = class_prompts(model, NAMES, **KINDS[kind](model))
    with torch.no_grad():
        text = encode_prompts(model, prompts, prompts.context).double()
    return model, prompts, views_for(text, images * number).unflatten(0, (images, number))


def plain(model, prompts, views, count, steps, lr):
    """Tune one image with the full-length engine on all classes, whose logits are masked to those of the shortlist."""
    context = prompts.context
    if prompts.meta_net is not None:
        context = context + prompts.meta_net(views[0])
    start = [context] if prompts.name_tokens is None else [context, prompts.name_tokens]
    leaves = [token.clone().requires_grad_() for token in start]

    def text_of(tokens):
        return encode_prompts(model, prompts, *tokens, engine="full_length")

    with torch.no_grad():
        initial = text_of(start)
    logits = class_logits(model, views, initial)
    kept = select_confident(logits)
    likely = logits[[0, *kept.tolist()]].softmax(dim=-1).max(dim=0).values
    listed = likely.argsort(descending=True)[:count].sort().values
    here = torch.zeros(len(NAMES), dtype=torch.bool).index_fill(0, listed, True)
    optimizer, losses = torch.optim.SGD(leaves, lr=lr), []
    for step in range(steps + 1):
        text = torch.where(here[:, None], text_of(leaves), initial)
        loss = marginal_entropy(class_logits(model, views[kept], text))
        losses.append(loss.detach())
        if step < steps:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return [leaf.detach() for leaf in leaves], text.detach(), torch.stack(losses), listed


STEPS_AND_LAYOUTS = slow_but([(1, "padded"), (3, "ragged")], list(itertools.product([1, 3], ["ragged", "padded"])))


@pytest.mark.parametrize(("steps", "layout"), STEPS_AND_LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_shortlist_is_the_plain_method_with_masked_logits(kind, steps, layout):
    model, prompts, views = setting(kind)
    options = {"steps": steps, "lr": 0.01, "optimizer": torch.optim.SGD, "shortlist": 3, "layout": layout}
    tuned = tune_prompt(model, prompts, views, **options)
    for i in range(2):
        tokens, text, losses, listed = plain(model, prompts, views[i], 3, steps, 0.01)
        assert tuned.shortlist[i].tolist() == listed.tolist()
        torch.testing.assert_close(tuned.context[i], tokens[0], atol=1e-5, rtol=1e-4)
        if len(tokens) > 1:
            torch.testing.assert_close(tuned.name_tokens[i], tokens[1], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(tuned.text_features[i], text, atol=1e-5 * steps, rtol=0)  # rounding adds up
        torch.testing.assert_close(tuned.losses[i], losses, atol=1e-5, rtol=1e-4)
        others = [k for k in range(9) if k not in listed]
        assert torch.equal(tuned.text_features[i, others], tuned.initial_features[i, others])
    alone = tune_prompt(model, prompts, views[1], **options)
    assert alone.text_features.shape == (9, 16)
    torch.testing.assert_close(alone.context, tuned.context[1], atol=1e-6, rtol=1e-5)
    assert torch.equal(alone.shortlist, tuned.shortlist[1])


@pytest.mark.parametrize("kind", KINDS)
def test_a_shortlist_of_all_classes_is_exact(kind):
    model, prompts, views = setting(kind)
    options = {"steps": 2, "lr": 0.01, "optimizer": torch.optim.SGD}
    got, want = (tune_prompt(model, prompts, views, shortlist=s, **options) for s in (9, None))
    torch.testing.assert_close(got.context, want.context, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(got.text_features, want.text_features, atol=1e-5, rtol=0)
    assert want.shortlist is None


def test_classes_that_are_not_listed_keep_their_own_tokens():
    """AdamW's weight decay moves every element that it is given."""
    model, prompts, views = setting("class-specific", images=1)
    tuned = tune_prompt(model, prompts, views[0], shortlist=3)
    others = [k for k in range(9) if k not in tuned.shortlist]
    assert torch.equal(tuned.context[others], prompts.context[others])
    assert not torch.equal(tuned.context[tuned.shortlist], prompts.context[tuned.shortlist])


def test_a_prediction_with_a_shortlist_costs_no_graph_over_all_classes(monkeypatch):
    model, prompts, views = setting("words")
    tpt_lib.tpt_predict(model, prompts, views[0], shortlist=2)
    assert not [key for key in prompts.cache._kept if key[0] and key[0][0] == "graph"]
    sizes, forward = [], tpt_lib.text.encode.packed_features

    def counted(tower, packing, *tokens):
        sizes.append(len(packing.ends))
        return forward(tower, packing, *tokens)

    monkeypatch.setattr(tpt_lib.text.encode, "packed_features", counted)
    found = tpt_lib.tpt_predict(model, prompts, views, shortlist=2)
    assert sizes == [2] * 4, "a forward before the step and one after it, for each image"
    assert found.logits.shape == (2, 9)


def test_views_of_different_numbers_and_steps_that_are_reported():
    model, prompts, views = setting("class-specific")
    calls = []

    def growing(logits):
        calls.append(1)
        return torch.arange(1 + len(calls))

    seen = []
    tuned = tune_prompt(
        model, prompts, views, select=growing, shortlist=3, steps=2, on_step=lambda *call: seen.append(call)
    )
    assert tuned.selected.tolist() == [[0, 1, -1], [0, 1, 2]]
    assert [context.shape for _, _, context in seen] == [(2, 9, 4, 32)] * 2
    torch.testing.assert_close(seen[-1][2], tuned.context)


def test_a_shortlist_that_diverges_leaves_the_prompt_as_it_was():
    model = fresh("open_clip-vit")
    model.module.half()
    prompts, views = class_prompts(model, NAMES), F.normalize(torch.randn(10, 16), dim=-1)
    with pytest.warns(UserWarning, match="not finite in 1 of 1 cases"):
        tuned = tune_prompt(model, prompts, views, lr=1e5, shortlist=4)
    assert torch.equal(tuned.context, prompts.context)
    assert torch.equal(tuned.text_features, tuned.initial_features)


def test_a_shortlist_from_another_start():
    model, prompts, views = setting("words")
    start = tpt_lib.gaussian_context(model, 4)
    options = {"steps": 2, "lr": 0.01, "optimizer": torch.optim.SGD, "shortlist": 3}
    got = tune_prompt(model, prompts, views, context=start, **options)
    want = tune_prompt(model, class_prompts(model, NAMES, context=start), views, **options)
    assert torch.equal(got.shortlist, want.shortlist)
    torch.testing.assert_close(got.context, want.context)
    torch.testing.assert_close(got.initial_features, want.initial_features)
    torch.testing.assert_close(got.losses, want.losses)


def test_a_shortlist_of_one_class():
    model, prompts, views = setting("class-specific", images=1)
    tuned = tune_prompt(model, prompts, views[0], shortlist=1)
    moved = (tuned.context != prompts.context).flatten(1).any(dim=1)
    assert moved.nonzero()[:, 0].tolist() == tuned.shortlist.tolist()


@pytest.mark.parametrize("kind", ["words", "class-specific", "free names"])
def test_some_prompts_are_those_of_some_names(kind):
    _, prompts, _ = setting(kind)
    some = some_prompts(prompts, torch.tensor([6, 1]))
    alone = class_prompts(prompts.model, [NAMES[6], NAMES[1]])
    assert some.names == (NAMES[6], NAMES[1])
    if kind == "words":
        assert all(torch.equal(getattr(some, part), getattr(alone, part)) for part in ("ids", "roles", "lengths"))
    with torch.no_grad():
        torch.testing.assert_close(encode_prompts(prompts.model, some), encode_prompts(prompts.model, prompts)[[6, 1]])


@pytest.mark.parametrize("layout", ["ragged", "padded"])
def test_a_shortlist_has_the_layout_of_its_encoder(layout):
    model, prompts, _ = setting("words")
    listed = Shortlist.of(open_encoder(model, prompts, layout=layout), torch.tensor([[0, 2], [1, 3]]))
    assert [encoder.layout for encoder in listed.encoders] == [layout] * 2


@pytest.mark.parametrize("more", [0, 1])
def test_a_graph_that_is_too_large_is_computed_again(more, monkeypatch):
    model, prompts, _ = setting("words")
    listed = Shortlist.of(open_encoder(model, prompts), torch.tensor([[0, 1, 2]] * 2))
    contexts = torch.stack([prompts.context, 2 * prompts.context]).requires_grad_()
    want = listed(contexts, None)
    (gradient,) = torch.autograd.grad(want.square()[..., 0].sum(), contexts)
    again, real = [], shortlist.checkpoint
    monkeypatch.setattr(shortlist, "checkpoint", lambda *args, **options: again.append(1) or real(*args, **options))
    tokens = sum(int(prompts.lengths[i]) - prompts.prefix for i in (0, 1, 2)) * 2
    monkeypatch.setattr(shortlist, "TOKENS_A_GRAPH", tokens - more)
    found = listed(contexts, None)
    assert len(again) == 2 * more
    torch.testing.assert_close(found, want)
    torch.testing.assert_close(torch.autograd.grad(found.square()[..., 0].sum(), contexts)[0], gradient)


def spread(text):
    return text.std()


def test_a_regularizer_must_say_that_it_works_on_a_part():
    model, prompts, views = setting("words")
    with pytest.raises(ValueError, match=r"the regularizer spread is a function .* set spread.works_on_part = True"):
        tune_prompt(model, prompts, views, regularizer=functools.partial(spread), shortlist=3)
    seen = []

    def partial_spread(text):
        seen.append(tuple(text.shape))
        return text.std()

    partial_spread.works_on_part = True
    tune_prompt(model, prompts, views, regularizer=partial_spread, shortlist=3)
    assert set(seen) == {(3, 16)}


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize("value", [0, -1, 10, True, 2.0, "all"])
def test_a_bad_number_of_classes(value):
    model, prompts, views = setting("words")
    with pytest.raises(ValueError, match=r"shortlist must be an int from 1 to the number of classes, 9, .* but got"):
        tpt_lib.tpt_predict(model, prompts, views, shortlist=value)

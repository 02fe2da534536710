"""DynaPrompt against a plain program."""

import functools
import itertools

import pytest
import torch
from oracles.online import plain_dynaprompt
from oracles.tpt import Put, float64, plain_text
from support.marking import slow_but
from support.prompting import saying
from support.streams import CLASSES, close, stream_of

from tpt_lib import class_prompts
from tpt_lib.methods import dynaprompt, fold, stream
from tpt_lib.methods.dynaprompt import DynapromptState, _chosen


@functools.cache
def plainly(count=12, number=12, **settings):
    model, prompts, images, _ = stream_of(count, number)
    module, columns = float64(model.module), torch.tensor([[1, 2, 3, 4]] * len(CLASSES))

    def text_of(context):
        return plain_text(module, prompts.ids, Put(columns, context))

    return plain_dynaprompt(images, text_of, prompts.context, 100.0, **settings)


@pytest.mark.parametrize(
    ("rule", "size"), slow_but([("intended", 2)], list(itertools.product(["intended", "released"], [1, 2, 5])))
)
def test_as_the_plain_program(rule, size):
    """More images than prompts, so that prompts start again."""
    model, prompts, images, _ = stream_of(12)
    want, _ = plainly(rule=rule, size=size)
    close(stream(dynaprompt(rule=rule, size=size), model, prompts, images), want, atol=1e-2)


@pytest.mark.slow
def test_the_stream_is_not_trivial():
    """Images choose one prompt and several, and the rules differ."""
    intended, released = (plainly(rule=rule, size=5)[1] for rule in ("intended", "released"))
    assert len({len(chosen) for chosen in intended}) > 1
    assert len({len(chosen) for chosen in released}) > 1
    assert intended != released


@pytest.mark.slow
def test_one_view():
    model, prompts, images, _ = stream_of(8, 1)
    want, _ = plainly(8, 1, size=3)
    close(stream(dynaprompt(size=3), model, prompts, images), want, atol=1e-2)


def test_its_settings():
    model, prompts, images, _ = stream_of(6, 12)
    want, _ = plainly(6, 12, size=3, lr=1e-3, fraction=0.5)
    close(stream(dynaprompt(size=3, lr=1e-3, fraction=0.5), model, prompts, images), want, atol=1e-2)


@pytest.mark.parametrize(("rule", "size"), [("intended", 4), ("intended", 40), ("released", 40)])
def test_the_first_image_has_equal_prompts(rule, size):
    """Only the oldest is tuned, whatever rounding says of the others, and the others stay."""
    model, prompts, images, _ = stream_of(1)
    state = fold(dynaprompt(rule=rule, size=size), model, prompts, images)
    assert state.uses.tolist() == [1] + [0] * (size - 1)
    assert state.order.tolist() == [*range(1, size), 0]
    assert state.residuals[0].abs().max() == pytest.approx(5e-3, rel=1e-2)
    assert not state.residuals[1:].any()


def test_what_is_not_chosen_decays():
    model, prompts, images, _ = stream_of(2)
    first, second = (fold(dynaprompt(size=8), model, prompts, images[:n]) for n in (1, 2))
    assert second.uses[:2].tolist() == [1, 1]
    torch.testing.assert_close(second.residuals[0], (1 - 5e-3 * 0.01) * first.residuals[0])


def chosen(rule, e, d, oldest=0, residuals=None):
    """The other views' largest logits are 0, -7, -14, … on average, as two views and as three have it."""
    size = len(e)
    order = torch.tensor([oldest, *(j for j in range(size) if j != oldest)])
    residuals = torch.arange(size) if residuals is None else torch.tensor(residuals)
    state = DynapromptState(residuals.float()[:, None, None], torch.zeros(size).long(), order)
    plain, others = torch.tensor(d)[:, None], -7.0 * torch.arange(size)[:, None]
    found = []
    for spread in ([0.0], [-1.0, 1.0]):
        largest = torch.cat([plain + others, others + torch.tensor(spread)], dim=1)
        doubts = torch.tensor(e)[:, None] + torch.tensor([0.0, *spread])
        found.append(_chosen(rule, state, doubts, largest).nonzero().squeeze(1).tolist())
    assert found[0] == found[1]
    return found[0]


def test_the_intended_rule_by_hand():
    assert chosen("intended", [3.0, 2.0, 4.0, 1.0], [2.0, 3.0, 9.0, 1.0]) == [0, 1]
    assert chosen("intended", [1.0, 1.0], [2.0, 9.0]) == [0], "an equal entropy is not lower"
    assert chosen("intended", [1.0, 0.5], [2.0, 2.0]) == [0], "an equal difference is not larger"


@pytest.mark.parametrize("rule", ["intended", "released"])
def test_rounding_does_not_decide_between_equal_prompts(rule):
    assert chosen(rule, [1.0, 0.5, 0.5], [2.0, 9.0, 9.0], residuals=[0, 0, 0]) == [0]
    assert chosen("intended", [1.0, 0.5, 2.0], [2.0, 9.0, 1.0], residuals=[0, 1, 1]) == [0, 1, 2]


def test_the_released_rule_by_hand():
    """E = 2, 0, 1, 3; D = 2, 1, 0, 3; the oldest, 1, is at place 2 of E: J = {3} and {2, 1} have nothing in common."""
    assert chosen("released", [3.0, 2.0, 4.0, 1.0], [2.0, 3.0, 9.0, 1.0], oldest=1) == [1]
    # E = 3, 2, 1, 0; D = 0, 1, 2, 3; the oldest, 2, is at place 1: J = {1, 0} and {0} share 0, and E[0] is 3
    assert chosen("released", [1.0, 2.0, 3.0, 4.0], [9.0, 8.0, 7.0, 6.0], oldest=2) == [2, 3]
    # the oldest is last in E, so E from the last place on is the oldest itself: E[0] is 1
    assert chosen("released", [1.0, 2.0], [9.0, 1.0], oldest=0) == [0, 1]
    # equal entropies stay in the order of the prompts, which is that of D: J = {21, ...} and {0, ..., 19}
    assert chosen("released", [1.0] * 40, [40.0 - j for j in range(40)], oldest=20) == [20]


def test_of_equally_certain_views_the_first_is_in_the_loss():
    model, prompts, certain = saying([[0.75, 0.25, 0.0, 0.0], *[[0.25, 0.75, 0.0, 0.0]] * 39])
    _, _, doubtful = saying([[0.75, 0.25, 0.0, 0.0], *[[0.25, 0.25, 0.25, 0.25]] * 39])
    method = dynaprompt(size=1, fraction=0.01)
    found, want = (fold(method, model, prompts, [features]).residuals for features in (certain, doubtful))
    assert torch.equal(found, want)
    assert found.any()


def test_a_prompt_that_starts_again_is_used_once():
    model, prompts, images, _ = stream_of(3)
    state = fold(dynaprompt(size=1), model, prompts, images)
    assert state.uses.tolist() == [1]
    assert not state.residuals.requires_grad


def test_in_inference_mode():
    model, prompts, images, _ = stream_of(3)
    method = dynaprompt(size=2)
    want = [one.logits for one in stream(method, model, prompts, images)]
    with torch.inference_mode():
        found = [one.logits for one in stream(method, model, prompts, images.clone())]
    assert all(torch.equal(a, b) for a, b in zip(found, want, strict=True))


def test_the_prediction_tells_that_it_was_tuned():
    model, prompts, images, _ = stream_of(1)
    assert bool(next(stream("dynaprompt", model, prompts, images)).tuned)


@pytest.mark.usefixtures("no_shape_checks")
def test_settings_out_of_range():
    with pytest.raises(ValueError, match="dynaprompt: size must be at least 1 and fraction above 0 and at most 1"):
        dynaprompt(size=0)
    with pytest.raises(ValueError, match="dynaprompt: size must be at least 1 and fraction above 0 and at most 1"):
        dynaprompt(fraction=0.0)
    with pytest.raises(ValueError, match=r"fraction above 0 and at most 1, but got 12 and 1\.5"):
        dynaprompt(fraction=1.5)
    with pytest.raises(ValueError, match=r"dynaprompt: rule must be one of \('intended', 'released'\), but got 'both'"):
        dynaprompt(rule="both")


def test_all_views_and_twelve_prompts_are_in_range():
    model, prompts, _, _ = stream_of(1)
    assert dynaprompt(fraction=1.0).init(model, prompts).order.tolist() == list(range(12))


def test_several_templates_are_refused():
    model, _, _, _ = stream_of(1)
    prompts = class_prompts(model, CLASSES, template=["a {}.", "the {}."])
    with pytest.raises(ValueError, match="dynaprompt: tunes the context of one template"):
        dynaprompt().init(model, prompts)

"""R-TPT against a plain program, with few views, and what the released code does otherwise."""

import pytest
import torch
from oracles.followers import confident, plain_reliability, plain_tuning
from oracles.tpt import plain_entropy
from support.prompt_tuning import plain_case

from tpt_lib.methods import rtpt_predict


def plain_rtpt(case, number, steps=1, fraction=0.1, **weights):
    logits = case.logits(case.text)[:number]
    kept = confident(logits, fraction)

    def loss(text):
        return plain_entropy(case.logits(text)[kept].softmax(dim=-1)).mean()

    text, _ = plain_tuning(case.text_of, case.context, loss, steps, 5e-3, 0.01)
    return plain_reliability(case.views[:number], **weights) @ case.logits(text)[:number]


@pytest.mark.parametrize("number", [1, 2, 10, 20, 21, 40])
def test_as_the_plain_program(number):
    """Also with twenty views or fewer, where the released code fails."""
    case = plain_case()
    found = rtpt_predict(case.model, case.prompts, case.views[:number])
    torch.testing.assert_close(found.logits.double(), plain_rtpt(case, number), atol=2e-3, rtol=0)


@pytest.mark.parametrize("neighbors", [1, 5])
def test_its_settings(neighbors):
    case = plain_case()
    settings = {"neighbors": neighbors, "temperature": 0.1}
    found = rtpt_predict(case.model, case.prompts, case.views, steps=3, fraction=0.4, **settings)
    torch.testing.assert_close(found.logits.double(), plain_rtpt(case, 40, 3, 0.4, **settings), atol=2e-3, rtol=0)
    assert not torch.allclose(
        found.logits, rtpt_predict(case.model, case.prompts, case.views, steps=3).logits, atol=1e-2
    )


def test_reliable_views_count_more():
    case = plain_case()
    views = torch.cat([case.views[:3].repeat_interleave(8, dim=0), -case.views[3:4]])
    near = rtpt_predict(case.model, case.prompts, views, steps=0)
    without = rtpt_predict(case.model, case.prompts, views[:-1], steps=0)
    torch.testing.assert_close(near.logits, without.logits, atol=1e-2, rtol=0)


@pytest.mark.parametrize(("copies", "neighbors"), [(2, 3), (20, 3), (2, 7)])
def test_the_released_diagonal_also_drops_duplicates(copies, neighbors):
    """It leaves out cosines of 1 or more: here all of a view's copies, or none, as rounding has it. A view with too few others
    left has the score -2."""
    case = plain_case()
    base = torch.tensor([[1.0] + [0.0] * 15, [0.6, 0.8] + [0.0] * 14])  # cosines that are exactly 1 in float32
    views = torch.cat([base[:1].expand(copies, -1), base[1:], case.views[:5]])
    exact, released = (
        rtpt_predict(case.model, case.prompts, views, steps=0, neighbors=neighbors, temperature=1.0, diagonal=diagonal)
        for diagonal in ("exact", "released")
    )
    assert not torch.allclose(exact.logits, released.logits, atol=1e-3)
    scores = []
    for row in (views @ views.T).tolist():
        below = sorted((cosine for cosine in row if cosine < 1), reverse=True)[:neighbors]
        scores.append(sum(below) / neighbors if len(below) == neighbors else -2.0)
    weights = torch.tensor(scores).double().softmax(dim=0)
    want = weights @ (100 * views.double() @ case.text.T)
    torch.testing.assert_close(released.logits.double(), want, atol=1e-3, rtol=0)


def test_the_released_diagonal_with_nothing_left_weights_all_views_alike():
    case = plain_case()
    views = torch.tensor([[1.0] + [0.0] * 15]).expand(4, -1)
    found = rtpt_predict(case.model, case.prompts, views, steps=0, diagonal="released")
    torch.testing.assert_close(found.logits, found.zero_shot.logits, atol=1e-3, rtol=0)


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize("wrong", [{"neighbors": 0}, {"temperature": 0.0}, {"diagonal": "masked"}])
def test_settings_out_of_range(wrong):
    case = plain_case()
    message = "neighbors must be at least 1, temperature above 0 and diagonal one of .*, but got"
    with pytest.raises(ValueError, match=message):
        rtpt_predict(case.model, case.prompts, case.views, **wrong)


def test_the_logits_hold_no_graph_of_the_features():
    case = plain_case()
    assert not rtpt_predict(case.model, case.prompts, case.views.clone().requires_grad_()).logits.requires_grad

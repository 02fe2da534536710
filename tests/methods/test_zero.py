"""ZERO against a plain program, and its ties by hand."""

import pytest
import torch
from oracles.followers import plain_zero
from support.prompting import saying
from support.text_features import case_of

from tpt_lib import vote_predict
from tpt_lib.methods import zero_predict


@pytest.mark.parametrize("temperature", [0.0, 2**-10])
@pytest.mark.parametrize("number", [1, 2, 5, 20, 64])
def test_as_the_plain_program(number, temperature):
    model, prompts, features, text = case_of(12, number)
    found = zero_predict(model, prompts, features, temperature=temperature)
    for one, views in zip(found, features, strict=True):
        votes, winner = plain_zero(views, text, 100.0, temperature=temperature)
        if temperature and votes.topk(2).values.diff().abs() < 1e-3:
            continue  # a tie in float32 only
        assert one.index == winner
        torch.testing.assert_close(one.probs.double(), votes / votes.sum(), atol=1e-5, rtol=1e-4)
        assert len(one.selected) == max(1, int(0.3 * number))


def said(*winners, sure=0.9):
    """Views that vote for these classes of four, each less sure than the one before."""
    rows = []
    for place, winner in enumerate(winners):
        p = sure - 0.02 * place
        rows.append([p if k == winner else (1 - p) / 3 for k in range(4)])
    return saying(rows)


@pytest.mark.parametrize(("winners", "index"), [
    ((2, 1, 1, 0, 3, 3), 1),  # view 3 votes for no tied class, view 2 decides
    ((2, 1, 0, 3, 2, 1), 2),  # the first of the others that names a tied class
    ((1, 2, 0, 0, 3, 3), 1),  # none does: the likeliest on average, which is the most confident
    ((3, 0, 2, 2, 2, 2), 3),
    ((3, 3, 0, 0, 0, 0), 3),  # no tie: the others do not count
])  # fmt: skip
def test_ties(winners, index):
    model, prompts, features = said(*winners)
    found = zero_predict(model, prompts, features, fraction=0.34)
    assert found.selected.tolist() == [0, 1]
    assert found.index == index
    assert plain_zero(features, torch.eye(4, 5), model.logit_scale, fraction=0.34)[1] == index


def test_a_class_outside_the_tie_never_wins():
    """The released code's last resort can return one."""
    draw = torch.Generator().manual_seed(0)
    for _ in range(200):
        winners = torch.randint(4, (6,), generator=draw).tolist()
        found = zero_predict(*said(*winners), fraction=0.67)
        counts = [winners[:4].count(k) for k in range(4)]
        assert counts[found.index] == max(counts)


def test_it_differs_from_the_majority_vote_only_in_ties():
    model, prompts, features, _ = case_of(12, 64)
    zero, vote = zero_predict(model, prompts, features), vote_predict(model, prompts, features, fraction=0.3)
    shares = zero.probs.sort(dim=-1, descending=True).values
    clear = shares[:, 0] - shares[:, 1] > 0.06  # more than one vote of 19
    assert clear.any()
    assert torch.equal(zero.indices[clear], vote.indices[clear])


def test_classes_without_a_vote_are_ordered_by_their_probability():
    found = zero_predict(*saying([[0.6, 0.1, 0.25, 0.05]] * 4))
    assert found.logits.sort(descending=True).indices.tolist() == [0, 2, 1, 3]
    assert found.probs[0] > 0.9999
    torch.testing.assert_close(found.probs[1:], 1e-6 * torch.tensor([0.1, 0.25, 0.05]), atol=0, rtol=1e-3)


def test_a_view_with_two_best_classes_gives_each_half_a_vote():
    found = zero_predict(*saying([[0.05, 0.05, 0.9, 0.0], [0.4, 0.4, 0.2, 0.0]]), fraction=1.0)
    torch.testing.assert_close(found.probs, torch.tensor([0.25, 0.25, 0.5, 0.0]), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "wrong", [{"fraction": 0.0}, {"fraction": 1.1}, {"temperature": -1.0}, {"temperature": torch.inf}]
)
def test_settings_out_of_range(wrong):
    with pytest.raises(
        ValueError, match=r"zero_predict: fraction must be above 0 and at most 1, and temperature finite"
    ):
        zero_predict(*saying([[0.6, 0.1, 0.25, 0.05]]), **wrong)

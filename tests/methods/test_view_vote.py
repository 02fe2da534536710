"""The majority vote on cases computed by hand."""

import math

import torch
from support.cases import model_of
from support.prompting import saying, unit, words

from tpt_lib import average_predict, vote_predict


def test_by_hand():
    case = saying([[0.4, 0.35, 0.25, 0], [0.4, 0.35, 0.25, 0], [0, 0.1, 0.9, 0]])
    found = vote_predict(*case)
    assert found.index == 0
    assert average_predict(*case).index == 2
    torch.testing.assert_close(found.probs, (torch.tensor([2.0, 0, 1, 0]) + torch.tensor([0.8, 0.8, 1.4, 0]) / 3) / 4)
    confident = vote_predict(*case, fraction=0.4)
    assert (confident.index, confident.selected.tolist(), confident.tuned) == (2, [2], None)
    assert confident.zero_shot.index == 0


def test_a_tie_goes_to_the_likelier_class_then_to_the_lower_index():
    assert vote_predict(*saying([[0.5, 0.3, 0.2, 0], [0.1, 0.0, 0.9, 0]])).index == 2
    assert vote_predict(*saying([[0.1, 0.2, 0.6, 0.1], [0.1, 0.6, 0.2, 0.1]])).index == 1


def test_a_unanimous_vote():
    found = vote_predict(model_of(), words(), unit(1, 16).expand(63, -1))
    share = (63 + average_predict(model_of(), words(), unit(1, 16)).probs) / 64
    assert math.isclose(found.probs.max(), share.max(), rel_tol=1e-5)

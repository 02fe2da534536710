"""VTE against a plain program."""

import pytest
import torch
import torch.nn.functional as F
from oracles.followers import plain_vte
from support.text_features import case_of

from tpt_lib import class_logits
from tpt_lib.methods import vte_predict


@pytest.mark.parametrize("settings", [{}, {"fraction": 0.5}, {"fraction": 1.0}])
def test_as_the_plain_program(settings):
    model, prompts, features, text = case_of()
    found = vte_predict(model, prompts, features, **settings)
    fraction = settings.get("fraction", 0.1)
    for one, views in zip(found, features, strict=True):
        torch.testing.assert_close(one.logits.double(), plain_vte(views, text, 100.0, fraction), atol=1e-3, rtol=0)
        assert len(one.selected) == int(fraction * 64)


def test_the_mean_is_not_normalized():
    """The label is the same, the confidence is lower."""
    model, prompts, features, text = case_of(1)
    found = vte_predict(model, prompts, features[0], fraction=1.0)
    normalized = class_logits(model, F.normalize(features[0].mean(dim=0), dim=0)[None], text)[0]
    assert found.index == normalized.argmax()
    assert found.probs.max() < normalized.softmax(dim=0).max() - 1e-3

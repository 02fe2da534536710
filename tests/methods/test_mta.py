"""MTA against a plain program, and where its released code gives NaN."""

import pytest
import torch
import torch.nn.functional as F
from oracles.followers import plain_mta
from support.text_features import case_of

from tpt_lib.methods import mta_predict
from tpt_lib.methods.mean_shift import first_still, mean_shift, squared_distances


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 20, 64])
@pytest.mark.parametrize("spread", [0.005, 0.03, 0.3])
def test_as_the_plain_program(number, spread):
    """Also with fewer than five views, where 30% of the others are none."""
    model, prompts, features, text = case_of(3, number, spread=spread)
    found = mta_predict(model, prompts, features)
    for one, views in zip(found, features, strict=True):
        torch.testing.assert_close(one.logits.double(), plain_mta(views, text, 100.0), atol=3e-3, rtol=0)


@pytest.mark.parametrize(("lambda_q", "lambda_y"), [(0.0, 0.2), (4.0, 5.0), (20.0, 0.05)])
def test_its_settings(lambda_q, lambda_y):
    model, prompts, features, text = case_of(2, 20)
    found = mta_predict(model, prompts, features, lambda_q=lambda_q, lambda_y=lambda_y)
    want = torch.stack([plain_mta(views, text, 100.0, lambda_q, lambda_y) for views in features])
    torch.testing.assert_close(found.logits.double(), want, atol=3e-3, rtol=0)
    assert not torch.allclose(found.logits, mta_predict(model, prompts, features).logits, atol=1e-2)


@pytest.mark.parametrize("number", [2, 4, 64])
def test_identical_views_are_the_plain_image(number):
    """The views of a flat image have no spread, so no bandwidth."""
    model, prompts, features, _ = case_of(1, 1)
    found = mta_predict(model, prompts, features[0].expand(number, -1))
    torch.testing.assert_close(found.logits, found.zero_shot.logits, atol=1e-3, rtol=0)


def test_two_clusters_of_identical_views():
    """The bandwidths are those of identical views, and the other cluster is at no density: the mode stays where it is."""
    model, prompts, features, _ = case_of(1, 2)
    views = features[0].repeat_interleave(4, dim=0)
    found = mta_predict(model, prompts, views)
    torch.testing.assert_close(found.logits, found.zero_shot.logits, atol=1e-3, rtol=0)


def test_where_no_trusted_view_is_near_the_mode_it_stays():
    """The others agree, so they are trusted, but their density at the plain image is 0."""
    views = torch.eye(3)[torch.tensor([0, 1, 1, 1])]
    agreeing = torch.eye(2)[torch.tensor([0, 1, 1, 1])]
    assert torch.equal(mean_shift(views, agreeing, 40.0, 0.01), views[:1])


def test_weights_too_small_for_float32():
    """The plain image is an outlier that nothing trusts, far from the others: all weights are below 1e-19."""
    model, prompts, features, text = case_of(1, 20, spread=0.003)
    far = features[0, 0] - 2 * features[0].mean(dim=0)
    views = torch.cat([F.normalize(far, dim=-1)[None], features[0]])
    found = mta_predict(model, prompts, views, lambda_q=8.0)
    want = plain_mta(views, text, 100.0, lambda_q=8.0)
    torch.testing.assert_close(found.logits.double(), want, atol=3e-3, rtol=0)


@pytest.mark.parametrize("spread", [0.0, 1e-4, 0.3])
def test_distances_are_those_of_differences(spread):
    views = F.normalize(torch.randn(2, 1, 64) + spread * torch.randn(2, 9, 64), dim=-1)
    views[:, 3] = views[:, 2]
    plain = (views[:, :, None] - views[:, None]).double().square().sum(dim=-1)
    torch.testing.assert_close(squared_distances(views).double(), plain, rtol=1e-4, atol=1e-14)


def test_an_image_stops_at_its_first_small_change():
    """The value after that change is taken; without one, the last. A change of 1e-6 is not small."""
    small, large = torch.zeros(5), torch.ones(5)
    mixed = torch.tensor([[1.0, 1.0, 5e-7, 1.0, 1.0], [1e-6, 5e-7, 1.0, 1.0, 1.0]])
    changes = torch.stack([large, small, *mixed])
    values = F.pad(changes.cumsum(dim=1), (1, 0)).T[..., None, None]  # (6, 4, 1, 1)
    assert first_still(values).flatten().tolist() == [5, 1, 3, 2]


@pytest.mark.parametrize("wrong", [{"lambda_q": -1.0}, {"lambda_y": 0.0}])
def test_settings_out_of_range(wrong):
    model, prompts, features, _ = case_of(1, 4)
    with pytest.raises(ValueError, match="lambda_q must be 0 or more and lambda_y above 0, but got"):
        mta_predict(model, prompts, features, **wrong)


def test_a_prediction_holds_no_graph_of_the_features():
    model, prompts, features, _ = case_of(1, 4)
    found = mta_predict(model, prompts, features.requires_grad_())
    assert not found.logits.requires_grad
    assert not found.zero_shot.logits.requires_grad

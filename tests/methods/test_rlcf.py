"""RLCF against a plain program, with one reward and several, and rewards that do not fit."""

import pytest
import torch
from oracles.followers import confident, plain_policy_loss, plain_tuning
from support import rewards
from support.prompt_tuning import NAMES, plain_case

from tpt_lib import augment_views, class_prompts, encode_prompts, encode_views
from tpt_lib.methods import rlcf_predict
from tpt_lib.methods.reward import judge, reward_views
from tpt_lib.views.settings import ViewSettings


def rewards_of(*shape, seed=3):
    return 0.3 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def plain_rlcf(case, reward, steps=3, lr=7e-3, sampled=3, fraction=0.1):
    kept = confident(case.logits(case.text), fraction)

    def loss(text):
        return plain_policy_loss(case.logits(text)[kept], reward[kept], sampled)

    text, _ = plain_tuning(case.text_of, case.context, loss, steps, lr, 5e-4)
    return case.logits(text)[0]


@pytest.mark.parametrize(("steps", "sampled"), [(1, 3), (3, 3), (3, 2), (2, 9)])
def test_as_the_plain_program(steps, sampled):
    case, reward = plain_case(), rewards_of(40, 5)
    found = rlcf_predict(case.model, case.prompts, case.views, reward=reward, steps=steps, sampled=sampled)
    want = plain_rlcf(case, reward, steps, sampled=sampled)
    torch.testing.assert_close(found.logits.double(), want, atol=3e-3, rtol=0)
    assert not torch.allclose(found.logits, found.zero_shot.logits, atol=0.1)
    assert found.tuned


def test_several_rewards_are_a_weighted_mean():
    case, several = plain_case(), list(rewards_of(3, 40, 5))
    found = rlcf_predict(case.model, case.prompts, case.views, reward=several, weights=(10, 5, 3))
    mean = sum(w * one.clamp(min=0) for w, one in zip((10, 5, 3), several, strict=True)) / 18
    torch.testing.assert_close(found.logits.double(), plain_rlcf(case, mean), atol=3e-3, rtol=0)
    equal = rlcf_predict(case.model, case.prompts, case.views, reward=several)
    assert not torch.allclose(found.logits, equal.logits, atol=1e-2)
    one = rlcf_predict(case.model, case.prompts, case.views, reward=several[:1], weights=[7])
    same = rlcf_predict(case.model, case.prompts, case.views, reward=several[0])
    torch.testing.assert_close(one.logits, same.logits, atol=1e-4, rtol=0)


def test_a_weight_may_be_0():
    case, several = plain_case(), list(rewards_of(2, 40, 5))
    found = rlcf_predict(case.model, case.prompts, case.views, reward=several, weights=(0.5, 0))
    torch.testing.assert_close(found.logits.double(), plain_rlcf(case, several[0]), atol=3e-3, rtol=0)


def test_another_fraction():
    case, reward = plain_case(), rewards_of(40, 5)
    found = rlcf_predict(case.model, case.prompts, case.views, reward=reward, fraction=0.3)
    torch.testing.assert_close(found.logits.double(), plain_rlcf(case, reward, fraction=0.3), atol=3e-3, rtol=0)
    assert len(found.selected) == 12


def test_one_sampled_class_has_no_advantage():
    """So the gradient is 0, and only the weight decay of AdamW moves the context."""
    case, reward = plain_case(), rewards_of(40, 5)
    found = rlcf_predict(case.model, case.prompts, case.views, reward=reward, sampled=1, lr=1.0)
    torch.testing.assert_close(found.context, (1 - 5e-4) ** 3 * case.context, atol=0, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_rewards_of_other_precisions_are_taken_for_the_numbers_that_they_are(dtype):
    case, reward = plain_case(), rewards_of(40, 5).to(dtype).requires_grad_()
    found, want = (
        rlcf_predict(case.model, case.prompts, case.views, reward=r) for r in (reward, reward.detach().float())
    )
    assert torch.equal(found.logits, want.logits)
    assert reward.grad is None
    assert not found.loss_before.requires_grad


def test_a_second_clip_sees_the_same_boxes():
    """One with the same preprocessing is given the same views; another makes its own, at its size."""
    model, image = plain_case().model, torch.randint(256, (3, 40, 60), dtype=torch.uint8)
    pairs = [rewards.pair(NAMES), (model, class_prompts(model, NAMES))]
    views = augment_views(image, model.image_spec, n_views=3)
    found = judge(pairs, image, views, model.image_spec, ViewSettings(n_views=3))
    torch.testing.assert_close(found[0], rewards.by_hand(image, NAMES, n_views=3))
    torch.testing.assert_close(found[1], encode_views(model, views) @ encode_prompts(*pairs[1]).detach().T)
    own = reward_views(
        [rewards.second_clip().image_spec, model.image_spec], image, views, model.image_spec, ViewSettings()
    )
    assert own[0].shape[-2:] == (48, 48)
    assert own[1] is views


def test_a_batch_has_its_own_rewards():
    case = plain_case()
    views, reward = case.views.reshape(2, 20, -1), rewards_of(2, 20, 5)
    together = rlcf_predict(case.model, case.prompts, views, reward=reward)
    for i in range(2):
        alone = rlcf_predict(case.model, case.prompts, views[i], reward=reward[i])
        torch.testing.assert_close(together[i].logits, alone.logits, atol=1e-3, rtol=0)
        assert torch.equal(together[i].selected, alone.selected)


def test_the_reward_raises_what_it_likes():
    """A reward for one of the classes that it is asked about raises its probability."""
    case = plain_case()
    second = case.logits(case.text)[0].topk(2).indices[1]
    reward = torch.zeros(40, 5).index_fill(1, second, 1.0)
    found = rlcf_predict(case.model, case.prompts, case.views, reward=reward, sampled=5)
    assert found.probs[second] > found.zero_shot.probs[second]


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize(("given", "message"), [
    ({"reward": torch.zeros(40, 4)}, r"of all views to all classes, of shape \(40, 5\), but got \(40, 4\); encode_views"),
    ({"reward": torch.zeros(39, 5)}, r"of shape \(40, 5\), but got \(39, 5\)"),
    ({"reward": [torch.zeros(40, 5), torch.zeros(2, 40, 5)]}, r"but got \(2, 40, 5\)"),
    ({"reward": torch.full((40, 5), torch.nan)}, "reward must be finite floats, but got .* with NaN or infinite"),
    ({"reward": torch.zeros(40, 5, dtype=torch.long)}, "reward must be finite floats, but got torch.int64"),
    ({"reward": []}, "there are 0 rewards"),
    ({"reward": torch.zeros(40, 5), "weights": (1, 2)}, r"there are 1 rewards and weights \[1, 2\]"),
    ({"reward": torch.zeros(40, 5), "weights": (-1,)}, "none negative"),
    ({"reward": [torch.zeros(40, 5)] * 2, "weights": (-1, 2)}, "none negative"),
    ({"reward": torch.zeros(40, 5), "weights": (0,)}, "not all 0"),
    ({"reward": torch.zeros(40, 5), "sampled": 0}, "sampled must be at least 1, but got 0"),
])  # fmt: skip
def test_rewards_that_do_not_fit(given, message):
    case = plain_case()
    with pytest.raises(ValueError, match=message):
        rlcf_predict(case.model, case.prompts, case.views, **given)


def test_one_class():
    case = plain_case()
    prompts = class_prompts(case.model, ["cat"])
    assert rlcf_predict(case.model, prompts, case.views, reward=torch.ones(40, 1)).probs.tolist() == [1]

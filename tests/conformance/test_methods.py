"""Every registered method against the contract of episodic methods: f(model, prompts, features) -> Prediction.

A method that needs views gets views of a small model, the others their features. What holds here holds for every entry of the
registry, so that a new method needs no test of its own for it. Everything is run on the CPU and on a simulated accelerator.
"""

import functools
import math

import pytest
import torch
from support import rewards
from support.cases import state
from support.marking import slow_but
from support.prompting import NAMES, cocoop, coop, words
from support.simulated import to_simulated
from support.zoo import fresh

import tpt_lib
from tpt_lib import Prediction, class_prompts, encode_views, get_method, list_methods

METHODS = list_methods()
ON_FEATURES = [name for name in METHODS if "features" in get_method(name).needs]
TUNING_A_CONTEXT = {"tpt", "memo_clip", "ctpt", "otpt", "rtpt", "rlcf"}
TUNING = {*TUNING_A_CONTEXT, "tps"}
VOTES = {name for name in METHODS if not get_method(name).probabilities}
SOME = ["a photo of a {}.", "the {}.", "a {} in a video game."]


class Now:
    """Where the present test runs."""

    device = "cpu"


@pytest.fixture(autouse=True, params=["cpu", pytest.param("sim:0", marks=pytest.mark.slow)])
def device(request, monkeypatch):
    if request.param != "cpu":
        request.getfixturevalue("simulated")
    monkeypatch.setattr(Now, "device", request.param)


@functools.cache
def model_on(device):
    """At scale 30, where probabilities of views differ and entropies are not all 0."""
    found = fresh("open_clip-vit")
    with torch.no_grad():
        found.module.logit_scale.fill_(math.log(30))
    return found if device == "cpu" else tpt_lib.wrap(to_simulated(found.module))


def model():
    return model_on(Now.device)


def views_of(number=8, seed=0):
    return torch.randn(number, 3, 32, 32, generator=torch.Generator().manual_seed(seed)).to(Now.device)


def function_of(name):
    """The method's function, with few templates if it takes any."""
    function = get_method(name).predict
    return functools.partial(function, templates=SOME) if name == "template_ensemble" else function


def predict(name, prompts, views, **options):
    """The prediction of a method from the views of one image ``(N, 3, H, W)``, or of several where it takes a batch."""
    entry = get_method(name)
    given = views if "views" in entry.needs else encode_views(prompts.model, views)
    return function_of(name)(prompts.model, prompts, given, **needed(name, views, prompts), **options)


def needed(name, views, prompts):
    """The reward, for methods that need one: what a second model says of the same views."""
    if "reward" not in get_method(name).needs:
        return {}
    model, own = rewards.pair(prompts.names)
    flat = views.cpu().flatten(0, -4)
    larger = torch.nn.functional.interpolate(flat, model.image_spec.size).unflatten(0, views.shape[:-3])
    return {"reward": (encode_views(model, larger) @ tpt_lib.encode_prompts(model, own).detach().T).to(views.device)}


def close(one, other, atol=2e-3):
    torch.testing.assert_close(one, other, atol=atol, rtol=1e-4)


def test_the_suite_knows_every_need():
    known = {("features",), ("views",), ("features", "reward")}
    assert {get_method(name).needs for name in METHODS} <= known, "teach predict() the new need"


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("kind", [words, coop, cocoop])
def test_a_prediction_of_the_prompts_classes(name, kind):
    found = predict(name, kind(model()), views_of())
    assert isinstance(found, Prediction)
    assert found.names == tuple(NAMES)
    assert found.logits.shape == (4,)
    assert found.logits.dtype == torch.float32
    assert not found.logits.requires_grad
    assert (found.tuned is not None) == (name in TUNING)
    zero = tpt_lib.zero_shot_predict(model(), kind(model()), encode_views(model(), views_of()))
    if name not in ("zero_shot", "template_ensemble"):
        close(found.zero_shot.logits, zero.logits, atol=1e-4)
        assert not torch.allclose(found.logits, zero.logits, atol=1e-4), "the method does nothing"


@pytest.mark.parametrize("name", METHODS)
def test_the_order_of_random_views_changes_nothing(name):
    views, prompts = views_of(), words(model())
    mixed = torch.cat([views[:1], views[1:][torch.tensor([3, 0, 6, 1, 5, 2, 4])]])
    found, want = predict(name, prompts, mixed), predict(name, prompts, views)
    close(found.logits, want.logits)
    close(found.zero_shot.logits, want.zero_shot.logits, atol=1e-4)


@pytest.mark.parametrize("name", METHODS)
def test_the_order_of_classes_is_that_of_the_output(name):
    order = [2, 0, 3, 1]
    want = predict(name, words(model()), views_of()).logits
    got = predict(name, words(model(), [NAMES[i] for i in order]), views_of()).logits
    assert not torch.allclose(got, want, atol=0.1)
    close(got, want[order])


@pytest.mark.parametrize("name", ON_FEATURES)
@pytest.mark.parametrize("kind", slow_but([words, cocoop], [words, coop, cocoop]))
def test_a_batch_is_one_at_a_time(name, kind):
    prompts, views = kind(model()), views_of(15).reshape(3, 5, 3, 32, 32)
    options = [{}, {"fraction": 0.4}] if name in ("view_average", "view_vote") else [{}]
    for option in options:
        together = predict(name, prompts, views, **option)
        assert len(together) == 3
        for one, other in zip(views, together, strict=True):
            alone = predict(name, prompts, one, **option)
            close(alone.logits, other.logits)
            assert (alone.selected is None) == (other.selected is None)
            assert alone.selected is None or torch.equal(alone.selected, other.selected)
            assert (alone.before is None) == (other.before is None)
            close(alone.zero_shot.logits, other.zero_shot.logits)


@pytest.mark.parametrize("name", METHODS)
def test_the_model_and_the_tensors_are_untouched(name):
    """Bit for bit, with their gradients and what they require; ``test_untouched`` goes on from here, with faults."""
    prompts, views = words(model()), views_of()
    features = encode_views(model(), views)
    given = views if "views" in get_method(name).needs else features
    given.requires_grad_()
    tensors = [given, prompts.context, prompts.ids, prompts.roles]
    before = [(t.clone(), t.requires_grad, t._version) for t in tensors], state(model().module)
    more = needed(name, views.detach(), prompts)
    function_of(name)(model(), prompts, given, **more)
    for tensor, (value, needs_grad, version) in zip(tensors, before[0], strict=True):
        assert torch.equal(tensor, value)
        assert (tensor.requires_grad, tensor._version, tensor.grad) == (needs_grad, version, None)
    assert state(model().module) == before[1]


@pytest.mark.parametrize("name", ON_FEATURES)
@pytest.mark.parametrize("dtype", slow_but([torch.float16], [torch.float16, torch.bfloat16, torch.float64]))
def test_features_of_other_precisions(name, dtype):
    """They are taken for the numbers that they are: the result is that of the same numbers in float32."""
    prompts, features = words(model()), encode_views(model(), views_of()).to(dtype)
    call = functools.partial(function_of(name), model(), prompts, **needed(name, views_of(), prompts))
    found = call(features)
    assert found.logits.dtype == torch.float32
    close(found.logits, call(features.float()).logits, atol=1e-4)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("mode", slow_but([torch.inference_mode], [torch.no_grad, torch.inference_mode]))
def test_inside_the_callers_modes(name, mode):
    want = predict(name, words(model()), views_of())
    with mode():
        prompts = words(model())
        got = predict(name, prompts, views_of())
    close(got.logits, want.logits, atol=1e-4)
    assert not got.logits.requires_grad
    close(predict(name, prompts, views_of()).logits, want.logits, atol=1e-4)  # with what was kept inside


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("number", [1, 2])
def test_few_views(name, number):
    views = views_of(number)
    found = predict(name, words(model()), views)
    assert found.logits.isfinite().all()
    zero = tpt_lib.zero_shot_predict(model(), words(model()), encode_views(model(), views))
    if number == 1 and name not in ("template_ensemble", "rlcf"):
        assert found.index == zero.index, "one view can sharpen the prediction, not turn it"


@pytest.mark.parametrize("name", METHODS)
def test_identical_views_give_what_one_gives(name):
    alone = predict(name, words(model()), views_of(1))
    many = predict(name, words(model()), views_of(1).expand(8, -1, -1, -1))
    assert many.logits.isfinite().all()
    if name != "view_vote":  # where more voters of one opinion make it surer
        close(many.logits, alone.logits)
    assert many.index == alone.index


@pytest.mark.parametrize("name", METHODS)
def test_one_class(name):
    assert predict(name, words(model(), ["cat"]), views_of()).probs.tolist() == [1]


@pytest.mark.filterwarnings("ignore:class_prompts. 1 of 3 classes have the same name as another")
@pytest.mark.parametrize("name", METHODS)
def test_classes_of_one_name_share_a_probability(name):
    found = predict(name, words(model(), ["cat", "dog", "cat"]), views_of(1))
    if name in VOTES:  # one vote cannot be split
        assert found.index in (0, 1)
    else:
        close(found.probs[0], found.probs[2], atol=1e-5)


@pytest.mark.parametrize("name", METHODS)
def test_several_templates_work_or_are_refused_by_name(name):
    prompts = class_prompts(model(), NAMES, template=SOME)
    if name in TUNING_A_CONTEXT:
        with pytest.raises(
            ValueError, match="tunes the context of one template, but these prompts have 3; build them with"
        ):
            predict(name, prompts, views_of())
    else:
        found, one = predict(name, prompts, views_of()), predict(name, words(model()), views_of())
        mean = torch.nn.functional.normalize(
            sum(tpt_lib.encode_prompts(model(), class_prompts(model(), NAMES, template=text)) for text in SOME), dim=-1
        )
        logits = tpt_lib.class_logits(model(), encode_views(model(), views_of()), mean)
        if name in ("zero_shot", "template_ensemble"):
            close(found.logits, logits[0], atol=1e-4)
        else:
            close(found.zero_shot.logits, logits[0], atol=1e-4)
        assert torch.allclose(found.logits, one.logits, atol=1e-4) == (name == "template_ensemble")


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize("name", ON_FEATURES)
@pytest.mark.parametrize(("features", "message"), [
    (torch.ones(16), r"features must be floats of shape \(N, E\), or \(B, N, E\) .* but got torch.float32 of shape \(16,\)"),
    (torch.ones(0, 16), r"but got torch.float32 of shape \(0, 16\); encode_views returns such features"),
    (torch.ones(1, 2, 3, 16), r"but got torch.float32 of shape \(1, 2, 3, 16\)"),
    (torch.ones(3, 16, dtype=torch.int64), "but got torch.int64"),
    (torch.full((3, 16), torch.nan), "features are not all finite; look at the image"),
    (2 * torch.eye(16), "features must have unit length, but their lengths are 2 to 2"),
    (torch.eye(8), "image features have width 8 and text features 16"),
])  # fmt: skip
def test_bad_features(name, features, message):
    more = {"reward": torch.zeros(*features.shape[:-1], 4).to(Now.device)} if "reward" in get_method(name).needs else {}
    with pytest.raises(ValueError, match=message):
        get_method(name).predict(model(), words(model()), features.to(Now.device), **more)


@pytest.mark.parametrize("name", METHODS)
def test_prompts_of_another_model_are_refused(name):
    given = views_of(2) if "views" in get_method(name).needs else encode_views(model(), views_of(2))
    more = needed(name, views_of(2), words(model()))
    with pytest.raises(ValueError, match="these prompts were made for another model"):
        get_method(name).predict(model(), words(fresh("open_clip-vit")), given, **more)

"""Numbers at their limits: probabilities stay finite, or an error says that they are not and where to look."""

import functools
import math

import pytest
import torch
import torch.nn.functional as F
from support import rewards
from support.cases import model_of
from support.marking import slow_but
from support.zoo import fresh
from torch import nn

import tpt_lib as tpt
from tpt_lib.text.encode import open_encoder
from tpt_lib.text.initial import initial_text

NAMES = ["cat", "dog", "red panda"]
pytestmark = pytest.mark.usefixtures("no_shape_checks")


def image(seed=0):
    return torch.randint(256, (3, 40, 60), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def scaled(value):
    def change(module):
        with torch.no_grad():
            module.logit_scale.fill_(value)

    return change


def with_nan(part):
    def change(module):
        with torch.no_grad():
            part(module).view(-1)[0] = torch.nan

    return change


def overflowing(part):
    """In float16, where 65504 is the largest number, activations become infinite."""

    def change(module):
        module.half()
        with torch.no_grad():
            part(module).mul_(1e5)

    return change


FINE = {
    "as it is": lambda module: None,
    "logit scale 0": scaled(-math.inf),
    "logit scale 1e4": scaled(math.log(1e4)),
    "logit scale 1e30": scaled(math.log(1e30)),
    "float16": lambda module: module.half(),
    "bfloat16": lambda module: module.bfloat16(),
    "float16, logit scale 1e4": lambda module: scaled(math.log(1e4))(module.half()),
}
BROKEN = {
    "logit scale infinite": scaled(math.inf),
    "logit scale NaN": scaled(math.nan),
    "NaN in the image tower": with_nan(lambda m: m.visual.conv1.weight),
    "NaN in the text tower": with_nan(lambda m: m.transformer.resblocks[1].mlp.c_fc.weight),
    "NaN in the tokens": with_nan(lambda m: m.token_embedding.weight[320]),
    "overflow in the image tower": overflowing(lambda m: m.visual.proj),
    "overflow in the text tower": overflowing(lambda m: m.text_projection),
}


def methods(model, picture):
    """Every way to a prediction from an image."""
    prompts = tpt.class_prompts(model, NAMES)
    for name in tpt.list_methods():
        some = {"templates": ["a {}.", "the {}."]} if name == "template_ensemble" else {}
        method = functools.partial(tpt.get_method(name).predict, **some)
        judged = {"reward": (model, prompts)} if "reward" in tpt.get_method(name).needs else {}
        yield lambda method=method, judged=judged: tpt.classify(
            model, picture, prompts, method=method, n_views=6, **judged
        )
    yield lambda: tpt.tpt_classify(model, picture, prompts, n_views=6, steps=2)
    on_text = functools.partial(tpt.memo_clip_predict, group="text")
    yield lambda: tpt.classify(model, picture, prompts, method=on_text, n_views=6)
    yield lambda: tpt.bongard_tpt(model, [picture], [picture], [picture], steps=2)


@pytest.mark.filterwarnings("ignore:.* a loss or gradient was not finite")  # and what is tuned stays as it was
@pytest.mark.parametrize("change", slow_but(["as it is", "logit scale 1e30", "float16"], list(FINE)))
def test_probabilities_are_finite(change):
    check_finite(change, image())


@pytest.mark.filterwarnings("ignore:.* a loss or gradient was not finite")
@pytest.mark.parametrize("picture", [torch.zeros(3, 40, 60), torch.ones(3, 1, 1)], ids=["black", "one pixel"])
def test_probabilities_of_flat_images_are_finite(picture):
    check_finite("as it is", picture)


def check_finite(change, picture):
    model = fresh("open_clip-vit")
    FINE[change](model.module)
    for method in methods(model, picture):
        found = method()
        assert found.probs.isfinite().all()
        if isinstance(found, tpt.Prediction):
            assert found.probs.sum() == pytest.approx(1, abs=1e-4)
            assert math.isfinite(found.entropy)
            if change == "logit scale 0":
                torch.testing.assert_close((found.zero_shot or found).probs, torch.full((3,), 1 / 3))


@pytest.mark.filterwarnings("ignore:.*not finite")
@pytest.mark.parametrize(
    "change", slow_but(["logit scale NaN", "NaN in the tokens", "overflow in the image tower"], list(BROKEN))
)
def test_what_is_not_finite_is_an_error(change):
    model = fresh("open_clip-vit")
    BROKEN[change](model.module)
    refused = []
    for method in methods(model, image()):
        try:
            found = method()
        except ValueError as error:
            refused.append(str(error))
        else:
            assert found.probs.isfinite().all()
    ways = len(list(methods(fresh("open_clip-vit"), image())))
    assert len(refused) >= ways - 1, "all but MEMO, which may leave weights as they were"
    assert [said for said in refused if "finite" not in said and "NaN" not in said] == []


def test_identical_classes_share_a_probability():
    model = fresh("open_clip-vit")
    found = tpt.tpt_classify(model, image(), ["cat", "cat", "cat"], n_views=6)
    torch.testing.assert_close(found.probs, torch.full((3,), 1 / 3))
    assert found.loss_before == pytest.approx(math.log(3), abs=1e-5)
    alone = tpt.tpt_classify(model, image(), ["cat"], n_views=6)
    assert alone.probs.tolist() == [1]


def test_identical_views_give_what_one_gives():
    """A constant image: every crop of it is the same."""
    model = fresh("open_clip-vit")
    found = tpt.tpt_classify(model, torch.full((3, 40, 60), 0.25), NAMES, n_views=32)
    assert len(found.selected) == 3
    assert found.loss_before == pytest.approx(float(found.zero_shot.entropy), abs=1e-4)


@pytest.mark.filterwarnings("ignore:memo_predict. a loss or gradient was not finite")
@pytest.mark.parametrize(("weight", "message"), [(0.0, None), (1e30, None), (math.nan, "3 of 3 logits are not finite"),
                                                 (math.inf, "logits are not finite")])  # fmt: skip
def test_memo(weight, message):
    classifier = nn.Sequential(nn.Flatten(), nn.Linear(48, 3)).eval()
    with torch.no_grad():
        classifier[1].weight.fill_(weight)
    views = torch.rand(4, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    if message is None:
        assert tpt.methods.memo_predict(classifier, views).probs.isfinite().all()
    else:
        with pytest.raises(ValueError, match=message):
            tpt.methods.memo_predict(classifier, views)


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4, 1e30, 3e38])
def test_the_equations_at_any_scale(scale):
    logits = (scale * torch.randn(5, 4, dtype=torch.float64).clamp(-1, 1)).float().requires_grad_()
    loss = tpt.marginal_entropy(logits)
    loss.backward()
    assert 0 <= loss <= math.log(4) + 1e-5
    assert logits.grad.isfinite().all()
    assert len(set(tpt.select_confident(logits, fraction=1.0).tolist())) == 5


FAR = {"memo_clip", "otpt", "rlcf"}  # methods that go far along gradients of that precision


@pytest.mark.parametrize(
    ("dtype", "bar"), slow_but([(torch.float16, 0.1)], [(torch.float16, 0.1), (torch.bfloat16, 0.8)])
)
@pytest.mark.parametrize("name", tpt.list_methods())
def test_half_precision_models_say_what_float32_says(name, dtype, bar):
    """At scale 100 a similarity in bfloat16, right to 2**-8, is off by up to 0.4 in each of two towers; in float16 by 0.05."""
    found = []
    for model in (model_of(), fresh("open_clip-vit")):
        scaled(math.log(100))(model.module)
        model = model if model is model_of() else tpt.wrap(model.module.to(dtype))
        judged = {"reward": rewards.pair(NAMES)} if "reward" in tpt.get_method(name).needs else {}
        found.append(tpt.classify(model, image(), NAMES, method=name, n_views=8, **judged))
    full, half = found
    assert half.logits.dtype == torch.float32
    gap = (half.logits - full.logits).abs().max()
    if name in FAR:
        assert gap < (0.05 if dtype == torch.float16 else 0.5) * (full.logits - full.zero_shot.logits).abs().max()
    elif tpt.get_method(name).probabilities:  # else logits are logs of counts
        assert gap < bar
    assert half.index == full.index
    assert half.tuned == full.tuned
    if name == "tpt":
        assert (full.logits - full.zero_shot.logits).abs().max() > 4 * bar, "the step moves logits by more than the bar"


def test_gradients_in_float16_are_those_of_float32():
    """Of the context, and of free names: what is done against underflow inside the tower is undone outside."""
    found = []
    for dtype in (torch.float16, torch.float32):
        model = fresh("open_clip-vit")
        model.module.to(dtype)
        tokens = tpt.gaussian_context(model, 1, n_classes=3)
        prompts = tpt.class_prompts(model, NAMES, name_tokens=tokens, template="a photo of a {} .")
        upstream = torch.randn(3, 16, generator=torch.Generator().manual_seed(0))
        found.append(initial_text(open_encoder(model, prompts)).gradients(upstream))
    for half, full in zip(*found, strict=True):
        assert (half - full).norm() <= 0.05 * full.norm()


def test_tiny_gradients_do_not_vanish_in_float16():
    """The context moves to where float32 would take it, for nearly all of its numbers."""
    half, full = fresh("open_clip-vit"), fresh("open_clip-vit")
    half.module.half()
    features = F.normalize(torch.randn(8, 16, generator=torch.Generator().manual_seed(0)), dim=-1)
    moves = []
    for model in (half, full):
        prompts = tpt.class_prompts(model, NAMES)
        tuned = tpt.tune_prompt(model, prompts, features, objective=lambda logits: 1e-5 * tpt.marginal_entropy(logits))
        moves.append(tuned.context - prompts.context)
    assert (moves[0].sign() == moves[1].sign()).float().mean() > 0.95

"""Tuning against the literal transcription of the method in ``oracles/tpt.py``, its laws, and what goes wrong."""

import functools
import itertools
import warnings

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
import torch.nn.functional as F
from oracles.tpt import Put, float64, plain_bongard, plain_text, plain_tpt
from support.cases import Recorder, assert_same_tokens, largest, meta_net, model_of, views_for
from support.marking import slow_but
from support.simulated import DEVICE, to_simulated
from support.zoo import fresh
from torch.utils._python_dispatch import TorchDispatchMode

import tpt_lib
from tpt_lib import class_prompts, encode_prompts, tune_prompt
from tpt_lib.prompts.contexts import LearnedPrompt

NAMES = ["cat", "red panda", "kite (bird of prey)", "dog", "tabby"]


CONTEXTS = {
    "words": lambda model: {},
    "around": lambda model: {"template": "a photo of a {}, a type of pet."},
    "coop-4": lambda model: {"context": 2 * tpt_lib.gaussian_context(model, 4)},
    "coop-16": lambda model: {"context": 2 * tpt_lib.gaussian_context(model, 16)},
    "class-specific": lambda model: {"context": 2 * tpt_lib.gaussian_context(model, 4, n_classes=5)},
    "cocoop": lambda model: {"context": LearnedPrompt(tpt_lib.gaussian_context(model, 4), meta_net())},
}
COLUMNS = {"around": [[1, 2, 3, 4, *range(n, n + 4)] for n in (7, 8, 11, 7, 7)], "coop-16": [list(range(1, 17))] * 5}


class Case:
    def __init__(self, name, kind, steps=5):
        self.model = model_of(name)
        self.prompts = class_prompts(self.model, NAMES, **CONTEXTS[kind](self.model))
        columns = torch.tensor(COLUMNS.get(kind, [[1, 2, 3, 4]] * 5))
        module = float64(self.model.module)
        start = self.prompts.context
        with torch.no_grad():
            self.views = views_for(plain_text(module, self.prompts.ids, Put(columns, start.double())), number=64)
        if kind == "cocoop":
            net = self.prompts.meta_net
            hidden = torch.relu(net.weight1.double() @ self.views[0].double() + net.bias1.double())
            start = start.double() + net.weight2.double() @ hidden + net.bias2.double()
        scale, bias = float(self.model.logit_scale), float(self.model.logit_bias)
        self.plain = plain_tpt(module, self.prompts.ids, columns, start, self.views, scale, bias, steps)


@functools.cache
def case(name, kind):
    return Case(name, kind)


MODELS = ["open_clip-vit", "open_clip-resnet", "transformers-clip", "open_clip-coca"]


QUICK = [("open_clip-vit", 5, kind) for kind in CONTEXTS] + [("open_clip-coca", 1, "words")]


@pytest.mark.parametrize(
    ("name", "steps", "kind"), slow_but(QUICK, list(itertools.product(MODELS, [1, 2, 5], CONTEXTS)))
)
def test_tuning_is_the_plain_method(name, kind, steps):
    this = case(name, kind)
    tuned = tune_prompt(this.model, this.prompts, this.views, steps=steps)
    assert torch.equal(tuned.selected, this.plain.selected)
    assert len(tuned.selected) == 6
    assert bool(tuned.applied)
    assert_same_tokens(tuned.context, this.plain.contexts[steps - 1], this.plain.gradients[:steps], 1e-5 * steps)
    logits = tpt_lib.class_logits(this.model, this.views[:1], tuned.text_features)[0]
    assert largest(logits, this.plain.logits[steps - 1]) <= 1e-3
    assert tuned.losses.shape == (steps + 1,)


STEPS_AND_LAYOUTS = slow_but([(1, "padded"), (3, "ragged")], list(itertools.product([1, 3], ["ragged", "padded"])))


@pytest.mark.parametrize(("steps", "layout"), STEPS_AND_LAYOUTS)
@pytest.mark.parametrize("kind", ["words", "around", "cocoop", "class-specific"])
def test_several_images_give_what_one_at_a_time_gives(kind, steps, layout, monkeypatch):
    monkeypatch.setattr(tpt_lib.text.packing, "FEW", 0)
    model = model_of()
    prompts = class_prompts(model, NAMES, **CONTEXTS[kind](model))
    views = mild_views(model, prompts, 3)
    together = tune_prompt(model, prompts, views, steps=steps, lr=1e-3, layout=layout)
    for i in range(3):
        seen = []
        alone = tune_prompt(model, prompts, views[i], steps=steps, lr=1e-3, optimizer=Recorder.into(seen))
        assert_same_tokens(together.context[i], alone.context, [gradient for (gradient,) in seen[0]])
        torch.testing.assert_close(together.text_features[i], alone.text_features, atol=1e-5, rtol=0)
        torch.testing.assert_close(together.losses[i], alone.losses, atol=1e-5, rtol=1e-4)
        assert torch.equal(together.selected[i], alone.selected)


def mild_views(model, prompts, images, number=20):
    """Return features ``(B, N, E)`` of several images whose predictions are not saturated."""
    with torch.no_grad():
        text = encode_prompts(model, prompts, prompts.context).double()
    return views_for(text, images * number).unflatten(0, (images, number))


def separately(tokens, lr):
    """The default optimizer in a function, which might be anything, so that each image has its own."""
    return torch.optim.AdamW(tokens, lr=lr)


@pytest.mark.parametrize("optimizer", [
    torch.optim.SGD, functools.partial(torch.optim.Adam, amsgrad=True), torch.optim.RMSprop, torch.optim.NAdam,
    torch.optim.Rprop, torch.optim.Adamax, torch.optim.Adafactor, separately,
])  # fmt: skip
def test_any_optimizer_steps_each_image_as_if_alone(optimizer):
    """Elementwise ones step all images together; Adafactor, whose steps depend on all elements, must not."""
    model = model_of()
    prompts = class_prompts(model, ["yes", "no"], name_tokens=tpt_lib.gaussian_context(model, 1, n_classes=2))
    views = mild_views(model, prompts, 3)
    views[1] = views[1].flip(-1)
    together = tune_prompt(model, prompts, views, steps=3, lr=1e-3, optimizer=optimizer)
    for i in range(3):
        alone = tune_prompt(model, prompts, views[i], steps=3, lr=1e-3, optimizer=optimizer)
        torch.testing.assert_close(together.losses[i], alone.losses, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(together.text_features[i], alone.text_features, atol=1e-4, rtol=0)
    if optimizer is separately:
        want = tune_prompt(model, prompts, views, steps=3, lr=1e-3)
        torch.testing.assert_close(together.losses, want.losses, atol=1e-6, rtol=1e-5)


class Operations(TorchDispatchMode):
    """Count tensor operations, views aside."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.count += not operation.is_view
        return operation(*args, **(kwargs or {}))


def operations(classes, images):
    """Return how many operations a warm call in the accelerator's layout launches."""
    model = model_of()
    names = [f"{a} {b}".strip() for a in ["", *NAMES] for b in ["cat", "dog", "pet", "bird"]][:classes]
    prompts = class_prompts(model, names)
    views = F.normalize(torch.randn(images, 20, 16, generator=torch.Generator().manual_seed(0)), dim=-1)
    tpt_lib.tpt_predict(model, prompts, views, layout="padded")
    with Operations() as seen:
        tpt_lib.tpt_predict(model, prompts, views, layout="padded")
    return seen.count


@pytest.mark.usefixtures("no_shape_checks")
def test_the_number_of_operations_grows_neither_with_classes_nor_with_images(monkeypatch):
    """In the padded layout, where it is what an accelerator's time goes into."""
    monkeypatch.setattr(tpt_lib.text.packing, "FEW", 0)
    few = operations(13, 2)
    assert operations(24, 2) == few
    assert operations(13, 5) == few


def test_another_start():
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    views = F.normalize(torch.randn(2, 20, 16), dim=-1)
    start = tpt_lib.gaussian_context(model, 4)
    want = tune_prompt(model, class_prompts(model, NAMES, context=start), views, steps=2)
    got = tune_prompt(model, prompts, views, steps=2, context=start)
    torch.testing.assert_close(got.text_features, want.text_features, atol=1e-4, rtol=0)
    assert torch.equal(tune_prompt(model, prompts, views[0], steps=0, context=start).context, start)
    both = torch.stack([start, prompts.context])
    torch.testing.assert_close(tune_prompt(model, prompts, views, steps=0, context=both).context, both)


def test_cocoop_as_the_papers_code_fed_it():
    model = model_of()
    prompts = class_prompts(model, NAMES, **CONTEXTS["cocoop"](model))
    pixels = torch.randn(8, 3, 32, 32)
    raw = model.encode_image(pixels[:1])[0].detach()
    tuned = tune_prompt(
        model,
        prompts,
        tpt_lib.encode_views(model, pixels),
        context=tpt_lib.prompts.conditional_context(prompts, raw),
        steps=0,
    )
    shift = prompts.meta_net(raw)
    assert (shift - prompts.meta_net(F.normalize(raw, dim=0))).norm() > 1e-3
    torch.testing.assert_close(tuned.context, prompts.context + shift)


def test_nothing_carries_over():
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    first, second = F.normalize(torch.randn(2, 20, 16), dim=-1)
    before = prompts.context.clone()
    once = tune_prompt(model, prompts, first)
    tune_prompt(model, prompts, second, steps=4)
    again = tune_prompt(model, prompts, first)
    assert torch.equal(once.context, again.context)
    assert torch.equal(prompts.context, before)


def gradient_of(model, prompts, views, **options):
    """Return the gradient of the loss at the start, as one step of gradient descent with rate 1 shows it."""
    tuned = tune_prompt(model, prompts, views, optimizer=torch.optim.SGD, lr=1.0, **options)
    return prompts.context - tuned.context, tuned


@hypothesis.given(st.integers(1, 8), st.integers(2, 6), st.integers(0, 10**6))
@pytest.mark.slow
def test_laws(views, classes, seed):
    model = model_of()
    draw = torch.Generator().manual_seed(seed)
    names = ["cat", "dog", "red panda", "kite", "tabby", "pet"][:classes]
    prompts = class_prompts(model, names)
    features = mild_views(model, prompts, 1, 40)[0][torch.randperm(40, generator=draw)[:views]]
    gradient, tuned = gradient_of(model, prompts, features)
    size = gradient.norm()
    assert size > 1e-3

    for still in (tune_prompt(model, prompts, features, lr=0.0), tune_prompt(model, prompts, features, steps=0)):
        torch.testing.assert_close(still.context, prompts.context)
        torch.testing.assert_close(still.text_features, encode_prompts(model, prompts))

    order = torch.randperm(views, generator=draw)
    mixed, of_mixed = gradient_of(model, prompts, features[order])
    assert (mixed - gradient).norm() <= 1e-4 * size, "the order of views does not matter"
    assert order[of_mixed.selected].tolist() == tuned.selected.tolist()

    turned, of_turned = gradient_of(model, class_prompts(model, names[::-1]), features)
    assert (turned - gradient).norm() <= 1e-4 * size, "the order of classes does not matter"
    torch.testing.assert_close(of_turned.initial_features.flip(0), tuned.initial_features, atol=1e-6, rtol=0)


def test_a_small_step_lowers_the_loss_by_its_gradient():
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    views = mild_views(model, prompts, 1)[0]
    gradient, _ = gradient_of(model, prompts, views)
    lr = 1e-3 / gradient.square().sum().item()
    tuned = tune_prompt(model, prompts, views, optimizer=torch.optim.SGD, lr=lr)
    assert (tuned.losses[0] - tuned.losses[1]).item() == pytest.approx(1e-3, rel=0.1)


def test_parts_can_be_swapped():
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    views = F.normalize(torch.randn(10, 16), dim=-1)
    seen = []
    tuned = tune_prompt(
        model,
        prompts,
        views,
        objective=lambda logits: F.cross_entropy(logits, torch.full((len(logits),), 2)),
        regularizer=lambda text: seen.append(text.shape) or 0.1 * text.std(),
        select=lambda logits: torch.arange(3),
        steps=30,
        optimizer=functools.partial(torch.optim.SGD, momentum=0.5),
        lr=0.01,
    )
    assert tuned.selected.tolist() == [0, 1, 2]
    assert set(seen) == {(5, 16)}
    assert tuned.losses[-1] < 0.5 * tuned.losses[0]
    text = encode_prompts(model, prompts)
    want = F.cross_entropy(tpt_lib.class_logits(model, views[:3], text), torch.full((3,), 2)) + 0.1 * text.std()
    torch.testing.assert_close(tuned.losses[0], want)


def test_on_step():
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    calls = []
    views = F.normalize(torch.randn(2, 10, 16), dim=-1)
    tuned = tune_prompt(model, prompts, views, steps=3, on_step=lambda *call: calls.append(call))
    assert [step for step, _, _ in calls] == [0, 1, 2]
    torch.testing.assert_close(torch.stack([losses for _, losses, _ in calls], dim=1), tuned.losses[:, :3])
    torch.testing.assert_close(calls[-1][2], tuned.context)
    torch.testing.assert_close(calls[0][2], tune_prompt(model, prompts, views).context)
    assert not any(part.requires_grad for _, *parts in calls for part in parts)


def test_features_and_a_start_may_have_another_type_and_a_graph():
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    views, start, seen = mild_views(model, prompts, 2), tpt_lib.gaussian_context(model, 4), []

    def select(logits):
        seen.append(logits.requires_grad)
        return torch.arange(3)

    want = tune_prompt(model, prompts, views, context=start, select=select, steps=2)
    given = [tensor.double().requires_grad_() for tensor in (views, start)]
    got = tune_prompt(model, prompts, given[0], context=given[1], select=select, steps=2)
    assert not any(seen)
    for name in ("context", "text_features", "initial_features", "losses"):
        assert (getattr(got, name).dtype, getattr(got, name).requires_grad) == (torch.float32, False)
        torch.testing.assert_close(getattr(got, name), getattr(want, name))
    assert all(tensor.grad is None for tensor in given)


def test_free_names_are_tuned_too():
    model = model_of()
    tokens = tpt_lib.gaussian_context(model, 1, n_classes=2)
    prompts = class_prompts(model, ["yes", "no"], context=tpt_lib.gaussian_context(model, 4), name_tokens=tokens)
    tuned = tune_prompt(model, prompts, F.normalize(torch.randn(8, 16), dim=-1), steps=2)
    assert tuned.name_tokens.shape == (2, 1, 32)
    torch.testing.assert_close(encode_prompts(model, prompts, tuned.context, tuned.name_tokens), tuned.text_features)


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_free_names_are_tuned_as_the_plain_method_tunes_them(steps):
    """On the cross-entropy of all views with the first class, which is what the plain Bongard program minimizes."""
    model = model_of()
    tokens, context = tpt_lib.gaussian_context(model, 1, n_classes=2, seed=1), tpt_lib.gaussian_context(model, 4)
    prompts = class_prompts(model, ["yes", "no"], context=context, name_tokens=tokens)
    views, labels = F.normalize(torch.randn(8, 16), dim=-1), torch.zeros(8, dtype=torch.int64)
    tuned = tune_prompt(
        model,
        prompts,
        views,
        steps=steps,
        select=lambda logits: torch.arange(8),
        objective=lambda logits: F.cross_entropy(logits, labels),
    )
    columns = [torch.tensor([[1, 2, 3, 4]] * 2), torch.tensor([[5]] * 2)]
    scale, bias = float(model.logit_scale), float(model.logit_bias)
    plain = plain_bongard(
        float64(model.module), prompts.ids, columns, [context, tokens], views, labels, scale, bias, steps
    )
    for got, want, gradients in zip(
        (tuned.context, tuned.name_tokens), plain[0], zip(*plain[2], strict=True), strict=True
    ):
        assert_same_tokens(got, want, gradients)
    torch.testing.assert_close(tuned.losses[:-1].double(), torch.stack(plain[3]), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("bad", ["loss", "gradient"])
@pytest.mark.parametrize("step", [0, 1])
def test_what_is_not_finite_leaves_the_prompt_as_it_was(bad, step):
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    views = F.normalize(torch.randn(3, 10, 16), dim=-1)
    calls = []

    def objective(logits):
        loss = tpt_lib.marginal_entropy(logits)
        calls.append(1)
        if len(calls) == 3 * step + 2:  # the second of three images, in this step
            loss = loss * torch.nan if bad == "loss" else loss + (0 * logits.sum()).sqrt() - 0
        return loss

    with pytest.warns(UserWarning, match="tune_prompt: a loss or gradient was not finite in 1 of 3 cases"):
        tuned = tune_prompt(model, prompts, views, objective=objective, steps=2)
    assert tuned.applied.tolist() == [True, False, True]
    assert torch.equal(tuned.context[1], prompts.context)
    torch.testing.assert_close(tuned.text_features[1], encode_prompts(model, prompts))
    with warnings.catch_warnings():
        good = tune_prompt(model, prompts, views, steps=2)
    torch.testing.assert_close(tuned.context[[0, 2]], good.context[[0, 2]], atol=1e-6, rtol=1e-6)
    assert tuned.text_features.isfinite().all()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_inside_the_callers_modes(mode):
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    views = F.normalize(torch.randn(10, 16), dim=-1)
    want = tune_prompt(model, prompts, views, steps=2)
    with mode():
        fresh_prompts = class_prompts(model, NAMES)
        got = tune_prompt(model, fresh_prompts, views.clone(), steps=2)
    torch.testing.assert_close(got.context, want.context)
    assert not got.context.requires_grad


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 0.002), (torch.bfloat16, 0.03)])
def test_half_precision_models(dtype, tolerance):
    exact, model = fresh("open_clip-vit"), fresh("open_clip-vit")
    model.module.to(dtype)
    views = F.normalize(torch.randn(10, 16), dim=-1)
    want, of_exact = gradient_of(exact, class_prompts(exact, NAMES), views, select=lambda logits: torch.arange(5))
    got, tuned = gradient_of(model, class_prompts(model, NAMES), views, select=lambda logits: torch.arange(5))
    assert tuned.context.dtype == tuned.text_features.dtype == torch.float32
    assert 1 - tolerance < F.cosine_similarity(got.flatten(), want.flatten(), dim=0) < 1
    assert largest(tuned.initial_features, of_exact.initial_features) <= tolerance


def test_under_autocast():
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    views = mild_views(model, prompts, 1)[0]
    want, exact = gradient_of(model, prompts, views, select=lambda logits: torch.arange(5))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got, tuned = gradient_of(model, prompts, views, select=lambda logits: torch.arange(5))
    assert tuned.context.dtype == torch.float32
    assert 0.95 < F.cosine_similarity(got.flatten(), want.flatten(), dim=0) < 1
    assert 1e-5 < largest(tuned.initial_features, exact.initial_features) <= 0.02


def test_the_model_gets_no_gradient():
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    tune_prompt(model, prompts, F.normalize(torch.randn(10, 16), dim=-1), steps=2)
    assert all(p.grad is None for p in model.module.parameters())


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize(("call", "message"), [
    ({"image_features": torch.ones(16)}, r"floats of shape \(N, E\), or \(B, N, E\) .* but got torch.float32 of shape \(16,\)"),
    ({"image_features": torch.ones(3, 16, dtype=torch.int64)}, "but got torch.int64"),
    ({"image_features": torch.full((3, 16), torch.nan)}, "image_features are not all finite"),
    ({"image_features": torch.eye(8)}, "image features have width 8 and text features 16"),
    ({"image_features": torch.eye(16)[:3] / 2}, "image_features must have unit length, but their lengths are 0.5 to 0.5"),
    ({"layout": "tight"}, "layout must be one of auto, ragged, padded, but got 'tight'"),
    ({"steps": -1}, "steps must be 0 or more, but got -1"),
])  # fmt: skip
def test_bad_input(call, message):
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    with pytest.raises(ValueError, match=message):
        tune_prompt(model, prompts, **{"image_features": torch.eye(16)[:3], **call})


def own_objective(logits):
    return tpt_lib.marginal_entropy(logits)


def own_regularizer(text):
    return text.std()


def own_selection(logits):
    return torch.arange(2, device=logits.device)


OWN = [{"objective": own_objective}, {"regularizer": own_regularizer}, {"select": own_selection}]
LIBRARYS = [{}, {"select": functools.partial(tpt_lib.select_confident, fraction=0.5)}]


def steps_before_refusal(model, features, options):
    """Return how many steps are taken before features that are too long are refused."""
    calls = []
    with pytest.raises(ValueError, match="image_features must have unit length, but their lengths are 2 to 2"):
        tune_prompt(
            model, class_prompts(model, NAMES), features, steps=3, on_step=lambda *call: calls.append(call), **options
        )
    return len(calls)


@pytest.mark.parametrize("options", OWN + LIBRARYS)
def test_features_are_checked_before_the_work(options):
    assert steps_before_refusal(model_of(), 2 * torch.eye(16)[:3], options) == 0


@pytest.mark.parametrize(("options", "steps"), [*((one, 0) for one in OWN), *((one, 3) for one in LIBRARYS)])
def test_an_accelerator_checks_features_with_the_results_unless_a_function_is_the_callers(simulated, options, steps):
    model = tpt_lib.wrap(to_simulated(fresh("open_clip-vit").module))
    assert steps_before_refusal(model, (2 * torch.eye(16)[:3]).to(DEVICE), options) == steps


def test_prompts_of_several_templates():
    model = model_of()
    prompts = class_prompts(model, NAMES, template=["a photo of a {}.", "a {}."])
    with pytest.raises(ValueError, match="tune_prompt: tunes the context of one template, but these prompts have 2"):
        tune_prompt(model, prompts, torch.eye(16)[:3])


def test_a_template_without_context():
    model = model_of()
    prompts = class_prompts(model, NAMES, template="{}")
    with pytest.raises(ValueError, match="no words besides the name, so there is no context to tune"):
        tune_prompt(model, prompts, torch.eye(16)[:3])
    assert tune_prompt(model, prompts, torch.eye(16)[:3], steps=0).context.shape == (0, 32)


@pytest.mark.parametrize("steps", [1, 2])
def test_a_step_that_diverges_leaves_the_prompt_as_it_was(steps):
    """A float16 tower overflows at a context of 1e5, after the last loss that a step was computed from."""
    model = fresh("open_clip-vit")
    model.module.half()
    prompts, views = class_prompts(model, NAMES), F.normalize(torch.randn(2, 10, 16), dim=-1)
    with pytest.warns(
        UserWarning, match="not finite in 2 of 2 cases; .* the learning rate is 100000, and a smaller one"
    ):
        tuned = tune_prompt(model, prompts, views, steps=steps, lr=1e5)
    assert tuned.applied.tolist() == [False, False]
    assert torch.equal(tuned.context, prompts.context.expand(2, 4, 32))
    assert torch.equal(tuned.text_features, tuned.initial_features)
    torch.testing.assert_close(tuned.losses[:, -1], tuned.losses[:, 0])
    with pytest.warns(UserWarning, match="the learning rate is 100000"):
        found = tpt_lib.tpt_predict(model, prompts, views, steps=steps, lr=1e5)
    assert torch.equal(found.logits, found.zero_shot.logits)
    assert found.tuned.tolist() == [False, False]


def test_text_features_that_are_not_finite_are_found_where_the_objective_hides_them():
    """The second image has a learning rate at which a float16 tower overflows."""
    model = fresh("open_clip-vit")
    model.module.half()
    prompts, views = class_prompts(model, NAMES), F.normalize(torch.randn(2, 10, 16), dim=-1)
    rates = iter([1e-3, 1e5])
    with pytest.warns(UserWarning, match="not finite in 1 of 2 cases"):
        tuned = tune_prompt(
            model,
            prompts,
            views,
            objective=lambda logits: tpt_lib.marginal_entropy(logits).nan_to_num(),
            optimizer=lambda tokens, lr: torch.optim.AdamW(tokens, lr=next(rates)),
        )
    assert tuned.applied.tolist() == [True, False]
    assert torch.equal(tuned.context[1], prompts.context)
    assert torch.equal(tuned.text_features[1], tuned.initial_features[1])
    assert not torch.equal(tuned.text_features[0], tuned.initial_features[0])


def test_a_loss_that_diverges_after_the_last_step_leaves_that_image_as_it_was():
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    views, calls = F.normalize(torch.randn(3, 10, 16), dim=-1), []

    def objective(logits):
        calls.append(1)
        return tpt_lib.marginal_entropy(logits) * (torch.inf if len(calls) == 5 else 1)  # the second image, at the end

    with pytest.warns(UserWarning, match=r"not finite in 1 of 3 cases; .* the learning rate is 0\.005"):
        tuned = tune_prompt(model, prompts, views, objective=objective)
    assert tuned.applied.tolist() == [True, False, True]
    assert torch.equal(tuned.context[1], prompts.context)
    assert torch.equal(tuned.text_features[1], tuned.initial_features[1])
    assert tuned.losses.isfinite().all()
    assert not torch.equal(tuned.context[2], prompts.context)


def per_view(logits):
    return logits.logsumexp(dim=-1)


def detached(values):
    return values.detach().std()


def count_of(values):
    return values.argmax()


def elsewhere(_):
    return torch.ones((), requires_grad=True) * 2


SCALAR = r"must return a scalar, a float tensor of shape \(\), but"
ATTACHED = (
    "must return a scalar that depends on the {} it is given, but no gradient leads from what {} returned to them"
)
SELECT = (
    r"select must return the indices of one or more of the 3 views as a tensor of ints \(M,\), each in 0\.\.2 and none "
)
SELECT += "twice, but <lambda> returned"


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize(("call", "message"), [
    ({"objective": per_view}, rf"objective {SCALAR} per_view returned torch.float32 of shape \(1,\); reduce it"),
    ({"objective": functools.partial(per_view)}, rf"objective {SCALAR} per_view returned"),
    ({"objective": count_of}, rf"objective {SCALAR} count_of returned torch.int64 of shape \(\)"),
    ({"objective": lambda logits: 1.0}, f"objective {SCALAR} <lambda> returned float"),
    ({"objective": detached}, "objective " + ATTACHED.format("logits", "detached")),
    ({"objective": elsewhere}, "objective " + ATTACHED.format("logits", "elsewhere")),
    ({"regularizer": lambda text: text.sum(dim=-1)}, rf"regularizer {SCALAR} <lambda> returned torch.float32 of shape \(5,\)"),
    ({"regularizer": lambda text: None}, f"regularizer {SCALAR} <lambda> returned NoneType"),
    ({"regularizer": detached}, "regularizer " + ATTACHED.format("text features", "detached")),
    ({"select": lambda logits: logits}, rf"{SELECT} torch.float32 of shape \(3, 5\)"),
    ({"select": lambda logits: []}, f"{SELECT} list"),
    ({"select": lambda logits: logits[:, 0] > 0}, rf"{SELECT} torch.bool of shape \(3,\)"),
    ({"select": lambda logits: torch.tensor([0, 3])}, rf"{SELECT} \[0, 3\]"),
    ({"select": lambda logits: torch.tensor([1, -1])}, rf"{SELECT} \[1, -1\]"),
    ({"select": lambda logits: torch.tensor([2, 0, 2])}, rf"{SELECT} \[2, 0, 2\]"),
    ({"select": lambda logits: torch.zeros(0, dtype=torch.int64)}, rf"{SELECT} torch.int64 of shape \(0,\)"),
    ({"optimizer": torch.optim.LBFGS}, r"optimizer must .* whose step\(\) needs no closure, but LBFGS calls the objective"),
])  # fmt: skip
def test_functions_of_the_caller_that_return_something_else(call, message):
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    with pytest.raises(ValueError, match=f"^tune_prompt: {message}"):
        tune_prompt(model, prompts, F.normalize(torch.randn(2, 3, 16), dim=-1), **call)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.bfloat16, torch.float16, torch.float64])
def test_features_of_any_float_dtype(dtype):
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    want = tune_prompt(model, prompts, torch.eye(16)[:3])
    assert torch.equal(tune_prompt(model, prompts, torch.eye(16)[:3].to(dtype)).context, want.context)


def test_functions_get_features_apart_from_the_graph_of_the_tower():
    model, prompts, seen = model_of(), class_prompts(model_of(), NAMES), []

    def regularizer(text):
        seen.append(text)
        return text.std()

    tune_prompt(model, prompts, torch.eye(16)[None, :3], regularizer=regularizer, steps=3)
    assert len(seen) == 4
    for text in seen[:3]:
        assert text._base.is_leaf
        assert text._base.requires_grad


def test_selections_of_different_lengths_and_the_one_that_is_wrong():
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    views = F.normalize(torch.randn(2, 3, 16), dim=-1)

    def tuned(*selections):
        given = iter(map(torch.tensor, selections))
        return tune_prompt(model, prompts, views, select=lambda logits: next(given))

    assert tuned([2, 0], [1]).selected.tolist() == [[2, 0], [1, -1]]
    with pytest.raises(ValueError, match=rf"{SELECT} \[3\]"):
        tuned([2, 0], [3])


def test_a_factory_that_makes_no_optimizer():
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    with pytest.raises(TypeError, match=r"optimizer must be a function .* but <lambda> returned NoneType"):
        tune_prompt(model, prompts, torch.eye(16)[:3], optimizer=lambda tokens, lr: None)


def test_a_constant_objective_is_refused_only_where_something_is_tuned():
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    assert tune_prompt(model, prompts, torch.eye(16)[:3], objective=detached, steps=0).losses.shape == (1,)

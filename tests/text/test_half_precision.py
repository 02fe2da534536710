"""Weights in float16 and bfloat16, and autocast: features near the exact ones, gradients that do not underflow."""

import open_clip
import pytest
import torch
from support.cases import largest
from support.letters import Letters
from support.marking import slow_but
from support.text_cases import BOTH, NAMES, assert_same, cosine, features_and_gradient, initial_of, vit
from support.zoo import FEW, ZOO, build, fresh, open_clip_model
from torch import nn

import tpt_lib
from tpt_lib import class_prompts, gaussian_context
from tpt_lib.text import text_engine
from tpt_lib.text.half_precision import compute_dtypes, scale_gradient


def with_weights_in(name, dtype):
    model = fresh(name)
    for part in model.module.modules():
        if not (name == "openai" and isinstance(part, nn.LayerNorm)):  # whose norms compute in float32
            part._apply(lambda t: t.to(dtype) if t.is_floating_point() else t, recurse=False)
    return model


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 0.05), (torch.float16, 0.005)])
@pytest.mark.parametrize(
    ("name", "engine"),
    slow_but(
        [*((name, "auto") for name in FEW), ("openai", "full_length")],
        [*((name, "auto") for name in ZOO), ("open_clip-vit", "full_length"), ("openai", "full_length")],
    ),
)
def test_half_precision_weights(name, engine, dtype, tolerance):
    exact, model = build(name), with_weights_in(name, dtype)
    prompts, exact_prompts = class_prompts(model, NAMES), class_prompts(exact, NAMES)
    assert text_engine(model, prompts).split(":")[0] == ZOO[name][2]
    features, gradient = features_and_gradient(model, prompts, exact_prompts.context, engine=engine)
    want = features_and_gradient(exact, exact_prompts, engine=engine)
    assert (features.dtype, gradient.dtype) == (torch.float32, torch.float32)
    assert largest(features, want[0]) <= tolerance
    assert cosine(gradient, want[1]) > 1 - tolerance


def mixed():
    """Return a float16 model as open_clip and OpenAI make them: token embedding and norms in float32."""
    module = open_clip_model()
    open_clip.model.convert_weights_to_fp16(module)
    return tpt_lib.wrap(module)


HALVES = {
    "weights": lambda: with_weights_in("open_clip-vit", torch.float16),
    "some weights": mixed,
    "autocast": lambda: build("open_clip-vit"),
}


@BOTH
@pytest.mark.parametrize("kind", ["weights", "some weights", "autocast"])
def test_tiny_gradients_do_not_underflow_in_float16(kind, engine, monkeypatch):
    model, exact = HALVES[kind](), build("open_clip-vit")
    names, upstream = gaussian_context(exact, 2, n_classes=5), 1e-7 * torch.randn(5, 16)
    want = initial_of(exact, class_prompts(exact, NAMES, name_tokens=names)).gradients(upstream)

    def agreement():
        with torch.autocast("cpu", torch.float16, enabled=kind == "autocast"):
            initial = initial_of(model, class_prompts(model, NAMES, name_tokens=names), engine=engine)
        pairs = list(zip(initial.gradients(upstream), want, strict=True))
        assert all(a.norm() < 1.1 * b.norm() for a, b in pairs)
        return min(cosine(a, b) for a, b in pairs)

    assert agreement() > 0.99
    monkeypatch.setattr(tpt_lib.text.half_precision, "HALF_SCALE", 1.0)
    assert agreement() < 0.9


@BOTH
def test_autocast(engine):
    model, prompts = vit(engine)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = initial_of(model, prompts)
        assert rough is initial_of(model, prompts)
    exact = initial_of(model, prompts)
    want = features_and_gradient(model, class_prompts(model, NAMES))
    upstream = torch.randn(want[0].shape, generator=torch.Generator().manual_seed(0))
    assert_same((exact.features, *exact.gradients(upstream)), want, 1e-6)
    assert rough.features.dtype == torch.float32
    assert 1e-5 < largest(rough.features, want[0]) <= 0.05
    assert cosine(*rough.gradients(upstream), want[1]) > 0.99


def test_a_model_without_text_parts_computes_in_the_dtype_of_its_embedding():
    model = Letters()
    assert compute_dtypes(model) == {torch.float32}
    model.table = model.table.half()
    assert compute_dtypes(model) == {torch.float16}


def test_a_scaled_gradient_leaves_no_hook_on_the_tensor():
    x = torch.ones(2, requires_grad=True)
    for _ in range(2):
        (gradient,) = torch.autograd.grad(scale_gradient(x, 4.0).sum(), x)
        assert gradient.tolist() == [4, 4]

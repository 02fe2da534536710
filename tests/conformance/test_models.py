"""Every kind of model the library wraps, against the bare module: values, gradients, modes, precision, copies, threads."""

import copy
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest
import torch
from support.marking import slow_but
from support.text_cases import relative
from support.zoo import ZOO, build, fresh, unpickle
from torch import nn

import tpt_lib

TEXTS = ["a photo of a cat.", "a photo of a red panda.", "kite"]


def pixels_for(model, number=3):
    draw = torch.Generator().manual_seed(number)
    return torch.randn(number, 3, *model.image_spec.size, generator=draw)


def text_features(model):
    ids = model.tokenize(TEXTS)
    return model.encode_embeddings(model.embed_tokens(ids), ids)


def features(model):
    """What the wrapped model gives, without a graph."""
    with torch.no_grad():
        return text_features(model), model.encode_image(pixels_for(model))


def pooled(output):
    return output if isinstance(output, torch.Tensor) else output.pooler_output


def own_text_features(module, ids):
    """The bare module's own forward."""
    if hasattr(module, "encode_text"):
        return module.encode_text(ids, **({"normalize": False} if "CoCa" in type(module).__name__ else {}))
    pad = module.config.text_config.pad_token_id
    mask = {"attention_mask": (ids != pad).long()} if type(module).__name__.startswith(("Chinese", "Alt")) else {}
    return pooled(module.get_text_features(input_ids=ids, **mask))


def own_image_features(module, pixels):
    """The bare module's own forward; SigLIP 2 is given patches, cut by hand."""
    if hasattr(module, "encode_image"):
        return module.encode_image(pixels, **({"normalize": False} if "CoCa" in type(module).__name__ else {}))
    if type(module).__name__ != "Siglip2Model":
        return pooled(module.get_image_features(pixel_values=pixels))
    rows = [[image[:, i : i + 16, j : j + 16] for i in (0, 16) for j in (0, 16)] for image in pixels]
    patches = torch.stack([torch.stack([patch.permute(1, 2, 0).flatten() for patch in row]) for row in rows])
    grid = {"pixel_attention_mask": torch.ones(len(pixels), 4), "spatial_shapes": torch.tensor([[2, 2]] * len(pixels))}
    return pooled(module.get_image_features(pixel_values=patches, **grid))


def own_features(model):
    with torch.no_grad():
        pixels = pixels_for(model).to(next(model.module.parameters()).dtype)
        return own_text_features(model.module, model.tokenize(TEXTS)), own_image_features(model.module, pixels)


def state(module):
    """All of a module that a caller could see changed."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
    return {
        "tensors": {
            k: (v.clone(), v._version, id(v)) for k, v in [*module.named_parameters(), *module.named_buffers()]
        },
        "flags": [(p.requires_grad, p.grad is None) for p in module.parameters()],
        "modes": [m.training for m in module.modules()],
        "hooks": [len(getattr(m, h)) for m in module.modules() for h in hooks],
        "modules": [(name, id(m), sorted(vars(m))) for name, m in module.named_modules()],
    }


def assert_unchanged(before, module):
    after = state(module)
    for key, (value, version, identity) in before.pop("tensors").items():
        now, now_version, now_identity = after["tensors"][key]
        assert torch.equal(value.reshape(-1).view(torch.uint8), now.reshape(-1).view(torch.uint8)), key
        assert (version, identity) == (now_version, now_identity), key
    after.pop("tensors")
    assert before == after


@pytest.mark.parametrize("name", ZOO)
def test_features_are_the_modules_own(name):
    model = build(name)
    for got, want in zip(features(model), own_features(model), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
        assert got.std(dim=0).mean() > 1e-5, "all inputs have the same feature, so the comparison shows nothing"


@pytest.mark.parametrize("name", ZOO)
def test_logit_scale_and_bias_are_the_modules_own(name):
    model = build(name)
    own = model.module.state_dict()
    torch.testing.assert_close(model.logit_scale, own["logit_scale"].exp().squeeze())
    assert float(model.logit_bias) == float(own.get("logit_bias", 0))


@pytest.mark.parametrize("name", ZOO)
def test_gradients_reach_the_embeddings_and_nothing_else(name):
    model = build(name)
    ids = model.tokenize(TEXTS)
    embeddings = model.embed_tokens(ids).requires_grad_()
    assert all(p.requires_grad for p in model.module.parameters() if p.is_floating_point())
    model.encode_embeddings(embeddings, ids).square().sum().backward()
    assert all(p.grad is None for p in model.module.parameters())

    module, wants = copy.deepcopy(model.module), []  # its own forward, with a hook that records the same gradient
    embedding = model.token_embedding(module)

    def record(_module, _inputs, output):
        output.retain_grad()
        wants.append(output)

    embedding.register_forward_hook(record)
    own_text_features(module, ids).square().sum().backward()
    assert embeddings.grad.norm() > 0
    assert relative(embeddings.grad, wants[0].grad) <= 1e-5


@pytest.mark.parametrize("name", ZOO)
@pytest.mark.parametrize("training", [True, False])
def test_the_model_stays_as_it_was(name, training):
    model = fresh(name)
    model.module.train(training)
    before = state(model.module)
    ids = model.tokenize(TEXTS)
    model.encode_embeddings(model.embed_tokens(ids).requires_grad_(), ids).sum().backward()
    features(model)
    model.causal_tower()
    assert_unchanged(before, model.module)


@pytest.mark.parametrize("name", ["open_clip-vit", "openai", "transformers-clip", "transformers-siglip"])
def test_the_model_stays_as_it_was_after_an_exception(name):
    model = fresh(name)
    model.module.train()

    def fail(*_):
        raise RuntimeError("in the middle")

    for part in model.module.modules():
        if isinstance(part, nn.LayerNorm):
            part.register_forward_hook(fail)
    before = state(model.module)
    with pytest.raises(RuntimeError, match="in the middle"):
        text_features(model)
    with pytest.raises(RuntimeError, match="in the middle"):
        model.encode_image(pixels_for(model))
    assert_unchanged(before, model.module)


@pytest.mark.parametrize("name", ZOO)
def test_eval_mode_is_used_whatever_mode_the_model_is_in(name):
    model = fresh(name)
    for part in model.module.modules():  # so that train mode would show
        if isinstance(part, nn.Dropout):
            part.p = 0.5
        elif isinstance(getattr(part, "dropout", None), float):
            part.dropout = 0.5
    model.module.eval()
    want = own_features(model)
    model.module.train()
    for got, expected in zip(features(model), want, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
    assert all(part.training for part in model.module.modules())


def rounded(name, dtype):
    """A model with weights of this dtype, and the same weights in float32."""
    half, full = fresh(name), fresh(name)
    for part in half.module.modules():
        if not (name == "openai" and isinstance(part, nn.LayerNorm)):  # its norms compute in float32
            part._apply(lambda t: t.to(dtype) if t.is_floating_point() else t, recurse=False)
    full.module.load_state_dict(half.module.state_dict())
    return half, full


@pytest.mark.parametrize("name", ZOO)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 0.05), (torch.float16, 0.01)])
@pytest.mark.slow
def test_half_precision_against_float32_of_the_same_weights(name, dtype, tolerance):
    half, full = rounded(name, dtype)
    for got, want in zip(features(half), features(full), strict=True):
        assert (got.dtype, want.dtype) == (dtype, torch.float32)
        assert (got.float() - want).norm() <= tolerance * want.norm()


@pytest.fixture(scope="module")
def child():
    """A process that starts from nothing, as data loaders and clusters start theirs."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        yield pool


def features_there(data):
    return [found.tolist() for found in features(unpickle(data))]


def model_called(name):
    return tpt_lib.load_tiny() if name == "tiny" else fresh(name)


@pytest.mark.parametrize("name", [*ZOO, "tiny"])
@pytest.mark.filterwarnings("ignore:the embedded model was not trained on")
@pytest.mark.slow
def test_a_pickled_model_gives_the_same_features_in_another_process(name, child):
    model = model_called(name)
    unused = pickle.dumps(model)
    want = [found.tolist() for found in features(model)]
    model.causal_tower()
    used = pickle.dumps(model)
    assert child.submit(features_there, unused).result() == want
    assert child.submit(features_there, used).result() == want


@pytest.mark.parametrize("name", slow_but(["open_clip-vit"], [*ZOO, "tiny"]))
@pytest.mark.filterwarnings("ignore:the embedded model was not trained on")
def test_a_deep_copy_is_another_model_with_the_same_features(name):
    model = model_called(name)
    unused = copy.deepcopy(model)
    want = features(model)
    with torch.no_grad():
        used = copy.deepcopy(model)
        for weight in model.module.parameters():
            weight.zero_()
    for copied in (unused, used):
        assert copied != model
        assert (copied.name, copied.image_spec) == (model.name, model.image_spec)
        assert all(torch.equal(a, b) for a, b in zip(features(copied), want, strict=True))


@pytest.mark.parametrize("name", [*ZOO, "tiny"])
def test_a_shallow_copy_is_the_same_model(name):
    model = model_called(name)
    copied = copy.copy(model)
    assert copied is not model
    assert copied == model
    assert hash(copied) == hash(model)
    assert copied.module is model.module


@pytest.mark.parametrize("name", ZOO)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.slow
def test_threads_share_a_model(name, training):
    model = fresh(name)
    model.module.train(training)
    ids = model.tokenize(TEXTS)
    words, pixels = model.embed_tokens(ids), pixels_for(model)

    def work(number):
        embeddings = (words * (1 + number)).requires_grad_()
        text = model.encode_embeddings(embeddings, ids)
        (gradient,) = torch.autograd.grad(text.square().sum(), embeddings)
        return text.detach(), gradient, model.encode_image(pixels + number).detach()

    want = [work(number) for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for got, alone in zip(pool.map(work, list(range(4)) * 3), want * 3, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(got, alone, strict=True))

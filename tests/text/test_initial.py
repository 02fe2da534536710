"""What is kept with prompts: never stale, built once, and cheap to find again."""

import functools
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from support.cases import largest, meta_net
from support.letters import KeptLetters, Letters
from support.text_cases import BOTH, NAMES, assert_same, features_and_gradient, initial_of, relative, varied, vit
from support.zoo import build
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import tpt_lib
from tpt_lib import class_prompts, encode_prompts, gaussian_context
from tpt_lib.models.identity import text_fingerprint
from tpt_lib.prompts import LearnedPrompt
from tpt_lib.text import encode
from tpt_lib.text.encode import open_encoder
from tpt_lib.text.initial import InitialText, initial_text, keep_features, start_features


def with_a_hook(module):
    module.transformer.resblocks[1].register_forward_hook(lambda _module, _inputs, x: 2 * x)
    return module


def step(module):
    for weight in module.parameters():
        weight.grad = torch.ones_like(weight)
    torch.optim.SGD(module.parameters(), lr=0.01).step()
    module.zero_grad()


def load(module, *, assign=False):
    module.load_state_dict({k: 1.1 * v for k, v in module.state_dict().items()}, assign=assign)


@torch.no_grad()
def write_one_element(module):
    module.transformer.resblocks[1].mlp.c_fc.weight[3, 5] += 5


def replace_norm(module):
    module.ln_final = nn.LayerNorm(32, eps=0.1)


def replace_activation(module):
    module.transformer.resblocks[0].mlp.gelu = nn.ReLU()


def raise_eps(module):
    module.ln_final.eps = 0.1


def patch_forward(module):
    block = module.transformer.resblocks[1]
    block.forward = functools.partial(lambda forward, *args, **kwargs: 2 * forward(*args, **kwargs), block.forward)


def patch_tower(module):
    tower = module.transformer
    tower.forward = functools.partial(lambda forward, x, **kwargs: forward(x, **kwargs) + x.roll(1, -1), tower.forward)


def replace_weight(module):
    module.ln_final.weight = nn.Parameter(1.5 * module.ln_final.weight.detach())


CHANGES = {
    "an optimizer's step": step,
    "load_state_dict": load,
    "load_state_dict, assigned": lambda m: load(m, assign=True),
    "one element of a weight": write_one_element,
    "another parameter": replace_weight,
    "double": lambda m: m.double(),
    "another norm": replace_norm,
    "another activation": replace_activation,
    "another eps": raise_eps,
    "a hook": with_a_hook,
    "a patched forward": patch_forward,
    "a patched tower": patch_tower,
}


@BOTH
@pytest.mark.parametrize("change", CHANGES)
def test_what_is_kept_is_never_stale(change, engine):
    model, prompts = vit(engine)
    before = initial_of(model, prompts)
    old = before.features.detach().clone()
    assert before is initial_of(model, prompts)
    target = model.module if engine == "packed" else model.module.text
    CHANGES[change](target)
    again = class_prompts(model, NAMES, context=prompts.context)
    want = features_and_gradient(model, again)
    assert change == "double" or largest(want[0], old) > 1e-4
    after = initial_of(model, prompts)
    assert after is not before
    upstream = torch.randn(want[0].shape, generator=torch.Generator().manual_seed(0))
    assert_same((after.features, *after.gradients(upstream)), want, 1e-6)
    assert after is initial_of(model, prompts)
    assert largest(encode_prompts(model, prompts), want[0]) <= 1e-6


def write_one_row(module):
    module.token_embedding.weight.data[49407] *= 3  # the end of text


UNSEEN = {
    "one weight": lambda m: m.transformer.resblocks[1].mlp.c_fc.weight.data.mul_(1.5),
    "every block": lambda m: [w.data.mul_(1.1) for w in m.transformer.parameters()],
    "one row of the embedding": write_one_row,
}


@BOTH
@pytest.mark.parametrize("change", UNSEEN)
def test_a_write_through_data_is_not_noticed_until_told_to_forget(change, engine):
    model, prompts = vit(engine)
    views = torch.eye(16)[:4]
    before, zero_shot = initial_of(model, prompts), tpt_lib.zero_shot_predict(model, prompts, views)
    UNSEEN[change](model.module if engine == "packed" else model.module.text)
    want = encode_prompts(model, class_prompts(model, NAMES, context=prompts.context))
    assert largest(want, before.features) > 1e-4
    assert initial_of(model, prompts) is before
    assert torch.equal(tpt_lib.zero_shot_predict(model, prompts, views).logits, zero_shot.logits)
    prompts.forget()
    assert largest(initial_of(model, prompts).features, want) <= 1e-6
    expected = tpt_lib.class_logits(model, views[:1], want)[0]
    torch.testing.assert_close(tpt_lib.zero_shot_predict(model, prompts, views).logits, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("change", CHANGES)
def test_zero_shot_features_are_never_stale(change):
    """The same changes, seen by the features that are kept without a graph."""
    model, prompts = vit()
    views = torch.eye(16)[:4]
    old = tpt_lib.zero_shot_predict(model, prompts, views).logits
    CHANGES[change](model.module)
    again = class_prompts(model, NAMES, context=prompts.context)
    want = tpt_lib.class_logits(model, views[:1], encode_prompts(model, again))[0].detach()
    assert change == "double" or largest(want, old) > 1e-4
    torch.testing.assert_close(tpt_lib.zero_shot_predict(model, prompts, views).logits, want, atol=1e-5, rtol=1e-5)


def count_forwards(monkeypatch):
    """Count what the packed engine computes, proofs aside."""
    found, forward = [], tpt_lib.text.encode.packed_features

    def counted(*args):
        found.append(args)
        return forward(*args)

    monkeypatch.setattr(tpt_lib.text.encode, "packed_features", counted)
    return found


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_second_image_costs_no_forward_but_those_after_its_steps(steps, monkeypatch):
    model, prompts = vit()
    forwards = count_forwards(monkeypatch)
    images = F.normalize(torch.randn(2, 10, 16), dim=-1)
    tpt_lib.tpt_predict(model, prompts, images[0], steps=steps)
    assert len(forwards) == 1 + steps
    tpt_lib.tpt_predict(model, prompts, images[1], steps=steps)
    assert len(forwards) == 1 + 2 * steps
    tpt_lib.tpt_predict(model, prompts, images, steps=steps)
    assert len(forwards) == 1 + 3 * steps


class Operations(TorchDispatchMode):
    """Record every tensor operation with the memory it reads."""

    def __init__(self):
        super().__init__()
        self.names, self.read = [], set()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.names.append(operation.overloadpacket.__name__)
        self.read |= {each.untyped_storage().data_ptr() for each in tree_leaves(args) if isinstance(each, torch.Tensor)}
        return operation(*args, **(kwargs or {}))


def weights_but_the_scale(model):
    return {w.untyped_storage().data_ptr() for n, w in model.module.named_parameters() if n != "logit_scale"}


@pytest.mark.usefixtures("no_shape_checks")
def test_finding_what_is_kept_launches_no_operation():
    model, prompts = vit()
    encoder = open_encoder(model, prompts)
    initial_text(encoder)
    with Operations() as seen:
        initial_text(encoder)
        text_fingerprint(model)
    assert seen.names == []


@pytest.mark.usefixtures("no_shape_checks")
def test_zero_shot_from_kept_features_launches_the_logits_alone():
    model, prompts = vit()
    views = F.normalize(torch.randn(10, 16), dim=-1)
    with Operations() as first:
        tpt_lib.zero_shot_predict(model, prompts, views)
    assert first.read & weights_but_the_scale(model), "else the next assertion could not fail"
    with Operations() as again:
        tpt_lib.zero_shot_predict(model, prompts, views)
    assert not again.read & weights_but_the_scale(model)
    assert again.names.count("mm") + again.names.count("bmm") == 1
    assert not {"sum", "norm", "equal"} & set(again.names)
    assert again.names.count("linalg_vector_norm") == 1, "the check of the features' lengths"
    assert len(again.names) <= 40, again.names


@pytest.mark.parametrize("kind", [Letters, KeptLetters])
def test_a_model_without_text_parts_keeps_nothing(kind):
    model = kind()
    prompts = class_prompts(model, ["cat", "dog", "bee"], template="my {}")
    views = F.normalize(torch.randn(8, 6), dim=-1)
    for _ in range(2):
        found = tpt_lib.tpt_predict(model, prompts, views)
        zero_shot = tpt_lib.zero_shot_predict(model, prompts, views)
        want = tpt_lib.class_logits(model, views[:1], encode_prompts(model, prompts))[0]
        torch.testing.assert_close(zero_shot.logits, want)
        torch.testing.assert_close(found.zero_shot.logits, want)
        assert bool(prompts.cache._kept) == (kind is KeptLetters)
        model.table += 1  # which only a model with text_parts is asked about
    with torch.no_grad():
        model.weights = 2 * model.weights**2
    want = tpt_lib.class_logits(model, views[:1], encode_prompts(model, prompts))[0]
    torch.testing.assert_close(tpt_lib.zero_shot_predict(model, prompts, views).logits, want)


def test_four_threads_build_the_graph_once(monkeypatch):
    model, prompts = vit()
    encode_prompts(model, prompts)  # which proves the engine
    forwards, barrier = count_forwards(monkeypatch), threading.Barrier(4)

    def work(_):
        barrier.wait()
        return initial_of(model, prompts)

    with ThreadPoolExecutor(4) as pool:
        assert len({id(text) for text in pool.map(work, range(4))}) == 1
    assert len(forwards) == 1


@BOTH
def test_gradients_go_nowhere_else_and_can_be_asked_for_again(engine):
    model, prompts = vit(engine)
    initial = initial_of(model, prompts)
    assert initial is initial_of(model, prompts)
    assert (initial is initial_of(model, prompts, engine="full_length")) == (engine == "full_length")
    upstream = torch.randn_like(initial.features)
    first = initial.gradients(upstream)
    assert all(torch.equal(a, b) for a, b in zip(first, initial.gradients(upstream), strict=True))
    encode_prompts(model, prompts, prompts.context.clone().requires_grad_()).sum().backward()
    assert all(weight.grad is None for weight in model.module.parameters())
    assert not prompts.context.requires_grad


@BOTH
def test_gradients_in_free_names(engine):
    model = build("open_clip-vit")
    prompts = class_prompts(model, ["yes", "no"], name_tokens=gaussian_context(model, 2, n_classes=2))
    initial = initial_of(model, prompts, engine=engine)
    upstream = torch.randn_like(initial.features)
    leaves = [t.clone().requires_grad_() for t in (prompts.context, prompts.name_tokens)]
    want = torch.autograd.grad(encode_prompts(model, prompts, *leaves, engine=engine), leaves, upstream)
    for got, plain in zip(initial.gradients(upstream), want, strict=True):
        assert relative(got, plain) <= 1e-5


def test_a_backward_through_the_kept_features_does_not_spoil_them():
    model, prompts = vit()
    upstream = torch.randn(len(NAMES), 16)
    want = initial_of(model, prompts).gradients(upstream)[0]
    features = initial_of(model, prompts).features
    if features.requires_grad:
        features.sum().backward()
    assert torch.equal(initial_of(model, prompts).gradients(upstream)[0], want)


@pytest.mark.parametrize("layout", ["ragged", "padded"])
def test_prompts_first_encoded_in_inference_mode_can_be_tuned(layout):
    model, prompts = vit()
    want = features_and_gradient(model, prompts, layout=layout)
    again = class_prompts(model, NAMES)
    with torch.inference_mode():
        encode_prompts(model, again, layout=layout)
    assert_same(features_and_gradient(model, again, layout=layout), want, 1e-6)


@BOTH
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_grad(mode, engine):
    model, prompts = vit(engine)
    want = initial_of(model, prompts)
    upstream = torch.randn_like(want.features)
    with mode():
        features = encode_prompts(model, prompts)
        initial = initial_of(model, class_prompts(model, NAMES))
        got = initial.gradients(torch.zeros_like(upstream) + upstream)
    assert not features.requires_grad
    assert largest(features, want.features) <= 1e-6
    assert_same((initial.features, *got), (want.features, *want.gradients(upstream)), 1e-6)
    assert not any(tensor.is_inference() for tensor in (initial.features, *got))


@pytest.mark.parametrize("chunk", [None, 2])
@BOTH
@pytest.mark.slow
def test_four_threads_at_once(engine, chunk):
    model, prompts = vit(engine)
    contexts = varied(prompts.context, (4,)).detach()
    shared = initial_of(model, prompts, chunk=chunk)
    upstreams = torch.randn(4, *shared.features.shape)

    def work(i):
        own = initial_of(model, class_prompts(model, NAMES[i:]), chunk=chunk)
        results = features_and_gradient(model, prompts, contexts[i], chunk=chunk)
        assert initial_of(model, prompts, chunk=chunk) is shared
        return [*results, *shared.gradients(upstreams[i]), *own.gradients(upstreams[i, i:])]

    want = [work(i) for i in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for got, alone in zip(pool.map(work, [0, 1, 2, 3] * 2), want * 2, strict=True):
            for a, b in zip(got, alone, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
        again = class_prompts(model, NAMES)
        assert len({id(text) for text in pool.map(lambda _: initial_of(model, again), range(8))}) == 1


def test_gradients_of_several_images_take_one_backward_pass_where_the_graph_allows_it(monkeypatch):
    monkeypatch.setattr(encode, "TOKENS_A_GRAPH", 20)  # as many as there are
    model, prompts = vit()
    together, apart = (initial_of(model, prompts, layout=layout) for layout in ("padded", "ragged"))
    upstream, calls, gradients = torch.randn(2, len(NAMES), 16), [], InitialText.gradients
    want = torch.stack([apart.gradients(one)[0] for one in upstream])
    monkeypatch.setattr(InitialText, "gradients", lambda self, one: calls.append(one) or gradients(self, one))
    for initial, passes in ((together, 1), (apart, 2)):
        calls.clear()
        (got,) = initial.gradients_of_each(upstream)
        assert relative(got, want) <= 1e-5
        assert len(calls) == passes
    monkeypatch.setattr(torch.func, "vmap", None)
    assert relative(together.gradients_of_each(upstream[:1])[0], want[:1]) <= 1e-5


@pytest.mark.parametrize("batch", [(), (1,), (3,)])
@pytest.mark.parametrize("net", [None, meta_net()])
def test_each_image_starts_from_the_features_of_its_own_context(net, batch):
    model = build("open_clip-vit")
    prompts = class_prompts(model, NAMES, context=LearnedPrompt(gaussian_context(model, 4), net))
    views = F.normalize(torch.randn(*batch, 6, 16), dim=-1)
    got = start_features(model, prompts, views)
    assert got.shape == (*batch, len(NAMES), 16)
    assert not got.requires_grad
    for text, view in zip(got.reshape(-1, len(NAMES), 16), views.reshape(-1, 6, 16), strict=True):
        context = prompts.context if net is None else prompts.context + net(view[0])
        assert largest(text, encode_prompts(model, prompts, context)) <= 1e-6


@pytest.mark.usefixtures("no_shape_checks")
def test_names_are_no_start():
    with pytest.raises(TypeError, match="prompts must be what class_prompts"):
        start_features(build("open_clip-vit"), NAMES, torch.eye(16)[:2])


def test_known_features_replace_those_that_are_kept():
    model, prompts = vit()
    before, known = keep_features(model, prompts), torch.eye(16)[: len(NAMES)]
    assert keep_features(model, prompts) is before
    assert keep_features(model, prompts, known) is known
    assert keep_features(model, prompts) is known

"""MEMO against a plain loop on a deep copy, on torchvision's architectures; parameter groups of CLIP; what goes wrong."""

import copy
import functools
import math
import weakref

import pytest
import torch
import torch.nn.functional as F
from oracles.tpt import plain_entropy, plain_loss, token_embedding
from support.cases import meta_net, state
from support.zoo import fresh, liven
from torch import nn

import tpt_lib
from tpt_lib import class_prompts, memo_classify, memo_clip_predict, tpt_predict
from tpt_lib.methods import memo_predict
from tpt_lib.prompts.contexts import LearnedPrompt

NAMES = ["cat", "red panda", "kite (bird of prey)", "dog"]
ARCHITECTURES = [
    "resnet18",
    "mobilenet_v3_small",
    "regnet_y_400mf",
    "shufflenet_v2_x0_5",
    "squeezenet1_1",
    "vit_b_16",
    "swin_t",
]


@functools.cache
def classifier(name):
    """With random weights, norms and running statistics, so that each of them counts."""
    import torchvision

    torch.manual_seed(0)
    if name == "vit_b_16":
        module = torchvision.models.VisionTransformer(32, 16, 2, 2, 32, 64, num_classes=7)
        nn.init.normal_(module.heads.head.weight)
    elif name == "swin_t":
        module = torchvision.models.SwinTransformer([4, 4], 16, [2, 2], [2, 2], [4, 4], num_classes=7)
    else:
        module = torchvision.models.get_model(name, num_classes=7)
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.running_mean.normal_(0, 0.3)
            part.running_var.uniform_(0.5, 2)
    return liven(module).eval()


def views_of(number=10, size=40, seed=0):
    return torch.randn(number, 3, size, size, generator=torch.Generator().manual_seed(seed))


def size_of(name):
    return 32 if name in ("vit_b_16", "swin_t") else 40


class PlainNorm(nn.Module):
    """MEMO's batch norm: its statistics are those of the batch, weighted 1 to ``prior`` with the running ones."""

    def __init__(self, norm, prior):
        super().__init__()
        self.norm, self.prior = norm, prior

    def forward(self, x):
        mean, var = torch.zeros_like(self.norm.running_mean), torch.ones_like(self.norm.running_var)
        F.batch_norm(x, mean, var, None, None, True, 1.0, self.norm.eps)
        weight = self.prior / (self.prior + 1)
        mean = weight * self.norm.running_mean + (1 - weight) * mean
        var = weight * self.norm.running_var + (1 - weight) * var
        return F.batch_norm(x, mean, var, self.norm.weight, self.norm.bias, False, 0.0, self.norm.eps)


def with_plain_norms(module, prior):
    for name, child in list(module.named_children()):
        if isinstance(child, nn.BatchNorm2d):
            setattr(module, name, PlainNorm(child, prior))
        else:
            with_plain_norms(child, prior)
    return module


def plain_memo(module, views, *, prior=16, fraction=1.0, steps=1, lr=2.5e-4):
    """All views at once through a deep copy in float64, ``backward`` and a step by hand."""
    module = copy.deepcopy(module).double()
    module = module if prior is None else with_plain_norms(module, prior)
    views, losses, selected = views.double(), [], None
    for _ in range(steps):
        module.zero_grad()
        logits = module(views)
        if selected is None:
            order = plain_entropy(logits.detach().softmax(dim=-1)).sort(stable=True).indices
            selected = order[: max(1, int(fraction * len(views)))]
        loss = plain_loss(logits[selected])
        loss.backward()
        losses.append(loss.item())
        with torch.no_grad():
            for weight in module.parameters():
                if weight.grad is not None:
                    weight -= lr * weight.grad
    with torch.no_grad():
        return module(views[:1])[0], losses, selected


def close(found, want, start):
    """Logits equal to float tolerance, and the oracle moved by far more than that."""
    moved = (want - start.double()).abs().max()
    gap = (found.double() - want).abs().max()
    assert gap <= 1e-3 * moved + 2e-5, (gap, moved)
    assert moved > 1e-3


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_memo_is_the_plain_method(name):
    module, views = classifier(name), views_of(size=size_of(name))
    found = memo_predict(module, views, lr=0.02, chunk=4)
    want, losses, selected = plain_memo(module, views, lr=0.02)
    with torch.no_grad():
        start = module(views[:1])[0]
    torch.testing.assert_close(found.zero_shot.logits, start)
    close(found.logits, want, start)
    assert math.isclose(found.loss_before, losses[0], rel_tol=1e-4)
    assert sorted(found.selected.tolist()) == sorted(selected.tolist())
    assert found.tuned


@pytest.mark.parametrize("options", [
    {"fraction": 0.7}, {"fraction": 0.5, "steps": 2}, {"fraction": 0.1}, {"prior": None}, {"prior": 4.0, "steps": 3},
    {"prior": 0.0}, {"prior": None, "fraction": 0.3, "steps": 2},
], ids=str)  # fmt: skip
def test_options_are_the_plain_methods(options):
    module, views = classifier("resnet18"), views_of()
    found = memo_predict(module, views, lr=0.01, chunk=3, **options)
    want, losses, selected = plain_memo(module, views, lr=0.01, **options)
    close(found.logits, want, found.zero_shot.logits)
    assert found.selected.tolist() == selected.tolist() or options.get("fraction", 1) == 1
    assert math.isclose(found.loss_before, losses[0], rel_tol=1e-4)


@pytest.mark.parametrize("name", ["resnet18", "vit_b_16"])
def test_laws(name):
    module, views = classifier(name), views_of(6, size_of(name))
    one = memo_predict(module, views, lr=0.05, chunk=6)
    for chunk in (1, 4, 100):
        torch.testing.assert_close(
            memo_predict(module, views, lr=0.05, chunk=chunk).logits, one.logits, atol=1e-4, rtol=1e-4
        )
    still = memo_predict(module, views, lr=0.0, prior=None)
    torch.testing.assert_close(still.logits, still.zero_shot.logits)
    none = memo_predict(module, views, steps=0, prior=None)
    torch.testing.assert_close(none.logits, none.zero_shot.logits)
    assert not none.tuned
    assert none.selected is None
    mixed = torch.cat([views[:1], views[1:].flip(0)])
    torch.testing.assert_close(memo_predict(module, mixed, lr=0.05).logits, one.logits, atol=1e-4, rtol=1e-4)
    many = memo_predict(module, views[:1].expand(6, -1, -1, -1), lr=0.05, prior=None)
    alone = memo_predict(module, views[:1], lr=0.05, prior=None)
    torch.testing.assert_close(many.logits, alone.logits, atol=1e-4, rtol=1e-4)
    assert alone.entropy < alone.zero_shot.entropy


def test_the_defaults_are_memos():
    module, views = classifier("resnet18"), views_of(5)
    same = {"fraction": 1.0, "steps": 1, "lr": 2.5e-4, "prior": 16.0, "optimizer": torch.optim.SGD}
    assert torch.equal(memo_predict(module, views).logits, memo_predict(module, views, **same).logits)
    group = torch.optim.SGD([torch.zeros(1)], lr=1.0).param_groups[0]
    assert (group["weight_decay"], group["momentum"]) == (0, 0)


def test_from_an_image(photo):
    module, spec = classifier("resnet18"), tpt_lib.ImageSpec((64, 64))
    names = ["a", "b", "c", "d", "e", "f", "g"]
    found = memo_classify(module, photo, spec=spec, n_views=5, seed=3, names=names, fraction=0.5)
    views = tpt_lib.augment_views(photo, spec, n_views=5, recipe="augmix", seed=3)
    assert torch.equal(found.logits, memo_predict(module, views, fraction=0.5).logits)
    assert found.names == tuple(names)
    assert memo_predict(module, views).names == tuple("0123456")
    small = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 3)).eval()
    seen = []
    small[0].register_forward_pre_hook(lambda _, x: seen.append(x[0]))
    memo_classify(small, photo)
    assert sum(map(len, seen[1:9])) == 64
    assert seen[0].equal(tpt_lib.views.preprocess(photo, tpt_lib.methods.memo.IMAGENET)[None])


def test_another_optimizer():
    module, views = classifier("vit_b_16"), views_of(4, 32)
    adam = functools.partial(torch.optim.AdamW, weight_decay=0.0)
    found = memo_predict(module, views, optimizer=adam, lr=1e-3, steps=2)
    oracle = copy.deepcopy(module)
    optimizer = adam(oracle.parameters(), lr=1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        plain_loss(oracle(views)).backward()
        optimizer.step()
    torch.testing.assert_close(found.logits, oracle(views[:1])[0].detach(), atol=1e-3, rtol=1e-3)


class Counting(nn.Module):
    """Writes to a buffer in its forward."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x


def breaking(at):
    calls = []

    def hook(*_):
        calls.append(1)
        if len(calls) == at:
            raise RuntimeError("the tower fell")

    return hook


@pytest.mark.parametrize("fails_at", [None, 1, 2, 3, 4])
def test_the_classifier_is_untouched(fails_at):
    module = nn.Sequential(copy.deepcopy(classifier("resnet18")), Counting()).eval()
    module[0].fc.weight.requires_grad_(False)
    if fails_at:
        module[0].layer2.register_forward_hook(breaking(fails_at))
    before = state(module)
    if fails_at:
        with pytest.raises(RuntimeError, match="the tower fell"):
            memo_predict(module, views_of(6), lr=0.1, steps=2, chunk=6)
    else:
        assert memo_predict(module, views_of(6), lr=0.1, steps=2, chunk=2).tuned
    assert state(module) == before


def test_frozen_weights_are_adapted_too():
    module = copy.deepcopy(classifier("vit_b_16"))
    views = views_of(4, 32)
    want = memo_predict(module, views, lr=0.1)
    assert torch.equal(memo_predict(module.requires_grad_(False), views, lr=0.1).logits, want.logits)
    assert want.tuned


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_inside_the_callers_modes(mode):
    module, views = classifier("resnet18"), views_of(4)
    want = memo_predict(module, views, lr=0.1)
    with mode():
        got = memo_predict(module, views.clone(), lr=0.1)
    torch.testing.assert_close(got.logits, want.logits)
    assert not got.logits.requires_grad


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(12, 12), nn.Linear(12, 12)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.first(x.flatten(1)).relu())


def test_tied_weights_stay_tied():
    module, views = Tied().eval(), views_of(4, 2)
    want, _, _ = plain_memo(module, views, lr=0.5, prior=None)
    found = memo_predict(module, views, lr=0.5)
    close(found.logits, want, found.zero_shot.logits)


def test_a_compiled_classifier():
    module, views = classifier("vit_b_16"), views_of(4, 32)
    compiled = torch.compile(module, backend="eager")
    torch.testing.assert_close(memo_predict(compiled, views, lr=0.1).logits, memo_predict(module, views, lr=0.1).logits)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_dtypes(dtype):
    module = copy.deepcopy(classifier("vit_b_16")).to(dtype)
    views = views_of(4, 32).to(dtype)
    found = memo_predict(module, views, lr=0.01)
    assert found.logits.dtype == torch.float32
    want = memo_predict(copy.deepcopy(module).float(), views.float(), lr=0.01)
    torch.testing.assert_close(found.logits, want.logits, atol=0.2 if dtype == torch.bfloat16 else 1e-3, rtol=0.05)


def test_one_value_a_channel():
    module = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(3, 4)).eval()
    found = memo_predict(module, views_of(1, 8))
    assert found.logits.isfinite().all()


def graph_size(call):
    """The most numbers that autograd's graphs held at once."""

    class Held:
        def __init__(self, tensor):
            self.tensor = tensor

    held, sizes = weakref.WeakSet(), []

    def pack(tensor):
        box = Held(tensor)
        held.add(box)
        sizes.append(sum(one.tensor.numel() for one in held))
        return box

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda box: box.tensor):
        call()
    return max(sizes)


def test_memory_does_not_grow_with_the_graph_of_all_views():
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(1568, 3)).eval()
    size = {chunk: graph_size(lambda: memo_predict(module, views_of(32, 16), chunk=chunk)) for chunk in (2, 8, 32)}  # noqa: B023
    assert size[32] > 3 * size[8] > 6 * size[2], size


def test_what_is_not_finite_leaves_the_classifier_as_it_was():
    class Root(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(3))

        def forward(self, x):
            return x.mean(dim=(2, 3)) + self.weight.abs().sqrt()

    with pytest.warns(UserWarning, match="a loss or gradient was not finite; the weights are left as they were"):
        found = memo_predict(Root().eval(), views_of(4, 8))
    assert not found.tuned
    assert torch.equal(found.logits, found.zero_shot.logits)
    assert found.loss_before is None


class Returns(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.weight, self.make = nn.Parameter(torch.ones(())), make

    def forward(self, x):
        return self.make(self.weight * x)


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize(("module", "views", "options", "kind", "message"), [
    (lambda: Returns(lambda x: {"logits": x}), None, {}, ValueError, r"return float logits \(1, K\) .* but it returned dict"),
    (lambda: Returns(lambda x: x), None, {}, ValueError, r"returned torch.float32 of shape \(1, 3, 8, 8\); wrap it"),
    (lambda: Returns(lambda x: x.mean((1, 2, 3))), None, {}, ValueError, r"returned torch.float32 of shape \(1,\)"),
    (lambda: Returns(lambda x: x.mean((2, 3)).long()), None, {}, ValueError, "returned torch.int64 of shape"),
    (lambda: Tied().train(), None, {}, ValueError, "must be in eval mode, but the module itself is in train mode; call"),
    (lambda: nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(192, 3).eval()).train(False).append(nn.ReLU()), None, {},
     ValueError, "must be in eval mode, but 3 is in train mode"),
    (lambda: Tied().eval(), torch.ones(0, 3, 8, 8), {}, ValueError, r"one or more, but got .* of shape \(0, 3, 8, 8\)"),
    (lambda: Tied().eval(), torch.ones(3, 8, 8), {}, ValueError, r"of shape \(N, 3, H, W\), .* but got .* \(3, 8, 8\)"),
    (lambda: Tied().eval(), torch.ones(2, 3, 8, 8, dtype=torch.uint8), {}, ValueError, "normalised floats .* torch.uint8"),
    (lambda: nn.Flatten().eval(), None, {}, ValueError, "Flatten has no parameters, so there is nothing to adapt"),
    (lambda: (lambda x: x), None, {}, TypeError, "must be a torch module from pixels to logits, but got function"),
    (lambda: Tied().eval(), torch.ones(2, 3, 2, 2), {"names": ["a"]}, ValueError, "there are 1 names and 12 logits"),
    (lambda: Tied().eval(), None, {"steps": -1}, ValueError, "steps must be 0 or more"),
    (lambda: Tied().eval(), None, {"chunk": 0}, ValueError, "chunk at least 1"),
    (lambda: Tied().eval(), None, {"prior": -1.0}, ValueError, "prior 0 or more, but got 1, 8 and -1.0"),
    (lambda: Tied().eval(), torch.ones(2, 3, 2, 2), {"fraction": 0.0}, ValueError, "fraction must be above 0"),
    (lambda: nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False), nn.Flatten()).eval(), None, {}, ValueError,
     "has no running statistics"),
    (lambda: (lambda norm: nn.Sequential(norm, norm, nn.Flatten()).eval())(nn.BatchNorm2d(3)), None, {}, ValueError,
     "a batch norm of the classifier is used twice in one pass"),
])  # fmt: skip
def test_bad_input(module, views, options, kind, message):
    module = module()
    if isinstance(module, Returns):
        module.eval()
    with pytest.raises(kind, match=message):
        memo_predict(module, torch.ones(2, 3, 8, 8) if views is None else views, **options)


@pytest.mark.usefixtures("no_shape_checks")
def test_zero_views_of_an_image():
    with pytest.raises(ValueError, match="n_views must be an int of at least 1, but got 0"):
        memo_classify(Tied().eval(), torch.rand(3, 8, 8), n_views=0)


# parameter groups of CLIP

ZOO = [f"open_clip-{kind}" for kind in ("vit", "resnet", "custom-text", "siglip")]
ZOO += ["transformers-clip", "transformers-siglip", "openai"]
GROUPS = ["text", "image", "all"]


@functools.cache
def clip(name):
    model = fresh(name)
    with torch.no_grad():
        model.module.logit_scale.fill_(math.log(30))
    return model


def prompts_of(model, kind):
    if kind == "coop":
        return class_prompts(model, NAMES, context=tpt_lib.gaussian_context(model, 4, sigma=0.5))
    if kind == "cocoop":
        return class_prompts(
            model, NAMES, context=LearnedPrompt(tpt_lib.gaussian_context(model, 4, sigma=0.5), meta_net())
        )
    return class_prompts(model, NAMES)


def plain_group(model, prompts, views, group, lr, steps, fraction=1.0):
    """The same with a deep copy, its own forward on full-length prompts, and ``backward``."""
    module = copy.deepcopy(model.module).double()
    for part in module.modules():
        if isinstance(part, nn.LayerNorm):
            part.__class__ = nn.LayerNorm
    views = views.double()

    def image():
        out = model.image_features(module, views)
        return out / out.norm(dim=-1, keepdim=True)

    held, columns = None, 0 if "siglip" in type(module).__name__.lower() or len(prompts.ids[0]) == 24 else 1
    if prompts.meta_net is not None:
        net, plain = prompts.meta_net, image()[0].detach().float()
        held = prompts.context + net(plain)
    elif not torch.equal(
        model.embed_tokens(prompts.ids[:1])[0, columns : columns + len(prompts.context)], prompts.context
    ):
        held = prompts.context

    def put_in(_module, _inputs, embedded):
        if held is None:
            return embedded
        return torch.cat([embedded[:, :1], held.double().expand(len(embedded), -1, -1), embedded[:, 5:]], dim=1)

    token_embedding(module).register_forward_hook(put_in)

    def logits():
        text = model.text_features(module, prompts.ids)
        text = text / text.norm(dim=-1, keepdim=True)
        bias = getattr(module, "logit_bias", None)
        return module.logit_scale.exp() * image() @ text.T + (0 if bias is None else bias)

    def mine(name):
        visual = name.startswith(("visual", "vision"))
        apart = name in ("logit_scale", "logit_bias")
        return group == "all" or (not apart and visual == (group == "image"))

    selected = None
    for _ in range(steps):
        module.zero_grad()
        found = logits()
        if selected is None:
            selected = plain_entropy(found.detach().softmax(dim=-1)).sort(stable=True).indices
            selected = selected[: max(1, int(fraction * len(views)))]
        plain_loss(found[selected]).backward()
        with torch.no_grad():
            for name, weight in module.named_parameters():
                if mine(name) and weight.grad is not None:
                    weight -= lr * weight.grad
    with torch.no_grad():
        return logits()[0]


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("name", ZOO)
def test_groups_are_the_plain_method(name, group):
    model, views = clip(name), views_of(6, 32)
    prompts = prompts_of(model, "words")
    found = memo_clip_predict(model, prompts, views, group=group, lr=0.01, steps=2, chunk=4)
    want = plain_group(model, prompts, views, group, 0.01, 2)
    close(found.logits, want, found.zero_shot.logits)
    zero = tpt_lib.zero_shot_predict(model, prompts, tpt_lib.encode_views(model, views))
    torch.testing.assert_close(found.zero_shot.logits, zero.logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["coop", "cocoop"])
@pytest.mark.parametrize("name", ["open_clip-vit", "open_clip-coca"])
def test_groups_with_learned_prompts(name, kind):
    model, views = clip(name), views_of(6, 32)
    prompts = prompts_of(model, kind)
    for group in GROUPS:
        found = memo_clip_predict(model, prompts, views, group=group, lr=0.01, fraction=0.5)
        want = plain_group(model, prompts, views, group, 0.01, 1, fraction=0.5)
        close(found.logits, want, found.zero_shot.logits)


def test_the_prompt_group_is_tpt():
    model, views = clip("open_clip-vit"), views_of(6, 32)
    prompts = prompts_of(model, "words")
    everything = functools.partial(tpt_lib.select_confident, fraction=1.0)
    want = tpt_predict(model, prompts, tpt_lib.encode_views(model, views), select=everything)
    assert torch.equal(memo_clip_predict(model, prompts, views, group="prompt").logits, want.logits)
    other = memo_clip_predict(
        model, prompts, views, group="prompt", lr=1e-2, steps=2, optimizer=torch.optim.SGD, fraction=0.5
    )
    assert not torch.equal(other.logits, want.logits)
    assert len(other.selected) == 3


@pytest.mark.parametrize("group", ["prompt", *GROUPS])
@pytest.mark.parametrize("fails_at", [None, 2, 3])
def test_the_clip_is_untouched(group, fails_at):
    model, views = fresh("open_clip-resnet"), views_of(4, 32)
    prompts = class_prompts(model, NAMES)
    if fails_at:
        model.module.visual.layer1.register_forward_hook(breaking(fails_at))
    before = state(model.module)
    try:
        memo_clip_predict(model, prompts, views, group=group, steps=2, chunk=2, prior=16.0)
    except RuntimeError:
        assert fails_at
    assert state(model.module) == before


@pytest.mark.parametrize("group", ["image", "all"])
def test_memory_of_groups(group):
    model, views = clip("open_clip-vit"), views_of(32, 32)
    prompts = prompts_of(model, "words")
    size = {
        chunk: graph_size(lambda: memo_clip_predict(model, prompts, views, group=group, chunk=chunk))  # noqa: B023
        for chunk in (2, 32)
    }
    assert size[32] > 2 * size[2], size


def test_batch_norms_of_a_clip():
    model, views = clip("open_clip-resnet"), views_of(6, 32)
    prompts = prompts_of(model, "words")
    plain, mixed = (
        memo_clip_predict(model, prompts, views, group="image", prior=prior).logits for prior in (None, 16.0)
    )
    assert not torch.allclose(plain, mixed, atol=1e-2)


@pytest.mark.usefixtures("no_shape_checks")
def test_bad_groups():
    model, views = clip("open_clip-vit"), views_of(2, 32)
    prompts = prompts_of(model, "words")
    with pytest.raises(ValueError, match="group must be one of prompt, text, image, all, but got 'visual'"):
        memo_clip_predict(model, prompts, views, group="visual")
    with pytest.raises(ValueError, match=r"wants views of shape \(N, 3, 32, 32\), but got \(2, 16\)"):
        memo_clip_predict(model, prompts, torch.ones(2, 16), group="all")

    class Bare:
        def __getattr__(self, name):
            return getattr(model, name)

    bare = Bare()
    with pytest.raises(
        TypeError, match="only a model that wrap or a loader made shows its weights, and this is a Bare"
    ):
        memo_clip_predict(bare, class_prompts(bare, NAMES), views, group="image")
    assert memo_clip_predict(bare, class_prompts(bare, NAMES), views, group="prompt").tuned

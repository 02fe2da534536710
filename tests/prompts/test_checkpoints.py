"""CoOp and CoCoOp checkpoints, as those projects save them, and files that are none."""

import collections

import pytest
import torch
from safetensors.torch import save_file
from support.cases import meta_net

import tpt_lib
from tpt_lib.prompts import LearnedPrompt, MetaNet


def checkpoint(path, **state):
    """Write a file as CoOp's trainer leaves it, optimizer and scheduler objects and all."""
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    weight.sum().backward()
    optimizer.step()
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    saved = {
        "state_dict": collections.OrderedDict(state), "epoch": 50, "val_result": None,
        "optimizer": optimizer.state_dict(), "scheduler": {"successor": scheduler, "cons_lr": 1e-5},
    }  # fmt: skip
    torch.save(saved, path)
    return path


def test_coop_checkpoint(model, tmp_path):
    ctx = torch.randn(16, 32)
    state = {"ctx": ctx.half(), "token_prefix": torch.randn(3, 1, 32), "token_suffix": torch.randn(3, 60, 32)}
    path = checkpoint(tmp_path / "model.pth.tar-50", **state)
    with pytest.raises(Exception, match="Unsupported global"):
        torch.load(path, weights_only=True)
    learned = tpt_lib.load_prompt(path)
    assert learned.meta_net is None
    prompts = tpt_lib.class_prompts(model, ["cat", "dog"], context=learned)
    assert torch.equal(prompts.context, ctx.half().float())


def test_a_checkpoint_in_safetensors(tmp_path):
    ctx, net = torch.randn(4, 32), meta_net()
    keys = [f"prompt_learner.meta_net.linear{i}.{part}" for i in (1, 2) for part in ("weight", "bias")]
    path = tmp_path / "cocoop.safetensors"
    save_file({"prompt_learner.ctx": ctx, **dict(zip(keys, net.parts, strict=True))}, path)
    learned = tpt_lib.load_prompt(path)
    assert torch.equal(learned.context, ctx)
    assert all(torch.equal(a, b) for a, b in zip(learned.meta_net.parts, net.parts, strict=True))


def test_class_specific_coop_checkpoint(model, tmp_path):
    ctx = torch.randn(2, 4, 32)
    learned = tpt_lib.load_prompt(checkpoint(tmp_path / "csc.pth", ctx=ctx))
    assert torch.equal(tpt_lib.class_prompts(model, ["cat", "dog"], context=learned).context, ctx)
    with pytest.raises(ValueError, match=r"for 3 classes .* or \(3, L, 32\) .* but got \(2, 4, 32\)"):
        tpt_lib.class_prompts(model, ["cat", "dog", "kite"], context=learned)


def test_cocoop_checkpoint(model, tmp_path):
    net = torch.nn.Sequential(
        collections.OrderedDict(linear1=torch.nn.Linear(16, 1), relu=torch.nn.ReLU(), linear2=torch.nn.Linear(1, 32))
    )
    ctx = torch.randn(4, 32)
    weights = {f"prompt_learner.meta_net.{k}": v for k, v in net.state_dict().items()}
    path = tmp_path / "cocoop.pth"
    torch.save({"prompt_learner.ctx": ctx, **weights}, path)
    prompts = tpt_lib.class_prompts(model, ["cat", "dog"], context=tpt_lib.load_prompt(path))
    image = torch.nn.functional.normalize(torch.randn(5, 16), dim=-1)
    with torch.no_grad():
        want = ctx + net(image)[:, None]
    torch.testing.assert_close(tpt_lib.prompts.conditional_context(prompts, image), want)
    torch.testing.assert_close(tpt_lib.prompts.conditional_context(prompts, image[0]), want[0])
    plain = tpt_lib.class_prompts(model, ["cat", "dog"])
    assert torch.equal(tpt_lib.prompts.conditional_context(plain, image)[3], plain.context)


def cocoop(change):
    shapes = {"ctx": (4, 32), "meta_net.linear1.weight": (2, 16), "meta_net.linear1.bias": (2,)}
    shapes |= {"meta_net.linear2.weight": (32, 2), "meta_net.linear2.bias": (32,)}
    return {key: torch.zeros(shape) for key, shape in shapes.items()} | change


def test_a_network_for_features_of_another_width(model, tmp_path):
    torch.save(cocoop({"meta_net.linear1.weight": torch.zeros(2, 7)}), tmp_path / "cocoop.pth")
    prompts = tpt_lib.class_prompts(model, ["cat", "dog"], context=tpt_lib.load_prompt(tmp_path / "cocoop.pth"))
    with pytest.raises(
        ValueError, match=r"\(meta_net.linear1.weight\) takes image features of width 7, but got 16; the checkpoint"
    ):
        tpt_lib.tpt_predict(model, prompts, torch.eye(16)[:4])


@pytest.mark.parametrize(("content", "message"), [
    ({"state_dict": {"weight": torch.zeros(2)}}, "holds no tensor 'ctx', .* its keys are weight"),
    ({"ctx": "text"}, "holds no tensor 'ctx'"),
    ([1, 2], "holds no tensor 'ctx', .* its keys are none"),
    ({"ctx": torch.zeros(4, 32), "meta_net.linear1.weight": torch.zeros(1, 16)}, "part of a CoCoOp network"),
    (cocoop({"meta_net.linear2.bias": None}), "part of a CoCoOp network"),
    ({"ctx": torch.zeros(32)}, r"'ctx' is torch.float32 of shape \(32,\), which does not fit; ctx is floats \(L, D\) or"),
    ({"ctx": torch.zeros(4, 32).long()}, r"'ctx' is torch.int64 of shape \(4, 32\), which does not fit"),
    (cocoop({"meta_net.linear1.weight": torch.zeros(16)}), r"'meta_net.linear1.weight' is torch.float32 of shape \(16,\)"),
    (cocoop({"meta_net.linear1.bias": torch.zeros(3)}), r"'meta_net.linear1.bias' is torch.float32 of shape \(3,\), which"),
    (cocoop({"meta_net.linear2.weight": torch.zeros(32, 5)}), r"'meta_net.linear2.weight' is torch.float32 of shape \(32, 5\)"),
    (cocoop({"meta_net.linear2.bias": torch.zeros(31)}), r"'meta_net.linear2.bias' is .* here \(4, 32\), and meta_net maps"),
])  # fmt: skip
def test_a_file_that_is_no_prompt(tmp_path, content, message):
    torch.save(content, tmp_path / "file.pth")
    with pytest.raises(ValueError, match=message):
        tpt_lib.load_prompt(tmp_path / "file.pth")


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="load_prompt: there is no file"):
        tpt_lib.load_prompt(tmp_path / "nothing.pth")


def test_what_is_not_said_is_saved_as_zero(tmp_path):
    """CoOp's loader reads both entries."""
    tpt_lib.save_prompt(tmp_path / "model.pth", LearnedPrompt(torch.zeros(4, 32)))
    saved = torch.load(tmp_path / "model.pth", weights_only=True)
    assert (saved["epoch"], saved["val_result"]) == (0, 0.0)


@pytest.mark.parametrize("shape", [(4, 32), (2, 4, 32)])
@pytest.mark.parametrize("with_net", [False, True])
def test_what_is_saved_is_what_is_loaded(model, tmp_path, shape, with_net):
    net = meta_net() if with_net else None
    prompts = tpt_lib.class_prompts(model, ["cat", "dog"], context=LearnedPrompt(torch.randn(shape), net))
    path = tmp_path / "model.pth.tar-3"
    tpt_lib.save_prompt(path, prompts, epoch=3, val_result=71.5, seed=8)
    saved = torch.load(path, weights_only=True)
    assert (saved["epoch"], saved["val_result"], saved["seed"]) == (3, 71.5, 8)
    layers = ("linear1", "linear2") if with_net else ()
    keys = [f"meta_net.{layer}.{part}" for layer in layers for part in ("weight", "bias")]
    assert list(saved["state_dict"]) == ["ctx", *keys], "the keys that CoOp and CoCoOp have"
    assert [file.name for file in tmp_path.iterdir()] == [path.name], "written atomically"
    loaded = tpt_lib.load_prompt(path)
    assert torch.equal(loaded.context, prompts.context)
    assert (loaded.meta_net is not None) == with_net
    if with_net:
        assert all(torch.equal(a, b) for a, b in zip(loaded.meta_net.parts, net.parts, strict=True))


def test_tensors_are_saved_and_loaded_as_plain_float32(tmp_path):
    parts = [torch.randn(shape).half() for shape in [(4, 32), (2, 16), (2,), (32, 2), (32,)]]
    learned = LearnedPrompt(parts[0].requires_grad_(), MetaNet(*(part.requires_grad_() for part in parts[1:])))
    tpt_lib.save_prompt(tmp_path / "saved.pth", learned)
    saved = list(torch.load(tmp_path / "saved.pth", weights_only=True)["state_dict"].values())
    torch.save(cocoop(dict(zip(cocoop({}), parts, strict=True))), tmp_path / "half.pth")
    loaded = tpt_lib.load_prompt(tmp_path / "half.pth")
    for found in (saved, [loaded.context, *loaded.meta_net.parts]):
        assert all(torch.equal(one, part.float()) for one, part in zip(found, parts, strict=True))
        assert {one.dtype for one in found} == {torch.float32}
    assert not any(one.requires_grad for one in saved)


def test_a_checkpoint_of_a_gpu_is_read_on_the_cpu(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.serialization, "location_tag", lambda _: "cuda:0")
    torch.save({"ctx": torch.ones(4, 32)}, tmp_path / "model.pth")
    assert tpt_lib.load_prompt(tmp_path / "model.pth").context.device.type == "cpu"


@pytest.mark.parametrize("where", [".", "missing/model.pth"])
def test_a_place_where_nothing_can_be_saved(tmp_path, where):
    with pytest.raises(FileNotFoundError, match=r"save_prompt: .* must be a file in an existing folder"):
        tpt_lib.save_prompt(tmp_path / where, LearnedPrompt(torch.zeros(4, 32)))

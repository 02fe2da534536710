"""Where views are made: which version runs on which device, and what happens if a device lacks an operation."""

import warnings

import pytest
import torch

import tpt_lib.views.devices
from tpt_lib import ImageSpec
from tpt_lib.views import augment_views
from tpt_lib.views.devices import fill, upload


@pytest.fixture(autouse=True)
def forget_warnings():
    tpt_lib.views.devices._warn_once.cache_clear()


def plain(out, image, number):
    assert out.device.type == image.device.type == "cpu"
    out.copy_(image + number)


def batched(out, image, number):
    out.copy_(image - number)


def missing(out, image, number):
    raise NotImplementedError("no such kernel\nand a page of advice")


class Elsewhere(torch.Tensor):
    """A tensor of the CPU that says it is on an accelerator."""

    device = torch.device("xla:0")

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.empty_like:
            return torch.empty(args[0].shape, dtype=args[0].dtype)
        made = super().__torch_function__(func, types, args, kwargs or {})
        return made.as_subclass(torch.Tensor) if func is torch.Tensor.cpu else made


def on_accelerator(n=3):
    return torch.zeros(n).as_subclass(Elsewhere)


def test_a_cpu_runs_the_plain_version():
    assert fill(torch.zeros(3), plain, batched, torch.ones(3), 5).tolist() == [6, 6, 6]


def test_an_accelerator_runs_the_batched_version():
    out = on_accelerator()
    assert fill(out, plain, batched, on_accelerator() + 1, 5) is out
    assert out.tolist() == [-4, -4, -4]


def test_a_missing_operation_is_run_on_the_cpu_with_one_warning():
    message = "views are made on the CPU and copied, because the device 'xla' lacks an operation: no such kernel$"
    with pytest.warns(UserWarning, match=message):
        out = fill(on_accelerator(), plain, missing, on_accelerator() + 1, 5)
    assert out.tolist() == [6, 6, 6]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fill(on_accelerator(), plain, missing, on_accelerator() + 1, 5).tolist() == [6, 6, 6]


def test_other_errors_are_not_hidden():
    def broken(*_):
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        fill(on_accelerator(), plain, broken, on_accelerator(), 5)


def test_autocast_does_not_reach_the_batched_version(monkeypatch):
    seen = []

    def look(out, image):
        seen.append(torch.is_autocast_enabled("cuda"))

    monkeypatch.setattr(Elsewhere, "device", torch.device("cuda:0"))
    before = torch.is_autocast_enabled("cuda")
    torch.set_autocast_enabled("cuda", True)
    try:
        fill(on_accelerator(), plain, look, on_accelerator())
        assert torch.is_autocast_enabled("cuda")
    finally:
        torch.set_autocast_enabled("cuda", before)
    assert seen == [False]


@pytest.mark.parametrize(("device", "calls"), [
    ("cuda:1", ["pin_memory", ("to", torch.device("cuda:1"), True)]),
    ("mps", [("to", torch.device("mps"), False)]),
])  # fmt: skip
def test_only_pinned_memory_is_copied_without_waiting(device, calls, no_shape_checks):
    """A copy of other memory that does not wait may read what has been freed."""

    class Recorder:
        def __init__(self):
            self.calls = []

        def pin_memory(self):
            self.calls.append("pin_memory")
            return self

        def to(self, device, non_blocking=False):
            self.calls.append(("to", device, non_blocking))
            return self

    assert upload(Recorder(), torch.device(device)).calls == calls


def test_a_cpus_tensor_is_not_copied():
    x = torch.ones(3)
    assert upload(x, x.device) is x


@pytest.mark.parametrize("recipe", ["crop", "augmix"])
def test_both_recipes_choose_by_the_device(recipe, monkeypatch):
    """The batched versions never run on a CPU, and nothing else runs on an accelerator."""
    used = []
    for module, name in ((tpt_lib.views.crops, "cut_boxes"), (tpt_lib.views.augmix, "mix_batched")):
        monkeypatch.setattr(module, name, lambda *_, name=name: used.append(name))
    pixels = torch.zeros(3, 20, 30, dtype=torch.uint8)
    augment_views(pixels, ImageSpec((8, 8)), n_views=3, recipe=recipe)
    assert used == []
    augment_views(pixels, ImageSpec((8, 8)), n_views=3, recipe=recipe, device="meta")
    assert used == {"crop": ["cut_boxes"], "augmix": ["cut_boxes", "mix_batched"]}[recipe]

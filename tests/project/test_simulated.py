"""The simulated accelerator: it computes as the CPU does, counts what a GPU pays for, and refuses what CUDA refuses."""

import pytest
import torch
import torch.nn.functional as F
from support.simulated import AVAILABLE, DEVICE, WHY_NOT, SimulatedTensor, counting, on_host, register, to_simulated
from torch import nn
from torch.utils.data import DataLoader, Dataset

import tpt_lib

pytestmark = pytest.mark.skipif(not AVAILABLE, reason=WHY_NOT)


@pytest.fixture(autouse=True)
def device(simulated):
    return simulated


def to_device(*values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype).to(DEVICE)


def counts_of(call, *args):
    with counting() as counts:
        call(*args)
    return counts


def test_a_tensor_says_where_it_is_and_has_real_values():
    x = torch.arange(6.0).view(2, 3).to("sim")
    assert (str(x.device), x.shape, x.dtype, x.stride()) == (DEVICE, (2, 3), torch.float32, (3, 1))
    assert isinstance(x + 1, SimulatedTensor)
    assert on_host({"sum": (x + 1).mT.sum(dim=0)})["sum"].tolist() == [6, 15]
    assert (x * 2).cpu().tolist() == [[0, 2, 4], [6, 8, 10]]
    assert "device='sim:0'" in repr(x)


@pytest.mark.parametrize(("make", "want"), [
    (lambda: torch.arange(3, device=DEVICE), [0, 1, 2]),
    (lambda: torch.arange(1, 6, 2, device=DEVICE), [1, 3, 5]),
    (lambda: torch.linspace(0, 1, 3, device=DEVICE), [0, 0.5, 1]),
    (lambda: torch.eye(2, device=DEVICE), [[1, 0], [0, 1]]),
    (lambda: torch.ones(2, dtype=torch.bool, device=DEVICE), [True, True]),
    (lambda: torch.full((2,), 7, device=DEVICE), [7, 7]),
    (lambda: torch.tensor([3, 4], device=DEVICE), [3, 4]),
    (lambda: torch.as_tensor([3, 4], device=DEVICE), [3, 4]),
])  # fmt: skip
def test_tensors_can_be_made_on_the_device(make, want):
    counts = counts_of(make)
    assert (counts.launches, counts.synchronizations) == (1, 0)
    made = make()
    assert isinstance(made, SimulatedTensor)
    assert made.tolist() == want


def test_views_and_empty_memory_cost_nothing():
    x = to_device(1, 2, 3, 4)
    counts = counts_of(
        lambda: (x.view(2, 2).mT[:, :1].unsqueeze(0).expand(3, -1, -1), x.detach(), x.split(2), torch.empty_like(x))
    )
    assert counts.launches == 0
    assert counts_of(lambda: x.view(2, 2).mT.reshape(-1)).operations == {"clone": 1}


def test_launches_are_counted_forward_and_backward():
    layer = to_simulated(nn.Linear(3, 2))
    x = torch.ones(4, 3, device=DEVICE, requires_grad=True)
    counts = counts_of(lambda: torch.autograd.grad(layer(x).sum(), x))
    assert counts.operations == {"addmm": 1, "sum": 1, "ones_like": 1, "mm": 1}
    assert counts.launches == 4


def test_in_place_operations_change_the_tensor_and_its_views():
    x = torch.zeros(3, device=DEVICE)
    assert x[1:].add_(1) is not x
    assert x.mul_(2) is x
    torch.add(x, 1, out=x)
    assert x.tolist() == [1, 3, 3]
    x[x > 2] = 0.0
    assert x.tolist() == [1, 0, 0]


WAITS = {
    "item": lambda x: x[0].item(),
    "float": lambda x: float(x.sum()),
    "bool": lambda x: bool((x > 0).all()),
    "tolist": lambda x: x.tolist(),
    "cpu": lambda x: x.cpu(),
    "copy to the host": lambda x: torch.empty(3).copy_(x),
    "format": lambda x: f"{x.sum():.2f}",
    "nonzero": lambda x: x.nonzero(),
    "where": lambda x: torch.where(x > 0),
    "masked_select": lambda x: x.masked_select(x > 0),
    "a mask": lambda x: x[x > 0],
    "a mask assigned to": lambda x: x.index_put((x > 0,), x[:1]),
    "unique": lambda x: x.unique(),
    "unique_consecutive": lambda x: x.unique_consecutive(),
    "bincount": lambda x: x.int().bincount(),
    "repeat_interleave": lambda x: x.repeat_interleave(x.int()),
    "equal": lambda x: torch.equal(x, x),
    "allclose": lambda x: torch.allclose(x, x),
    "synchronize": lambda x: torch.get_device_module("sim").synchronize(),
}
NO_WAITS = {
    "compute": lambda x: (x @ x).softmax(0).exp().isfinite().all(),
    "a copy to the device": lambda x: torch.ones(3).to(DEVICE),
    "a copy that does not block": lambda x: x.to("cpu", non_blocking=True),
    "masked_fill": lambda x: x.masked_fill(x > 0, 1.0),
    "where with values": lambda x: torch.where(x > 0, x, 0.0),
    "a number where a mask is true": lambda x: x.clone().index_put_((x > 0,), torch.tensor(0.0)),
    "indices": lambda x: x[x.int()[:2]],
    "repeat_interleave of known size": lambda x: x.repeat_interleave(x.int(), output_size=6),
    "sort": lambda x: x.sort(stable=True).values[:2].topk(1),
    "shape": lambda x: (len(x), x.numel(), x.shape),
}  # fmt: skip


@pytest.mark.parametrize("name", WAITS)
def test_what_waits_for_the_device(name):
    assert counts_of(WAITS[name], to_device(1, 2, 3)).synchronizations == 1


@pytest.mark.parametrize("name", NO_WAITS)
def test_what_does_not_wait(name):
    assert counts_of(NO_WAITS[name], to_device(1, 2, 3)).waits == {}


def test_a_wait_names_the_line_of_the_library():
    def not_finite():
        with pytest.raises(ValueError, match="1 of 2 logits are not finite"):
            tpt_lib.prediction.check_finite("test", to_device(1, torch.inf))

    counts = counts_of(not_finite)
    assert all(line.startswith("prediction.py:") for line in counts.waits)
    assert counts.synchronizations == 2  # the check, and the number in the message
    assert counts_of(to_device(1).item).waits == {"elsewhere": 1}


def test_bytes_are_those_that_move():
    x = torch.ones(10, dtype=torch.float16)
    counts = counts_of(lambda: (x.to(DEVICE), torch.tensor([1, 2], device=DEVICE)))
    assert (counts.bytes_in, counts.bytes_out, counts.uploads) == (20 + 16, 0, {"elsewhere": 2})
    moved = x.to(DEVICE)
    assert counts_of(lambda: (moved.float(), moved + moved)).bytes_out == 0
    assert counts_of(lambda: (moved.cpu(), moved[0].item())).bytes_out == 20 + 2
    assert counts_of(lambda: moved[torch.tensor([1, 2])]).bytes_in == 16


@pytest.mark.parametrize("meet", [
    lambda x, y: x + y,
    lambda x, y: y @ x,
    lambda x, y: torch.cat([x, y]),
    lambda x, y: torch.stack([x[0], y[0]]),
    lambda x, y: F.embedding(y.long(), x[:, None]),
    lambda x, y: x.index_select(0, y.long()),
    lambda x, y: y[x.long()],
    lambda x, y: x.index_put((x.long(),), y),
    lambda x, y: torch.add(x, x, out=y),
    lambda x, y: x.add_(y),
])  # fmt: skip
def test_tensors_of_both_devices_do_not_meet(meet):
    with pytest.raises(RuntimeError, match=r"Expected all tensors to be on the same device.*sim:0 and cpu"):
        meet(to_device(0, 1), torch.tensor([0.0, 1.0]))


def test_numbers_and_indices_of_the_host_may_come():
    x = to_device(1, 2)
    assert (x + torch.tensor(1.0)).tolist() == [2, 3]
    assert x[torch.tensor([1])].tolist() == [2]
    assert x.index_put((torch.tensor([0]),), torch.tensor(5.0)).tolist() == [5, 2]


def test_numpy_needs_a_copy_on_the_host():
    with pytest.raises(TypeError, match=r"Use Tensor\.cpu"):
        to_device(1).numpy()


def test_shapes_change_in_place():
    x = to_device(1, 2)[None]
    assert (x.squeeze_().shape, x.tolist()) == ((2,), [1, 2])
    assert (x @ x).shape == ()
    out = torch.empty(0, device=DEVICE), torch.empty(0, device=DEVICE, dtype=torch.long)
    torch.sort(to_device(2, 1), out=out)
    assert (out[0].shape, out[0].tolist(), out[1].tolist()) == ((2,), [1, 2], [1, 0])
    module = to_simulated(nn.Linear(2, 3)).to(torch.float64)
    assert module(x.double()).shape == (3,)


def test_inference_mode():
    x = to_device(1, 2)
    with torch.inference_mode():
        assert not x.detach().is_inference()
        assert not x[:1].is_inference()
        assert (x + 1).is_inference()
        assert (x + 1)[:1].is_inference()


def test_a_module_is_copied_to_the_device_and_computes_the_same():
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.GELU())
    copied = to_simulated(module)
    assert all(isinstance(p, nn.Parameter) and str(p.device) == DEVICE for p in copied.parameters())
    assert all(p.device.type == "cpu" for p in module.parameters())
    x = torch.randn(5, 3)
    for one in (module, copied):
        one.zero_grad()
        one(x.to(next(one.parameters()).device)).square().sum().backward()
    for mine, its in zip(
        [*module.parameters(), *module.buffers()], [*copied.parameters(), *copied.buffers()], strict=True
    ):
        assert torch.equal(mine, on_host(its))
        assert mine.grad is None or torch.equal(mine.grad, on_host(its.grad))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast(dtype):
    layer, x = to_simulated(nn.Linear(3, 3)), torch.randn(2, 3, device=DEVICE, requires_grad=True)
    with torch.autocast("sim", dtype):
        y = layer(x)
        assert [t.dtype for t in (y, y @ y.mT, y.softmax(-1), F.layer_norm(y, (3,)), y + 1)] == [
            dtype, dtype, torch.float32, torch.float32, dtype
        ]  # fmt: skip
        assert (y.cpu() @ torch.ones(3, dtype=dtype)).dtype == dtype
    assert layer(x).dtype == torch.float32
    assert torch.autograd.grad(y.sum(), x)[0].dtype == torch.float32


def test_torch_finds_the_device_inside_the_block():
    assert torch.accelerator.is_available()
    assert torch.accelerator.device_count() == 1
    assert torch.accelerator.current_accelerator(check_available=True).type == "sim"
    assert [x.tolist() for x in DataLoader([torch.ones(1)], num_workers=1, pin_memory=True)] == [[[1.0]]]
    assert on_host(next(iter(DataLoader([torch.ones(1)], pin_memory=True))).to(DEVICE, non_blocking=True)).item() == 1


class Gradients(Dataset):
    """Items that need a backward pass, wherever they are made."""

    def __len__(self):
        return 1

    def __getitem__(self, index):
        x = torch.ones(2, requires_grad=True)
        return torch.autograd.grad(x.square().sum(), x)[0]


class TestOutside:
    """Once registered, the device must not show in tests that do not ask for it."""

    @pytest.fixture(autouse=True)
    def device(self):
        register()

    def test_torch_does_not_find_the_device(self):
        assert torch.cuda.is_available() == torch.accelerator.is_available()
        assert torch.accelerator.current_accelerator(check_available=True) is None
        assert torch.accelerator.device_count() == 0

    def test_pinning_is_as_without_an_accelerator(self):
        with pytest.warns(UserWarning, match="no accelerator is found"):
            assert [x.tolist() for x in DataLoader([torch.ones(1)], pin_memory=True)] == [[[1.0]]]

    @pytest.mark.parametrize("num_workers", [0, 1])
    def test_gradients_here_and_in_a_worker(self, num_workers):
        assert next(iter(DataLoader(Gradients(), batch_size=None, num_workers=num_workers))).tolist() == [2, 2]

    def test_autocast_of_the_cpu(self):
        x = torch.ones(2, 2)
        with torch.autocast("cpu", torch.bfloat16):
            assert (x @ x).dtype == torch.bfloat16
        assert (x @ x).dtype == torch.float32

    def test_seeds_and_files(self, tmp_path):
        torch.manual_seed(1)
        first = torch.rand(2)
        torch.manual_seed(1)
        assert torch.equal(first, torch.rand(2))
        torch.save(first, tmp_path / "x.pt")
        assert torch.equal(torch.load(tmp_path / "x.pt"), first)

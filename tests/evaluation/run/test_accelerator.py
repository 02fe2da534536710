"""Runs with an accelerator: workers only read, views are made there, and rows are those of a CPU."""

import copy

import pytest
import torch
from support import rewards
from support.marking import slow_but
from support.noise_runs import METHODS, NAMES, Noise, content, model, noise, run
from support.simulated import to_simulated
from support.zoo import fresh

import tpt_lib
from tpt_lib.evaluation.run.work import Work
from tpt_lib.methods.cases import as_cases
from tpt_lib.views.settings import ViewSettings

pytestmark = pytest.mark.usefixtures("simulated")


def on_device():
    return tpt_lib.wrap(to_simulated(fresh("open_clip-vit").module))


@pytest.fixture(scope="module")
def on_the_cpu(tmp_path_factory):
    """The file of a run on the CPU, with one bad image."""
    path = tmp_path_factory.mktemp("runs") / "cpu.jsonl"
    run(path, Noise(6, bad=[1]), seeds=(0, 1))
    return path


def assert_same_rows(path, other, atol=1e-3):
    """Views of an accelerator may differ by a level."""
    for got, want in zip(content(path)[1:], content(other)[1:], strict=True):
        assert (got["seed"], got["sample"], got["truth"]) == (want["seed"], want["sample"], want["truth"])
        assert ("error" in got) == ("error" in want)
        for name, result in want.get("methods", {}).items():
            assert got["methods"][name]["confidence"] == pytest.approx(result["confidence"], abs=atol)
            assert got["methods"][name]["entropy"] == pytest.approx(result["entropy"], abs=10 * atol)


BATCHES = [{}, {"batch_size": 4}, {"batch_size": 5, "num_workers": 1}]


@pytest.mark.parametrize("options", slow_but([BATCHES[2]], BATCHES))
def test_rows_are_those_of_a_cpu(options, on_the_cpu, tmp_path):
    run(tmp_path / "device.jsonl", Noise(6, bad=[1]), seeds=(0, 1), model=on_device(), **options)
    assert_same_rows(tmp_path / "device.jsonl", on_the_cpu)


@pytest.mark.slow
def test_a_reward_model_sees_its_own_views_there(tmp_path):
    second, _ = rewards.pair(NAMES)
    run(tmp_path / "cpu.jsonl", Noise(3), "rlcf", reward=(second, tpt_lib.class_prompts(second, NAMES)))
    there = tpt_lib.wrap(to_simulated(copy.deepcopy(second.module)))
    reward = (there, tpt_lib.class_prompts(there, NAMES))
    run(tmp_path / "device.jsonl", Noise(3), "rlcf", model=on_device(), reward=reward)
    assert_same_rows(tmp_path / "device.jsonl", tmp_path / "cpu.jsonl")


def test_batches_of_images_are_learned_from_there(tmp_path):
    options = {"methods": ["zero_shot", "tent"], "batch_size": 3, "n_views": 2}
    run(tmp_path / "cpu.jsonl", Noise(6), **options)
    run(tmp_path / "device.jsonl", Noise(6), model=on_device(), **options)
    assert_same_rows(tmp_path / "device.jsonl", tmp_path / "cpu.jsonl")


def work_of(found):
    prompts = tpt_lib.class_prompts(found, NAMES)
    return Work(found, as_cases("test", METHODS, prompts), noise().samples, ViewSettings(n_views=4), strict=False)


def test_workers_hand_over_bytes_and_only_for_an_accelerator():
    (there,) = work_of(on_device()).items(0, [2], 0)
    assert there.pixels.equal(Noise()[2][0])
    assert there.views.numel() == 0
    (here,) = work_of(model()).items(0, [2], 0)
    assert here.pixels is None
    assert here.views.equal(tpt_lib.augment_views(Noise()[2][0], model().image_spec, n_views=4))


def test_a_group_is_started_before_the_one_before_is_read(tmp_path, monkeypatch):
    calls = []
    for name in ("start", "finish"):
        own = getattr(Work, name)

        def noted(self, *args, own=own, name=name):
            calls.append(name)
            return own(self, *args)

        monkeypatch.setattr(Work, name, noted)
    run(tmp_path / "device.jsonl", Noise(3), "zero_shot", model=on_device())
    assert calls == ["start", "start", "finish", "start", "finish", "finish"]
    calls.clear()
    run(tmp_path / "cpu.jsonl", Noise(3), "zero_shot")
    assert calls == ["start", "finish"] * 3


def test_a_recipe_that_fails_on_the_device_is_an_error_of_its_sample(tmp_path):
    def recipe(pixels, size, n, generator):
        if pixels.flatten()[0] == Noise()[1][0].flatten()[0].to(pixels.device):
            raise RuntimeError("no such view")
        return torch.zeros(n, 3, *size, device=pixels.device)

    run(tmp_path / "device.jsonl", Noise(3), "zero_shot", model=on_device(), recipe=recipe)
    errors = [row.get("error") for row in content(tmp_path / "device.jsonl")[1:]]
    assert errors == [None, "RuntimeError: no such view", None]

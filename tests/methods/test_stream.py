"""Streams, their states on disk, and what is refused."""

import dataclasses
import functools
import math
import sys
from pathlib import Path

import pytest
import torch
from support.cases import model_of
from support.prompting import cocoop, words
from support.streams import CLASSES, stream_of
from support.zoo import fresh

from tpt_lib.methods import OnlineMethod, dmn, fold, load_state, onzeta, save_state, stream, tda
from tpt_lib.models.identity import identify


def logits(predictions):
    return torch.stack([one.logits for one in predictions])


def test_each_way_to_name_a_method():
    model, prompts, images, _ = stream_of(8)
    want = logits(stream(tda(), model, prompts, images))
    for same in ("tda", "TDA", tda, functools.partial(tda, alpha=2.0)):
        assert torch.equal(logits(stream(same, model, prompts, images)), want)
    other = logits(stream(functools.partial(tda, alpha=1.0), model, prompts, images))
    assert not torch.equal(other, want)


def test_a_stream_is_lazy_and_takes_any_iterable():
    model, prompts, images, _ = stream_of(3)
    taken = []
    found = stream("tda", model, prompts, (taken.append(i) or views for i, views in enumerate(images)))
    assert taken == []
    next(found)
    assert taken == [0]
    assert len(list(found)) == 2


def test_fold_gives_the_last_state_and_a_state_continues():
    model, prompts, images, _ = stream_of(20)
    whole = logits(stream("tda", model, prompts, images))
    state = fold("tda", model, prompts, images[:12])
    assert torch.equal(logits(stream("tda", model, prompts, images[12:], state=state)), whole[12:])
    assert fold("tda", model, prompts, [], state=state) is state
    assert not fold("tda", model, prompts, []).positive.filled.any()
    assert torch.equal(
        fold("tda", model, prompts, images[12:], state=state).positive.keys,
        fold("tda", model, prompts, images).positive.keys,
    )


def test_what_is_not_online_is_refused():
    model, prompts, images, _ = stream_of(1)
    with pytest.raises(
        ValueError, match="stream: 'zero_shot' is an episodic method, which learns nothing from a stream"
    ):
        stream("zero_shot", model, prompts, images)


@pytest.fixture
def saved(tmp_path):
    model, prompts, images, _ = stream_of(8)
    path = tmp_path / "a" / "new" / "state.safetensors"
    save_state(fold("tda", model, prompts, images), str(path), model, prompts)
    return path, model, prompts


def test_only_the_file_is_left(saved):
    path, model, prompts = saved
    assert [one.name for one in path.parent.iterdir()] == ["state.safetensors"]
    assert load_state(functools.partial(tda, alpha=9.0), path, model, prompts).positive.filled.any()


def test_a_file_that_could_not_be_written_leaves_the_old_one(saved, monkeypatch):
    path, model, prompts = saved
    old = path.read_bytes()

    def half(tensors, path, metadata):
        Path(path).write_bytes(b"half")
        raise OSError("no space left")

    monkeypatch.setattr("safetensors.torch.save_file", half)
    with pytest.raises(OSError, match="no space left"):
        save_state(tda().init(model, prompts), path, model, prompts)
    assert path.read_bytes() == old


def test_the_model_of_a_file_is_the_same_text_in_any_order_of_its_parts(saved, monkeypatch):
    path, model, prompts = saved
    parts = identify(model)
    monkeypatch.setattr(sys.modules[load_state.__module__], "identify", lambda _: dict(reversed(parts.items())))
    assert load_state("tda", path, model, prompts).positive.filled.any()


def test_prompts_of_another_model_are_refused(tmp_path):
    model, prompts, _, _ = stream_of(1)
    with pytest.raises(ValueError, match="these prompts were made for another model"):
        save_state(tda().init(model, prompts), tmp_path / "state.safetensors", fresh("open_clip-vit"), prompts)


def louder():
    model = fresh("open_clip-vit")
    with torch.no_grad():
        model.module.logit_scale.fill_(math.log(50))
    return model


def other_image_tower():
    model = fresh("open_clip-vit")
    with torch.no_grad():
        model.module.logit_scale.fill_(math.log(100))
        model.module.visual.proj.add_(0.1)
    return model


@pytest.mark.parametrize("change", [louder, other_image_tower])
def test_the_state_of_another_model_is_refused(saved, change):
    path, _, _ = saved
    model = change()
    with pytest.raises(ValueError, match="has the state of another model; start a new one with"):
        load_state("tda", path, model, words(model, CLASSES))


@pytest.mark.parametrize("names", [CLASSES[::-1], CLASSES[:4], [*CLASSES[:4], "ant"]])
def test_the_state_of_other_classes_is_refused(saved, names):
    path, model, _ = saved
    with pytest.raises(ValueError, match="has the state of other prompts"):
        load_state("tda", path, model, words(model, names))


def test_the_state_of_another_method_is_refused(saved):
    path, model, prompts = saved
    for method in (dmn(), onzeta(expected=3)):
        with pytest.raises(ValueError, match="has the state of another method"):
            load_state(method, path, model, prompts)


def test_another_capacity_is_refused(saved):
    path, model, prompts = saved
    with pytest.raises(
        ValueError, match=r"has positive.entropy of \(5, 3, .*, but this method's is \(5, 4, .*capacity"
    ):
        load_state(tda(capacity=4), path, model, prompts)


def test_what_is_no_state_is_refused(tmp_path):
    from safetensors.torch import save_file

    model, prompts, _, _ = stream_of(1)
    path = tmp_path / "other.safetensors"
    save_file({"x": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match="was not written by save_state"):
        load_state("tda", path, model, prompts)
    path.write_bytes(b"half")
    with pytest.raises(ValueError, match="is not a complete safetensors file"):
        load_state("tda", path, model, prompts)
    with pytest.raises(TypeError, match="save_state: a state must be a dataclass of tensors, but it is a int"):
        save_state(3, path, model, prompts)


def test_a_model_that_cannot_be_told_from_others(tmp_path):
    from support.prompting import saying

    model, prompts, _ = saying([[0.25] * 4])
    with pytest.raises(ValueError, match="save_state: the weights of this model cannot be seen"):
        save_state(tda().init(model, prompts), tmp_path / "state.safetensors", model, prompts)


def test_the_network_of_cocoop_is_part_of_the_prompts(tmp_path):
    model = model_of()
    prompts, path = cocoop(model), tmp_path / "state.safetensors"
    save_state(tda().init(model, prompts), path, model, prompts)
    load_state("tda", path, model, prompts)
    network = dataclasses.replace(prompts.meta_net, bias1=prompts.meta_net.bias1 + 1)
    with pytest.raises(ValueError, match="has the state of other prompts"):
        load_state("tda", path, model, dataclasses.replace(prompts, meta_net=network))


@dataclasses.dataclass(frozen=True)
class Count:
    number: torch.Tensor


def test_the_state_of_a_method_of_your_own(tmp_path):
    mine = OnlineMethod(lambda model, prompts: Count(torch.zeros(())), lambda model, prompts, state, features: None)
    model, prompts, _, _ = stream_of(1)
    save_state(Count(torch.tensor(4.0)), tmp_path / "mine.safetensors", model, prompts)
    assert load_state(mine, tmp_path / "mine.safetensors", model, prompts).number == 4

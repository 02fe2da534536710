"""Checkpoints that would run code, or are broken: nothing runs, and the error says what came."""

import json
import pickle
import shutil

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support.cases import SMALL
from support.zoo import build, clip_tokenizer, transformers_model

import tpt_lib


class Canary:
    """Makes a file when it is unpickled."""

    def __init__(self, nest):
        self.nest = nest

    def __reduce__(self):
        return shutil.copy, (__file__, str(self.nest))


def zipped(path, thing):
    torch.save(thing, path)


def legacy(path, thing):
    torch.save(thing, path, _use_new_zipfile_serialization=False)


def pickled(path, thing):
    path.write_bytes(pickle.dumps(thing))


def load_prompt(path):
    return tpt_lib.load_prompt(path)


def resume(path):
    model = build("open_clip-vit")
    prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    features = F.normalize(torch.randn(4, 16), dim=-1)
    return tpt_lib.fit_coop(model, prompts, features, [0, 1] * 2, epochs=1, checkpoint=path, progress=False)


def load_open_clip(path):
    return tpt_lib.load_open_clip("small", pretrained=path)


def load_folder(path):
    (path.parent / "open_clip_config.json").write_text(json.dumps({"model_cfg": SMALL, "preprocess_cfg": {}}))
    path.rename(path.with_name("open_clip_pytorch_model.bin"))
    return tpt_lib.load_open_clip(f"local-dir:{path.parent}")


def load_transformers(path):
    transformers_model().config.save_pretrained(path.parent)
    path.rename(path.with_name("pytorch_model.bin"))
    return tpt_lib.load_transformers(path.parent)


LOADERS = [load_prompt, resume, load_open_clip, load_folder, load_transformers]


def test_no_loader_is_forgotten():
    named = {
        load.__name__.replace("load_folder", "load_open_clip").replace("resume", "load_prompt") for load in LOADERS
    }
    others = {
        "load_dataset",
        "load_tiny",
        "load_tiny_bongard",
        "load_tiny_drawings",
    }  # images and lists; what the package ships
    assert named == {name for name in tpt_lib.__all__ if name.startswith("load_")} - others


@pytest.fixture
def nest(tmp_path, monkeypatch):
    """What the canary would make."""
    import open_clip

    monkeypatch.setitem(open_clip.factory._MODEL_CONFIGS, "small", SMALL)
    return tmp_path / "nest"


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("write", [zipped, legacy, pickled])
@pytest.mark.parametrize("load", LOADERS)
def test_nothing_runs(load, write, tmp_path, nest):
    path = tmp_path / "hostile.pt"
    for content in ({"state_dict": {"ctx": torch.zeros(4, 32)}, "extra": Canary(nest)}, Canary(nest)):
        write(path, content)
        assert not nest.exists()
        inert = (
            load is load_prompt and write is zipped and isinstance(content, dict)
        )  # what stands beside a prompt is left out
        if inert:
            assert load(path).context.shape == (4, 32)
        else:
            with pytest.raises(ValueError, match=r"could run code|different settings|holds no tensor"):
                load(path)
        assert not nest.exists()


def test_that_the_canary_sings(tmp_path, nest):
    zipped(tmp_path / "hostile.pt", Canary(nest))
    torch.load(tmp_path / "hostile.pt", weights_only=False)
    assert nest.exists()


def test_arrays_of_objects_are_refused(tmp_path, nest):
    np.save(tmp_path / "hostile.npy", np.array([Canary(nest)], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        load_open_clip(tmp_path / "hostile.npy")
    assert not nest.exists()


def test_code_beside_a_transformers_model_is_not_run(tmp_path, nest):
    config = {"model_type": "hostile", "auto_map": {"AutoConfig": "code.Config", "AutoModel": "code.Model"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "code.py").write_text(f"import os\nos.mkdir({str(nest)!r})\nclass Config: pass\nclass Model: pass\n")
    with pytest.raises(ValueError, match="trust_remote_code"):
        tpt_lib.load_transformers(tmp_path)
    assert not nest.exists()


@pytest.mark.parametrize("kept", [0, 1, 100, 0.5, 0.99])
@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_broken_files(kept, suffix, tmp_path):
    import safetensors.torch

    path = tmp_path / f"prompt{suffix}"
    tensors = {"ctx": torch.randn(4, 32)}
    if suffix == ".pth":
        torch.save(tensors, path)
    else:
        safetensors.torch.save_file(tensors, path)
    assert tpt_lib.load_prompt(path).context.equal(tensors["ctx"])
    data = path.read_bytes()
    path.write_bytes(data[: kept if isinstance(kept, int) else int(kept * len(data))])
    with pytest.raises(ValueError, match=rf"load_prompt: '.*prompt{suffix}' cannot be read as a checkpoint of tensors"):
        tpt_lib.load_prompt(path)


def test_a_shape_that_does_not_fit_names_the_key(tmp_path, caplog):
    weights = transformers_model().state_dict() | {"text_projection.weight": torch.zeros(3, 3)}
    torch.save(weights, tmp_path / "hostile.pt")
    clip_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"does not fit CLIPModel: 1 weights .* among them .*text_projection\.weight"):
        load_transformers(tmp_path / "hostile.pt")

"""Text features on disk belong to a text tower and to prompts, and nothing else may use them."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from support.cases import meta_net
from support.letters import KeptLetters, Letters
from support.text_cases import NAMES
from support.zoo import fresh

import tpt_lib
from tpt_lib import class_prompts, encode_prompts, gaussian_context
from tpt_lib.prompts.contexts import LearnedPrompt
from tpt_lib.text import load_text_features, save_text_features

KINDS = {
    "words": lambda model: {},
    "several templates": lambda model: {"template": ["a photo of a {}.", "my {}"]},
    "class-specific": lambda model: {"context": gaussian_context(model, 3, n_classes=5)},
    "free names": lambda model: {"name_tokens": gaussian_context(model, 2, n_classes=5)},
}


@pytest.fixture
def model():
    return fresh("open_clip-vit")


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_stored_is_used_and_nothing_is_computed(model, kind, tmp_path, monkeypatch):
    prompts, again = (class_prompts(model, NAMES, **KINDS[kind](model)) for _ in range(2))
    views = torch.eye(16)[:4]
    want = tpt_lib.zero_shot_predict(model, prompts, views).logits
    save_text_features(model, prompts, tmp_path / "names.safetensors")
    assert [each.name for each in tmp_path.iterdir()] == ["names.safetensors"]
    load_text_features(model, again, tmp_path / "names.safetensors")
    monkeypatch.setattr(tpt_lib.text.encode, "packed_features", None)
    assert torch.equal(tpt_lib.zero_shot_predict(model, again, views).logits, want)


def test_a_shortlist_starts_from_what_was_stored(model, tmp_path, monkeypatch):
    prompts, again = (class_prompts(model, NAMES) for _ in range(2))
    views = torch.nn.functional.normalize(torch.randn(10, 16), dim=-1)
    want = tpt_lib.tune_prompt(model, prompts, views, shortlist=2)
    save_text_features(model, prompts, tmp_path / "names.safetensors")
    load_text_features(model, again, tmp_path / "names.safetensors")
    sizes, forward = [], tpt_lib.text.encode.packed_features
    monkeypatch.setattr(
        tpt_lib.text.encode, "packed_features", lambda *args: sizes.append(len(args[1].ends)) or forward(*args)
    )
    got = tpt_lib.tune_prompt(model, again, views, shortlist=2)
    assert torch.equal(got.text_features, want.text_features)
    assert sizes == [2, 2]


def change_weight(model):
    with torch.no_grad():
        model.module.transformer.resblocks[0].mlp.c_fc.bias[0] += 1e-3


def change_eps(model):
    model.module.ln_final.eps = 0.1


def change_activation(model):
    model.module.transformer.resblocks[0].mlp.gelu = torch.nn.ReLU()


@pytest.mark.parametrize("change", [change_weight, change_eps, change_activation])
def test_features_of_another_tower_are_refused(model, change, tmp_path):
    prompts = class_prompts(model, NAMES)
    save_text_features(model, prompts, tmp_path / "names.safetensors")
    change(model)
    with pytest.raises(ValueError, match=r"names.safetensors has the features of another text tower; call save_text"):
        load_text_features(model, prompts, tmp_path / "names.safetensors")


@pytest.mark.parametrize("other", [
    {"names": NAMES[::-1]}, {"names": NAMES[:4]}, {"template": "my {}"}, {"context": torch.ones(4, 32)},
])  # fmt: skip
def test_features_of_other_prompts_are_refused(model, other, tmp_path):
    save_text_features(model, class_prompts(model, NAMES), tmp_path / "names.safetensors")
    prompts = class_prompts(model, **{"names": NAMES, **other})
    with pytest.raises(ValueError, match=r"has the features of other prompts \(names, template or context\)"):
        load_text_features(model, prompts, tmp_path / "names.safetensors")


@pytest.mark.parametrize("what", ["context", "name_tokens"])
def test_features_of_slightly_different_tokens_are_refused(model, what, tmp_path):
    given = {"context": gaussian_context(model, 4), "name_tokens": gaussian_context(model, 2, n_classes=5)}
    save_text_features(model, class_prompts(model, NAMES, **given), tmp_path / "names.safetensors")
    load_text_features(model, class_prompts(model, NAMES, **given), tmp_path / "names.safetensors")
    with pytest.raises(ValueError, match="has the features of other prompts"):
        load_text_features(
            model, class_prompts(model, NAMES, **given | {what: given[what] + 1e-7}), tmp_path / "names.safetensors"
        )


def test_a_changed_image_tower_changes_nothing(model, tmp_path):
    prompts = class_prompts(model, NAMES)
    save_text_features(model, prompts, tmp_path / "names.safetensors")
    with torch.no_grad():
        model.module.visual.proj.mul_(2)
    load_text_features(model, prompts, tmp_path / "names.safetensors")


def test_loaded_features_are_dropped_when_the_tower_changes(model, tmp_path):
    prompts = class_prompts(model, NAMES)
    save_text_features(model, prompts, tmp_path / "names.safetensors")
    load_text_features(model, prompts, tmp_path / "names.safetensors")
    change_weight(model)
    want = tpt_lib.class_logits(model, torch.eye(16)[:1], encode_prompts(model, prompts))[0]
    torch.testing.assert_close(tpt_lib.zero_shot_predict(model, prompts, torch.eye(16)[:2]).logits, want.detach())


def test_files_that_are_something_else(model, tmp_path):
    from safetensors.torch import save_file

    prompts, path = class_prompts(model, NAMES), tmp_path / "names.safetensors"
    save_text_features(model, prompts, path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"names.safetensors is not a complete safetensors file .* save it again"):
        load_text_features(model, prompts, path)
    save_file({"features": torch.zeros(5, 16)}, path)
    with pytest.raises(ValueError, match=r"names.safetensors was not written by save_text_features"):
        load_text_features(model, prompts, path)


def test_what_cannot_be_stored(model, tmp_path):
    own = Letters()
    with pytest.raises(ValueError, match=r"save_text_features: this model has no text_parts\(\)"):
        save_text_features(own, class_prompts(own, ["cat"], template="my {}"), tmp_path / "a")
    cocoop = class_prompts(model, NAMES, context=LearnedPrompt(gaussian_context(model, 4), meta_net()))
    with pytest.raises(ValueError, match="the text features of a CoCoOp prompt depend on the image"):
        save_text_features(model, cocoop, tmp_path / "a")


def test_prompts_of_a_copy_of_the_model_are_refused(model, tmp_path):
    prompts, other = class_prompts(model, NAMES), fresh("open_clip-vit")
    save_text_features(model, prompts, tmp_path / "names.safetensors")
    with pytest.raises(ValueError, match="these prompts were made for another model"):
        load_text_features(other, prompts, tmp_path / "names.safetensors")


def test_folders_are_made_and_digests_have_16_bytes(model, tmp_path):
    path = f"{tmp_path}/new/folder/names.safetensors"
    save_text_features(model, class_prompts(model, NAMES), path)
    with safe_open(path, "pt") as file:
        assert {key: len(value) for key, value in file.metadata().items() if key != "format"} == {
            "text_tower": 32,
            "prompts": 32,
        }


def test_a_file_stays_as_it_is_when_saving_fails(model, tmp_path, monkeypatch):
    def fail(_tensors, path, **_):
        Path(path).write_bytes(b"half")
        raise OSError("disk full")

    prompts, path = class_prompts(model, NAMES), tmp_path / "names.safetensors"
    save_text_features(model, prompts, path)
    before = path.read_bytes()
    monkeypatch.setattr("safetensors.torch.save_file", fail)
    with pytest.raises(OSError, match="disk full"):
        save_text_features(model, prompts, path)
    assert path.read_bytes() == before


class Noted(KeptLetters):
    """A model with a setting that JSON does not know."""

    dtype = torch.float32

    def text_parts(self):
        return [*super().text_parts(), ("dtype", self.dtype)]


def test_settings_of_any_type_are_part_of_a_tower(tmp_path):
    model = Noted()
    prompts = class_prompts(model, ["cat", "dog"], template="my {}")
    save_text_features(model, prompts, tmp_path / "names.safetensors")
    load_text_features(model, prompts, tmp_path / "names.safetensors")
    model.dtype = torch.float64
    with pytest.raises(ValueError, match="has the features of another text tower"):
        load_text_features(model, prompts, tmp_path / "names.safetensors")

"""What users choose: limits, files of any kind, and the settings of each method."""

import PIL.Image
import pytest
import torch
from support.app import tiny

import tpt_lib
from tpt_lib.app import choices
from tpt_lib.app.choices import (
    Choice,
    default_settings,
    keywords_of,
    read_choice,
    read_drawing,
    read_names,
    read_upload,
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (" \n, ", "there are no class names"),
        (
            "\n".join(f"name {i}" for i in range(10_000)),
            "there are 10,000 class names, but this page takes at most 1,000",
        ),
        ("cat," + "x" * 300, "a class name has 300 characters"),
    ],
)
def test_names_that_are_refused(text, says):
    with pytest.raises(ValueError, match=says):
        read_names(text)


def test_names_by_line_and_comma():
    assert read_names("cat, dog\r\n red panda ,\n") == ("cat", "dog", "red panda")
    assert len(read_names("\n".join(f"name {i}" for i in range(1000)))) == 1000


def test_an_upload_is_what_read_image_reads(tmp_path, photo):
    path = tmp_path / "my photo.jpg"
    photo.save(path)
    picture = read_upload(path)
    assert torch.equal(picture.pixels, tpt_lib.read_image(path))
    assert picture.code == "'my photo.jpg'"


@pytest.mark.parametrize("content", [b"<script>alert(1)</script>", b"", "truncated"])
def test_a_hostile_file_is_refused_by_its_name_alone(tmp_path, content):
    path = tmp_path / "evil.png"
    if content == "truncated":
        PIL.Image.new("RGB", (64, 64), "red").save(path)
        content = path.read_bytes()[:-40]
    path.write_bytes(content)
    with pytest.raises(tpt_lib.ImageError, match=r"^'evil\.png' cannot be") as refused:
        read_upload(path)
    assert str(tmp_path) not in str(refused.value)


def test_drawings_by_label():
    assert "noto-v1: unicorn" in choices.drawing_labels()
    picture = read_drawing("emojione-monotone: cat")
    assert torch.equal(picture.pixels, eval(picture.code, {"tpt": tpt_lib}))
    with pytest.raises(ValueError, match="there is no embedded drawing 'noto-v1: zebra'"):
        read_drawing("noto-v1: zebra")


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"n_views": 10_000}, "views must be a number from 1 to 128 here, but got 10000"),
        ({"n_views": None}, "views must be a number"),
        ({"seed": -1}, "seed must be a number from 0"),
        ({"settings": {"steps": 10**6}}, "steps must be a number from 0 to 64 here"),
        ({"settings": {"lr": float("nan")}}, "lr must be a number from 0 to 1"),
        ({"method": "rlcf"}, "there is no method 'rlcf' to choose"),
        ({"method": "tda"}, "there is no method 'tda' to choose"),
    ],
)
def test_values_that_a_client_without_sliders_may_send(wrong, says):
    with pytest.raises(ValueError, match=says):
        Choice(read_drawing("noto-v1: cat"), ("cat",), **wrong)


def test_methods_come_from_the_registry():
    every = choices.selectable_methods()
    assert every[0] == "tpt"
    assert set(tpt_lib.list_methods()) - set(every) == {"rlcf"}
    assert set(every) - set(choices.selectable_methods(features_only=True)) == {"memo_clip"}


@pytest.mark.parametrize("method", choices.selectable_methods())
def test_the_defaults_are_those_of_the_method(method):
    model, features = tiny().model, torch.nn.functional.normalize(torch.randn(4, 192), dim=-1)
    entry, prompts = tpt_lib.get_method(method), tpt_lib.class_prompts(tiny().model, ["cat", "dog"])
    given = torch.randn(4, 3, 32, 32) if "views" in entry.needs else features
    said = entry.predict(model, prompts, given, **keywords_of(method, default_settings(method)))
    torch.testing.assert_close(said.logits, entry.predict(model, prompts, given).logits)


def sent(**values):
    common = {"image": None, "drawing": "noto-v1: cat", "names": "cat", "model": "tiny", "template": "{}", "views": 2}
    return {**common, "seed": 0, **values}


def test_a_model_that_was_not_named_is_not_loaded():
    with pytest.raises(ValueError, match=r"there is no model 'ViT-B-32:openai' here; there are tiny"):
        read_choice({"tiny": tiny()}, sent(model="ViT-B-32:openai"))


def test_without_an_image():
    with pytest.raises(ValueError, match="there is no image; drop one, or pick an embedded drawing"):
        read_choice({"tiny": tiny()}, sent(drawing=None))


def test_settings_that_the_method_does_not_take_are_left_out():
    _, choice = read_choice({"tiny": tiny()}, sent(method="zero", fraction=0.5, steps=None, lr=None))
    assert choice.settings == {"fraction": 0.5}


@pytest.mark.parametrize(("paths", "says"), [([], "there are no query images"), (["x"] * 17, "at most 16")])
def test_groups_of_a_problem(paths, says):
    with pytest.raises(ValueError, match=says):
        choices.read_group("query", paths)

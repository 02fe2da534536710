"""What the examples define, besides that they run (``test_package.py``)."""

import pathlib
import runpy

import PIL.Image
import pytest
import torch
from support.cases import model_of
from support.prompting import words

from tpt_lib.cli.parser import parser
from tpt_lib.methods import load_state

SPACE = pathlib.Path(__file__).parents[2] / "examples/space"
SERVING = pathlib.Path(__file__).parents[2] / "examples/serve_a_folder.py"


@pytest.fixture
def serve():
    return runpy.run_path(str(SERVING))["serve"]


def put(folder, numbers):
    for number in numbers:
        pixels = torch.randint(256, (40, 40, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(number))
        PIL.Image.fromarray(pixels.numpy()).save(folder / f"{number}.png")


def test_a_folder_that_is_served_again_continues(serve, tmp_path, capsys):
    """What is no image is told and left out, and no image counts twice."""
    model = model_of()
    prompts = words(model, ["cat", "dog"])
    served = {}
    for name, parts in {"twice": [range(3), range(3, 6)], "once": [range(6)]}.items():
        folder, memory = tmp_path / name, tmp_path / f"memory of {name}"
        memory.mkdir()
        folder.mkdir()
        (folder / "0.jpg").write_bytes(b"no image")
        found = {}
        for numbers in parts:
            put(folder, numbers)
            new = serve(model, prompts, folder, memory, patience=0.01, every=2)
            assert sorted(new) == [f"{number}.png" for number in numbers]
            found |= new
        served[name] = found, load_state("tda", memory / "state.safetensors", model, prompts)
    assert served["once"][0] == served["twice"][0]
    one, other = (state for _, state in served.values())
    assert torch.equal(one.positive.keys, other.positive.keys)
    assert torch.equal(one.negative.entropy, other.negative.entropy)
    assert "0.jpg" in capsys.readouterr().out


def test_the_space_starts_the_app_for_visitors(monkeypatch):
    asked = []
    monkeypatch.setattr("tpt_lib.cli.main", asked.append)
    runpy.run_path(str(SPACE / "app.py"), run_name="__main__")
    args = parser().parse_args(asked[0])
    assert (args.command, args.models, args.host, args.port) == ("app", ["tiny"], "0.0.0.0", 7860)
    assert (SPACE / "requirements.txt").read_text() == "tpt_lib[app]\n"
    start, front, text = (SPACE / "README.md").read_text().split("---\n", maxsplit=2)
    assert start == ""
    settings = dict(line.split(": ") for line in front.splitlines())
    assert settings["sdk"] == "gradio"
    assert settings["app_file"] == "app.py"
    assert {"title", "emoji", "colorFrom", "colorTo", "sdk_version", "license"} <= set(settings)
    assert text.strip()

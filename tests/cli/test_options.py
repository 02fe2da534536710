"""An option that would have no effect is refused, whatever its value, before anything is loaded."""

import sys

import pytest
from support.command_line import STYLE, ran, save

import tpt_lib
from tpt_lib.cli.loading import classes_of
from tpt_lib.cli.parser import parser


@pytest.fixture(autouse=True)
def no_model(monkeypatch):
    def load(*_):
        raise AssertionError("a model was loaded before the options were checked")

    monkeypatch.setattr("tpt_lib.load_tiny", load)


def refused(capsys, line):
    code, out, (error,) = ran(capsys, line)
    assert (code, out) == (2, "")
    return error.removeprefix("tpt-lib: error: ")


EMBEDDED = {
    "--split test": "--split",
    "--split val": "--split",
    "--root .": "--root",
    "--subset": "--subset",
    "--classes cat dog": "--classes",
    "--classes-file names.txt": "--classes-file",
    "--root . --split test --subset": "--root, --split, --subset",
}


@pytest.mark.parametrize("options", EMBEDDED)
@pytest.mark.parametrize("command", ["evaluate", "compare"])
@pytest.mark.parametrize("name", [STYLE, "tiny-bongard"])
def test_embedded_sets(name, command, options, capsys):
    error = refused(capsys, f"{command} --dataset {name} {options}")
    assert error.startswith(
        f"{EMBEDDED[options]}: no effect on {name}, which is embedded with its classes and one split"
    )


@pytest.mark.parametrize(
    "option",
    ["--n-views 64", "--recipe crop", "--template 'a {}'", "--prompt coop.pth", "--num-workers 0", "--num-workers 2",
     "--backend local", "--backend ray", "--order shuffle", "--streams per-rank", "--preset pets", "--reward tiny"],
)  # fmt: skip
def test_bongard_problems(option, capsys):
    error = refused(capsys, f"evaluate --dataset tiny-bongard {option}")
    assert error == f"{option.split()[0]}: not for Bongard problems, which have no views, no class names and no stream"


def test_a_folder_has_no_splits(capsys, tmp_path):
    save(tmp_path / "animals/cat/1.png")
    for command in ("evaluate", "compare"):
        assert refused(capsys, f"{command} --dataset animals --split val").startswith(
            "--split: a folder or file has no splits"
        )
        line = f"{command} --dataset {tmp_path / 'animals'} --root /data"
        assert refused(capsys, line).startswith("--root: no effect on the absolute path")


@pytest.mark.parametrize("option", ["--root .", "--split test", "--subset", "--limit 3"])
def test_images_are_no_dataset(option, capsys):
    error = refused(capsys, f"compare a.png --classes cat dog {option}")
    assert error.startswith(f"{option.split()[0]}: for --dataset; images on the command line are all used")


def test_what_json_does_not_show(capsys):
    assert refused(capsys, "classify a.png --classes cat dog --json --top 3").startswith("--top: no effect with --json")
    assert refused(capsys, "report run.jsonl --json --format table").startswith("--format: no effect with --json")
    assert refused(capsys, "report run.jsonl --root data").startswith("--root: no effect without --html")


def test_weights_of_a_folder(capsys, tmp_path, monkeypatch):
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clip").mkdir()
    (tmp_path / "clip/config.json").write_text("{}")
    error = refused(capsys, "classify a.png --classes cat dog --model clip --pretrained openai")
    assert error == "--pretrained: for architectures of open_clip; the folder clip has its own weights"
    error = refused(capsys, "classify a.png --classes cat dog --model local-dir:clip --pretrained openai")
    assert error == "load_open_clip: 'local-dir:clip' holds its own weights, so pretrained='openai' has no effect"


def test_no_option_has_a_default_that_hides_whether_it_was_given():
    """Seeds, the model and the method always have an effect."""
    lines = {
        "classify": "classify a.png --classes cat",
        "evaluate": "evaluate",
        "compare": "compare",
        "report": "report a",
    }
    for name, line in lines.items():
        args = vars(parser().parse_args(line.split()))
        given = {option for option, value in args.items() if value not in (None, False, [])} - {"command"}
        assert given <= {"classify": {"images", "classes", "seed", "method", "model"}, "evaluate": {"seeds", "model"},
                         "compare": {"seed", "model"}, "report": {"runs"}}[name]  # fmt: skip


@pytest.mark.usefixtures("no_shape_checks")
def test_the_library_refuses_them_too(tmp_path):
    with pytest.raises(ValueError, match="root and subset have no effect on a list"):
        tpt_lib.load_dataset([(None, 0)], tmp_path, classes=["cat"])
    with pytest.raises(ValueError, match="classes have no effect on bongard-hoi"):
        tpt_lib.load_dataset("bongard-hoi", tmp_path, split="seen_act_seen_obj", classes=["a", "b"])


@pytest.mark.parametrize(("encoding", "says"), [("utf-16", "UTF-16"), ("latin-1", "Latin-1")])
def test_a_class_file_in_another_encoding(encoding, says, capsys, tmp_path):
    (tmp_path / "names.txt").write_text("cat\nLöwe\n", encoding=encoding)
    error = refused(capsys, "compare a.png --classes-file names.txt")
    assert error.startswith("--classes-file: 'names.txt' is not UTF-8, from line ")
    assert f"it may be {says}. Convert it with 'iconv -f {says} -t UTF-8'" in error


def test_a_class_file_with_a_mark(tmp_path):
    (tmp_path / "names.txt").write_text("Löwe\n\ndog\n", encoding="utf-8-sig")
    args = parser().parse_args(["classify", "a.png", "--classes-file", "names.txt"])
    assert classes_of(args) == ["Löwe", "dog"]


def test_missing_extras_come_first(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert 'pip install "tpt_lib[plots]"' in refused(capsys, "report none.jsonl --plots figures")
    monkeypatch.setitem(sys.modules, "torchmetrics", None)
    assert 'pip install "tpt_lib[evaluate]"' in refused(capsys, "report none.jsonl")

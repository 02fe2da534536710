"""The command reproduce: its plan, its table and page, and what it refuses."""

import json

import pytest
from support.command_line import ran
from support.reproductions import as_published, model, write

pytestmark = pytest.mark.usefixtures("no_shape_checks")


@pytest.fixture
def root(tmp_path, monkeypatch):
    as_published(monkeypatch)
    monkeypatch.setattr("tpt_lib.load_tiny", lambda: model("RN50/openai"))
    write(tmp_path / "data")
    return tmp_path / "data"


def test_list(capsys):
    code, out, _ = ran(capsys, "reproduce --list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[2:5]] == ["table1", "table2", "table3"]
    assert "not run: it has no accuracies" in out
    code, out, _ = ran(capsys, "reproduce --list --from-followers --model ViT-B-16 --json")
    assert (code, json.loads(out)["rows"][0]["name"]) == (0, "followers")


def test_a_table_from_the_command_line(root, capsys):
    line = f"reproduce table4 --root {root} --out results"
    code, out, _ = ran(capsys, f"{line} --dry-run")
    assert (code, "found: imagenet-a, 6 images" in out, "verdict" in out) == (0, True, False)
    assert not [*root.parent.glob("results/*")]
    code, out, _ = ran(capsys, line)
    assert code == 0
    assert "6 images to encode" in out
    assert "TPT without confidence selection  imagenet-a  6" in out
    assert "The page is results/rn50-openai/table4.html" in out
    assert (root.parent / "results/rn50-openai/table4.html").is_file()
    code, out, _ = ran(capsys, f"{line} --json")
    found = json.loads(out)
    assert (found["plan"]["left"]["images"], len(found["rows"]), found["rows"][0]["paper"]) == (0, 3, 21.83)


def test_pictures_that_cannot_be_read_change_the_exit_code(root, capsys):
    (root / "imagenet-a/n01498041/0.jpg").write_bytes(b"no picture")
    assert ran(capsys, f"reproduce table4 --root {root}")[0] == 1


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("reproduce", "reproduce needs a name from 'tpt-lib reproduce --list'"),
        ("reproduce table1", "--root is missing"),
        ("reproduce --list --root .", "--root: no effect with --list"),
        ("reproduce tabel1 --root .", "there is no experiment 'tabel1'; did you mean 'table1'?"),
        ("reproduce table10 --root .", "is not run: it has no accuracies"),
        ("reproduce table1 --root .", "nothing to run of table1"),
        ("reproduce table1 --root . --limit 0", "limit must be at least 1"),
        ("reproduce table1 --root . --coop gone.pth", "there is no file 'gone.pth'"),
        ("reproduce table1 --root . --reward tiny", "none of the rows uses reward"),
    ],
)
def test_what_is_refused(line, says, capsys):
    code, _, errors = ran(capsys, line)
    assert code == 2
    assert says in errors[-1]

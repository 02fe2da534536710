"""What the pages and notebooks show: it runs, it leads somewhere, it is complete."""

import json
import pathlib
import re

import nbformat
import pytest
from support.scripts import script

import tpt_lib
from tpt_lib.methods import base

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def blocks(page):
    """The comment before each block of code, its language, and the code."""
    text = page.read_text()
    found = re.findall(r"(?:^<!-- ([^\n]*?) -->\n)?^```(\w*)\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert 2 * len(found) == len(re.findall("^ *```", text, flags=re.MULTILINE))
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_code_block_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(base, "_entries", dict(base._entries))  # a page may register a method
    for i, (note, language, code) in enumerate(blocks(page)):
        if language == "python" and not note.startswith("not run: "):
            exec(compile(code, f"block {i} of {page.name}", "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_blocks_that_are_not_run_say_why(page):
    for note, language, code in blocks(page):
        assert language in ("python", "bash", "text", "bibtex"), code
        if language == "bash":
            assert note in ("run", "test") or note.startswith("not run: "), code


def test_links_in_the_pages_lead_somewhere():
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#]+)(?:#[\w-]+)?\)", page.read_text()):
            assert link.startswith("https://") or (page.parent / link).exists(), (page.name, link)


def test_links_of_the_site(tmp_path):
    (tmp_path / "a.html").write_text('<p id="here"><a href="b.html#there"></a><a href="#here"></a><img src="c.png">')
    (tmp_path / "b.html").write_text('<a href="a.html#gone"></a><a href="gone.html"></a><a href="https://x.org/y"></a>')
    broken, external = script("site").links(tmp_path)
    assert broken == ["a.html -> b.html#there", "a.html -> c.png", "b.html -> a.html#gone", "b.html -> gone.html"]
    assert external == {"https://x.org/y"}


def test_the_site_tells_undocumented_names(tmp_path):
    site, page = script("site"), tmp_path / "api.html"
    missing = ["wrap", "views.AugMix"]
    page.write_text("".join(f'<dt id="tpt_lib.{name}">' for name in site.public_values() if name not in missing))
    assert site.undocumented(page) == missing


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_notebooks_are_stored_with_what_they_show_and_nothing_of_the_machine(path):
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert sum(bool(cell.outputs) for cell in cells) > len(cells) / 2
    for output in [output for cell in cells for output in cell.outputs]:
        assert output.output_type in ("display_data", "execute_result", "stream")
        assert output.get("name") != "stderr", output.text
        text = str(output.get("text", "")) + str(output.get("data", {}).get("text/plain", ""))
        assert not re.search(r"(?<![\w.])/\w+/\w+|site-packages", text), text


def test_the_index_has_every_page_and_notebook():
    listed = set(re.findall(r"\]\(([^)#:]+)\)", (ROOT / "docs/index.md").read_text()))
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert listed == pages | {"../CHANGELOG.md", "../CONTRIBUTING.md", "../SECURITY.md"} | {
        f"../examples/{path.name}" for path in NOTEBOOKS
    }


def test_the_papers_ablations_are_drawn_from_its_tables():
    drawn = script("figures").paper()
    left, right = drawn["without-tuning"].axes
    assert [text.get_text() for text in left.texts] == ["-1.5", "+1.0", "+3.1"]  # 42.69, 45.16 and 47.26 less 44.18
    assert right.lines[0].get_ydata()[0] == pytest.approx(43.26 - 39.92)
    gains = [text.get_text() for text in drawn["selection"].axes[0].texts]
    assert (gains[1], gains[8]) == ("+1.8", "+4.8")  # ImageNet-A: 23.65 and 26.67 less 21.83


def test_the_methods_are_drawn_from_their_numbers():
    found = {name: {"accuracy": [80.0, 90.0], "seconds": [0.1, 0.3, 0.2]} for name in ("zero_shot", "tda")}
    (axes,) = script("figures").methods({"methods": found}).axes
    assert {text.get_text() for text in axes.texts if text.get_text()} == {"zero-shot", "TDA"}
    assert axes.collections[0].get_offsets().tolist() == [[pytest.approx(200), pytest.approx(85)]] * 2


def test_the_page_of_methods_is_what_the_registry_says():
    methods = script("methods")
    text = methods.page(json.loads(methods.NUMBERS.read_text()))
    assert methods.PAGE.read_text() == text, "run python scripts/methods.py --tables"
    rows = re.findall(r"^\| `(\w+)` \| ", text, flags=re.MULTILINE)
    assert tuple(rows) == tpt_lib.list_methods() + tpt_lib.list_methods(online=True)


def test_a_stale_page_of_methods_is_noticed(tmp_path, monkeypatch, capsys):
    methods = script("methods")
    monkeypatch.setattr(methods, "PAGE", tmp_path / "methods.md")
    monkeypatch.setattr("sys.argv", ["methods.py", "--check"])
    text = methods.page(json.loads(methods.NUMBERS.read_text()))
    assert methods.main() == 1
    methods.PAGE.write_text(text.replace("| TPT |", "| TTP |"))
    assert methods.main() == 1
    assert "stale" in capsys.readouterr().out
    methods.PAGE.write_text(text)
    assert methods.main() == 0


def test_the_card_is_what_the_settings_and_the_measurements_say(monkeypatch, capsys):
    monkeypatch.syspath_prepend(ROOT / "scripts/train_tiny")
    card = script("card", "scripts/train_tiny")
    found = json.loads(card.NUMBERS.read_text())
    assert card.PAGE.read_text() == card.write_card(found), "run python scripts/train_tiny/card.py"
    for name, value in {"STEPS": 987, "SMALLEST": 0.345, "PROBLEMS": 876, "WORDS": 765, "SPREAD": 0.0654}.items():
        monkeypatch.setattr(card, name, value)
    changed = card.write_card(found | {"minutes": 543, "trained embeddings": [43.2, 32.1]})
    for words in ("987 steps", "34% of the area", "n=876", "765 words", "of 0.0654", "543 minutes", "43.2 and 32.1"):
        assert words in changed
    monkeypatch.setattr("sys.argv", ["card.py", "--check"])
    assert card.main() == 1
    assert "stale" in capsys.readouterr().out


@pytest.mark.slow
def test_a_type_error_in_what_users_copy_is_noticed():
    examples = script("examples")
    assert {"readme_0.py", "wrap_your_own.py"} <= set(examples.sources())
    code, said = examples.check(
        {"wrong.py": "import tpt_lib as tpt\n\ntpt.tpt_classify(tpt.load_tiny(), 1.5, ['cat'])\n"}
    )
    assert code == 1
    assert "wrong.py:3:35 - error" in said

"""What the pages and notebooks show: it runs, it leads somewhere, it is complete."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def script(name):
    spec = importlib.util.spec_from_file_location(f"script_{name}", ROOT / f"scripts/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def blocks(page):
    """The comment before each block of code, its language, and the code."""
    text = page.read_text()
    found = re.findall(r"(?:^<!-- (.*?) -->\n)?^```(\w*)\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert 2 * len(found) == len(re.findall("^ *```", text, flags=re.MULTILINE))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_code_block_runs(page, tmp_path):
    run = [code for note, language, code in blocks(page) if language == "python" and not note.startswith("not run: ")]
    each = [f"exec(compile({code!r}, 'block {i} of {page.name}', 'exec'), {{}})" for i, code in enumerate(run)]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    subprocess.run([sys.executable, "-c", "\n".join(each)], check=True, cwd=tmp_path, env=environment)


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

"""The package as users get it: what it exports, imports, ships and says of itself."""

import doctest
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from types import ModuleType

import pytest
import yaml

import tpt_lib

ROOT = pathlib.Path(__file__).parents[2]
IGNORED = {"__pycache__", ".ipynb_checkpoints", ".hypothesis", ".pytest_cache"}
HEAVY = ["open_clip", "torchvision", "transformers", "matplotlib", "ray", "torchmetrics", "PIL", "datasets", "pyarrow"]


def run(code, **kwargs):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, **kwargs).stdout


def imported(code):
    return set(run(f"{code}\nimport sys\nprint(*(m for m in {HEAVY} if m in sys.modules))").split())


@pytest.mark.slow
def test_import_is_light():
    assert imported("import tpt_lib") == set()


@pytest.mark.slow
def test_that_the_test_of_light_import_can_fail(tmp_path):
    (tmp_path / "matplotlib.py").write_text("")
    assert imported(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import tpt_lib, matplotlib") == {"matplotlib"}


ROOMS = {name: getattr(tpt_lib, name) for name in tpt_lib.__all__ if isinstance(getattr(tpt_lib, name), ModuleType)}
FLAT = [name for name in tpt_lib.__all__ if name not in ROOMS]


def public_values():
    """Every public name once: flat names as ``wrap``, and those that only a room has as ``views.Crops``."""
    values = {name: getattr(tpt_lib, name) for name in FLAT}
    for room, module in ROOMS.items():
        for name in module.__all__:
            value = getattr(module, name)
            if name in FLAT:
                assert value is values[name], f"{room}.{name} is not the flat name's value"
            else:
                values[f"{room}.{name}"] = value
    return values


PUBLIC = public_values()


@pytest.mark.parametrize("module", [tpt_lib, *ROOMS.values()], ids=lambda module: module.__name__)
def test_all_is_sorted_and_exact(module):
    assert module.__all__ == sorted(module.__all__)
    assert len(set(module.__all__)) == len(module.__all__)
    if hasattr(module, "__path__"):
        ours = {n for n, v in vars(module).items() if getattr(v, "__module__", "").startswith("tpt_lib.")}
        assert ours == {name for name in module.__all__ if name not in (*ROOMS, "ENTRIES")}


def test_flat_names_are_those_of_a_first_hour():
    assert len(FLAT) <= 55
    assert sorted(ROOMS) == ["evaluation", "methods", "models", "paper", "plots", "prompts", "text", "types", "views"]


def test_every_public_name_is_documented_once():
    text = (ROOT / "docs/api.md").read_text()
    rows = re.findall(r"^\| (`.*?) \|", text, flags=re.MULTILINE)
    documented = [name for row in rows for name in re.findall(r"`([\w.]+)`", row)]
    assert sorted(documented) == sorted(PUBLIC)
    assert re.findall(r"^## tpt\.(\w+)$", text, flags=re.MULTILINE) == list(
        dict.fromkeys(name.partition(".")[0] for name in documented if "." in name)
    )
    assert set(re.findall(r"^## tpt\.(\w+)$", text, flags=re.MULTILINE)) == set(ROOMS)


DATA = ["evaluation.ENTRIES"] + [  # values and aliases, which the reference describes
    f"types.{name}"
    for name in (
        "ImageLike",
        "Images",
        "Objective",
        "OptimizerFactory",
        "PathLike",
        "Recipe",
        "Regularizer",
        "Seed",
        "Select",
    )
]


@pytest.mark.parametrize("name", [name for name in PUBLIC if name not in DATA])
def test_every_public_name_has_a_docstring(name):
    value, last = PUBLIC[name], name.rpartition(".")[2]
    assert value.__doc__
    assert not value.__doc__.startswith(f"{last}("), "a dataclass without a docstring of its own"
    needs_network_or_files = {"load_open_clip", "load_transformers", "load_prompt"}
    if not isinstance(value, type) and name not in needs_network_or_files:
        assert doctest.DocTestParser().get_examples(value.__doc__), "no example"


def test_the_changelog_has_what_is_unreleased_and_then_the_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heads = re.findall(r"^## (.*)$", text, flags=re.MULTILINE)
    assert heads[0] == "[Unreleased]"
    assert re.fullmatch(rf"\[{re.escape(tpt_lib.__version__)}\] - \d{{4}}-\d\d-\d\d", heads[1])
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}  # of Keep a Changelog
    assert set(re.findall(r"^### (.*)$", text, flags=re.MULTILINE)) <= kinds
    links = re.findall(r"^\[(.+)\]: https://", text, flags=re.MULTILINE)
    assert links == [re.match(r"\[(.+?)\]", head)[1] for head in heads]


def test_the_citation_has_the_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == tpt_lib.__version__


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT]
    subprocess.run(build, check=True, capture_output=True)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


@pytest.mark.slow
def test_the_sdist_has_all_that_the_tests_read(built):
    with tarfile.open(built[0]) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    folders = (".ci", ".github", "benchmarks", "docs", "examples", "scripts", "src", "tests")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    files += [path for path in ROOT.glob("*") if path.suffix in (".md", ".cff", ".toml", ".py")]
    wanted = {path.relative_to(ROOT).as_posix() for path in files if not IGNORED & set(path.parts)}
    assert wanted - packed == set()


@pytest.mark.slow
def test_the_index_gets_the_readme_with_absolute_links(built):
    with zipfile.ZipFile(built[1]) as wheel:
        metadata = wheel.read(f"tpt_lib-{tpt_lib.__version__}.dist-info/METADATA")
    text = message_from_bytes(metadata).get_payload(decode=True).decode()
    source = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Source"]
    page, raw = f"{source}/blob/main/", source.replace("github.com", "raw.githubusercontent.com") + "/main/"
    found = re.findall(r"(!?)\[[^\]]*\]\(([^)]*)\)", text)
    assert [link for _, link in found if not link.startswith("https://")] == []
    assert [link.startswith(raw) for image, link in found if image] == [True]
    ours = [link.removeprefix(page).removeprefix(raw) for _, link in found if link.startswith((page, raw))]
    assert len(ours) > 20
    assert [link for link in ours if link.startswith("#") or not (ROOT / link.partition("#")[0]).exists()] == []
    back = text.replace(f"{page}README.md#", "#").replace(page, "").replace(raw, "")
    assert back.strip() == (ROOT / "README.md").read_text(encoding="utf-8").strip()  # nothing else differs


@pytest.mark.slow
def test_the_wheel_works_from_another_folder(built, tmp_path):
    wheel = built[1]
    assert wheel.stat().st_size < 7_000_000
    target = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", target, wheel]
    subprocess.run(install, check=True, capture_output=True)
    assert (target / "tpt_lib/py.typed").is_file()
    helped = [sys.executable, target / "bin/tpt-lib", "--help"]
    assert (
        b"classify" in subprocess.run(helped, env={**os.environ, "PYTHONPATH": str(target)}, capture_output=True).stdout
    )
    example = (ROOT / "examples/wrap_your_own.py").read_text()
    code = f"import tpt_lib; assert tpt_lib.__file__.startswith({str(target)!r}), tpt_lib.__file__\n{example}"
    assert "red panda" in run(code, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(target)})


@pytest.mark.slow
def test_the_example_of_a_model_of_your_own():
    path = ROOT / "examples/wrap_your_own.py"
    assert len(path.read_text().splitlines()) < 40
    assert re.search(r"'red panda': 0\.\d+", run(path.read_text()))


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_every_example_runs(path, tmp_path):
    assert run(path.read_text(), cwd=tmp_path)

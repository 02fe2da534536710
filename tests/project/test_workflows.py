"""The workflows, templates and hooks: they parse, and say what they should."""

import os
import pathlib
import re
import shutil
import subprocess
import tomllib

import pytest
import yaml

import tpt_lib

ROOT = pathlib.Path(__file__).parents[2]
GITHUB = ROOT / ".github"
FILES = sorted([*GITHUB.rglob("*.yml"), ROOT / ".pre-commit-config.yaml", ROOT / "CITATION.cff"])
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def read(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def workflow(name):
    return read(GITHUB / f"workflows/{name}.yml")


def events(found):
    return found[True]  # YAML 1.1 reads "on" as true


def steps(job):
    return [step.get("run") or step.get("uses") for step in job["steps"]]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_files_parse(path):
    assert isinstance(read(path), dict)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_packages_come_from_one_index(path):
    assert not re.search(r"(?i)index[-_]url|find[-_]links", path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_what_exists_and_may_only_read(path):
    found = read(path)
    assert found["permissions"] == {"contents": "read"}
    for job in found["jobs"].values():
        assert {"runs-on", "steps"} <= set(job)
        for step in job["steps"]:
            assert re.fullmatch(r"[\w/-]+@[\w./-]+", step.get("uses", "a@b"))
            for script in re.findall(r"scripts/\w+\.py", step.get("run", "")):
                assert (ROOT / script).is_file()
            for extra in re.findall(r"\.\[(\w+)\]", step.get("run", "")):
                assert extra in PROJECT["optional-dependencies"]


def test_the_tests_run_on_every_system_and_python():
    jobs = workflow("ci")["jobs"]
    matrix = jobs["tests"]["strategy"]["matrix"]
    assert matrix["os"] == ["ubuntu-latest", "macos-latest", "windows-latest"]
    classified = [re.search(r"3\.\d+$", one) for one in PROJECT["classifiers"]]
    assert matrix["python"] == [found[0] for found in classified if found]
    assert PROJECT["requires-python"] == f">={matrix['python'][0]}"
    assert 'python -m pytest -m "not slow"' in steps(jobs["tests"])[-1]


def test_lint_oldest_coverage_and_nightly():
    jobs = workflow("ci")["jobs"]
    assert steps(jobs["lint"])[-1] == "python scripts/check.py lint types pages"
    assert steps(jobs["oldest"])[-1] == "python scripts/check.py --oldest"
    assert jobs["oldest"]["steps"][1]["with"]["python-version"] == "3.11"
    assert any("--cov" in step for step in steps(jobs["coverage"]))
    nightly = workflow("nightly")
    assert "schedule" in events(nightly)
    assert "pytest -m slow " in steps(nightly["jobs"]["slow"])[-1]


def test_the_site_is_deployed_from_main():
    found = workflow("docs")
    assert events(found)["push"]["branches"] == ["main"]
    assert "python scripts/site.py" in steps(found["jobs"]["build"])
    assert found["jobs"]["build"]["steps"][-1]["with"]["path"] == "build/site"
    assert found["jobs"]["deploy"]["permissions"] == {"pages": "write", "id-token": "write"}


def test_publishing_needs_a_tag_and_no_token():
    found = workflow("publish")
    assert events(found) == {"push": {"tags": ["v*"]}}
    publish = found["jobs"]["publish"]
    assert publish["needs"] == "build"
    assert publish["environment"]["name"] == "pypi"
    assert publish["permissions"] == {"id-token": "write"}
    action = publish["steps"][-1]
    assert action["uses"].startswith("pypa/gh-action-pypi-publish@")
    assert action["with"] == {"attestations": True}
    assert "secrets." not in (GITHUB / "workflows/publish.yml").read_text(encoding="utf-8")


@pytest.mark.skipif(os.name == "nt" or shutil.which("bash") is None, reason="the workflow runs in bash")
@pytest.mark.parametrize(
    ("tag", "code", "said"),
    [
        (f"v{tpt_lib.__version__}", 0, ""),
        ("v9.0.0", 1, "the tag is v9.0.0, but the package is dist/tpt_lib-"),
        ("v0.9.9", 1, "CHANGELOG.md has no section v0.9.9"),
    ],
)
def test_a_tag_must_be_the_version(tag, code, said, tmp_path):
    (step,) = [
        step for step in workflow("publish")["jobs"]["build"]["steps"] if step.get("name") == "The tag is the version"
    ]
    shutil.copy(ROOT / "CHANGELOG.md", tmp_path)
    (tmp_path / "dist").mkdir()
    for version in (tpt_lib.__version__, "0.9.9"):
        (tmp_path / f"dist/tpt_lib-{version}-py3-none-any.whl").touch()
    environment = {**os.environ, "GITHUB_REF_NAME": tag}
    done = subprocess.run(
        ["bash", "-e", "-c", step["run"]], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert (done.returncode, said in done.stdout) == (code, True)


def test_a_new_method_is_asked_what_matters():
    fields = [field.get("id") for field in read(GITHUB / "ISSUE_TEMPLATE/new_method.yml")["body"]]
    assert {"paper", "tunes", "state", "reference"} <= set(fields)

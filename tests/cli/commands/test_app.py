"""The command that serves the app, without serving it."""

import subprocess
import sys

import pytest
from support import rewards
from support.cases import model_of
from support.command_line import ran, tiny


@pytest.fixture
def served(monkeypatch):
    """What the command would have served; no server is started."""
    asked = []

    class Page:
        def block_thread(self):
            asked.append("blocked")

    def serve(models, **options):
        asked.append((models, options))
        return Page(), "http://127.0.0.1:1/"

    monkeypatch.setattr("tpt_lib.app.page.serve", serve)
    monkeypatch.setattr("tpt_lib.app.wiring.require_gradio", lambda: None)  # to import it takes seconds
    return asked


def test_by_default_the_embedded_model_on_the_loopback_address(served, capsys):
    code, out, errors = ran(capsys, "app")
    (models, options), blocked = served
    assert (code, out, errors) == (0, "The app is at http://127.0.0.1:1/ until you press Ctrl-C\n", [])
    assert options == {"host": "127.0.0.1", "port": None}
    assert [(name, one.model, one.code) for name, one in models.items()] == [("tiny", tiny(), "tpt.load_tiny()")]
    assert blocked == "blocked"


def test_the_models_that_are_named_and_no_other(served, capsys, monkeypatch, tmp_path):
    loaded = []
    monkeypatch.setattr("tpt_lib.load_open_clip", lambda *given: loaded.append(given) or rewards.second_clip())
    monkeypatch.setattr(
        "tpt_lib.load_transformers", lambda *given: loaded.append(given) or model_of("transformers-clip")
    )
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/config.json").write_text("{}")
    code, _, errors = ran(capsys, "app --models ViT-B-16:openai mine RN50 RN50 --host 0.0.0.0 --port 8000 --device cpu")
    models, options = served[0]
    assert code == 0
    assert options == {"host": "0.0.0.0", "port": 8000}
    assert {name: one.code for name, one in models.items()} == {
        "ViT-B-16:openai": "tpt.load_open_clip('ViT-B-16', 'openai')",
        "mine": "tpt.load_transformers('mine')",
        "RN50": "tpt.load_open_clip('RN50', None)",
    }
    assert loaded == [("ViT-B-16", "openai"), ("mine",), ("RN50", None)]
    assert errors == ["tpt-lib: warning: everyone who can reach 0.0.0.0 can use this app; there is no password"]


def test_without_gradio_the_extra_is_named_before_models_are_loaded(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    monkeypatch.setattr("tpt_lib.load_tiny", lambda: pytest.fail("it was loaded"))
    code, _, (error,) = ran(capsys, "app")
    assert (code, error) == (2, 'tpt-lib: error: the browser app needs Gradio: pip install "tpt_lib[app]"')


def test_json_is_refused(served, capsys):
    code, _, (error,) = ran(capsys, "app --json")
    assert (code, error) == (2, "tpt-lib: error: --json: the app prints no result; leave it out")
    assert served == []


@pytest.mark.slow
def test_gradio_is_imported_only_to_serve():
    code = "import sys, tpt_lib.app.page, tpt_lib.cli.commands; sys.exit('gradio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0

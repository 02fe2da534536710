"""The command that serves the app, without serving it."""

import subprocess
import sys

import pytest
from support import rewards
from support.cases import model_of
from support.command_line import ran, tiny
from support.stores import encoded


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
    assert options == {"store": None, "host": "127.0.0.1", "port": None}
    assert [(name, one.model, one.code) for name, one in models.items()] == [("tiny", tiny(), "tpt.load_tiny()")]
    assert blocked == "blocked"


@pytest.mark.slow
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
    assert options == {"store": None, "host": "0.0.0.0", "port": 8000}
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


def test_a_store_is_opened(served, capsys, tmp_path):
    encoded(tmp_path / "noise", model=tiny())
    code, _, errors = ran(capsys, "app --store noise")
    assert (code, errors) == (0, [])
    assert str(served[0][1]["store"].path) == "noise"


def test_a_folder_that_is_no_store_is_refused_before_models_are_loaded(served, capsys, monkeypatch):
    monkeypatch.setattr("tpt_lib.load_tiny", lambda: pytest.fail("it was loaded"))
    code, _, (error,) = ran(capsys, "app --store nowhere")
    assert code == 2
    assert error.startswith("tpt-lib: error: FeatureStore.open: there is no feature store at 'nowhere'")
    assert served == []


def test_a_store_of_another_model_is_refused_before_the_page_is_built(capsys, monkeypatch, tmp_path):
    encoded(tmp_path / "noise")
    monkeypatch.setattr("tpt_lib.app.wiring.require_gradio", lambda: None)
    monkeypatch.setattr("tpt_lib.app.page.require_gradio", lambda: None)
    code, _, (error,) = ran(capsys, "app --store noise")
    assert code == 2
    assert error.startswith("tpt-lib: error: app: 'noise' has features of another model (")
    assert error.endswith("Or name the model of the store with --models")


def test_json_is_refused(served, capsys):
    code, _, (error,) = ran(capsys, "app --json")
    assert (code, error) == (2, "tpt-lib: error: --json: the app prints no result; leave it out")
    assert served == []


@pytest.mark.slow
def test_gradio_is_imported_only_to_serve():
    code = "import sys, tpt_lib.app.page, tpt_lib.cli.commands; sys.exit('gradio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0

"""The public names with their signatures are those of a file, which a change must update on purpose."""

import pytest
from support.scripts import script


@pytest.fixture(scope="module")
def api():
    return script("api")


def test_the_public_names_are_those_of_the_snapshot(api):
    kept = api.SNAPSHOT.read_text(encoding="utf-8").splitlines()
    changed = {f"- {line}" for line in kept} ^ {f"- {line}" for line in api.snapshot().splitlines()}
    assert not changed, f"the public names changed: run {api.COMMAND}"


def test_a_signature_has_defaults_keywords_and_results(api):
    text = api.snapshot()
    assert "\nmarginal_entropy(logits: Float[Tensor, '*b n k']) -> Float[Tensor, '*b']\n" in text
    assert "image_features: Float[Tensor, '*b n e'], *, context: " in text
    assert "objective: Objective = marginal_entropy, " in text
    assert "optimizer: OptimizerFactory = partial(SGD, momentum=0.9, weight_decay=0.0005)" in text
    assert "\n  Prediction.top(self, k: int = 5) -> " in text
    assert "\n**ViewOptions: n_views: int, " in text
    assert "0x" not in text


def test_a_new_default_is_noticed(api, tmp_path, monkeypatch, capsys):
    stale = tmp_path / "api.txt"
    stale.write_text(api.snapshot().replace("lr: float = 0.005", "lr: float = 0.004"), encoding="utf-8")
    monkeypatch.setattr(api, "SNAPSHOT", stale)
    monkeypatch.setattr("sys.argv", ["api.py", "--check"])
    assert api.main() == 1
    assert "is stale: run python scripts/api.py, if the change is meant" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["api.py"])
    assert api.main() == 0
    monkeypatch.setattr("sys.argv", ["api.py", "--check"])
    assert api.main() == 0

"""The page of ``tpt-lib app --store`` in a real browser: choose a sample, run, read the result; then an image again."""

import re

import pytest
from support.app import drawn_store, executed, opened, refused, run, running_app

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Gradio's own warnings


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("drawn")
    drawn_store(made)
    return made


@pytest.fixture
def tab(browser, folder):
    with running_app(folder, "--store", str(folder / "store")) as address, browser.new_context() as user:
        yield opened(user, address)


def test_a_sample_then_what_is_refused_then_an_image(tab, folder, monkeypatch, capsys):
    card = tab.locator("#sample")
    assert "cat/1.png" in card.inner_text()
    assert not tab.get_by_label("Class names").is_visible()
    tab.get_by_label("Sample, 0 to 3").fill("1")
    card.get_by_text("unicorn/1.png").wait_for()
    card.locator("img").wait_for()
    tab.get_by_label("Steps").fill("3")
    code, probabilities = run(tab)
    said = executed(code, folder, monkeypatch, capsys)
    assert f"tpt.FeatureStore.open({str(folder / 'store')!r}).of_model('tiny')" in code
    assert re.search(r"True label: unicorn\. (Right|Wrong): ", probabilities)
    for name, p in said.top(3):
        before = said.zero_shot.probs[said.names.index(name)]
        assert re.search(rf"{name}\s+{before:.3f}\s+{p:.3f}", probabilities), name
    kept = tab.locator("#views figure.kept").evaluate_all("all => all.map(one => Number(one.dataset.view))")
    assert kept == said.selected.tolist()
    assert (tab.locator("#views figure").count(), tab.locator("#views img").count()) == (8, 0)

    tab.get_by_label("Sample, 0 to 3").fill("7")
    assert "there is no sample 7 in this store; its samples are 0 to 3" in refused(tab)
    tab.get_by_label("Sample, 0 to 3").fill("3")
    assert "sample 3 has no features: ImageError" in refused(tab)

    tab.get_by_role("tab", name="All methods").click()
    tab.get_by_label("Sample, 0 to 3").fill("0")
    tab.get_by_role("button", name="Compare").click()
    tab.locator("#methods tr", has_text="zero-shot").wait_for()
    assert "True label: cat." in tab.locator("#methods").inner_text()
    assert tab.locator("#methods tr").count() == 1 + 12

    tab.get_by_role("tab", name="One method").click()
    tab.get_by_label("An image").click()
    tab.get_by_label("Class names").wait_for()
    assert not tab.get_by_label("Sample, 0 to 3").is_visible()
    tab.get_by_role("button", name="Run").click()
    tab.locator("#views img").first.wait_for()
    assert tab.locator("#views img").count() == 64
    assert "True label" not in tab.locator("#probabilities").inner_text()

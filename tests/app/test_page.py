"""The page in a real browser: upload, change a setting, read the result; two users; hostile input; nothing from elsewhere."""

import io
import json
import re

import PIL.Image
import pytest
import torch
from support.app import executed, opened, refused, run, running_app, tiny

import tpt_lib

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Gradio's own warnings
NAMES = ["cat", "dog", "unicorn", "violin"]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with running_app(tmp_path_factory.mktemp("app")) as found:
        yield found


@pytest.fixture
def tab(browser, address):
    """The page of a new user. Whatever is done on it, nothing may come from elsewhere."""
    with browser.new_context() as user:
        asked = []
        user.on("request", lambda request: asked.append(request.url))
        yield opened(user, address)
        assert asked
        assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []


def drawing(name):
    data = tpt_lib.load_tiny_drawings()
    return data.samples[data.classes.index(name)][0]


def png(pixels):
    file = io.BytesIO()
    PIL.Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(file, "png")
    return file.getvalue()


def upload(page, name, content):
    page.get_by_role("button", name="Remove Image").click()
    page.get_by_test_id("file-upload").first.set_input_files({"name": name, "mimeType": "image/png", "buffer": content})
    page.locator(f"img[src*='{name}']").first.wait_for(state="attached")


def type_names(page, names):
    put = "(box, text) => { box.value = text; box.dispatchEvent(new Event('input', {bubbles: true})); }"
    page.get_by_label("Class names").evaluate(put, "\n".join(names))


def test_an_upload_with_other_settings_gives_what_the_python_call_gives(tab, tmp_path, monkeypatch, capsys):
    content = png(drawing("violin"))
    (tmp_path / "mine.png").write_bytes(content)
    upload(tab, "mine.png", content)
    type_names(tab, NAMES)
    tab.get_by_label("Steps").fill("3")
    code, probabilities = run(tab)
    assert "image = 'mine.png'" in code
    assert "steps=3" in code
    said = executed(code, tmp_path, monkeypatch, capsys)
    for name, p in said.top(4):
        assert re.search(rf"{name}\s+{said.zero_shot.probs[NAMES.index(name)]:.3f}\s+{p:.3f}", probabilities), name
    shown = tab.locator("#views figure")
    assert shown.count() == 64
    kept = tab.locator("#views figure.kept").evaluate_all("all => all.map(one => Number(one.dataset.view))")
    assert kept == said.selected.tolist()
    assert tab.locator("#words tr").count() == 1 + len(said.context)


def test_a_drawing_and_another_method(tab, tmp_path, monkeypatch, capsys):
    tab.get_by_label("or an embedded drawing").fill("noto-v1: cat")
    tab.get_by_role("option", name="noto-v1: cat", exact=True).click()
    tab.get_by_label("Method", exact=True).click()
    tab.get_by_role("option", name="ZERO", exact=True).click()
    tab.get_by_label("Steps").wait_for(state="hidden")
    assert tab.get_by_label("Fraction").input_value() == "0.3"
    code, _ = run(tab)
    assert "method = partial(tpt.methods.zero_predict, fraction=0.3)" in code
    at = tpt_lib.load_tiny_drawings().classes.index("cat")
    assert f"image = tpt.load_tiny_drawings('noto-v1').samples[{at}][0]" in code
    assert executed(code, tmp_path, monkeypatch, capsys).label in tab.locator("#probabilities").inner_text()


def test_two_users_at_once_see_their_own_images(browser, address):
    users = [browser.new_context() for _ in range(2)]
    pages = [opened(user, address) for user in users]
    pictures = [png(torch.full((3, 40, 40), level, dtype=torch.uint8)) for level in (0, 255)]
    for number, (page, content) in enumerate(zip(pages, pictures, strict=True)):
        upload(page, f"user{number}.png", content)
        type_names(page, ["cat", "dog", f"owner{number}"])
    for page in pages:
        page.get_by_role("button", name="Run").click()
    for number, page in enumerate(pages):
        page.locator("#views figure").first.wait_for()
        text = page.content()
        assert f"'user{number}.png'" in page.locator("#code").inner_text()
        assert f"owner{1 - number}" not in text
        assert f"user{1 - number}" not in text
        level = page.evaluate(
            """async () => { const image = document.querySelector('#views img'); await image.decode();
            const canvas = document.createElement('canvas'); canvas.width = canvas.height = 1;
            const pen = canvas.getContext('2d'); pen.drawImage(image, 0, 0, 1, 1);
            return pen.getImageData(0, 0, 1, 1).data[0]; }"""
        )
        assert level == pytest.approx(255 * number, abs=3)
    for user in users:
        user.close()


def test_hostile_input_gets_the_message_of_the_library(tab):
    type_names(tab, [f"name {i}" for i in range(10_000)])
    assert "there are 10,000 class names, but this page takes at most 1,000" in refused(tab)
    type_names(tab, ["cat", "dog"])
    tab.get_by_label("Template").fill("<img src=x onerror='window.evil=1'>")
    assert "<img src=x" in refused(tab)  # as text
    for content in (b"<script>window.evil = 1</script>", png(torch.zeros(3, 9, 9).byte())[:-30]):
        upload(tab, "evil.png", content)
        text = refused(tab)
        assert "'evil.png' cannot be" in text
        assert "/" not in text
    assert tab.evaluate("window.evil") is None


def test_the_other_tabs(tab):
    tab.get_by_label("number input for Views").fill("8")
    tab.get_by_role("tab", name="All methods").click()
    tab.get_by_role("button", name="Compare").click()
    tab.locator("#methods tr", has_text="zero-shot").wait_for()
    assert tab.locator("#methods tr").count() == 1 + 12
    tab.get_by_role("tab", name="Bongard problem").click()
    tab.get_by_role("button", name="Solve").click()
    tab.get_by_text("there are no positive images; add at least one").wait_for()
    tab.get_by_role("button", name="Load it").click()
    tab.locator("#query-images img").nth(1).wait_for()
    tab.get_by_role("button", name="Solve").click()
    verdicts = tab.locator("#verdicts li")
    verdicts.first.wait_for()
    problem = tpt_lib.load_tiny_bongard().samples[0]
    solved = tpt_lib.bongard_tpt(tiny().model, *problem[:3])
    for i, (verdict, p) in enumerate(zip(solved.verdicts, solved.probs.tolist(), strict=True)):
        assert verdicts.nth(i).inner_text().startswith(f"query {i + 1}: {verdict}")
        assert float(verdicts.nth(i).inner_text()[-5:-1]) == pytest.approx(max(p, 1 - p), abs=0.03)


def test_work_shows_its_progress_and_can_be_stopped(tab):
    type_names(tab, [f"cat {i}" for i in range(900)])
    tab.get_by_label("Steps").fill("64")
    tab.get_by_role("button", name="Run").click()
    tab.get_by_text(re.compile(r"step \d+ of 64")).wait_for()
    assert 0.6 <= float(tab.locator("progress").get_attribute("value")) < 0.95
    tab.get_by_role("button", name="Stop").first.click()
    tab.get_by_text("Stopped.").wait_for()
    assert tab.locator("#views figure").count() == 0
    type_names(tab, ["cat", "dog"])
    tab.get_by_label("Steps").fill("1")
    run(tab)  # the next click works


def test_what_the_server_tells_the_browser(tab, address):
    config = json.loads(tab.request.get(f"{address}config").text())
    assert address.startswith("http://127.0.0.1:")
    assert config["analytics_enabled"] is False
    assert config["max_file_size"] == 10 * 2**20
    assert config["run_history"] is False
    large = {"files": {"name": "large.png", "mimeType": "image/png", "buffer": bytes(11 * 2**20)}}
    assert tab.request.post(f"{address}gradio_api/upload", multipart=large).status == 413

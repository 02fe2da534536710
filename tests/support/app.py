"""The embedded model as the app has it, the app as a program, and what a user does on its page."""

import contextlib
import functools
import re
import socket
import subprocess
import sys

import PIL.Image
from support import rewards

import tpt_lib
from tpt_lib.app.words import named_model


@functools.cache
def tiny():
    return named_model(tpt_lib.load_tiny(), "tpt.load_tiny()")


@contextlib.contextmanager
def running_app(folder, *options):
    """Yield the address of ``tpt-lib app``, run as a program: checks of shapes would hide generators from Gradio."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tpt_lib", "app", "--port", str(port), *options]
    with open(folder / "errors.txt", "w") as errors:
        program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        told = program.stdout.readline()
        found = re.fullmatch(r"The app is at (http://\S+) until you press Ctrl-C\n", told)
        assert found, (told, (folder / "errors.txt").read_text())
        yield found.group(1)
    finally:
        program.terminate()
        program.wait(20)
        program.stdout.close()


def opened(user, address):
    """Return a new page of a user, ready to run."""
    page = user.new_page()
    page.set_default_timeout(20_000)
    page.goto(address)
    page.get_by_role("button", name="Run").wait_for()
    return page


def run(page):
    """Click Run on a page without results, wait for them, and return the program and the probabilities it shows."""
    assert page.locator("#views figure").count() == 0
    page.get_by_role("button", name="Run").click()
    page.locator("#views figure").first.wait_for()
    return page.locator("#code .cm-content").inner_text(), page.locator("#probabilities").inner_text()


def executed(code, folder, monkeypatch, capsys):
    """Run the program that a page shows in a folder and return its result."""
    monkeypatch.chdir(folder)
    names = {}
    exec(code.replace("\N{NO-BREAK SPACE}", " "), names)
    capsys.readouterr()
    return names["result"]


def refused(page):
    """Click Run and return the message that is shown instead of a result."""
    page.get_by_role("button", name="Run").click()
    message = page.get_by_test_id("toast-body")
    message.wait_for()
    text = message.inner_text()
    assert page.locator("progress").count() == 0
    assert page.get_by_text("Stopped.").count() == 0
    page.get_by_test_id("toast-close").click()
    message.wait_for(state="detached")
    return text


def drawn_store(folder, **options):
    """A store of three drawings in files, and of a fourth file that is no image; the first model is another than tiny."""
    data = tpt_lib.load_tiny_drawings()
    for name in ("cat", "unicorn", "violin"):
        file = folder / "drawings" / name / "1.png"
        file.parent.mkdir(parents=True)
        pixels = data.samples[data.classes.index(name)][0]
        PIL.Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(file)
    (folder / "drawings/violin/2.png").write_bytes(b"no image")
    drawings = tpt_lib.load_dataset(folder / "drawings")
    views = {"n_views": 8, "num_workers": 0, "seeds": (0, 1), **options}
    tpt_lib.encode_dataset(rewards.second_clip(), drawings, folder / "store", **{**views, "seeds": (0,)})
    return tpt_lib.encode_dataset(tiny().model, drawings, folder / "store", name="tiny", **views)

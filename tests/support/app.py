"""The embedded model as the app has it, and the app as a program."""

import contextlib
import functools
import re
import socket
import subprocess
import sys

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

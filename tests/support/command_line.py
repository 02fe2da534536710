"""Run the command line in this process, on the embedded model."""

import functools
import shlex

import PIL.Image
import torch

import tpt_lib
from tpt_lib.cli import main

STYLE = "noto-v1"

tiny = functools.cache(tpt_lib.load_tiny)


def save(path, seed=0):
    """Save a random picture; return its path as text."""
    noise = torch.randint(256, (3, 40, 50), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    path.parent.mkdir(parents=True, exist_ok=True)
    PIL.Image.fromarray(noise.permute(1, 2, 0).numpy()).save(path)
    return str(path)


def ran(capsys, line):
    """Return the exit code, what was printed, and the lines of errors."""
    capsys.readouterr()
    try:
        code = main(shlex.split(line))
    except SystemExit as stop:
        code = stop.code
    said = capsys.readouterr()
    return code, said.out, said.err.splitlines()

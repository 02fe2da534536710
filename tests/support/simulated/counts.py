"""What the simulated device counts: launches, waits and bytes, with the lines of the library that caused them."""

import collections
import dataclasses
import pathlib
import sys

import tpt_lib

PACKAGE = f"{pathlib.Path(tpt_lib.__file__).parent}/"


@dataclasses.dataclass
class Counts:
    """What the device was asked to do.

    Attributes:
        operations: number of launches of each operation.
        waits: number of synchronizations by the line of tpt_lib that caused them.
        uploads: number of copies from the host by the line of tpt_lib.
        bytes_in: bytes copied from the host to the device.
        bytes_out: bytes copied from the device to the host.
    """

    operations: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    waits: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    uploads: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    bytes_in: int = 0
    bytes_out: int = 0

    @property
    def launches(self):
        return self.operations.total()

    @property
    def synchronizations(self):
        return self.waits.total()

    def launch(self, name):
        self.operations[name] += 1

    def wait(self):
        self.waits[line_of_the_library()] += 1

    def upload(self, tensor):
        self.uploads[line_of_the_library()] += 1
        self.bytes_in += tensor.nbytes

    def download(self, tensor, *, non_blocking=False):
        self.bytes_out += tensor.nbytes
        if not non_blocking:
            self.wait()


active = []  # one for each open ``counting()`` block; the innermost counts


def current_counts():
    return active[-1] if active else Counts()


def line_of_the_library():
    """Return the innermost line of tpt_lib that is being executed, as ``file.py:line``."""
    frame = sys._getframe()
    while frame is not None and not frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return "elsewhere" if frame is None else f"{frame.f_code.co_filename.removeprefix(PACKAGE)}:{frame.f_lineno}"

"""Evaluations on random pictures, for the tests of runs. At module level, so that other processes can import it."""

import functools
import json
import os
import sys
import time
from pathlib import Path

import torch
from support.runs import FOUR, header, report
from support.zoo import fresh
from torch.utils.data import Dataset

from tpt_lib import EvalSet, evaluate

NAMES = ("cat", "dog", "red panda", "kite", "hen", "ant")
METHODS = {"zero-shot": "zero_shot", "TPT": "tpt"}
TESTS = Path(__file__).parents[1]


class Noise(Dataset):
    """Random pictures of each class; those whose number is in ``bad`` cannot be read."""

    def __init__(self, count=12, bad=(), slow=0.0):
        self.count, self.bad, self.slow = count, set(bad), slow

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        time.sleep(self.slow)
        draw = torch.Generator().manual_seed(i)
        image = torch.randint(256, (3, 40, 50), dtype=torch.uint8, generator=draw)
        return (f"no/such/file{i}.png" if i in self.bad else image), i % len(NAMES)


LOOKS = 12  # reads of samples by the identity of the data


class Watched(Noise):
    """Notes what was read. Stops after a number of reads; samples fail while ``failing`` has them."""

    def __init__(self, stop=None, failing=()):
        super().__init__()
        self.stop, self.failing, self.read = stop, set(failing), []

    def __getitem__(self, i):
        if len(self.read) == self.stop:
            raise KeyboardInterrupt
        self.read.append(i)
        if i in self.failing:
            raise OSError("stale file handle")
        return super().__getitem__(i)


@functools.cache
def model():
    return fresh("open_clip-vit")


class OwnClip:
    """A model of one's own, by the Protocol alone, no module, and so with a name. Another process builds it again."""

    name = "own"

    def __init__(self):
        self.inner = fresh("open_clip-vit")
        self.image_spec = self.inner.image_spec
        self.logit_scale, self.logit_bias = self.inner.logit_scale, self.inner.logit_bias

    def __reduce__(self):
        return OwnClip, ()

    def tokenize(self, texts):
        return self.inner.tokenize(texts)

    def embed_tokens(self, ids):
        return self.inner.embed_tokens(ids)

    def encode_image(self, pixels):
        return self.inner.encode_image(pixels)

    def encode_embeddings(self, embeddings, ids):
        return self.inner.encode_embeddings(embeddings, ids)


def run(out, samples=None, methods=METHODS, **options):
    options = {"n_views": 8, "num_workers": 0, **options}
    return evaluate(options.pop("model", None) or model(), noise(samples), methods, out=out, **options)


def noise(samples=None):
    return EvalSet("noise", samples or Noise(), NAMES)


def content(path):
    """A run file without what depends on the clock and on versions."""
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in ("seconds", "versions")} for line in lines]


def assert_close(path, other):
    """Two run files are equal, numbers to 1e-5."""
    for got, want in zip(content(path), content(other), strict=True):
        results, wanted = (line.pop("methods") for line in (got, want))
        assert got == want
        if got["kind"] == "run":
            assert results == wanted
            continue
        assert results.keys() == wanted.keys()
        for name, result in results.items():
            assert (result["index"], result["top5"]) == (wanted[name]["index"], wanted[name]["top5"])
            for number in ("confidence", "entropy"):
                assert abs(result[number] - wanted[name][number]) < 1e-5, (name, number)


def cut(whole, path, lines, more=b""):
    """Write the first lines of a run file, and part of another one, as a kill leaves them."""
    path.write_bytes(b"".join(whole.read_bytes().splitlines(keepends=True)[:lines]) + more)


def lines_of(path):
    return len(path.read_bytes().splitlines()) if path.exists() else 0


def environment():
    """Variables of a process that can import the library and these helpers as the tests do."""
    paths = [str(TESTS), *sys.path]
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def as_rank(monkeypatch, rank, ranks, merge=lambda *_: None):
    """Be one of several ranks, that waits for no other."""
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", str(ranks))
    monkeypatch.setattr("tpt_lib.evaluation.run.write_run.merge_shares", merge)
    monkeypatch.setattr("tpt_lib.Report.read", lambda _: report((header(), FOUR)))

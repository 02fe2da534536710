"""Small runs written by hand, and reports of them."""

import errno
import io
import json

import tpt_lib
from tpt_lib.evaluation import Run


def said(index, confidence=0.5, entropy=0.7, classes=2):
    others = [i for i in range(classes) if i != index]
    return {"index": index, "confidence": confidence, "entropy": entropy, "top5": [index, *others][:5]}


def header(
    dataset="pets", methods=("zero-shot", "TPT"), classes=2, n=4, seeds=(0,), model="RN50", split="test", **settings
):
    names = [f"class {i}" for i in range(classes)]
    top = {
        "kind": "run",
        "dataset": dataset,
        "split": split,
        "classes": names,
        "methods": [*methods],
        "seeds": [*seeds],
    }
    settings = {"model": model, **settings}
    return {
        **top,
        "n": n,
        "settings": settings,
        "versions": {},
        "hash": json.dumps([dataset, split, settings, [*methods]]),
    }


def row(sample, truth, seed=0, seconds=None, **methods):
    answers = {name.replace("_", "-"): answer for name, answer in methods.items()}
    return {"kind": "row", "seed": seed, "sample": sample, "truth": truth, "methods": answers, "seconds": seconds or {}}


FOUR = (  # zero-shot is right twice, TPT three times, both once
    row(0, 0, zero_shot=said(0, 0.9), TPT=said(0, 0.95)),
    row(1, 1, zero_shot=said(0, 0.6), TPT=said(1, 0.65)),
    row(2, 1, zero_shot=said(0, 0.8), TPT=said(1, 0.7)),
    row(3, 0, zero_shot=said(0, 0.55), TPT=said(1, 0.5)),
)


def write(path, top, rows, end="\n"):
    path.write_text("\n".join(map(json.dumps, [top, *rows])) + end)
    return path


def report(*runs):
    return tpt_lib.Report(tuple(Run(top, tuple(rows)) for top, rows in runs))


def many(accuracy, n=20, method="TPT", seed=0):
    """Rows of a method right on the first ``accuracy`` samples."""
    return [row(i, 0, seed=seed, **{method: said(0 if i < accuracy else 1)}) for i in range(n)]


def refuse_to_write(monkeypatch):
    """A disk that is read-only, for any user."""

    def refuse(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    real = io.open
    monkeypatch.setattr("os.open", refuse)
    monkeypatch.setattr("os.mkdir", refuse)
    monkeypatch.setattr("io.open", lambda file, mode="r", *rest: (real if "r" in mode else refuse)(file, mode, *rest))

"""Run thousands of images through one process and check that it does not grow: ``python scripts/soak.py``.

After the first tenth, 2,000 images by TPT, 200 Bongard problems and 2,000 images by MEMO may each add 50 MB, but no open file
and no thread. Exits with 1 if one adds more.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import open_clip
import PIL.Image
import torch
from torch import nn

import tpt_lib as tpt

BAR_MB = 50
VISION = {"layers": 2, "width": 64, "head_width": 16, "patch_size": 16, "image_size": 64}
TEXT = {"context_length": 77, "vocab_size": 49408, "width": 64, "heads": 4, "layers": 3}


def held() -> dict[str, int]:
    """Return what the process holds: resident kilobytes, open files, threads."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    status = Path("/proc/self/status").read_text()
    kilobytes = int(status.split("VmRSS:")[1].split()[0])
    return {"kB": kilobytes, "files": len(os.listdir("/proc/self/fd")), "threads": len(os.listdir("/proc/self/task"))}


def growth(job: Callable[[int], object], number: int) -> dict[str, int]:
    """Return what is held after ``number`` runs beyond what was held after the first tenth."""
    for i in range(number // 10):
        job(i)
    before = held()
    for i in range(number // 10, number):
        job(i)
    after = held()
    return {name: after[name] - before[name] for name in after}


def too_much(grown: dict[str, int], bar_mb: float = BAR_MB) -> bool:
    return grown["kB"] > 1024 * bar_mb or grown["files"] > 0 or grown["threads"] > 0


def image(i: int, folder: Path) -> Any:
    """Return an image of some size, in turn a file and a tensor."""
    height, width = 40 + 17 * i % 200, 40 + 29 * i % 300
    pixels = torch.randint(256, (3, height, width), dtype=torch.uint8, generator=torch.Generator().manual_seed(i))
    if i % 2:
        return pixels
    path = folder / f"{i % 100}.jpg"
    PIL.Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(path)
    return path


def jobs(folder: Path, n_views: int = 64, steps: int = 64) -> dict[str, Callable[[int], object]]:
    torch.manual_seed(0)
    model = tpt.wrap(open_clip.CLIP(64, vision_cfg=VISION, text_cfg=TEXT).eval())
    prompts = tpt.class_prompts(model, open_clip.IMAGENET_CLASSNAMES[:20])
    classifier = nn.Sequential(
        nn.Conv2d(3, 8, 8, 8), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10)
    ).eval()

    def classify(i: int) -> object:
        classes: Any = prompts if i % 4 else ["cat", "dog", f"thing {i}"]  # some with prompts of their own
        recipe: Literal["crop", "augmix"] = "augmix" if i % 3 == 0 else "crop"
        return tpt.tpt_classify(model, image(i, folder), classes, n_views=n_views, recipe=recipe)

    def solve(i: int) -> object:
        images = [image(5 * i + j, folder) for j in range(5)]
        return tpt.bongard_tpt(model, images[:2], images[2:4], images[4:], steps=steps)

    def adapt(i: int) -> object:
        return tpt.memo_classify(
            classifier, image(i, folder), spec=tpt.ImageSpec((64, 64)), n_views=max(2, n_views // 4)
        )

    return {"tpt_classify": classify, "bongard_tpt": solve, "memo_classify": adapt}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--problems", type=int, default=200)
    arguments = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for name, job in jobs(Path(folder)).items():
            number = arguments.problems if name == "bongard_tpt" else arguments.images
            start = time.perf_counter()
            grown = growth(job, number)
            seconds = time.perf_counter() - start
            failed |= too_much(grown)
            print(
                f"{name:12} {number:5} runs in {seconds:4.0f} s: {grown['kB'] / 1024:+6.1f} MB (bar {BAR_MB}), "
                f"{grown['files']:+d} files, {grown['threads']:+d} threads{'   TOO MUCH' if too_much(grown) else ''}"
            )
    sys.exit(int(failed))


if __name__ == "__main__":
    main()

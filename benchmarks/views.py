"""What 64 views of a photograph cost: the plain one and 63 random ones at 224, one thread, against the usual PIL loop.

``python benchmarks/views.py`` prints a table (``--json FILE`` writes it too). Ratios are of runs interleaved in one process, on
processor time, which other processes disturb less than the clock. Memory is the increase of the peak in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import PIL.Image
import skimage.data
import torch
import torchvision.transforms as transforms
from PIL import ImageOps
from torch import Tensor

import tpt_lib as tpt
from tpt_lib.views.augment import _new_memory as new_memory
from tpt_lib.views.augment import augment_views
from tpt_lib.views.augmix import apply_augmix, sample_augmix
from tpt_lib.views.crops import apply_crops, sample_crops
from tpt_lib.views.reading import read_image
from tpt_lib.views.seeding import image_generator

SPEC = tpt.ImageSpec((224, 224))
BARS = {"crop": 2.5, "augmix": 3.0}
MEMORY_BAR = 400

random_crop = transforms.Compose([transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip()])
normalise = transforms.Compose([transforms.ToTensor(), transforms.Normalize(SPEC.mean, SPEC.std)])
plain = transforms.Compose(
    [transforms.Resize(224, transforms.InterpolationMode.BICUBIC), transforms.CenterCrop(224), normalise]
)


def photograph() -> PIL.Image.Image:
    return PIL.Image.fromarray(skimage.data.coffee()).crop((0, 0, 500, 375))


def level(maximum: float) -> float:
    return np.random.uniform(0.1, 1) * maximum / 10


def either(value: float) -> float:
    return -value if np.random.uniform() > 0.5 else value


def affine(image: PIL.Image.Image, *matrix: float) -> PIL.Image.Image:
    return image.transform((224, 224), PIL.Image.Transform.AFFINE, matrix, resample=PIL.Image.Resampling.BILINEAR)


OPERATIONS: list[Callable[[PIL.Image.Image], PIL.Image.Image]] = [
    ImageOps.autocontrast,
    ImageOps.equalize,
    lambda image: ImageOps.posterize(image, 4 - int(level(4))),
    lambda image: image.rotate(either(int(level(30))), resample=PIL.Image.Resampling.BILINEAR),
    lambda image: ImageOps.solarize(image, 256 - int(level(256))),
    lambda image: affine(image, 1, either(level(0.3)), 0, 0, 1, 0),
    lambda image: affine(image, 1, 0, 0, either(level(0.3)), 1, 0),
    lambda image: affine(image, 1, 0, either(int(level(224 / 3))), 0, 1, 0),
    lambda image: affine(image, 1, 0, 0, 0, 1, either(int(level(224 / 3)))),
]


def pil_augmix(image: PIL.Image.Image) -> Tensor:
    """One view, as the published implementations make it."""
    crop = random_crop(image)
    processed = normalise(crop)
    weights = np.random.dirichlet([1.0, 1.0, 1.0])
    share = float(np.random.beta(1.0, 1.0))
    mix = torch.zeros_like(processed)
    for weight in weights:
        chain = crop.copy()
        for _ in range(np.random.randint(1, 4)):
            chain = OPERATIONS[np.random.randint(len(OPERATIONS))](chain)
        mix += float(weight) * normalise(chain)
    return share * processed + (1 - share) * mix


def pil_views(image: PIL.Image.Image, recipe: str) -> Tensor:
    one = pil_augmix if recipe == "augmix" else lambda image: normalise(random_crop(image))
    return torch.stack([plain(image), *(one(image) for _ in range(63))])


def seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def spread(values: list[float], unit: str = "ms", scale: float = 1000) -> str:
    low, middle, high = (scale * v for v in (min(values), statistics.median(values), max(values)))
    return f"{middle:7.1f} {unit}   ({low:.1f} to {high:.1f})"


def compare(recipe: str, pairs: int) -> dict[str, Any]:
    image = photograph()
    calls: dict[str, Callable[[int], object]] = {
        "PIL loop": lambda _: pil_views(image, recipe),
        "tpt_lib": lambda seed: augment_views(image, SPEC, recipe=recipe, seed=seed),  # type: ignore[arg-type]
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call(0)
    for seed in range(pairs):
        for name, call in calls.items():
            times[name].append(seconds(lambda c=call, s=seed: c(s)))  # type: ignore[misc]
    ratios = [a / b for a, b in zip(times["PIL loop"], times["tpt_lib"], strict=True)]
    print(f"\n{recipe}: 64 views of a 500x375 photograph at 224, {pairs} pairs: median (from to)")
    for name, values in times.items():
        print(f"  {name:10} {spread(values)}")
    print(f"  ratio      {spread(ratios, 'x ', 1)}   bar {BARS[recipe]}x")
    return {"recipe": recipe, "times": times, "ratios": ratios}


def profile(pairs: int) -> dict[str, list[float]]:
    """Where the time of an AugMix batch goes."""
    image = photograph()
    pixels = read_image(image)
    crops = sample_crops(63, (375, 500), generator=torch.Generator().manual_seed(0))
    params = sample_augmix(63, SPEC.size, generator=torch.Generator().manual_seed(0))
    cut = apply_crops(pixels, crops, SPEC.size)
    parts: dict[str, Callable[[], object]] = {
        "read and hash": lambda: image_generator(read_image(image)),
        "plain view": lambda: tpt.views.preprocess(image, SPEC),
        "draw crops": lambda: sample_crops(63, (375, 500), generator=torch.Generator().manual_seed(0)),
        "draw AugMix": lambda: sample_augmix(63, SPEC.size, generator=torch.Generator().manual_seed(0)),
        "63 crops": lambda: apply_crops(pixels, crops, SPEC.size),
        "AugMix": lambda: apply_augmix(cut, params),
        "new memory": lambda: new_memory((64, 3, 224, 224), torch.device("cpu")).zero_(),
    }
    times = {name: [seconds(call) for _ in range(pairs)] for name, call in parts.items()}
    print("\nparts")
    for name, values in times.items():
        print(f"  {name:18} {spread(values)}")
    return times


def memory(recipe: str) -> None:
    image = photograph()
    augment_views(image, SPEC, n_views=2, recipe=recipe)  # type: ignore[arg-type]
    before = peak()
    for seed in range(3):
        augment_views(image, SPEC, recipe=recipe, seed=seed)  # type: ignore[arg-type]
    print(json.dumps(peak() - before))


def peak() -> float:
    """Peak memory in MB; ``ru_maxrss`` would count what the parent had when it forked."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--json")
    parser.add_argument("--memory", choices=BARS, help="measure this alone, in this process")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    np.random.seed(0)
    if arguments.memory:
        return memory(arguments.memory)
    print(f"torch {torch.__version__}, PIL {PIL.__version__}, {torch.get_num_threads()} thread")
    results: dict[str, Any] = {recipe: compare(recipe, arguments.pairs) for recipe in BARS}
    results["parts"] = profile(arguments.pairs)
    print("\nincrease of the process's peak memory over three batches")
    for recipe in BARS:
        command = [sys.executable, __file__, "--memory", recipe]
        increase = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(f"  {recipe:10} {increase:5.0f} MB   bar {MEMORY_BAR} MB")
        results[recipe]["memory_mb"] = increase
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(results, file, indent=1)
    return None


if __name__ == "__main__":
    main()

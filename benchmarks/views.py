"""Cost of 64 views of a photograph: the plain one and 63 random ones at 224, one thread, against the usual PIL loop.

Ratios are of runs interleaved in one process, in processor time, which other processes disturb less than the clock. Memory is
the increase of the peak in a process of its own.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import PIL.Image
import skimage.data
import torch
import torchvision.transforms as transforms
from harness import Times, in_own_process, parser, peak_gb, prepare, ratios, rounds, seconds, spread, write_json
from PIL import ImageOps
from torch import Tensor

import tpt_lib as tpt
from tpt_lib.views import (
    apply_augmix,
    apply_crops,
    augment_views,
    image_generator,
    preprocess,
    read_image,
    sample_augmix,
    sample_crops,
)
from tpt_lib.views.augment import _new_memory as new_memory

SPEC = tpt.ImageSpec((224, 224))
BARS: dict[Literal["crop", "augmix"], float] = {"crop": 2.5, "augmix": 3.0}
MEMORY_BAR = 400

busy = partial(seconds, clock=time.process_time)

random_crop = transforms.Compose([transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip()])
normalize = transforms.Compose([transforms.ToTensor(), transforms.Normalize(SPEC.mean, SPEC.std)])
plain = transforms.Compose(
    [transforms.Resize(224, transforms.InterpolationMode.BICUBIC), transforms.CenterCrop(224), normalize]
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
    """Make one view as the published implementations do."""
    crop = random_crop(image)
    processed = normalize(crop)
    weights = np.random.dirichlet([1.0, 1.0, 1.0])
    share = float(np.random.beta(1.0, 1.0))
    mix = torch.zeros_like(processed)
    for weight in weights:
        chain = crop.copy()
        for _ in range(np.random.randint(1, 4)):
            chain = OPERATIONS[np.random.randint(len(OPERATIONS))](chain)
        mix += float(weight) * normalize(chain)
    return share * processed + (1 - share) * mix


def pil_views(image: PIL.Image.Image, recipe: str) -> Tensor:
    one = pil_augmix if recipe == "augmix" else lambda image: normalize(random_crop(image))
    return torch.stack([plain(image), *(one(image) for _ in range(63))])


def milliseconds(times: list[float]) -> str:
    return spread([1000 * t for t in times], " ms", 1)


def compare(recipe: Literal["crop", "augmix"], pairs: int) -> dict[str, Any]:
    """Compare the library with the PIL loop, interleaved, with other views in each round."""
    image, seeds = photograph(), iter(range(pairs))
    pil_views(image, recipe)
    augment_views(image, SPEC, recipe=recipe)
    measures = {
        "PIL loop": lambda: busy(lambda: pil_views(image, recipe)),
        "tpt_lib": lambda: busy(lambda: augment_views(image, SPEC, recipe=recipe, seed=next(seeds))),
    }
    times = rounds(measures, pairs)
    faster = ratios(times["PIL loop"], times["tpt_lib"])
    print(f"\n{recipe}: 64 views of a 500x375 photograph at 224, {pairs} rounds: median (min-max)")
    for name, values in times.items():
        print(f"  {name:10} {milliseconds(values)}")
    print(f"  ratio      {spread(faster, ' x ', 1)}   bar {BARS[recipe]}x")
    return {"recipe": recipe, "times": times, "ratios": faster}


def profile(pairs: int) -> Times:
    """Measure the parts of an AugMix batch."""
    image = photograph()
    pixels = read_image(image)
    crops = sample_crops(63, (375, 500), generator=torch.Generator().manual_seed(0))
    params = sample_augmix(63, SPEC.size, generator=torch.Generator().manual_seed(0))
    cut = apply_crops(pixels, crops, SPEC.size)
    parts: dict[str, Callable[[], object]] = {
        "read and hash": lambda: image_generator(read_image(image)),
        "plain view": lambda: preprocess(image, SPEC),
        "draw crops": lambda: sample_crops(63, (375, 500), generator=torch.Generator().manual_seed(0)),
        "draw AugMix": lambda: sample_augmix(63, SPEC.size, generator=torch.Generator().manual_seed(0)),
        "63 crops": lambda: apply_crops(pixels, crops, SPEC.size),
        "AugMix": lambda: apply_augmix(cut, params),
        "new memory": lambda: new_memory((64, 3, 224, 224), torch.device("cpu")).zero_(),
    }
    times = {name: [busy(call) for _ in range(pairs)] for name, call in parts.items()}
    print("\nparts")
    for name, values in times.items():
        print(f"  {name:18} {milliseconds(values)}")
    return times


def memory(recipe: Literal["crop", "augmix"]) -> float:
    """Measure, in a process of its own, by how many MB three batches of views raise the peak."""
    image = photograph()
    augment_views(image, SPEC, n_views=2, recipe=recipe)
    before = peak_gb()
    for seed in range(3):
        augment_views(image, SPEC, recipe=recipe, seed=seed)
    return 1024 * (peak_gb() - before)


def main() -> None:
    options = parser(__doc__, pairs=9)
    options.add_argument("--memory", choices=BARS, help="measure only this, in this process")
    arguments = options.parse_args()
    prepare(PIL, threads=1, quiet=bool(arguments.memory))
    np.random.seed(0)
    if arguments.memory:
        print(json.dumps(memory(arguments.memory)))
        return
    found: dict[str, Any] = {recipe: compare(recipe, arguments.pairs) for recipe in BARS}
    found["parts"] = profile(arguments.pairs)
    print("\nincrease of the process's peak memory over three batches")
    for recipe in BARS:
        increase = in_own_process(__file__, "--memory", recipe)
        print(f"  {recipe:10} {increase:5.0f} MB   bar {MEMORY_BAR} MB")
        found[recipe]["memory_mb"] = increase
    write_json(arguments.json, found)


if __name__ == "__main__":
    main()

"""Load drawings that the embedded model was not trained on, as datasets."""

from __future__ import annotations

import random
from functools import cache
from itertools import permutations

import torch
from torch import Tensor

from tpt_lib.evaluation.data.bongard_hoi import Problem
from tpt_lib.evaluation.data.eval_set import EvalSet
from tpt_lib.evaluation.data.registry import STYLES
from tpt_lib.tiny.model import FOLDER, known

__all__ = ["load_tiny_bongard", "load_tiny_drawings"]

PIXELS, COLUMNS = 96, 20  # of a drawing on its sheet, and drawings in a row of it

SUPPORTS = 6  # images on each side of a Bongard problem


def load_tiny_drawings(style: str = "noto-v1", *, n: int | None = None, seed: int = 0) -> EvalSet:
    """Load drawings by an artist whose style the embedded model was not trained on, with their names.

    Args:
        style: ``"noto-v1"`` (default, color), ``"emojione-monotone"`` or ``"fluent-emoji-high-contrast"`` (black and white).
        n: number of drawings, chosen at random (default None: all, one of each name).
        seed: seed of the choice (default 0).

    Returns:
        An ``EvalSet`` of (pixels ``(3, 96, 96)``, label), whose classes are all the names.

    >>> drawings = tpt_lib.load_tiny_drawings("noto-v1", n=100)
    >>> image, label = drawings.samples[0]
    >>> len(drawings), image.shape, drawings.classes[label] in drawings.classes
    (100, torch.Size([3, 96, 96]), True)
    """
    if style not in STYLES:
        raise ValueError(f"load_tiny_drawings: style must be one of {', '.join(STYLES)}, but got {style!r}")
    names = tuple(known()["names"])
    if n is not None and not 1 <= n <= len(names):
        raise ValueError(f"load_tiny_drawings: n must be between 1 and {len(names)}, but got {n}")
    chosen = range(len(names)) if n is None else sorted(random.Random(seed).sample(range(len(names)), n))
    return EvalSet(style, [(_drawings(style)[i].clone(), i) for i in chosen], names)


def load_tiny_bongard(seed: int = 0, *, n: int = 60) -> EvalSet:
    """Load Bongard problems made of emoji: positives share one of Unicode's categories, negatives a sibling category.

    Examples are fruit against vegetables, and birds against bugs. Styles are mixed. Each problem has six images and one query
    on either side, all of different names.

    Args:
        seed: seed of the problems (default 0).
        n: number of problems (default 60).

    Returns:
        An ``EvalSet`` of problems, which ``evaluate_bongard`` takes; ``bongard_tpt(model, *problem[:3])`` solves one.

    >>> problem = tpt_lib.load_tiny_bongard().samples[0]
    >>> len(problem.positives), len(problem.negatives), problem.truths
    (6, 6, ('positive', 'negative'))
    """
    members: dict[str, list[int]] = {}
    for label, category in enumerate(known()["names"].values()):
        members.setdefault(category, []).append(label)
    large = [category for category, labels in members.items() if len(labels) > SUPPORTS]
    siblings = [pair for pair in permutations(large, 2) if len({category.partition("/")[0] for category in pair}) == 1]
    chance = random.Random(seed)
    problems = []
    for _ in range(n):
        sides = [chance.sample(members[category], SUPPORTS + 1) for category in chance.choice(siblings)]
        (*positives, positive), (*negatives, negative) = (
            [_drawings(chance.choice(STYLES))[label].clone() for label in side] for side in sides
        )
        problems.append(Problem(tuple(positives), tuple(negatives), (positive, negative), ("positive", "negative")))
    return EvalSet("tiny-bongard", problems, ("positive", "negative"))


@cache
def _drawings(style: str) -> Tensor:
    """Return all drawings of a style ``(K, 3, 96, 96)``, cut from its sheet."""
    from PIL import Image

    with FOLDER.joinpath(f"{style}.webp").open("rb") as file:
        sheet = Image.open(file).convert("RGB")
    width, height = sheet.size
    pixels = torch.frombuffer(bytearray(sheet.tobytes()), dtype=torch.uint8).view(height, width, 3).permute(2, 0, 1)
    tiles = pixels.unfold(1, PIXELS, PIXELS).unfold(2, PIXELS, PIXELS)  # (3, rows, columns, 96, 96)
    return tiles.permute(1, 2, 0, 3, 4).flatten(0, 1)[: len(known()["names"])].contiguous()

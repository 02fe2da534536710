"""Strengths of AugMix's operations, and odd images to apply them to."""

import torch
from support.pictures import generator

from tpt_lib.views import AugMix, sample_augmix


def amounts(name, n, severity, size=(224, 224)):
    """Return the first n amounts ``(n,)`` of an operation that AugMix draws."""
    params = sample_augmix(40 * n, size, generator=generator(), severity=severity)
    return params.amount[params.operation == AugMix.NAMES.index(name)][:n]


def odd_cases(name):
    """Yield flat, tiny and oblong images ``(2, 3, H, W)``, each with amounts ``(2,)`` of an operation."""
    for images in (
        torch.full((2, 3, 9, 9), 77, dtype=torch.uint8),
        torch.randint(0, 256, (2, 3, 1, 1), dtype=torch.uint8),
        torch.randint(0, 256, (2, 3, 31, 17), dtype=torch.uint8),
        torch.randint(0, 2, (2, 3, 17, 31), dtype=torch.uint8) * 255,
    ):
        rotated = torch.tensor([2.0, -1.0], dtype=torch.float64)
        yield images, rotated if name == "rotate" else amounts(name, 2, 1, images.shape[2:])

"""Derive the randomness of one image from the seed and the pixels."""

from __future__ import annotations

import hashlib
import operator

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from tpt_lib.types import Seed

__all__ = ["image_generator"]


def image_generator(pixels: UInt8[Tensor, "3 h w"], seed: Seed = 0) -> torch.Generator:
    """Return the random generator of one image, which depends on the seed and the pixels only.

    Args:
        pixels: uint8 pixels ``(3, H, W)``, as ``read_image`` returns them. Pixels on an accelerator are copied to the CPU, and
            the CPU waits for that; call this before you move them.
        seed: an int (default 0), or a ``torch.Generator`` from which an int is drawn.

    Returns:
        A new generator on the CPU.

    Raises:
        TypeError: if ``seed`` is neither.

    >>> pixels = tpt_lib.read_image(torch.zeros(3, 4, 5))
    >>> torch.rand(2, generator=image_generator(pixels)).equal(torch.rand(2, generator=image_generator(pixels)))
    True
    """
    key = f"{as_seed(seed)} {tuple(pixels.shape)} ".encode()
    digest = hashlib.blake2b(key, digest_size=8)
    digest.update(pixels.permute(1, 2, 0).contiguous().cpu().numpy().data)
    return torch.Generator().manual_seed(int.from_bytes(digest.digest(), "little") >> 1)


def as_seed(seed: Seed) -> int:
    """Return the seed as an int, drawn from it if it is a generator."""
    if isinstance(seed, torch.Generator):
        return int(torch.randint(2**62, (), generator=seed, device=seed.device))
    if not hasattr(seed, "__index__"):
        raise TypeError(f"seed must be an int or a torch.Generator, but got {type(seed).__name__}")
    return operator.index(seed)


def uniform_rows(n: int, width: int, generator: torch.Generator) -> Float[Tensor, "n width"]:
    """Draw the random numbers of n views, so that the first views are the same whatever n is.

    Args:
        n: number of views.
        width: number of draws per view.
        generator: source of randomness, on the CPU. It is left in a state that does not depend on n either.

    Returns:
        Uniform float64 numbers in [0, 1).
    """
    after = as_seed(generator.clone_state())
    rows = torch.rand(n, width, generator=generator, dtype=torch.float64)
    generator.manual_seed(after)
    return rows

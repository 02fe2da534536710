"""Sample the parameters of AugMix (Hendrycks et al., ICLR 2020) as TPT's released code does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tpt_lib.views.seeding import uniform_rows

__all__ = ["AugMix", "sample_augmix"]

CHAINS, DEPTH = 3, 3

LOWEST_LEVEL = 0.1


@dataclass(frozen=True)
class AugMix:
    """Hold the AugMix parameters of N views: three chains of one to three operations, and the weights of the mixture.

    Args:
        operation: index into ``AugMix.NAMES`` of each step of each chain ``(N, 3, 3)``; -1 after the chain's end.
        amount: strength of each operation ``(N, 3, 3)``: degrees for ``rotate``, bits kept for ``posterize``, the lowest level
            that ``solarize`` inverts, the tangent for shears, pixels for translations, 1 for ``autocontrast`` and
            ``equalize``. Operations with amount 0 are skipped.
        weight: weight of each chain in the mixture ``(N, 3)``, Dirichlet(1, 1, 1).
        plain: weight of the unchanged view ``(N,)``, Beta(1, 1). The mixture has weight ``1 - plain``.
    """

    NAMES: ClassVar[tuple[str, ...]] = (
        "autocontrast", "equalize", "posterize", "rotate", "solarize",
        "shear_x", "shear_y", "translate_x", "translate_y",
    )  # fmt: skip
    operation: Int[Tensor, "n 3 3"]
    amount: Float[Tensor, "n 3 3"]
    weight: Float[Tensor, "n 3"]
    plain: Float[Tensor, " n"]


def sample_augmix(n: int, size: tuple[int, int], *, generator: torch.Generator, severity: int | float = 1) -> AugMix:
    r"""Sample the AugMix parameters of N views.

    Each operation has a level :math:`u \sim U(0.1, \mathrm{severity})`: rotate by :math:`\pm\lfloor 3u \rfloor` degrees,
    posterize to :math:`4 - \lfloor 0.4u \rfloor` bits, solarize from :math:`256 - \lfloor 25.6u \rfloor` on, shear by
    :math:`\pm 0.03u`, translate by :math:`\pm\lfloor u\,\mathrm{size} / 30 \rfloor` pixels.

    Args:
        n: number of views.
        size: height and width of the views in pixels.
        generator: source of randomness, on the CPU. The first parameters, and what it draws next, do not depend on ``n``.
        severity: highest level, above 0.1 and at most 10 (default 1). Higher is stronger.

    Returns:
        Parameters on the CPU, for ``apply_augmix``.

    Raises:
        ValueError: if ``severity`` is out of range.

    >>> params = sample_augmix(63, (224, 224), generator=torch.Generator().manual_seed(0))
    >>> params.operation.shape, params.weight.shape
    (torch.Size([63, 3, 3]), torch.Size([63, 3]))
    """
    check_severity(severity)
    steps = CHAINS * DEPTH
    uniform = uniform_rows(n, 1 + 2 * CHAINS + 3 * steps, generator)
    plain, weight, depth, kind, level, coin = uniform.split((1, CHAINS, CHAINS, steps, steps, steps), dim=1)
    level = LOWEST_LEVEL + (severity - LOWEST_LEVEL) * level
    sign = 1 - 2 * (coin < 0.5).double()
    amounts = {
        "autocontrast": torch.ones_like(level),
        "equalize": torch.ones_like(level),
        "posterize": 4 - (0.4 * level).floor(),
        "rotate": sign * (3 * level).floor(),
        "solarize": 256 - (25.6 * level).floor(),
        "shear_x": sign * 0.03 * level,
        "shear_y": sign * 0.03 * level,
        "translate_x": sign * (level * size[1] / 30).floor(),
        "translate_y": sign * (level * size[0] / 30).floor(),
    }
    operation = (kind * len(AugMix.NAMES)).long()
    amount = torch.stack([amounts[name] for name in AugMix.NAMES]).gather(0, operation[None])[0]
    ended = torch.arange(DEPTH) > (depth * DEPTH).long()[..., None]
    exponential = -(1 - weight).log()  # divided by their sum, exponentials are Dirichlet(1, 1, 1)
    return AugMix(
        operation.view(ended.shape).masked_fill(ended, -1),
        amount.view(ended.shape).masked_fill(ended, 0),
        exponential / exponential.sum(dim=1, keepdim=True),
        plain[:, 0],
    )


def check_severity(severity: int | float) -> None:
    """Raise a ``ValueError`` if a severity is out of range."""
    if not LOWEST_LEVEL < severity <= 10:
        raise ValueError(f"augmix: severity must be above {LOWEST_LEVEL} and at most 10, but got {severity}")


def steps_of(params: AugMix, step: int) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield each operation of a step with the chains it is applied to and its amounts, both ``(M,)`` on the CPU.

    Args:
        params: parameters of N views. Chain k of view i has the number ``3 * i + k``.
        step: 0, 1 or 2.

    Returns:
        Name, numbers of chains and float64 amounts of each operation, in the order of ``AugMix.NAMES``. M may be 0.
    """
    operation, amount = params.operation[..., step].flatten(), params.amount[..., step].flatten().double()
    for kind, name in enumerate(AugMix.NAMES):
        chosen = ((operation == kind) & (amount != 0)).nonzero()[:, 0]
        yield name, chosen, amount[chosen]


def shares_of(params: AugMix) -> Float[Tensor, "n 4"]:
    """Return the factors of a view's levels and of its three chains' levels that give the mixture in [0, 1]."""
    plain = params.plain[:, None]
    return torch.cat([plain, (1 - plain) * params.weight], dim=1).float() / 255

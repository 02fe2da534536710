"""How the views of an image are made, as one value that can be compared and recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from typing_extensions import Unpack

from tpt_lib.types import Recipe, ViewOptions, check_options
from tpt_lib.views.augmix import check_severity
from tpt_lib.views.crops import check_ranges
from tpt_lib.views.seeding import as_seed

__all__ = ["ViewSettings"]


@dataclass(frozen=True)
class ViewSettings:
    """The settings of ``augment_views``, checked.

    Args:
        n_views: number of views, including the plain one (default 64).
        recipe: ``"crop"``, ``"augmix"`` or a function; see ``augment_views``.
        seed: fixes the views of an image.
        scale: range of a crop's share of the image's area.
        ratio: range of a crop's width over its height.
        severity: strength of AugMix.

    >>> ViewSettings(n_views=8).recipe
    'crop'
    """

    n_views: int = 64
    recipe: Recipe = "crop"
    seed: int = 0
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    severity: int | float = 1

    def __post_init__(self) -> None:
        if not isinstance(self.n_views, int) or self.n_views < 1:
            raise ValueError(f"augment_views: n_views must be an int of at least 1, but got {self.n_views!r}")
        if not callable(self.recipe) and self.recipe not in ("crop", "augmix"):
            raise ValueError(f"augment_views: recipe must be 'crop', 'augmix' or a function, but got {self.recipe!r}")
        check_ranges(self.scale, self.ratio)
        check_severity(self.severity)

    @classmethod
    def of(cls, caller: str, /, **options: Unpack[ViewOptions]) -> ViewSettings:
        """Return the settings of a function's view keywords; a generator as ``seed`` is drawn from once, here."""
        check_options(caller, options, ViewOptions)
        return cls(**{**options, "seed": as_seed(options.get("seed", 0))})  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, Any]:
        """Return the settings in types that JSON has; a recipe that is a function by its qualified name."""
        recipe = (
            self.recipe if isinstance(self.recipe, str) else getattr(self.recipe, "__qualname__", repr(self.recipe))
        )
        return {**vars(self), "recipe": recipe, "scale": list(self.scale), "ratio": list(self.ratio)}

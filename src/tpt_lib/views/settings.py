"""The settings of views, as one value that can be compared and recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from typing_extensions import Unpack

from tpt_lib.content import describe
from tpt_lib.types import Recipe, ViewOptions, check_options
from tpt_lib.views.augmix_parameters import check_severity
from tpt_lib.views.crops import check_ranges
from tpt_lib.views.seeding import as_seed

__all__ = ["ViewSettings"]


@dataclass(frozen=True)
class ViewSettings:
    """Hold the settings of ``augment_views``, checked.

    Args:
        n_views: number of views per image, including the plain one (default 64).
        recipe: ``"crop"`` (default), ``"augmix"`` or a function; see ``augment_views``.
        seed: int that determines an image's views, together with its pixels (default 0).
        scale: lowest and highest share of the image's area that a crop covers (default 0.08 to 1).
        ratio: lowest and highest width of a crop over its height (default 3/4 to 4/3).
        severity: strength of AugMix, above 0.1 and at most 10 (default 1).

    Raises:
        ValueError: if a setting is out of range.

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
        """Return the settings that a function's view keywords give.

        Args:
            caller: name of the function, for error messages.
            **options: the keywords. A generator as ``seed`` is drawn from once.

        Returns:
            The settings, with defaults for missing keywords.

        Raises:
            TypeError: if a keyword is unknown.
        """
        check_options(caller, options, ViewOptions)
        return cls(**{**options, "seed": as_seed(options.get("seed", 0))})  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON types.

        Returns:
            Names and values. Equal settings give equal JSON. A function as recipe is given by its name and a digest of its
            content, which is the same in every process.

        Raises:
            ValueError: if a function as recipe cannot be described by its content.
        """
        return {
            **vars(self),
            "recipe": self.recipe if isinstance(self.recipe, str) else describe(self.recipe),
            "scale": [float(share) for share in self.scale],
            "ratio": [float(number) for number in self.ratio],
            "severity": float(self.severity),
        }

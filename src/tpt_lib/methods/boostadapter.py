"""BoostAdapter (Zhang et al., NeurIPS 2024): TDA, whose positive cache also holds the image's own confident views."""

from __future__ import annotations

from typing import Literal

from tpt_lib.methods.base import OnlineMethod, method
from tpt_lib.methods.cache import SummaryRecipe
from tpt_lib.methods.tda import PRESETS as TDA_PRESETS
from tpt_lib.methods.tda import TdaSettings, TdaState, cached_method

__all__ = ["boostadapter"]


BOOSTS = {
    "imagenet-a": 3, "imagenet-v2": 1, "imagenet-r": 3, "imagenet-sketch": 1, "caltech101": 2, "dtd": 0, "eurosat": 0,
    "aircraft": 2, "food101": 3, "flowers102": 0, "pets": 0, "cars": 3, "sun397": 1, "ucf101": 0,
}  # fmt: skip
PRESETS = {name: {**keywords, "boost": BOOSTS[name]} for name, keywords in TDA_PRESETS.items()}


@method(
    name="boostadapter",
    title="BoostAdapter",
    paper="Zhang et al., NeurIPS 2024",
    published="BoostAdapter",
    presets=PRESETS,
    online=True,
)
def boostadapter(
    *,
    boost: int = 3,
    boosted: int = 6,
    alpha: float = 2.0,
    beta: float = 5.0,
    capacity: int = 3,
    negative: Literal["fifo", "entropy"] = "fifo",
    negative_alpha: float = 0.117,
    negative_beta: float = 1.0,
    negative_capacity: int = 2,
    entropy_range: tuple[float, float] = (0.2, 0.5),
    mask_range: tuple[float, float] = (0.03, 1.0),
    recipe: SummaryRecipe = "plain",
) -> OnlineMethod[TdaState]:
    """Return BoostAdapter: TDA with the image's own most confident views among the cached images.

    For the prediction only, each of those views enters a copy of the positive cache under its own class, with its own entropy.
    The copy has room for ``capacity + boost`` images per class. With one view, there is nothing to boost with.

    Args:
        boost: additional places per class for the views (default 3, the authors' value for ImageNet-A and -R).
        boosted: number of views that enter the copy, those of lowest entropy (default 6; the authors make 64 views).
        alpha: weight of the positive cache (default 2).
        beta: sharpness of the positive cache (default 5).
        capacity: images per class of the positive cache (default 3).
        negative: what a full class of the negative cache drops: its oldest image (``"fifo"``, the default, with which the
            published numbers were made), or its most uncertain one (``"entropy"``, as TDA).
        negative_alpha: weight of the negative cache (default 0.117).
        negative_beta: sharpness of the negative cache (default 1).
        negative_capacity: images per class of the negative cache (default 2).
        entropy_range: entropies, exclusive, with which an image enters the negative cache (default 0.2 to 0.5).
        mask_range: probabilities, exclusive, of the classes in the mask (default 0.03 to 1).
        recipe: ``"plain"`` (default) or ``"views"``, as the authors use on the variants of ImageNet.

    Returns:
        The method.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> found = boostadapter()
    >>> state, prediction = found.step(model, prompts, found.init(model, prompts), torch.eye(256)[:20])
    >>> prediction.logits.shape
    torch.Size([2])
    """
    if boost < 0 or boosted < 0:
        raise ValueError(f"boostadapter: boost and boosted must be 0 or more, but got {boost} and {boosted}")
    if negative not in ("fifo", "entropy"):
        raise ValueError(f"boostadapter: negative must be 'fifo' or 'entropy', but got {negative!r}")
    return cached_method(
        TdaSettings(
            alpha, beta, capacity, negative_alpha, negative_beta, negative_capacity, negative, entropy_range, mask_range,
            recipe, boost, boosted,
        )
    )  # fmt: skip

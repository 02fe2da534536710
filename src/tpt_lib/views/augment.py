"""From an image to what the model sees: the plain view, and the random views that TPT averages over (section 3.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.data import Dataset

from tpt_lib.models.protocol import ImageSpec
from tpt_lib.views.augmix import mix_into, sample_augmix
from tpt_lib.views.crops import apply_crops, sample_crops
from tpt_lib.views.preprocessing import _plain
from tpt_lib.views.reading import ImageLike, in_unit_range, read_image
from tpt_lib.views.seeding import as_seed, image_generator

__all__ = ["ViewsDataset", "augment_views"]

Recipe = Literal["crop", "augmix"] | Callable[[Tensor, tuple[int, int], int, torch.Generator], Tensor]


def augment_views(
    image: ImageLike | Sequence[ImageLike],
    spec: ImageSpec,
    *,
    n_views: int = 64,
    recipe: Recipe = "crop",
    seed: int | torch.Generator = 0,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    severity: int | float = 1,
    device: torch.device | str | None = None,
) -> Float[Tensor, "*b n 3 h w"]:
    r"""An image and random variations of it, :math:`\mathcal A_1(X), \ldots, \mathcal A_N(X)` (section 3.2).

    View 0 is ``preprocess(image, spec)``. The others are crops of the raw image at random places, sizes and aspect ratios,
    each mirrored with probability 1/2; with ``recipe="augmix"`` each crop is then changed as ``sample_augmix`` says.
    (seed, image) fixes the views: they do not depend on other images, their order, workers or threads.

    Args:
        image: anything ``read_image`` takes, or a list of such.
        spec: what the model wants, ``model.image_spec``.
        n_views: the number N of views, the plain one among them.
        recipe: ``"crop"``, ``"augmix"``, or a function ``recipe(pixels, size, n, generator)`` that makes ``n`` views of
            ``size`` from the raw uint8 pixels ``(3, H, W)``: ``(n, 3, *size)``, uint8 or float in [0, 1], not normalised.
        seed: an int, or a generator, from which one is drawn.
        scale: range of the crop's share in the area of the image.
        ratio: range of the crop's width over its height.
        severity: the strength of AugMix.
        device: where the views are made; by default where the image is.

    Returns:
        Normalised float32 views ``(N, 3, H, W)``; of a list of B images ``(B, N, 3, H, W)``.

    >>> augment_views(torch.rand(3, 40, 60), ImageSpec((32, 32)), n_views=8).shape
    torch.Size([8, 3, 32, 32])
    """
    if not isinstance(n_views, int) or n_views < 1:
        raise ValueError(f"augment_views: n_views must be an int of at least 1, but got {n_views!r}")
    if not callable(recipe) and recipe not in ("crop", "augmix"):
        raise ValueError(f"augment_views: recipe must be 'crop', 'augmix' or a function, but got {recipe!r}")
    several = isinstance(image, list | tuple)
    images: Any = image if several else [image]
    seed = as_seed(seed)
    if device is None:
        device = images[0].device if len(images) and isinstance(images[0], Tensor) else "cpu"
    views = _new_memory((len(images), n_views, 3, *spec.size), torch.device(device))
    for one, out in zip(images, views, strict=True):
        pixels = read_image(one)
        out[0] = _plain(pixels, spec)
        n, out = n_views - 1, out[1:]
        if n == 0:
            continue
        generator = image_generator(pixels, seed)
        pixels = pixels.to(device)
        if callable(recipe):
            made = _checked(recipe(pixels, spec.size, n, generator), (n, 3, *spec.size))
        else:
            _, height, width = pixels.shape
            crops = sample_crops(n, (height, width), generator=generator, scale=scale, ratio=ratio)
            made = apply_crops(pixels, crops, spec.size)
        if recipe == "augmix":
            made = mix_into(out, made, sample_augmix(n, spec.size, generator=generator, severity=severity))
        _normalize_into(out, made, spec)
    return views if several else views[0]


class ViewsDataset(Dataset[Any]):
    """A dataset of views for a ``DataLoader``; they are the same whatever the number of workers.

    Args:
        images: a list of images, or a dataset of images or of tuples that start with one, such as ``(image, label)``.
        spec: what the model wants, ``model.image_spec``.
        options: the keywords of ``augment_views``. A generator as ``seed`` is drawn from once, here.

    Item i is ``augment_views(images[i], spec, **options)``; of a tuple, the views and the rest as it was.

    >>> views, label = ViewsDataset([(torch.rand(3, 40, 60), 7)], ImageSpec((32, 32)), n_views=8)[0]
    >>> views.shape, label
    (torch.Size([8, 3, 32, 32]), 7)
    """

    def __init__(self, images: Sequence[Any] | Dataset[Any], spec: ImageSpec, **options: Any) -> None:
        self.images: Any = images
        self.spec = spec
        self.options = {**options, "seed": as_seed(options.get("seed", 0))}

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        item = self.images[index]
        image, *rest = item if isinstance(item, tuple) else (item,)
        views = augment_views(image, self.spec, **self.options)
        return (views, *rest) if isinstance(item, tuple) else views


def _new_memory(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """On a CPU numpy's memory, which the system gives in large pages: to touch it first costs a third of torch's."""
    if device.type != "cpu":
        return torch.empty(shape, device=device, dtype=torch.float32)
    import numpy as np

    return torch.from_numpy(np.empty(shape, np.float32))


def _normalize_into(out: Tensor, views: Tensor, spec: ImageSpec) -> None:
    mean, std = (torch.tensor(v, device=out.device)[:, None, None] for v in (spec.mean, spec.std))
    scale = 1 / (255 * std) if views.dtype == torch.uint8 else 1 / std
    for one, view in zip(out, views, strict=True):  # one at a time: it stays in the processor's cache
        one.copy_(view).mul_(scale).sub_(mean / std)


def _checked(views: Tensor, shape: tuple[int, ...]) -> Tensor:
    if not isinstance(views, Tensor) or views.shape != shape:
        got = f"a tensor of shape {tuple(views.shape)}" if isinstance(views, Tensor) else type(views).__name__
        raise ValueError(f"augment_views: the recipe must return a tensor of shape {shape}, but it returned {got}")
    if views.dtype != torch.uint8 and not (views.is_floating_point() and in_unit_range(views)):
        raise ValueError(
            "augment_views: the recipe must return uint8, or float in [0, 1], not normalised, but it returned "
            f"{views.dtype} in {views.min():g}..{views.max():g}"
        )
    return views

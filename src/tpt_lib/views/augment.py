"""Make the views of an image: the plain view, and the random views that TPT averages over (section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.data import Dataset
from typing_extensions import Unpack

from tpt_lib.models.protocol import ImageSpec
from tpt_lib.types import ImageLike, Images, Recipe, Seed, ViewOptions
from tpt_lib.views.augmix import mix_into
from tpt_lib.views.augmix_parameters import sample_augmix
from tpt_lib.views.crops import apply_crops, sample_crops
from tpt_lib.views.devices import upload
from tpt_lib.views.preprocessing import mean_and_std, plain_view
from tpt_lib.views.reading import are_several, count_images, each_image, in_unit_range, read_image
from tpt_lib.views.seeding import image_generator
from tpt_lib.views.settings import ViewSettings

__all__ = ["ViewsDataset", "augment_views"]


def augment_views(
    image: Images,
    spec: ImageSpec,
    *,
    n_views: int = 64,
    recipe: Recipe = "crop",
    seed: Seed = 0,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    severity: int | float = 1,
    device: torch.device | str | None = None,
) -> Float[Tensor, "*b n 3 h w"]:
    r"""Make random views :math:`\mathcal A_1(X), \ldots, \mathcal A_N(X)` of an image (section 3.2).

    View 0 is ``preprocess(image, spec)``. The others are crops of the raw image with random position, size and aspect ratio,
    each mirrored with probability 1/2. With ``recipe="augmix"``, AugMix is then applied to each crop; see ``sample_augmix``.

    Convention: the seed and the image's pixels determine the views. They do not depend on other images, order, workers or
    threads.

    Args:
        image: one image, anything ``read_image`` takes; or several: a list, a tuple, a tensor ``(B, 3, H, W)`` or a dataset.
        spec: preprocessing of the model, ``model.image_spec``.
        n_views: number of views per image, including the plain one (default 64).
        recipe: ``"crop"`` (default), ``"augmix"``, or a function ``recipe(pixels, size, n, generator)`` that makes ``n`` views
            from the raw uint8 pixels ``(3, H, W)``. It returns a tensor ``(n, 3, *size)``, uint8 or float in [0, 1], not
            normalized.
        seed: an int (default 0). Another seed gives other random views. A ``torch.Generator`` is drawn from once per call.
        scale: lowest and highest share of the image's area that a crop covers (default 0.08 to 1).
        ratio: lowest and highest width of a crop over its height (default 3/4 to 4/3).
        severity: strength of AugMix, above 0.1 and at most 10 (default 1). Ignored by other recipes.
        device: device on which the views are made (default: the device of the first image).

    Returns:
        Normalized float32 views ``(N, 3, H, W)``; for B images ``(B, N, 3, H, W)``.

    Raises:
        ImageError: if an image cannot be used.
        ValueError: if an option is out of range, or a recipe returns something else.
        TypeError: if ``image`` is a ``DataLoader``, or of no kind that ``read_image`` takes.

    >>> augment_views(torch.rand(3, 40, 60), ImageSpec((32, 32)), n_views=8).shape
    torch.Size([8, 3, 32, 32])
    """
    settings = ViewSettings.of(
        "augment_views", n_views=n_views, recipe=recipe, seed=seed, scale=scale, ratio=ratio, severity=severity
    )
    images = each_image(image)
    first = list(islice(images, 1))
    if device is None:
        device = first[0].device if first and isinstance(first[0], Tensor) else "cpu"
    views = _new_memory((count_images(image), n_views, 3, *spec.size), torch.device(device))
    for one, out in zip(chain(first, images), views, strict=True):
        make_views(out, one, spec, settings)
    return views if are_several(image) else views[0]


def make_views(out: Tensor, image: ImageLike, spec: ImageSpec, settings: ViewSettings) -> None:
    """Write the views of one image into ``out`` ``(N, 3, H, W)``, on its device.

    With an image on the CPU and ``out`` on an accelerator, the raw pixels, the plain view in bytes and the parameters of the
    random views are copied to the device. The built-in recipes then run in a fixed number of operations, and the CPU does not
    wait for any of them.
    """
    pixels = read_image(image)
    mean, std = mean_and_std(spec, out.device)
    out[0] = plain_view(pixels, spec, mean, std)
    n, out = len(out) - 1, out[1:]
    if n == 0:
        return
    generator = image_generator(pixels, settings.seed)
    pixels = upload(pixels, out.device)
    if callable(settings.recipe):
        made = _checked(settings.recipe(pixels, spec.size, n, generator), (n, 3, *spec.size))
    else:
        _, height, width = pixels.shape
        crops = sample_crops(n, (height, width), generator=generator, scale=settings.scale, ratio=settings.ratio)
        made = apply_crops(pixels, crops, spec.size)
    if settings.recipe == "augmix":
        made = mix_into(out, made, sample_augmix(n, spec.size, generator=generator, severity=settings.severity))
    _normalize_into(out, made, mean, std)


class ViewsDataset(Dataset[Any]):
    """Make views in a ``DataLoader``. Its number of workers does not change them.

    Item i is ``augment_views(images[i], spec, **views)``. If ``images[i]`` is a tuple, such as ``(image, label)``, item i is a
    tuple of the views and the other elements.

    Args:
        images: a list of images, or a dataset of images or of tuples that start with an image.
        spec: preprocessing of the model, ``model.image_spec``.
        **views: keywords of ``augment_views``. A generator as ``seed`` is drawn from once, when the dataset is created.

    >>> views, label = ViewsDataset([(torch.rand(3, 40, 60), 7)], ImageSpec((32, 32)), n_views=8)[0]
    >>> views.shape, label
    (torch.Size([8, 3, 32, 32]), 7)
    """

    def __init__(self, images: Sequence[Any] | Dataset[Any], spec: ImageSpec, **views: Unpack[ViewOptions]) -> None:
        self.images: Any = images
        self.spec = spec
        self.settings = ViewSettings.of("ViewsDataset", **views)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        item = self.images[index]
        image, *rest = item if isinstance(item, tuple) else (item,)
        views = _new_memory((self.settings.n_views, 3, *self.spec.size), torch.device("cpu"))
        make_views(views, image, self.spec, self.settings)
        return (views, *rest) if isinstance(item, tuple) else views


def _new_memory(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Return uninitialized float32 memory. On a CPU numpy allocates it: its large pages are cheaper to touch."""
    if device.type != "cpu":
        return torch.empty(shape, device=device, dtype=torch.float32)
    import numpy as np

    return torch.from_numpy(np.empty(shape, np.float32))


def _normalize_into(out: Tensor, views: Tensor, mean: Tensor, std: Tensor) -> None:
    scale = 1 / (255 * std) if views.dtype == torch.uint8 else 1 / std
    together = 1 if out.device.type == "cpu" else len(out)  # one view at a time stays in the processor's cache
    for some, made in zip(out.split(together), views.split(together), strict=True):
        some.copy_(made).mul_(scale).sub_(mean / std)


def _checked(views: Tensor, shape: tuple[int, ...]) -> Tensor:
    if not isinstance(views, Tensor) or views.shape != shape:
        got = f"a tensor of shape {tuple(views.shape)}" if isinstance(views, Tensor) else type(views).__name__
        raise ValueError(f"augment_views: the recipe must return a tensor of shape {shape}, but it returned {got}")
    if views.dtype != torch.uint8 and not (views.is_floating_point() and in_unit_range(views)):
        raise ValueError(
            "augment_views: the recipe must return uint8, or float in [0, 1], not normalized, but it returned "
            f"{views.dtype} in {views.min():g}..{views.max():g}"
        )
    return views

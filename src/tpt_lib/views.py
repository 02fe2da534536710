"""From an image to what the model sees: the plain view, and the random views that TPT averages over (section 3.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.utils.data import Dataset

from tpt_lib.augmix import mix_into, sample_augmix
from tpt_lib.crops import apply_crops, sample_crops
from tpt_lib.images import ImageLike, as_seed, image_generator, in_unit_range, listed, read_image
from tpt_lib.model import ClipLike, ImageSpec, encode_views

__all__ = ["ViewsDataset", "augment_views", "encode_images", "preprocess"]

Recipe = Literal["crop", "augmix"] | Callable[[Tensor, tuple[int, int], int, torch.Generator], Tensor]
LONGEST = 16  # sides of the centre crop; what is longer is cut before it is resized


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


def preprocess(image: ImageLike, spec: ImageSpec) -> Float[Tensor, "3 h w"]:
    """The model's own preprocessing of one image: resize, crop, scale to [0, 1], normalise.

    Args:
        image: anything ``read_image`` takes: a PIL image, a path, a tensor ``(3, H, W)``, an array ``(H, W, 3)``.
        spec: what the model wants, ``model.image_spec``.

    Returns:
        A normalised float32 image ``(3, H, W)`` at the size of ``spec``, on the image's device.

    >>> preprocess(torch.zeros(3, 40, 60, dtype=torch.uint8), ImageSpec((32, 32))).shape
    torch.Size([3, 32, 32])
    """
    return _plain(read_image(image), spec).to(image.device if isinstance(image, Tensor) else "cpu")


def encode_images(model: ClipLike, images: Any, *, chunk: int = 64) -> Float[Tensor, "n e"]:
    """L2-normalised float32 features of images as they are, without random views.

    Args:
        model: the model.
        images: one image or a list of them, anything ``read_image`` takes; a tensor ``(N, 3, H, W)``; or features ``(N, E)``,
            which are normalised and otherwise passed through.
        chunk: how many images are in memory at once.

    Returns:
        Features ``(N, E)``, on the model's device.

    >>> encode_images(model, [torch.rand(3, 40, 60), torch.zeros(3, 50, 30)]).shape
    torch.Size([2, 256])
    """
    device = model.embed_tokens(model.tokenize([""])).device
    if isinstance(images, Tensor) and images.ndim == 2:
        if not images.is_floating_point() or not images.isfinite().all():
            raise ValueError(
                f"encode_images: features (N, E) must be finite floats, but got {images.dtype}, or NaN in it"
            )
        return F.normalize(images.detach().to(device).float(), dim=-1)
    images = listed(images)
    if len(images) == 0:
        raise ValueError("encode_images: there are no images; at least one is needed")
    parts = (images[first : first + chunk] for first in range(0, len(images), chunk))
    plain = (torch.stack([preprocess(image, model.image_spec) for image in part]).to(device) for part in parts)
    return torch.cat([encode_views(model, part) for part in plain])


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


def _plain(pixels: Tensor, spec: ImageSpec) -> Tensor:
    """``preprocess`` by PIL, as the published models are evaluated."""
    import PIL.Image
    from torchvision.transforms.v2 import InterpolationMode
    from torchvision.transforms.v2 import functional as tv

    image = PIL.Image.fromarray(_without_ends(pixels, spec).permute(1, 2, 0).contiguous().numpy())
    target = _resized(image.height, image.width, spec)
    image = tv.resize(image, list(target), interpolation=InterpolationMode(spec.interpolation), antialias=True)
    pad_h, pad_w = (max(0, want - got) for want, got in zip(spec.size, target, strict=True))
    if pad_h or pad_w:
        image = tv.pad(image, [pad_w // 2, pad_h // 2, (pad_w + 1) // 2, (pad_h + 1) // 2], fill=spec.fill)
    plain = tv.to_dtype(tv.to_image(tv.center_crop(image, list(spec.size))), torch.float32, scale=True)
    return tv.normalize(plain.as_subclass(Tensor), list(spec.mean), list(spec.std))


def _without_ends(pixels: Tensor, spec: ImageSpec) -> Tensor:
    """The middle of an image that is longer than the centre crop could reach; 1x5000 would be resized to 224x1120000."""
    if spec.resize_mode != "shortest":
        return pixels
    keep = LONGEST * max(spec.size) // min(spec.size) * min(pixels.shape[1:])
    top, left = (max(0, (length - keep) // 2) for length in pixels.shape[1:])
    return pixels[:, top : pixels.shape[1] - top, left : pixels.shape[2] - left]


def _resized(height: int, width: int, spec: ImageSpec) -> tuple[int, int]:
    """Height and width to resize to, before the crop."""
    want_h, want_w = spec.size
    if spec.resize_mode == "squash":
        return spec.size
    if spec.resize_mode == "shortest" and want_h == want_w:  # torchvision's rounding: the long side is cut down
        short, long = min(height, width), max(height, width)
        stretched = int(want_h * long / short)
        return (want_h, stretched) if height <= width else (stretched, want_h)
    choose = max if spec.resize_mode == "longest" else min
    ratio = choose(height / want_h, width / want_w)
    return max(1, round(height / ratio)), max(1, round(width / ratio))

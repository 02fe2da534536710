"""Identify a dataset by its file names and labels, and by the pixels of a few of its images.

Convention:
    - ``digest`` covers, in order, every image's path below the folder that all share, its name in tar files, or its pixels
      where it is in memory; and every label that is known without reading an image. The digests of both
      sides must be equal.
    - ``images`` has digests of the pixels of up to 16 images, spread over the dataset. Those that both sides could read
      must be equal. An image that was missing or broken may be repaired.
    - ``root`` is the folder that all paths share. It may differ only if the first one no longer exists: a dataset may be
      moved, but two datasets that both exist are never confused.
    - An image that is replaced by another of the same name is noticed only if it is one of the 16.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor
from torch.utils.data import Subset

from tpt_lib.content import digest
from tpt_lib.evaluation.data.bongard_hoi import Problems
from tpt_lib.evaluation.data.eval_set import EvalSet, ImageFiles, listed_labels
from tpt_lib.evaluation.data.tar_shards import TarSamples
from tpt_lib.views.reading import read_image

__all__ = ["dataset_identity", "differing_data"]

LOOKED_AT = 16


def dataset_identity(dataset: EvalSet) -> dict[str, Any]:
    """Return what identifies a dataset in runs and stores. At most 16 image files are read.

    Args:
        dataset: the dataset. Its class names, template and split are not included.

    Returns:
        The keys ``digest``, ``root`` and ``images``, in types that JSON has.

    >>> data = tpt_lib.EvalSet("two", [(torch.zeros(3, 8, 8), 0), (torch.ones(3, 8, 8), 1)], ("cat", "dog"))
    >>> dataset_identity(data) == dataset_identity(data.take([0, 1])), dataset_identity(data)["root"]
    (True, None)
    """
    samples: Any = dataset.samples
    known = _known_samples(samples)
    images = None if known is None else [image for sample in known for image in _images(sample)]
    folders = {os.path.dirname(path) for image in images or () if (path := _path(image))}
    root = os.path.commonpath(folders) if folders else None
    content: list[Any] = [len(samples), listed_labels(samples)]
    if known is None and hasattr(stored := getattr(samples, "data", None), "shape"):  # torchvision's sets in memory
        content.append(stored)
    if (names := _member_names(samples)) is not None:
        content.append(names)
    for sample in known or ():
        content += [len(sample), *(_content(image, root) for image in _images(sample)), *sample[3:]]
    return {
        "digest": digest(content),
        "root": root and os.path.realpath(root),
        "images": dict(_spread(samples, images)),
    }


def differing_data(there: Mapping[str, Any], here: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the differences between two datasets, by name; empty if they are the same.

    Args:
        there: what ``dataset_identity`` returned for the first.
        here: what it returned for the second, now.

    Returns:
        Both values for each name, such as ``images.12``.
    """
    found = {}
    if there["digest"] != here["digest"]:
        found["digest"] = there["digest"], here["digest"]
    if there["root"] != here["root"] and there["root"] and os.path.isdir(there["root"]):
        found["root"] = there["root"], here["root"]
    for key in sorted({*there["images"]} & {*here["images"]}, key=int):
        if there["images"][key] != here["images"][key]:
            found[f"images.{key}"] = there["images"][key], here["images"][key]
    return found


def _known_samples(samples: Any) -> list[Any] | None:
    """Return all samples if they are known without reading an image file, else None."""
    if isinstance(samples, Subset):
        known = _known_samples(samples.dataset)
        return None if known is None else [known[i] for i in samples.indices]
    if isinstance(samples, ImageFiles | Problems | list | tuple):
        return [samples[i] for i in range(len(samples))]
    listed: Any = getattr(samples, "samples", None)  # torchvision's folders: (path, label)
    alike = isinstance(listed, list) and len(listed) == len(samples)
    return listed if alike and all(isinstance(one, tuple) and isinstance(one[0], str) for one in listed) else None


def _member_names(samples: Any) -> list[str] | None:
    """Return the names of images in tar files."""
    if isinstance(samples, Subset):
        names = _member_names(samples.dataset)
        return None if names is None else [names[i] for i in samples.indices]
    return samples.paths if isinstance(samples, TarSamples) else None


def _images(sample: Any) -> Iterator[Any]:
    """Yield the images of a sample: one, or those of a problem."""
    for part in sample[:3] if len(sample) == 4 else sample[:1]:
        yield from part if isinstance(part, list | tuple) else [part]


def _path(image: Any) -> str | None:
    """Return the path of an image that is a file or was opened by PIL, else None."""
    name = image if isinstance(image, str | os.PathLike) else getattr(image, "filename", None)
    return os.path.abspath(name) if isinstance(name, str | os.PathLike) and name else None


def _content(image: Any, root: str | None) -> Any:
    if path := _path(image):
        return os.path.relpath(path, root).replace(os.sep, "/")
    return image if hasattr(image, "shape") else read_image(image)


def _spread(samples: Any, images: list[Any] | None) -> Iterator[tuple[str, str]]:
    """Yield the number and a digest of the pixels of a few images, except those that cannot be read."""
    count = len(samples) if images is None else len(images)
    for at in dict.fromkeys(i * count // LOOKED_AT for i in range(LOOKED_AT)):
        try:
            image = next(_images(samples[at])) if images is None else images[at]
            pixels = image if isinstance(image, Tensor) and image.ndim == 2 else read_image(image)
        except Exception:  # a dataset may raise anything for a bad image, which will be that sample's error
            continue
        yield str(at), digest([pixels])

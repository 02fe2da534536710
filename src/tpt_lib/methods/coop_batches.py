"""Turn labeled images, features or a loader into batches for supervised prompt learning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from tpt_lib.features.encode import as_features, device_of, encode_views
from tpt_lib.models.protocol import ClipLike
from tpt_lib.prompts.class_prompts import ClassPrompts
from tpt_lib.types import Images
from tpt_lib.views.augment import augment_views
from tpt_lib.views.reading import are_several, image_at

Labels = Sequence[int] | Tensor
Batch = tuple[Tensor, Tensor]
Loader = Iterable[tuple[Tensor, Tensor]]
EPOCH_SEED = 1_000_003  # larger than the seeds that users choose


def training_batches(
    model: ClipLike,
    prompts: ClassPrompts,
    images: Images | Tensor | Loader,
    labels: Labels | None,
    size: int,
    seed: int,
) -> Callable[[int], Iterable[Batch]]:
    """Return a function from the number of an epoch to its batches of normalized features and labels."""
    if labels is None:
        loader: Any = images
        return lambda _: (labeled_features(model, prompts, _loaded(model, part), truth) for part, truth in loader)

    def order(epoch: int) -> Iterable[Tensor]:
        generator = torch.Generator().manual_seed(seed + EPOCH_SEED * epoch)
        return torch.split(torch.randperm(len(truth), generator=generator), size)

    if isinstance(images, Tensor) and images.ndim == 2:
        fixed, truth = labeled_features(model, prompts, as_features("fit_coop", model, images), labels)
        return lambda epoch: ((fixed[part], truth[part]) for part in order(epoch))
    pictures: Any = images if are_several(images) else [images]  # type: ignore[arg-type]
    truth = _checked_labels(prompts, labels, len(pictures))

    def crops(epoch: int) -> Iterator[Batch]:
        options: Any = {"n_views": 2, "seed": seed + EPOCH_SEED * epoch, "device": truth.device}
        for part in order(epoch):
            views = [augment_views(image_at(pictures, i), model.image_spec, **options)[1] for i in part.tolist()]
            yield encode_views(model, torch.stack(views)), truth[part]

    return crops


def labeled_features(model: ClipLike, prompts: ClassPrompts, features: Tensor, labels: Labels) -> Batch:
    """Return features and labels, checked against the model and the classes."""
    if features.shape[1] != (width := feature_width(model, prompts)):
        raise ValueError(f"fit_coop: features have width {features.shape[1]}, but those of this model have {width}")
    return features, _checked_labels(prompts, labels, len(features))


def feature_width(model: ClipLike, prompts: ClassPrompts) -> int:
    one = prompts.ids[:1]
    with torch.no_grad():
        return model.encode_embeddings(model.embed_tokens(one), one).shape[1]


def _loaded(model: ClipLike, batch: Tensor) -> Tensor:
    """Return the features of what a loader yields: preprocessed images, or features."""
    return as_features("fit_coop", model, batch) if batch.ndim == 2 else encode_views(model, batch.to(device_of(model)))


def _checked_labels(prompts: ClassPrompts, labels: Labels, count: int) -> Tensor:
    if count == 0:
        raise ValueError("fit_coop: there are no images to learn from")
    found = torch.as_tensor(labels, device=prompts.context.device)
    if found.ndim != 1 or len(found) != count or found.is_floating_point():
        raise ValueError(
            f"fit_coop: for {count} images labels must be {count} ints, but got {found.dtype} of shape {tuple(found.shape)}"
        )
    if found.min() < 0 or found.max() >= len(prompts.names):
        raise ValueError(
            f"fit_coop: there are {len(prompts.names)} classes, so labels are 0..{len(prompts.names) - 1}, but got "
            f"{int(found.min())}..{int(found.max())}"
        )
    return found.long()

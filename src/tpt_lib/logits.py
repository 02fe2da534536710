"""Compute logits from image features and text features."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from tpt_lib.features.check import check_unit
from tpt_lib.models.protocol import ClipLike
from tpt_lib.types import kind_of

__all__ = ["class_logits"]


def class_logits(
    model: ClipLike, image_features: Float[Tensor, "*b n e"], text_features: Float[Tensor, "*b k e"]
) -> Float[Tensor, "*b n k"]:
    r"""Compute logits :math:`\tau\,\mathrm{sim}(\mathbf t_k, \mathbf v_n) + b` of normalized features (section 3.1).

    Args:
        model: gives the scale :math:`\tau` and the bias :math:`b` (0 for CLIP).
        image_features: ``(…, N, E)``, as ``encode_views`` returns them.
        text_features: ``(…, K, E)``, as ``encode_prompts`` returns them.

    Returns:
        Logits ``(…, N, K)``, float32.

    Raises:
        TypeError: if features are not floats of at least two dimensions.
        ValueError: if features are not finite, not of unit length, or of different widths.

    >>> class_logits(model, torch.eye(256)[:2], torch.eye(256)[:3]).shape
    torch.Size([2, 3])
    """
    logits = unchecked_logits(model, image_features, text_features)
    check_unit("class_logits", "image_features", image_features)
    check_unit("class_logits", "text_features", text_features)
    return logits


def unchecked_logits(model: ClipLike, image_features: Tensor, text_features: Tensor) -> Tensor:
    """Return ``class_logits`` of features that are known to have unit length, without waiting for an accelerator."""
    for name, features in (("image_features", image_features), ("text_features", text_features)):
        if not isinstance(features, Tensor) or not features.is_floating_point() or features.ndim < 2:
            raise TypeError(
                f"class_logits: {name} must be a float tensor of at least two dimensions, but got {kind_of(features)}; "
                "encode_views and encode_prompts return such features"
            )
    if image_features.shape[-1] != text_features.shape[-1]:
        raise ValueError(
            f"class_logits: image features have width {image_features.shape[-1]} and text features "
            f"{text_features.shape[-1]}; both must come from the same model"
        )
    image_batch, text_batch = image_features.shape[:-2], text_features.shape[:-2]
    if any(a != b and 1 not in (a, b) for a, b in zip(image_batch[::-1], text_batch[::-1], strict=False)):
        raise ValueError(
            f"class_logits: image features have batch shape {tuple(image_batch)} and text features {tuple(text_batch)}; both "
            "must have the same leading dimensions"
        )
    with torch.autocast(image_features.device.type, enabled=False):
        similarity = image_features.float() @ text_features.float().mT
        return model.logit_scale * similarity + model.logit_bias

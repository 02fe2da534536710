"""Test-time prompt tuning (Shu et al., NeurIPS 2022): tune the prompt to the image, then classify the image."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from jaxtyping import Float
from torch import Tensor
from typing_extensions import Unpack

from tpt_lib.logits import unchecked_logits
from tpt_lib.methods.base import method
from tpt_lib.methods.classify import classify
from tpt_lib.models.protocol import ClipLike
from tpt_lib.prediction import Prediction, compared
from tpt_lib.prompts.class_prompts import ClassPrompts
from tpt_lib.tuning.tune import Tuned, TuneOptions, tune_prompt
from tpt_lib.types import Images, ViewOptions, check_options

__all__ = ["TptOptions", "tpt_classify", "tpt_predict"]


@method(name="tpt", title="TPT", paper="Shu et al., NeurIPS 2022", published="TPT")
def tpt_predict(
    model: ClipLike, prompts: ClassPrompts, features: Float[Tensor, "*b n e"], **tuning: Unpack[TuneOptions]
) -> Prediction:
    """Tune the prompts to the views' features, then classify the plain image (section 3.2).

    All methods that need features have this form, so that they can share one encoding of the views.

    Args:
        model: the model.
        prompts: where tuning starts.
        features: normalized features ``(N, E)``, row 0 the plain image; ``(B, N, E)`` for several images.
        **tuning: the keywords of ``tune_prompt``: ``steps=1``, ``lr=5e-3``, ``select=``, ``objective=``, ….

    Returns:
        A prediction; for several images a batch of them.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog", "red panda"])
    >>> views = torch.nn.functional.normalize(torch.randn(64, 256), dim=-1)
    >>> prediction = tpt_predict(model, prompts, views)
    >>> prediction.label in prompts.names, bool(prediction.loss_after < prediction.loss_before)
    (True, True)
    """
    return as_prediction(model, prompts, features, tune_prompt(model, prompts, features, **tuning))


def as_prediction(
    model: ClipLike, prompts: ClassPrompts, features: Tensor, tuned: Tuned, logits: Tensor | None = None
) -> Prediction:
    """Return the result of tuning as a prediction with the given logits, by default those of the plain image."""
    plain = features[..., :1, :]
    steps = tuned.losses.shape[-1] - 1
    return compared(
        prompts.names,
        unchecked_logits(model, plain, tuned.text_features)[..., 0, :] if logits is None else logits,
        unchecked_logits(model, plain, tuned.initial_features)[..., 0, :],
        tuned=tuned.applied & (steps > 0),
        loss_before=tuned.losses[..., 0],
        loss_after=tuned.losses[..., -1],
        selected=tuned.selected,
        context=tuned.context,
    )


class TptOptions(ViewOptions, TuneOptions, total=False):
    """The keywords of ``tpt_classify``: those of ``augment_views`` and of ``tune_prompt``."""


def tpt_classify(
    model: ClipLike,
    images: Images,
    classes: Sequence[str] | ClassPrompts,
    *,
    batch_size: int = 8,
    **options: Unpack[TptOptions],
) -> Prediction:
    """Classify one image, or several, each with a prompt tuned to it: the paper's method with the paper's settings.

    Args:
        model: the model.
        images: one image (a PIL image, path, array, or tensor ``(3, H, W)``); or several: a list, a tuple, a tensor
            ``(B, 3, H, W)``, or a dataset of images or of tuples that start with one.
        classes: class names, or prompts from ``class_prompts`` (another template, a CoOp context, …).
        batch_size: number of images tuned together (default 8). Affects speed and memory, not results.
        **options: the keywords of ``augment_views`` (``n_views=64``; ``recipe="crop"`` as for ImageNet and its variants,
            ``"augmix"`` as for fine-grained sets; ``seed=0``, …) and of ``tune_prompt`` (``steps=1``, ``lr=5e-3``, …).

    Returns:
        A prediction; for several images a batch of them.

    >>> image = torch.randint(256, (3, 60, 80), dtype=torch.uint8)
    >>> prediction = tpt_classify(model, image, ["cat", "dog", "red panda"], n_views=8)
    >>> bool(prediction.tuned), prediction.zero_shot.tuned
    (True, None)
    """
    check_options("tpt_classify", options, TptOptions)
    views: Any = {name: value for name, value in options.items() if name in ViewOptions.__annotations__}
    tuning: Any = {name: value for name, value in options.items() if name not in views}
    return classify(model, images, classes, method=partial(tpt_predict, **tuning), batch_size=batch_size, **views)

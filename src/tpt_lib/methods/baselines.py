"""What TPT is compared with that needs no tuning: one template, many, and averages and votes over views.

Each method has the shape of ``tpt_predict``: features ``(N, E)`` with row 0 the plain image give a ``Prediction``,
``(B, N, E)`` a list of them. Prompts learned by CoOp or CoCoOp work in all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from tpt_lib.logits import class_logits
from tpt_lib.models.protocol import ClipLike
from tpt_lib.objectives import select_confident
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.class_prompts import ClassPrompts, class_prompts, conditional_context
from tpt_lib.text.encode import encode_prompts, kept

__all__ = ["average_predict", "ensemble_predict", "prompts_predict", "vote_predict", "zero_shot_predict"]

Method = Callable[..., Any]


def zero_shot_predict(
    model: ClipLike, prompts: ClassPrompts, features: Float[Tensor, "*b n e"]
) -> Prediction | list[Prediction]:
    """The plain image under the prompts as they are (section 3.1): CLIP's zero-shot, CoOp's and CoCoOp's own prediction.

    Args:
        model: the model.
        prompts: hand-crafted or learned; a CoCoOp context is shifted by the feature of row 0.
        features: normalised features ``(N, E)``, row 0 the plain image; ``(B, N, E)`` for several images.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog", "red panda"])
    >>> zero_shot_predict(model, prompts, torch.eye(256)[:1]).probs.shape
    torch.Size([3])
    """
    text = _text(model, prompts, _checked("zero_shot_predict", features))
    return _predictions(prompts, _logits(model, features[..., :1, :], text)[..., 0, :])


def ensemble_predict(
    model: ClipLike,
    prompts: ClassPrompts,
    features: Float[Tensor, "*b n e"],
    *,
    templates: Sequence[str] | None = None,
) -> Prediction | list[Prediction]:
    """The plain image under many templates, whose text features are averaged and normalised, as CLIP does.

    Args:
        model: the model.
        prompts: give the class names; their own context is not used. The averaged features are kept with them.
        features: as for ``zero_shot_predict``.
        templates: texts with one ``{}``; by default the 80 of OpenAI that open_clip ships.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> ensemble_predict(model, prompts, torch.eye(256)[:1], templates=["a {}.", "the {}."]).probs.shape
    torch.Size([2])
    """
    _checked("ensemble_predict", features)
    if templates is None:
        import open_clip

        templates = [fill("{}") for fill in open_clip.OPENAI_IMAGENET_TEMPLATES]
    if isinstance(templates, str) or not templates:
        raise ValueError(f"ensemble_predict: templates must be a list of one or more texts, but got {templates!r}")
    texts = tuple(templates)

    @torch.no_grad()
    def build() -> Tensor:
        total, proof = torch.zeros(()), dict[Any, Any]()
        for text in texts:
            one = class_prompts(model, prompts.names, template=text)
            one.cache.update(proof)  # that the fast path is right is proven for the first template
            total = total + encode_prompts(model, one)
            proof = {key: value for key, value in one.cache.items() if key == "proven"}
        return F.normalize(total, dim=-1)

    text = kept(model, prompts, ("templates", texts), build)
    return _predictions(prompts, _logits(model, features[..., :1, :], text)[..., 0, :])


def average_predict(
    model: ClipLike, prompts: ClassPrompts, features: Float[Tensor, "*b n e"], *, fraction: float | None = None
) -> Prediction | list[Prediction]:
    r"""The averaged prediction over views, :math:`\frac 1N \sum_n p(y \mid \mathcal A_n(X))` (appendix A.2).

    Args:
        model: the model.
        prompts: hand-crafted or learned.
        features: as for ``zero_shot_predict``.
        fraction: average over the most confident views only, as ``select_confident`` picks them; None for all.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> average_predict(model, prompts, torch.eye(256)[:20], fraction=0.1).selected.shape
    torch.Size([2])
    """
    logits, selected = _trusted(model, prompts, _checked("average_predict", features), fraction)
    return _predictions(prompts, _log_mean(_rows(logits, selected)), logits[..., 0, :], selected)


def vote_predict(
    model: ClipLike, prompts: ClassPrompts, features: Float[Tensor, "*b n e"], *, fraction: float | None = None
) -> Prediction | list[Prediction]:
    r"""The majority vote over views (appendix A.2).

    The probability of a class is :math:`(v + \tilde p) / (N + 1)` of its votes :math:`v` and its averaged probability
    :math:`\tilde p`: so a tie goes to the class of higher averaged probability, and then to the lower index.

    Args:
        model: the model.
        prompts: hand-crafted or learned.
        features: as for ``zero_shot_predict``.
        fraction: let the most confident views vote only, as ``select_confident`` picks them; None for all.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> vote_predict(model, prompts, torch.eye(256)[:20]).probs.shape
    torch.Size([2])
    """
    logits, selected = _trusted(model, prompts, _checked("vote_predict", features), fraction)
    voters = _rows(logits, selected)
    votes = F.one_hot(voters.argmax(dim=-1), voters.shape[-1]).sum(dim=-2)
    shares = torch.logaddexp(votes.log(), _log_mean(voters)) - math.log(voters.shape[-2] + 1)
    return _predictions(prompts, shares, logits[..., 0, :], selected)


def prompts_predict(
    model: ClipLike,
    prompts: Sequence[ClassPrompts],
    features: Float[Tensor, "*b n e"],
    *,
    method: Method | Sequence[Method] = zero_shot_predict,
) -> Prediction | list[Prediction]:
    """The averaged probabilities of several prompts' predictions (appendix A.2: CoOp with three seeds, CoOp + CoCoOp, …).

    Args:
        model: the model.
        prompts: two or more ways to prompt the same classes.
        features: as for ``zero_shot_predict``.
        method: what predicts with each of them; a list of as many where they differ.

    >>> seeds = [tpt_lib.gaussian_context(model, 4, seed=s) for s in range(3)]
    >>> coops = [tpt_lib.class_prompts(model, ["cat", "dog"], context=context) for context in seeds]
    >>> prompts_predict(model, coops, torch.eye(256)[:1]).probs.shape
    torch.Size([2])
    """
    if isinstance(prompts, ClassPrompts) or not prompts:
        raise TypeError("prompts_predict: prompts must be a list of what class_prompts returned, one or more")
    methods = [method] * len(prompts) if callable(method) else list(method)
    if len(methods) != len(prompts):
        raise ValueError(f"prompts_predict: there are {len(prompts)} prompts and {len(methods)} methods")
    if odd := next((p for p in prompts if p.names != prompts[0].names), None):
        raise ValueError(
            f"prompts_predict: all prompts must have the same classes in the same order, but one has "
            f"{list(odd.names)[:4]} and another {list(prompts[0].names)[:4]}"
        )
    found = [f(model, p, features) for f, p in zip(methods, prompts, strict=True)]
    logits = torch.stack([_stacked(prediction) for prediction in found], dim=-2)
    return _predictions(prompts[0], _log_mean(logits))


def _text(model: ClipLike, prompts: ClassPrompts, features: Tensor) -> Tensor:
    """Text features ``(K, E)``, kept with the prompts; for CoCoOp ``(*b, K, E)``, which depend on the plain images."""
    if prompts.bias_net is None:
        return kept(model, prompts, "features", torch.no_grad()(lambda: encode_prompts(model, prompts)))
    with torch.inference_mode(False), torch.no_grad():
        contexts = conditional_context(prompts, features[..., 0, :]).reshape(-1, *prompts.context.shape)
        text = torch.stack([encode_prompts(model, prompts, context) for context in contexts])
    return text.reshape(*features.shape[:-2], *text.shape[1:])


def _trusted(
    model: ClipLike, prompts: ClassPrompts, features: Tensor, fraction: float | None
) -> tuple[Tensor, Tensor | None]:
    """The logits of all views ``(*b, N, K)``, and the indices of those to count, None for all."""
    logits = _logits(model, features, _text(model, prompts, features))
    return logits, None if fraction is None else select_confident(logits, fraction=fraction)


def _logits(model: ClipLike, features: Tensor, text: Tensor) -> Tensor:
    return class_logits(model, features, text.expand(*features.shape[:-2], *text.shape[-2:]))


def _rows(logits: Tensor, selected: Tensor | None) -> Tensor:
    return logits if selected is None else logits.take_along_dim(selected[..., None], dim=-2)


def _log_mean(logits: Tensor) -> Tensor:
    """Logarithm of the probabilities' mean over the rows; finite where logits are."""
    return logits.log_softmax(dim=-1).logsumexp(dim=-2) - math.log(logits.shape[-2])


def _stacked(found: Prediction | list[Prediction]) -> Tensor:
    return found.logits if isinstance(found, Prediction) else torch.stack([one.logits for one in found])


def _predictions(
    prompts: ClassPrompts, logits: Tensor, plain: Tensor | None = None, selected: Tensor | None = None
) -> Prediction | list[Prediction]:
    if logits.ndim == 2:
        each = (t.unbind() if t is not None else [None] * len(logits) for t in (logits, plain, selected))
        return [_one(prompts, *parts) for parts in zip(*each, strict=True)]
    return _one(prompts, logits, plain, selected)


def _one(prompts: ClassPrompts, logits: Tensor, plain: Tensor | None, selected: Tensor | None) -> Prediction:
    zero_shot = None if plain is None else Prediction(prompts.names, plain)
    return Prediction(prompts.names, logits, zero_shot=zero_shot, selected=selected)


def _checked(name: str, features: Tensor) -> Tensor:
    if not features.is_floating_point() or features.ndim not in (2, 3) or 0 in features.shape:
        raise ValueError(
            f"{name}: features must be floats of shape (N, E), or (B, N, E) for several images, none of them empty, but "
            f"got {features.dtype} of shape {tuple(features.shape)}; encode_views returns what is wanted"
        )
    if not features.isfinite().all():
        raise ValueError(f"{name}: features are not all finite; look at the image, or at the model's image tower")
    return features

"""TPS (Sui et al., WACV 2025): shift the text features of the classes, without the text tower."""

from __future__ import annotations

from typing import Any, get_args

from jaxtyping import Float
from torch import Tensor

from tpt_lib.logits import unchecked_logits
from tpt_lib.methods.base import check_features, method
from tpt_lib.methods.moved_features import Variant
from tpt_lib.methods.presets import FINE_GRAINED, on_each
from tpt_lib.methods.tune_features import tune_features
from tpt_lib.models.protocol import ClipLike
from tpt_lib.prediction import Prediction, compared
from tpt_lib.prompts.class_prompts import ClassPrompts
from tpt_lib.text.initial import start_features
from tpt_lib.tuning.descent import warn_not_applied

__all__ = ["tps_predict"]


@method(name="tps", title="TPS", paper="Sui et al., WACV 2025", published="TPS", presets=on_each(FINE_GRAINED, lr=1e-3))
def tps_predict(
    model: ClipLike,
    prompts: ClassPrompts,
    features: Float[Tensor, "*b n e"],
    *,
    variant: Variant = "shift",
    shared: bool = False,
    fraction: float = 0.1,
    steps: int = 1,
    lr: float = 5e-3,
    reselect: bool = False,
) -> Prediction:
    r"""Shift the text feature of every class to the views, then classify the plain image.

    .. math:: \min_{\gamma, \delta} \mathbf H(\tilde p), \quad
        \mathbf t_k' = \frac{\gamma_k \odot \mathbf t_k + \delta_k}{\|\gamma_k \odot \mathbf t_k + \delta_k\|}

    by AdamW from :math:`\gamma = 1, \delta = 0`. Its first step is closed form: :math:`-\mathrm{lr}\, g / (|g| + 10^{-8})`.

    Args:
        model: the model.
        prompts: hand-crafted or learned; the authors use several templates.
        features: normalized features ``(N, E)``, row 0 the plain image; ``(B, N, E)`` for several images.
        variant: ``"shift"`` tunes :math:`\delta` (default), ``"scale"`` :math:`\gamma`, ``"both"`` both.
        shared: whether the classes share one shift or scale (default False).
        fraction: share of the views in the loss, the most confident (default 0.1).
        steps: number of steps (default 1).
        lr: learning rate (default 5e-3; the authors' is 1e-3 on fine-grained sets).
        reselect: whether to select views again at every step, as the released code does (default False).

    Returns:
        A prediction; for several images a batch of them.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> bool(tps_predict(model, prompts, torch.eye(256)[:20]).tuned)
    True
    """
    check_features("tps_predict", features)
    if steps < 0 or variant not in get_args(Variant):
        wanted = f"steps must be 0 or more and variant one of {get_args(Variant)}"
        raise ValueError(f"tps_predict: {wanted}, but got {steps} and {variant!r}")
    text, batch = start_features(model, prompts, features), features.shape[:-2]
    views, texts = features.detach().float().reshape(-1, *features.shape[-2:]), text.reshape(-1, *text.shape[-2:])
    what: Any = {"variant": variant, "shared": shared, "fraction": fraction, "reselect": reselect}
    tuned = tune_features(model, views, texts, steps=steps, lr=lr, **what)
    warn_not_applied("tps_predict", tuned.applied)
    return compared(
        prompts.names,
        unchecked_logits(model, views[:, :1], tuned.text).reshape(*batch, -1),
        tuned.logits[:, 0].reshape(*batch, -1),
        tuned=(tuned.applied & (steps > 0)).reshape(batch),
        loss_before=tuned.before.reshape(batch),
        loss_after=tuned.after.reshape(batch),
        selected=tuned.selected.reshape(*batch, -1),
    )

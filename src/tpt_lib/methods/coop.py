r"""Supervised prompt learning: CoOp and CoCoOp, whose contexts TPT can start from (section 3.1).

.. math:: \mathbf p^* = \arg\min_{\mathbf p} \mathbb E_{(X, y)} \mathcal L(p_{\mathbf p}(\cdot \mid X), y)
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import torch
import torch.nn.functional as F
from torch import Tensor
from typing_extensions import Unpack

from tpt_lib.features.encode import as_features
from tpt_lib.logits import unchecked_logits
from tpt_lib.methods.coop_batches import Batch, Labels, Loader, feature_width, labeled_features, training_batches
from tpt_lib.methods.coop_checkpoint import Fitted, resume_fit, save_fit
from tpt_lib.methods.coop_identity import fit_identity
from tpt_lib.models.identity import check_known
from tpt_lib.models.protocol import ClipLike
from tpt_lib.prompts.class_prompts import ClassPrompts, check_one_template, conditional_context
from tpt_lib.prompts.contexts import MetaNet
from tpt_lib.text.encode import encode_prompts
from tpt_lib.tuning.descent import descend, warn_not_applied
from tpt_lib.types import Images, OptimizerFactory, PathLike, check_options

__all__ = ["Fitted", "fit_cocoop", "fit_coop"]

WARM_UP_LR = 1e-5
coop_sgd = partial(torch.optim.SGD, momentum=0.9, weight_decay=5e-4)


class FitOptions(TypedDict, total=False):
    """The keywords that ``fit_coop`` and ``fit_cocoop`` share."""

    lr: float
    optimizer: OptimizerFactory
    validation: tuple[Images | Tensor, Labels] | None
    patience: int | None
    checkpoint: PathLike | None
    progress: bool | None


def fit_coop(
    model: ClipLike,
    prompts: ClassPrompts,
    images: Images | Tensor | Loader,
    labels: Labels | None = None,
    *,
    epochs: int = 50,
    batch_size: int = 32,
    lr: float = 2e-3,
    optimizer: OptimizerFactory = coop_sgd,
    seed: int = 0,
    validation: tuple[Images | Tensor, Labels] | None = None,
    patience: int | None = None,
    checkpoint: PathLike | None = None,
    progress: bool | None = None,
) -> Fitted:
    """Learn the context from labeled images (CoOp), by default with CoOp's own settings.

    Args:
        model: the model; it is not changed.
        prompts: where learning starts; ``class_prompts(model, names, context=gaussian_context(model, 16))`` is CoOp's start. A
            context of shape ``(K, L, D)`` makes it class-specific. CoCoOp's network is learned too, if they have one.
        images: images; a new random crop of each is encoded in each epoch, as CoOp does. Or features ``(N, E)``, which are used
            as they are; or a loader that yields pairs of preprocessed images ``(B, 3, H, W)`` or features ``(B, E)``, and
            labels.
        labels: class indices ``(N,)`` (default None, for a loader).
        epochs: number of epochs (default 50, CoOp's for 1 shot; it uses 100 for 2 or 4, and 200 for 8 or 16).
        batch_size: number of images per step (default 32). Ignored with a loader, which has its own.
        lr: learning rate (default 2e-3): 1e-5 in the first epoch, then a cosine from epoch to epoch.
        optimizer: called as ``optimizer(parameters, lr=lr)``; by default CoOp's SGD with momentum 0.9 and weight decay 5e-4.
        seed: seed of the order and the crops of every epoch (default 0).
        validation: images or features, and labels, to measure the accuracy on after each epoch (default None).
        patience: number of epochs without a higher validation accuracy after which to stop and return the best prompts (default
            None: never).
        checkpoint: file to save to after each epoch, and to resume from if it exists (default None). ``load_prompt``
            reads it. Images, labels, models, optimizers or settings other than those it was saved with are refused.
        progress: whether to show a progress bar (default None: only on a terminal).

    Returns:
        The learned prompts and how learning went.

    >>> features = torch.nn.functional.normalize(torch.randn(20, 256), dim=-1)
    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"], context=tpt_lib.gaussian_context(model, 4))
    >>> fitted = fit_coop(model, prompts, features, [0, 1] * 10, epochs=4)
    >>> fitted.losses[-1] < fitted.losses[0]
    True
    """
    _check(prompts, epochs, batch_size, patience, validation)
    batches = training_batches(model, prompts, images, labels, batch_size, seed)
    held_out = None
    if validation is not None:
        held_out = labeled_features(model, prompts, as_features("fit_coop", model, validation[0]), validation[1])
    with torch.inference_mode(False), torch.enable_grad():
        learned, free = _leaves(prompts)
        own = optimizer(free, lr=lr)
        settings: dict[str, Any] = {}
        if checkpoint is not None:
            settings = {"epochs": epochs, "batch_size": batch_size, "lr": lr, "seed": seed, "patience": patience}
            settings |= fit_identity(model, prompts, optimizer, free, (images, labels), validation)
            check_known("fit_coop", settings, Path(checkpoint))
        fitted = Fitted(prompts, [], [], [], 0)
        if checkpoint is not None and Path(checkpoint).exists():
            fitted = resume_fit(Path(checkpoint), settings, fitted, free, own)
        for epoch in _bar(len(fitted.losses), epochs, progress):
            if patience is not None and len(fitted.validation) - fitted.epoch >= patience:
                break
            for group in own.param_groups:
                group["lr"] = coop_rate(epoch, epochs, lr)
            loss, accuracy, applied = _epoch(model, learned, free, own, batches(epoch))
            if not applied:
                fitted = replace(fitted, applied=False)
                break
            measured = fitted.validation + ([] if held_out is None else [_accuracy(model, learned, *held_out)])
            best = patience is None or measured.index(max(measured)) == epoch
            fitted = Fitted(
                _frozen(learned) if best else fitted.prompts,
                [*fitted.losses, loss],
                [*fitted.accuracies, accuracy],
                measured,
                epoch + 1 if best else fitted.epoch,
            )
            if checkpoint is not None:
                save_fit(Path(checkpoint), settings, fitted, free, own)
    return fitted


def fit_cocoop(
    model: ClipLike,
    prompts: ClassPrompts,
    images: Images | Tensor | Loader,
    labels: Labels | None = None,
    *,
    epochs: int = 10,
    batch_size: int = 1,
    seed: int = 0,
    **options: Unpack[FitOptions],
) -> Fitted:
    """Learn the context and the network that shifts it by the image's feature (CoCoOp), by default with CoCoOp's settings.

    Args:
        model: the model; it is not changed.
        prompts: where learning starts; CoCoOp starts from the words "a photo of a". A new network of E, E/16 and D units is
            drawn from the seed, unless the prompts already have one.
        images, labels: as for ``fit_coop``.
        epochs: number of epochs (default 10).
        batch_size: number of images per step, each with its own context (default 1, CoCoOp's choice to save memory).
        seed: seed of the new network, and of the order and the crops of every epoch (default 0).
        **options: the other keywords of ``fit_coop``.

    Returns:
        The learned prompts and how learning went.

    >>> features = torch.nn.functional.normalize(torch.randn(8, 256), dim=-1)
    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> fitted = fit_cocoop(model, prompts, features, [0, 1] * 4, batch_size=4, epochs=2)
    >>> fitted.prompts.meta_net.weight1.shape
    torch.Size([16, 256])
    """
    check_options("fit_cocoop", options, FitOptions)
    if prompts.meta_net is None:
        prompts = replace(prompts, meta_net=new_meta_net(feature_width(model, prompts), prompts.context, seed))
    return fit_coop(model, prompts, images, labels, epochs=epochs, batch_size=batch_size, seed=seed, **options)


def coop_rate(epoch: int, epochs: int, lr: float) -> float:
    """Return CoOp's learning rate: constant in the first epoch, then a cosine over the number of all epochs."""
    return WARM_UP_LR if epoch == 0 else lr * (1 + math.cos(math.pi * (epoch - 1) / epochs)) / 2


def new_meta_net(width: int, context: Tensor, seed: int) -> MetaNet:
    """Return a network from features of a width to shifts of the context, initialized as two ``nn.Linear``."""
    generator = torch.Generator().manual_seed(seed)
    hidden, embedding = max(1, width // 16), context.shape[-1]

    def uniform(*shape: int, fan_in: int) -> Tensor:
        return (2 * torch.rand(shape, generator=generator) - 1) / math.sqrt(fan_in)

    return MetaNet(
        uniform(hidden, width, fan_in=width),
        uniform(hidden, fan_in=width),
        uniform(embedding, hidden, fan_in=hidden),
        uniform(embedding, fan_in=hidden),
    ).to(context.device)


def _epoch(
    model: ClipLike,
    learned: ClassPrompts,
    free: list[Tensor],
    optimizer: torch.optim.Optimizer,
    batches: Iterable[Batch],
) -> tuple[float, float, bool]:
    """Run one epoch; return the mean loss, the accuracy before each step, and whether everything was finite."""
    right: list[Tensor] = []
    sizes: list[int] = []

    def gradients(batch: Batch) -> tuple[Tensor, list[tuple[Tensor, ...]]]:
        features, labels = batch
        logits = _logits(model, learned, features)
        loss = F.cross_entropy(logits, labels)
        right.append((logits.argmax(dim=-1) == labels).sum())
        sizes.append(len(labels))
        return loss.detach()[None], [torch.autograd.grad(loss, free)]

    before = [token.detach().clone() for token in free]
    losses, applied = descend([free], [before], [optimizer], batches, gradients)
    if not sizes:
        raise ValueError(
            "fit_coop: the loader yielded no batch; pass a DataLoader or a list, because a generator can be read only once"
        )
    warn_not_applied("fit_coop", applied)
    total = sum(float(loss) * size for loss, size in zip(torch.cat(losses).tolist(), sizes, strict=True))
    return total / sum(sizes), float(torch.stack(right).sum()) / sum(sizes), bool(applied)


def _logits(model: ClipLike, prompts: ClassPrompts, features: Tensor) -> Tensor:
    """Return logits ``(B, K)`` at the prompts' context; CoCoOp has one for each image."""
    if prompts.meta_net is None:
        return unchecked_logits(model, features, encode_prompts(model, prompts, prompts.context))
    text = encode_prompts(model, prompts, conditional_context(prompts, features))
    return unchecked_logits(model, features[:, None], text)[:, 0]


@torch.no_grad()
def _accuracy(model: ClipLike, prompts: ClassPrompts, features: Tensor, labels: Tensor) -> float:
    said = [_logits(model, prompts, part).argmax(dim=-1) for part in torch.split(features, 32)]
    return float((torch.cat(said) == labels).float().mean())


def _leaves(prompts: ClassPrompts) -> tuple[ClassPrompts, list[Tensor]]:
    """Return prompts whose context and network can be learned, and those as a list."""
    net = prompts.meta_net
    start = [prompts.context] if net is None else [prompts.context, *net.parts]
    free = [token.detach().clone().requires_grad_() for token in start]
    return replace(prompts, context=free[0], meta_net=None if net is None else MetaNet(*free[1:])), free


def _frozen(prompts: ClassPrompts) -> ClassPrompts:
    learned, free = _leaves(prompts)
    for token in free:
        token.requires_grad_(False)
    return learned


def _check(prompts: ClassPrompts, epochs: int, batch_size: int, patience: int | None, validation: Any) -> None:
    check_one_template("fit_coop", prompts)
    if epochs < 1 or batch_size < 1:
        raise ValueError(f"fit_coop: epochs and batch_size must be at least 1, but got {epochs} and {batch_size}")
    if patience is not None and (validation is None or patience < 1):
        raise ValueError(
            "fit_coop: patience must be at least 1 and needs validation=(images, labels) to watch, but got "
            f"patience={patience}{' without validation' if validation is None else ''}"
        )
    if 0 in prompts.context.shape:
        raise ValueError(
            "fit_coop: there is no context to learn; use class_prompts(model, names, context=gaussian_context(model, 16))"
        )


def _bar(done: int, epochs: int, progress: bool | None) -> Iterable[int]:
    from tqdm import tqdm

    hidden = None if progress is None else not progress
    return tqdm(range(done, epochs), desc="epochs", initial=done, total=epochs, disable=hidden)

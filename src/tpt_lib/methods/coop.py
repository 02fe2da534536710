r"""Supervised prompt learning: CoOp and CoCoOp, whose contexts TPT can start from (section 3.1).

.. math:: \mathbf p^* = \arg\min_{\mathbf p} \mathbb E_{(X, y)} \mathcal L(p_{\mathbf p}(\cdot \mid X), y)
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from tpt_lib.features.encode import encode_images, encode_views
from tpt_lib.logits import class_logits
from tpt_lib.models.protocol import ClipLike
from tpt_lib.prompts.checkpoints import load_checkpoint, load_prompt, save_prompt
from tpt_lib.prompts.class_prompts import ClassPrompts, conditional_context
from tpt_lib.prompts.contexts import BiasNet
from tpt_lib.text.encode import encode_prompts
from tpt_lib.views.augment import augment_views
from tpt_lib.views.reading import listed

__all__ = ["Fitted", "fit_conditional_prompt", "fit_prompt"]

Batches = Iterable[tuple[Tensor, Tensor]]

WARM_UP_LR = 1e-5

EPOCH_SEED = 1_000_003  # apart from what users choose as seeds

coop_sgd = partial(torch.optim.SGD, momentum=0.9, weight_decay=5e-4)


@dataclass(frozen=True, eq=False)
class Fitted:
    """What supervised prompt learning found.

    Attributes:
        prompts: the prompts with the learned context (and CoCoOp's network): for ``tpt_predict``, ``save_prompt``, ….
        losses: the mean loss of each epoch.
        accuracies: the accuracy on the training batches of each epoch, as they came.
        validation: the accuracy on the validation images after each epoch, if there are any.
        epoch: the epoch whose prompts these are, from 1: the last, or with ``patience`` the best.
    """

    prompts: ClassPrompts
    losses: list[float]
    accuracies: list[float]
    validation: list[float]
    epoch: int


def fit_prompt(
    model: ClipLike,
    prompts: ClassPrompts,
    images: Any,
    labels: Int[Tensor, " n"] | list[int] | None = None,
    *,
    epochs: int = 50,
    batch: int = 32,
    lr: float = 2e-3,
    optimizer: Callable[..., torch.optim.Optimizer] = coop_sgd,
    seed: int = 0,
    validation: tuple[Any, Any] | None = None,
    patience: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> Fitted:
    """CoOp: learn the context from labelled images, with CoOp's own settings by default.

    Args:
        model: the model, of which nothing is changed.
        prompts: where learning starts; ``class_prompts(model, names, context=gaussian_context(model, 16))`` is CoOp's start. A
            context of shape ``(K, L, D)`` makes it class-specific. CoCoOp's network is learned too, if they have one.
        images: a list of images, or a tensor ``(N, 3, H, W)``, of which a new random crop is encoded in each epoch, as CoOp
            does; features ``(N, E)``, which are used as they are; or a loader that yields pairs of preprocessed images
            ``(B, 3, H, W)`` or features ``(B, E)``, and labels.
        labels: the classes' indices ``(N,)``; None with a loader.
        epochs: CoOp's 50 are for 1 shot; it takes 100 for 2 or 4, and 200 for 8 or 16.
        batch: images a step; with a loader it is the loader's.
        lr: the learning rate, held at 1e-5 in the first epoch, then lowered along a cosine from epoch to epoch.
        optimizer: called as ``optimizer(parameters, lr=lr)``; CoOp's is SGD with momentum 0.9 and weight decay 5e-4.
        seed: fixes the order and the crops of every epoch.
        validation: images or features, and labels, to measure the accuracy on after each epoch.
        patience: stop when that has not risen for so many epochs, and return the best.
        checkpoint: a file to save to after each epoch, and to go on from if it is there. ``load_prompt`` reads it.
        progress: show a bar; by default on a terminal.

    >>> features = torch.nn.functional.normalize(torch.randn(20, 256), dim=-1)
    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"], context=tpt_lib.gaussian_context(model, 4))
    >>> fitted = fit_prompt(model, prompts, features, [0, 1] * 10, epochs=4)
    >>> fitted.losses[-1] < fitted.losses[0]
    True
    """
    _check(prompts, epochs, batch, patience, validation)
    batches = _batches(model, prompts, images, labels, batch, seed)
    held_out = (
        None if validation is None else _pairs(model, prompts, encode_images(model, validation[0]), validation[1])
    )
    with torch.inference_mode(False), torch.enable_grad():
        learned, free = _leaves(prompts)
        own = optimizer(free, lr=lr)
        settings = {"epochs": epochs, "batch": batch, "lr": lr, "seed": seed, "names": list(prompts.names)}
        settings["shapes"] = [list(token.shape) for token in free]
        settings["checksum of the start"] = [zlib.crc32(token.detach().cpu().numpy().tobytes()) for token in free]
        fitted = Fitted(prompts, [], [], [], 0)
        if checkpoint is not None and Path(checkpoint).exists():
            fitted = _resume(Path(checkpoint), settings, fitted, free, own)
        for epoch in _bar(len(fitted.losses), epochs, progress):
            if patience is not None and len(fitted.validation) - fitted.epoch >= patience:
                break
            for group in own.param_groups:
                group["lr"] = coop_rate(epoch, epochs, lr)
            loss, accuracy = _epoch(model, learned, batches(epoch), own)
            if not math.isfinite(loss):
                raise FloatingPointError(
                    f"fit_prompt: the loss of epoch {epoch + 1} is not finite; lower lr (it is {lr}), or look at the features"
                )
            measured = fitted.validation + ([] if held_out is None else [_accuracy(model, learned, *held_out)])
            best = patience is None or measured[-1] > max(measured[:-1], default=-1)
            fitted = Fitted(
                _frozen(learned) if best else fitted.prompts,
                [*fitted.losses, loss],
                [*fitted.accuracies, accuracy],
                measured,
                epoch + 1 if best else fitted.epoch,
            )
            if checkpoint is not None:
                _save(Path(checkpoint), settings, fitted, free, own)
    return fitted


def fit_conditional_prompt(
    model: ClipLike,
    prompts: ClassPrompts,
    images: Any,
    labels: Int[Tensor, " n"] | list[int] | None = None,
    *,
    epochs: int = 10,
    batch: int = 1,
    seed: int = 0,
    **options: Any,
) -> Fitted:
    """CoCoOp: learn the context and the network that shifts it by the image's feature, with CoCoOp's settings by default.

    Args:
        model: the model, of which nothing is changed.
        prompts: where learning starts; CoCoOp starts from the words "a photo of a". A new network of E, E/16 and D units is
            drawn from the seed, unless the prompts have one already.
        images, labels: as for ``fit_prompt``.
        epochs: CoCoOp's 10.
        batch: images a step, each with its own context; CoCoOp's 1 was for want of memory.
        seed: fixes the new network, and the order and the crops of every epoch.
        **options: the other keywords of ``fit_prompt``.

    >>> features = torch.nn.functional.normalize(torch.randn(8, 256), dim=-1)
    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> fitted = fit_conditional_prompt(model, prompts, features, [0, 1] * 4, batch=4, epochs=2)
    >>> fitted.prompts.bias_net.weight1.shape
    torch.Size([16, 256])
    """
    if prompts.bias_net is None:
        prompts = replace(prompts, bias_net=new_bias_net(_width(model, prompts), prompts.context, seed))
    return fit_prompt(model, prompts, images, labels, epochs=epochs, batch=batch, seed=seed, **options)


def coop_rate(epoch: int, epochs: int, lr: float) -> float:
    """CoOp's learning rate: one epoch of warm-up at a constant, then a cosine over as many epochs as there are in all."""
    return WARM_UP_LR if epoch == 0 else lr * (1 + math.cos(math.pi * (epoch - 1) / epochs)) / 2


def new_bias_net(width: int, context: Tensor, seed: int) -> BiasNet:
    """A network from features of a width to shifts of the context, as two ``nn.Linear`` start."""
    generator = torch.Generator().manual_seed(seed)
    hidden, embedding = max(1, width // 16), context.shape[-1]

    def uniform(*shape: int, fan_in: int) -> Tensor:
        return (2 * torch.rand(shape, generator=generator) - 1) / math.sqrt(fan_in)

    return BiasNet(
        uniform(hidden, width, fan_in=width),
        uniform(hidden, fan_in=width),
        uniform(embedding, hidden, fan_in=hidden),
        uniform(embedding, fan_in=hidden),
    ).to(context.device)


def _epoch(
    model: ClipLike, learned: ClassPrompts, batches: Batches, optimizer: torch.optim.Optimizer
) -> tuple[float, float]:
    """One pass: the mean loss, and the accuracy before each step."""
    losses, right, sizes = [], [], []
    for features, labels in batches:
        logits = _logits(model, learned, features)
        loss = F.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward(inputs=optimizer.param_groups[0]["params"])
        optimizer.step()
        losses.append(loss.detach() * len(labels))
        right.append((logits.argmax(dim=-1) == labels).sum())
        sizes.append(len(labels))
    if not sizes:
        raise ValueError("fit_prompt: the loader gave no batch; a generator can be read only once, a DataLoader again")
    return float(torch.stack(losses).sum()) / sum(sizes), float(torch.stack(right).sum()) / sum(sizes)


def _logits(model: ClipLike, prompts: ClassPrompts, features: Tensor) -> Tensor:
    """Logits ``(B, K)`` at the prompts' context; CoCoOp's is one for each image."""
    if prompts.bias_net is None:
        return class_logits(model, features, encode_prompts(model, prompts, prompts.context))
    text = encode_prompts(model, prompts, conditional_context(prompts, features))
    return class_logits(model, features[:, None], text)[:, 0]


@torch.no_grad()
def _accuracy(model: ClipLike, prompts: ClassPrompts, features: Tensor, labels: Tensor) -> float:
    said = [_logits(model, prompts, part).argmax(dim=-1) for part in torch.split(features, 32)]
    return float((torch.cat(said) == labels).float().mean())


def _leaves(prompts: ClassPrompts) -> tuple[ClassPrompts, list[Tensor]]:
    """Prompts whose context and network can be learned, and those as a list."""
    net = prompts.bias_net
    start = [prompts.context] if net is None else [prompts.context, *net.parts]
    free = [token.detach().clone().requires_grad_() for token in start]
    return replace(prompts, context=free[0], bias_net=None if net is None else BiasNet(*free[1:])), free


def _frozen(prompts: ClassPrompts) -> ClassPrompts:
    learned, free = _leaves(prompts)
    for token in free:
        token.requires_grad_(False)
    return learned


def _batches(
    model: ClipLike, prompts: ClassPrompts, images: Any, labels: Any, batch: int, seed: int
) -> Callable[[int], Batches]:
    """What gives the batches of an epoch: normalised features and labels."""
    if labels is None:
        return lambda _: (_pairs(model, prompts, _loaded(model, batch), labels) for batch, labels in images)

    def order(epoch: int) -> Iterable[Tensor]:
        generator = torch.Generator().manual_seed(seed + EPOCH_SEED * epoch)
        return torch.split(torch.randperm(len(truth), generator=generator), batch)

    if isinstance(images, Tensor) and images.ndim == 2:
        fixed, truth = _pairs(model, prompts, encode_images(model, images), labels)
        return lambda epoch: ((fixed[part], truth[part]) for part in order(epoch))
    images = listed(images)
    truth = _checked_labels(prompts, labels, len(images))

    def crops(epoch: int) -> Batches:
        options: Any = {"n_views": 2, "seed": seed + EPOCH_SEED * epoch, "device": truth.device}
        for part in order(epoch):
            views = [augment_views(images[i], model.image_spec, **options)[1] for i in part.tolist()]
            yield encode_views(model, torch.stack(views)), truth[part]

    return crops


def _pairs(model: ClipLike, prompts: ClassPrompts, features: Tensor, labels: Any) -> tuple[Tensor, Tensor]:
    if features.shape[-1] != (width := _width(model, prompts)):
        raise ValueError(f"fit_prompt: features have width {features.shape[-1]}, this model's have {width}")
    return features, _checked_labels(prompts, labels, len(features))


def _loaded(model: ClipLike, batch: Tensor) -> Tensor:
    """Features of what a loader gives: preprocessed images, or features."""
    if batch.ndim == 2:
        return encode_images(model, batch)
    return encode_views(model, batch.to(model.embed_tokens(model.tokenize([""])).device))


def _width(model: ClipLike, prompts: ClassPrompts) -> int:
    with torch.no_grad():
        return model.encode_embeddings(model.embed_tokens(prompts.ids[:1]), prompts.ids[:1]).shape[-1]


def _checked_labels(prompts: ClassPrompts, labels: Any, count: int) -> Tensor:
    if count == 0:
        raise ValueError("fit_prompt: there are no images to learn from")
    found = torch.as_tensor(labels, device=prompts.context.device)
    if found.ndim != 1 or len(found) != count or found.is_floating_point():
        raise ValueError(
            f"fit_prompt: for {count} images labels must be {count} ints, but got {found.dtype} of shape {tuple(found.shape)}"
        )
    if found.min() < 0 or found.max() >= len(prompts.names):
        raise ValueError(
            f"fit_prompt: there are {len(prompts.names)} classes, so labels are 0..{len(prompts.names) - 1}, but got "
            f"{int(found.min())}..{int(found.max())}"
        )
    return found.long()


def _check(prompts: ClassPrompts, epochs: int, batch: int, patience: int | None, validation: Any) -> None:
    if epochs < 1 or batch < 1:
        raise ValueError(f"fit_prompt: epochs and batch must be at least 1, but got {epochs} and {batch}")
    if patience is not None and (validation is None or patience < 1):
        raise ValueError("fit_prompt: patience must be at least 1 and needs validation=(images, labels) to watch")
    if 0 in prompts.context.shape:
        raise ValueError(
            "fit_prompt: there is no context to learn; class_prompts(model, names, context=gaussian_context(model, 16)) has one"
        )


def _save(
    file: Path, settings: dict[str, Any], fitted: Fitted, free: list[Tensor], optimizer: torch.optim.Optimizer
) -> None:
    """The prompts in CoOp's format, and beside them all that is needed to go on."""
    history = {"losses": fitted.losses, "accuracies": fitted.accuracies, "validation": fitted.validation}
    save_prompt(
        file,
        fitted.prompts,
        epoch=fitted.epoch,
        val_result=100 * (fitted.validation or fitted.accuracies)[fitted.epoch - 1],
        optimizer=optimizer.state_dict(),
        resume={"free": [token.detach() for token in free], "settings": settings, "history": history},
    )


def _resume(
    file: Path, settings: dict[str, Any], fitted: Fitted, free: list[Tensor], optimizer: torch.optim.Optimizer
) -> Fitted:
    saved = load_checkpoint(file)
    found = saved.get("resume", {}).get("settings", {}) if isinstance(saved, dict) else {}
    pairs = [(key, found.get(key), here) for key, here in settings.items()]
    differ = [f"{key} is {there!r} there and {here!r} here" for key, there, here in pairs if there != here]
    if differ:
        raise ValueError(
            f"fit_prompt: {str(file)!r} is of another run: {'; '.join(differ)}. Give another file, or these settings"
        )
    for token, value in zip(free, saved["resume"]["free"], strict=True):
        token.data.copy_(value)
    optimizer.load_state_dict(saved["optimizer"])
    best, device = load_prompt(file), free[0].device
    net = None if best.bias_net is None else best.bias_net.to(device)
    prompts = replace(fitted.prompts, context=best.context.to(device), bias_net=net)
    return Fitted(prompts, **saved["resume"]["history"], epoch=saved["epoch"])


def _bar(done: int, epochs: int, progress: bool | None) -> Iterable[int]:
    from tqdm import tqdm

    hidden = None if progress is None else not progress
    return tqdm(range(done, epochs), desc="epochs", initial=done, total=epochs, disable=hidden)

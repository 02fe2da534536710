"""MEMO (Zhang et al., NeurIPS 2022): marginal entropy minimization over the weights of any classifier (appendix A.3)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypedDict

import torch
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import Unpack

from tpt_lib.methods.tune_weights import FreeWeights, Rows, adapt, named_weights
from tpt_lib.models.protocol import ImageSpec
from tpt_lib.models.structural_copy import without_graph
from tpt_lib.prediction import Prediction
from tpt_lib.types import ImageLike, OptimizerFactory, ViewOptions, check_options
from tpt_lib.views.augment import augment_views

__all__ = ["memo_classify", "memo_predict"]

IMAGENET = ImageSpec((224, 224), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), "bilinear")


class MemoOptions(TypedDict, total=False):
    """The keywords of ``memo_predict``."""

    names: Sequence[str] | None
    fraction: float
    steps: int
    lr: float
    optimizer: OptimizerFactory
    prior: float | None
    chunk: int


class MemoClassifyOptions(ViewOptions, MemoOptions, total=False):
    """The keywords of ``memo_classify``: those of ``augment_views`` and of ``memo_predict``."""


def memo_classify(
    classifier: nn.Module,
    image: ImageLike,
    *,
    spec: ImageSpec = IMAGENET,
    **options: Unpack[MemoClassifyOptions],
) -> Prediction:
    """Adapt a classifier to one image and classify it. The classifier is not changed. Defaults are MEMO's for ResNets.

    Args:
        classifier: any module from pixels ``(N, 3, H, W)`` to logits ``(N, K)``, in eval mode.
        image: anything ``read_image`` takes.
        spec: the classifier's preprocessing; by default 224 pixels and ImageNet's mean and deviation, as torchvision's have
            (which first resize to 256 and then crop; ``memo_predict`` takes views from any source).
        **options: the keywords of ``augment_views`` (``n_views=64``, ``seed=0``, …; here the recipe is ``"augmix"`` by
            default) and of ``memo_predict`` (``names=``, ``fraction=``, ``steps=``, ``lr=``, ``prior=``, …).

    Returns:
        A prediction, whose ``zero_shot`` is that of the unadapted classifier.

    >>> classifier = torch.nn.Sequential(torch.nn.AvgPool2d(8), torch.nn.Flatten(), torch.nn.Linear(48, 3)).eval()
    >>> prediction = memo_classify(classifier, torch.rand(3, 40, 60), spec=tpt_lib.ImageSpec((32, 32)), n_views=8)
    >>> bool(prediction.tuned), prediction.zero_shot.tuned
    (True, None)
    """
    check_options("memo_classify", options, MemoClassifyOptions)
    views: Any = {"recipe": "augmix"} | {k: v for k, v in options.items() if k in ViewOptions.__annotations__}
    adapting: Any = {k: v for k, v in options.items() if k not in ViewOptions.__annotations__}
    device = _parameters("memo_classify", classifier)[0][1].device
    return memo_predict(classifier, augment_views(image, spec, device=device, **views), **adapting)


def memo_predict(
    classifier: nn.Module,
    views: Float[Tensor, "n 3 h w"],
    *,
    names: Sequence[str] | None = None,
    fraction: float = 1.0,
    steps: int = 1,
    lr: float = 2.5e-4,
    optimizer: OptimizerFactory = torch.optim.SGD,
    prior: float | None = 16.0,
    chunk: int = 8,
) -> Prediction:
    r"""Adapt all parameters of a classifier to the views of one image, then classify the plain image.

    Batch norms use :math:`(s\mu + \mu_B) / (s + 1)`, and the same of variances, with the running mean :math:`\mu`, the
    prior's strength :math:`s` and the mean :math:`\mu_B` of the batch: of all views while adapting, of the plain image at
    the end. As in MEMO, no gradient flows through them. All views pass together to measure them, without a graph.

    Args:
        classifier: any module from pixels ``(N, 3, H, W)`` to logits ``(N, K)``, in eval mode.
        views: preprocessed views ``(N, 3, H, W)``, row 0 the plain image, on the classifier's device.
        names: the class names (default None: ``"0"``, ``"1"``, …).
        fraction: share of the views in the loss, the most confident, chosen before the first step (default 1: all, which is
            MEMO; appendix A.3 has 0.7, 0.5, 0.3 and 0.1).
        steps: number of steps (default 1); with 0, batch norms still use the image's statistics.
        lr: learning rate (default 2.5e-4).
        optimizer: called as ``optimizer(parameters, lr=lr)`` (default SGD, without weight decay).
        prior: strength :math:`s` of the running statistics of batch norms (default 16: a weight of 16/17); None uses only them.
        chunk: number of views whose graph is held at the same time (default 8). Affects speed and memory, not results.

    Returns:
        A prediction, whose ``zero_shot`` is that of the unadapted classifier for the plain image.

    >>> classifier = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 3)).eval()
    >>> memo_predict(classifier, torch.rand(8, 3, 4, 4), fraction=0.5, names=["cat", "dog", "red panda"]).selected.shape
    torch.Size([4])
    """
    _check(classifier, views, steps, prior, chunk)
    with torch.inference_mode(False), torch.enable_grad():
        free = FreeWeights.of(_parameters("memo_predict", classifier))
        views = without_graph(views)
        part = Rows(classifier, partial(logits_of, "memo_predict"), views, chunk=chunk, prior=prior)
        before = part.plain({}, views[:1])[0]
        done = adapt(
            "memo_predict", [part], lambda _, logits: logits, free,
            fraction=fraction, steps=steps, lr=lr, optimizer=optimizer,
        )  # fmt: skip
        after = part.outputs(free.named, views[:1])[0]
    labels = tuple(map(str, range(len(before)))) if names is None else tuple(names)
    if len(labels) != len(before):
        raise ValueError(f"memo_predict: there are {len(labels)} names and {len(before)} logits; give a name for each")
    return done.prediction(labels, before, after)


def _parameters(who: str, module: nn.Module) -> list[tuple[str, Tensor]]:
    if not isinstance(module, nn.Module):
        raise TypeError(
            f"{who}: classifier must be a torch module from pixels to logits, but got {type(module).__name__}"
        )
    found = named_weights(module)
    if not found:
        raise ValueError(f"{who}: {type(module).__name__} has no parameters, so there is nothing to adapt")
    return found


def logits_of(caller: str, module: Any, pixels: Tensor) -> Tensor:
    """Return a classifier's logits for pixels, or refuse an output that is not logits."""
    out = module(pixels)
    if (
        not isinstance(out, Tensor)
        or not out.is_floating_point()
        or out.ndim != 2
        or len(out) != len(pixels)
        or 0 in out.shape
    ):
        what = f"{out.dtype} of shape {tuple(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
        raise ValueError(
            f"{caller}: the classifier must return float logits ({len(pixels)}, K) for {len(pixels)} views, but it "
            f"returned {what}; wrap it in a module whose forward returns the logits alone"
        )
    return out.float()


def check_eval_mode(caller: str, classifier: nn.Module) -> None:
    """Refuse a classifier in train mode."""
    if training := [name or "the module itself" for name, part in classifier.named_modules() if part.training]:
        raise ValueError(
            f"{caller}: the classifier must be in eval mode, but {training[0]} is in train mode; call classifier.eval()"
        )


def _check(classifier: nn.Module, views: Tensor, steps: int, prior: float | None, chunk: int) -> None:
    _parameters("memo_predict", classifier)
    check_eval_mode("memo_predict", classifier)
    if not views.is_floating_point() or views.ndim != 4 or len(views) == 0:
        raise ValueError(
            "memo_predict: views must be normalized floats of shape (N, 3, H, W), one or more, but got "
            f"{views.dtype} of shape {tuple(views.shape)}; augment_views makes them from an image"
        )
    if steps < 0 or chunk < 1 or (prior is not None and prior < 0):
        raise ValueError(
            f"memo_predict: steps must be 0 or more, chunk at least 1 and prior 0 or more, but got {steps}, {chunk} and {prior}"
        )

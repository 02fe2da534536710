"""MEMO (Zhang et al., 2022): marginal entropy minimisation over the weights of any torch classifier (appendix A.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tpt_lib.methods.tune_weights import Rows, adapt, free_copies, named_weights
from tpt_lib.models.protocol import ImageSpec
from tpt_lib.prediction import Prediction
from tpt_lib.views.augment import Recipe, augment_views

__all__ = ["memo_adapt", "memo_predict"]

IMAGENET = ImageSpec((224, 224), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), "bilinear")


def memo_adapt(
    classifier: nn.Module,
    image: Any,
    *,
    names: Sequence[str] | None = None,
    spec: ImageSpec = IMAGENET,
    n_views: int = 64,
    recipe: Recipe = "augmix",
    seed: int | torch.Generator = 0,
    **adapting: Any,
) -> Prediction:
    """Adapt a classifier to one image and classify it; the classifier stays as it is. Defaults are MEMO's for ResNets.

    Args:
        classifier: any module from pixels ``(N, 3, H, W)`` to logits ``(N, K)``, in eval mode.
        image: anything ``read_image`` takes.
        names: of the classes; by default ``"0"``, ``"1"``, ….
        spec: the classifier's preprocessing; by default 224 pixels and ImageNet's mean and deviation, as torchvision's have
            (which first resize to 256 and then crop: ``memo_predict`` takes views of any make).
        n_views: how many views, the plain image among them.
        recipe: how the others are made, as for ``augment_views``.
        seed: fixes the views.
        **adapting: goes to ``memo_predict`` (``fraction=``, ``steps=``, ``lr=``, ``prior=``, …).

    >>> classifier = torch.nn.Sequential(torch.nn.AvgPool2d(8), torch.nn.Flatten(), torch.nn.Linear(48, 3)).eval()
    >>> prediction = memo_adapt(classifier, torch.rand(3, 40, 60), spec=tpt_lib.ImageSpec((32, 32)), n_views=8)
    >>> prediction.tuned, prediction.zero_shot.tuned
    (True, False)
    """
    device = _parameters("memo_adapt", classifier)[0][1].device
    views = augment_views(image, spec, n_views=n_views, recipe=recipe, seed=seed, device=device)
    return memo_predict(classifier, views, names=names, **adapting)


def memo_predict(
    classifier: nn.Module,
    views: Float[Tensor, "n 3 h w"],
    *,
    names: Sequence[str] | None = None,
    fraction: float = 1.0,
    steps: int = 1,
    lr: float = 2.5e-4,
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
    prior: float | None = 16.0,
    chunk: int = 8,
) -> Prediction:
    r"""The same from views: steps on the marginal entropy of the views, in all parameters; then the plain image.

    Batch norms use :math:`(s\mu + \mu_B) / (s + 1)`, and the same of variances, with the running mean :math:`\mu`, the
    prior's strength :math:`s` and the mean :math:`\mu_B` of the batch: of all views while adapting, of the plain image in
    the end. As in MEMO no gradient goes through them. All views pass at once to measure them, without a graph.

    Args:
        classifier: any module from pixels ``(N, 3, H, W)`` to logits ``(N, K)``, in eval mode.
        views: preprocessed views, row 0 the plain image, on the classifier's device.
        names: of the classes; by default ``"0"``, ``"1"``, ….
        fraction: the loss is that of the most confident views (appendix A.3: 0.7, 0.5, 0.3, 0.1), chosen before the first
            step; 1 for all, which is MEMO.
        steps: how many; with 0, batch norms still see the image.
        lr: the learning rate.
        optimizer: called as ``optimizer(parameters, lr=lr)``; SGD without weight decay by default.
        prior: strength :math:`s` of the running statistics of batch norms, 16 being a weight of 16/17; None leaves them.
        chunk: how many views' graph is held at once; no result depends on it.

    Returns:
        A ``Prediction``, whose ``zero_shot`` is what the classifier itself says of the plain image.

    >>> classifier = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 3)).eval()
    >>> memo_predict(classifier, torch.rand(8, 3, 4, 4), fraction=0.5, names=["cat", "dog", "red panda"]).selected.shape
    torch.Size([4])
    """
    _check(classifier, views, steps, prior, chunk)
    with torch.inference_mode(False), torch.enable_grad():
        free = free_copies(_parameters("memo_predict", classifier))
        views = views.clone() if views.is_inference() else views.detach()
        part = Rows(classifier, _logits, views, chunk=chunk, prior=prior)
        before = part.plain({}, views[:1])[0]
        done = adapt([part], lambda _, logits: logits, free, fraction=fraction, steps=steps, lr=lr, optimizer=optimizer)
        after = part.outputs(free, views[:1])[0]
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


def _logits(module: Any, pixels: Tensor) -> Tensor:
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
            f"memo_predict: the classifier must return float logits ({len(pixels)}, K) for {len(pixels)} views, but it "
            f"returned {what}; wrap it in a module whose forward returns the logits alone"
        )
    return out.float()


def _check(classifier: nn.Module, views: Tensor, steps: int, prior: float | None, chunk: int) -> None:
    _parameters("memo_predict", classifier)
    if training := [name or "the module itself" for name, part in classifier.named_modules() if part.training]:
        raise ValueError(
            f"memo_predict: the classifier must be in eval mode, but {training[0]} is in train mode; call classifier.eval()"
        )
    if not views.is_floating_point() or views.ndim != 4 or len(views) == 0:
        raise ValueError(
            "memo_predict: views must be normalised floats of shape (N, 3, H, W), one or more, but got "
            f"{views.dtype} of shape {tuple(views.shape)}; augment_views makes them from an image"
        )
    if steps < 0 or chunk < 1 or (prior is not None and prior < 0):
        raise ValueError(
            f"memo_predict: steps must be 0 or more, chunk at least 1 and prior 0 or more, but got {steps}, {chunk} and {prior}"
        )

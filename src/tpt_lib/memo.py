"""MEMO (Zhang et al., 2022): marginal entropy minimisation over the weights of any torch classifier (appendix A.3).

The caller's module is only read. All runs on a structural copy of it, through ``torch.func.functional_call`` with weights
of its own. Its memory does not grow with the graph of all views: outputs come first, without a graph; then the gradient of
the loss by the outputs; then that is pulled back a few rows at a time.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from tpt_lib.adapters.module import mirror
from tpt_lib.model import ImageSpec
from tpt_lib.objectives import marginal_entropy, select_confident
from tpt_lib.prediction import Prediction
from tpt_lib.views import Recipe, augment_views

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


@dataclass
class Adapted:
    """What ``adapt`` found: the views it used, the loss before the first step, and whether all was finite."""

    steps: int
    selected: Tensor | None = None
    loss: float | None = None
    applied: bool = True

    def prediction(self, names: tuple[str, ...], before: Tensor, after: Tensor) -> Prediction:
        return Prediction(
            names=names,
            logits=(after if self.applied else before).detach().float(),
            zero_shot=Prediction(names, before.detach().float()),
            tuned=self.steps > 0 and self.applied,
            loss_before=self.loss if self.applied else None,
            selected=self.selected,
        )


class Rows(nn.Module):
    """A function of a module that treats its rows one by one, but for batch norms; on a copy whose weights are exchanged."""

    def __init__(
        self,
        module: nn.Module,
        function: Callable[[Any, Tensor], Tensor],
        rows: Tensor,
        *,
        chunk: int,
        prior: float | None,
    ) -> None:
        super().__init__()
        self.module = mirror(module, {})
        for part in self.module.modules():  # some modules write to their buffers
            part._buffers = {name: None if buffer is None else buffer.clone() for name, buffer in part._buffers.items()}
        self.function, self.rows, self.chunk, self.prior = function, rows, chunk, prior
        self.norms = [] if prior is None else _norms(self.module)

    def forward(self, rows: Tensor) -> Tensor:
        return self.function(self.module, rows)

    def run(self, free: dict[str, Tensor], rows: Tensor) -> Tensor:
        own = dict(self.module.named_parameters(remove_duplicate=False))
        weights = {f"module.{name}": leaf.to(own[name].dtype) for name, leaf in free.items()}
        return functional_call(self, weights, (rows,))

    def plain(self, free: dict[str, Tensor], rows: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.cat([self.run(free, part) for part in rows.split(self.chunk)])

    def outputs(self, free: dict[str, Tensor], rows: Tensor) -> Tensor:
        """Without a graph; with batch norms to be mixed, all rows at once, and they keep the statistics of these rows."""
        if not self.norms:
            return self.plain(free, rows)
        seen: set[int] = set()
        handles = [
            norm.register_forward_pre_hook(_mixing(mean, var, self.prior, seen)) for norm, mean, var in self.norms
        ]
        try:
            with torch.no_grad():
                return self.run(free, rows)
        finally:
            for handle in handles:
                handle.remove()

    def add_gradients(self, free: dict[str, Tensor], leaves: list[Tensor], upstream: Tensor) -> None:
        """Adds to the gradients of the leaves what the gradient in the outputs makes; rows where it is 0 are left out."""
        at = upstream.flatten(1).any(dim=1).nonzero().squeeze(1)
        for part in at.split(self.chunk):
            found = torch.autograd.grad(
                self.run(free, self.rows[part.to(self.rows.device)]), leaves, upstream[part], allow_unused=True
            )
            for leaf, gradient in zip(leaves, found, strict=True):
                _add_gradient(leaf, gradient)


def adapt(
    parts: list[Rows],
    head: Callable[..., Tensor],
    free: dict[str, Tensor],
    *,
    fraction: float,
    steps: int,
    lr: float,
    optimizer: Callable[..., torch.optim.Optimizer],
) -> Adapted:
    """Steps on the marginal entropy of ``head(free, *outputs of the parts)``, in the free weights, which change in place."""
    done = Adapted(steps)
    leaves = list({id(leaf): leaf for leaf in free.values()}.values())
    steppers = optimizer(leaves, lr=lr)
    for step in range(steps):
        steppers.zero_grad()
        ends = [part.outputs(free, part.rows).requires_grad_() for part in parts]
        logits = head(free, *ends)
        if done.selected is None:
            done.selected = select_confident(logits.detach(), fraction=fraction)
        loss = marginal_entropy(logits[done.selected])
        gradients = torch.autograd.grad(loss, [*ends, *leaves], allow_unused=True)
        for leaf, gradient in zip(leaves, gradients[len(ends) :], strict=True):
            _add_gradient(leaf, gradient)
        for part, upstream in zip(parts, gradients, strict=False):
            part.add_gradients(free, leaves, upstream)
        done.loss = float(loss.detach()) if step == 0 else done.loss
        finite = [leaf.grad.isfinite().all() for leaf in leaves if leaf.grad is not None]
        done.applied = bool(loss.isfinite()) and all(finite)
        if not done.applied:
            warnings.warn("a loss or gradient was not finite; the weights are left as they were", stacklevel=3)
            return done
        steppers.step()
    return done


def free_copies(parameters: list[tuple[str, Tensor]]) -> dict[str, Tensor]:
    """A float32 leaf for each parameter, by name; parameters that are one under two names stay one."""
    leaves: dict[int, Tensor] = {}
    for _, weight in parameters:
        if id(weight) not in leaves:
            leaves[id(weight)] = weight.detach().float().clone().requires_grad_()
    return {name: leaves[id(weight)] for name, weight in parameters}


def named_weights(module: nn.Module) -> list[tuple[str, Tensor]]:
    """The floating-point parameters by all their names in a structural copy, which looks through ``torch.compile``."""
    pairs = module.named_parameters(remove_duplicate=False)
    return [(name.replace("_orig_mod.", ""), weight) for name, weight in pairs if weight.is_floating_point()]


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


def _norms(module: nn.Module) -> list[tuple[nn.Module, Tensor, Tensor]]:
    """The batch norms with their running means and variances."""
    norms: Any = [part for part in module.modules() if isinstance(part, _BatchNorm)]
    if any(norm.running_mean is None for norm in norms):
        raise ValueError(
            "memo_predict: a batch norm of the classifier has no running statistics (track_running_stats=False), so there "
            "is nothing to mix the batch's with; pass prior=None and a chunk of as many views as there are"
        )
    return [(norm, norm.running_mean, norm.running_var) for norm in norms]


def _mixing(mean: Tensor, var: Tensor, prior: float | None, seen: set[int]) -> Callable[[Any, Any], None]:
    assert prior is not None

    def mixed(running: Tensor, batch: Tensor) -> Tensor:
        return ((prior * running.float() + batch) / (prior + 1)).to(running.dtype)

    def hook(norm: Any, inputs: tuple[Tensor, ...]) -> None:
        if id(norm) in seen:
            raise ValueError(
                "memo_predict: a batch norm of the classifier is used twice in one pass, and can keep the statistics of "
                "one only; pass prior=None"
            )
        seen.add(id(norm))
        x = inputs[0].float()
        if x.numel() > x.shape[1]:  # of one value there is no variance
            batch_var, batch_mean = torch.var_mean(x, dim=[d for d in range(x.ndim) if d != 1])
            norm.running_mean, norm.running_var = mixed(mean, batch_mean), mixed(var, batch_var)
        else:
            norm.running_mean, norm.running_var = mean, var

    return hook


def _add_gradient(leaf: Tensor, gradient: Tensor | None) -> None:
    if gradient is not None:
        leaf.grad = (
            gradient.clone() if leaf.grad is None else leaf.grad.add_(gradient)
        )  # two gradients may be one memory


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

"""The equations of section 3.2: entropy of a prediction, of the averaged prediction, and which views to trust.

Then the objectives and the selection of later methods, for ``tune_prompt(objective=…, select=…)``.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from tpt_lib.types import kind_of

__all__ = [
    "entropy",
    "marginal_entropy",
    "mean_entropy",
    "select_confident",
    "select_similar",
    "weighted_entropy",
]


def entropy(logits: Float[Tensor, "*b k"]) -> Float[Tensor, "*b"]:
    r"""Return the entropy of each prediction, :math:`\mathbf H(p) = -\sum_{i=1}^K p_i \log p_i`, with the softmax :math:`p`.

    Natural logarithm, float32, :math:`0 \log 0 = 0`.

    Args:
        logits: ``(…, K)``; ``-inf`` is a class of probability 0.

    Returns:
        The entropies ``(…)`` in float32.

    >>> entropy(torch.tensor([[0.0, 0.0], [0.0, -torch.inf]]))
    tensor([0.6931, 0.0000])
    """
    return _entropy(_log_softmax(logits))


def marginal_entropy(logits: Float[Tensor, "*b n k"]) -> Float[Tensor, "*b"]:
    r"""Return the entropy of the averaged prediction (equation 4), the objective that TPT minimizes.

    .. math:: \mathbf H(\tilde p), \quad \tilde p = \frac 1N \sum_{n=1}^N \mathrm{softmax}(\mathrm{logits}_n)

    Args:
        logits: logits of the selected views ``(…, N, K)``.

    Returns:
        The entropy ``(…)`` in float32; a scalar for the views of one image.

    >>> marginal_entropy(torch.tensor([[9.0, -torch.inf], [-torch.inf, 9.0]]))  # two views that contradict each other
    tensor(0.6931)
    """
    _check(logits, "marginal_entropy", 2)
    return _entropy(log_marginal(logits))


def marginal_entropy_gradient(logits: Float[Tensor, "*b n k"]) -> Float[Tensor, "*b n k"]:
    r"""Return the gradient of ``marginal_entropy`` in the logits.

    .. math:: p_{nk} (d_k - \sum_j p_{nj} d_j), \quad d = -\tfrac 1N \log \tilde p
    """
    probs = _log_softmax(logits).exp()
    surprise = -log_marginal(logits)[..., None, :] / logits.shape[-2]
    return probs * (surprise - (probs * surprise).sum(dim=-1, keepdim=True))


def log_marginal(logits: Float[Tensor, "*b n k"]) -> Float[Tensor, "*b k"]:
    r"""Return the logarithm of the averaged prediction, :math:`\log \frac 1N \sum_n \mathrm{softmax}(\mathrm{logits}_n)`."""
    return _log_softmax(logits).logsumexp(dim=-2) - math.log(logits.shape[-2])


def select_confident(logits: Float[Tensor, "*b n k"], *, fraction: float = 0.1) -> Int[Tensor, "*b m"]:
    r"""Return the indices of the most confident views: the :math:`\max(1, \lfloor\rho N\rfloor)` of lowest entropy.

    Args:
        logits: logits of the views ``(…, N, K)``.
        fraction: the cutoff :math:`\rho` (default 0.1, which keeps 6 of 64 views).

    Convention: ties go to the smaller index. The paper's percentile mask would keep 7 of 64; its released code keeps 6.

    Returns:
        Indices ``(…, M)``, the most confident view first.

    >>> select_confident(torch.tensor([[0.0, 1.0], [0.0, 9.0], [0.0, 5.0]]), fraction=0.7)
    tensor([1, 2])
    """
    _check(logits, "select_confident", 2)
    if not 0 < fraction <= 1:
        raise ValueError(f"select_confident: fraction must be above 0 and at most 1, but got {fraction}")
    kept = max(1, int(fraction * logits.shape[-2]))
    return entropy(logits).sort(stable=True).indices[..., :kept]


def mean_entropy(logits: Float[Tensor, "*b n k"]) -> Float[Tensor, "*b"]:
    r"""Return the mean of the views' entropies, :math:`\frac 1N \sum_n \mathbf H(p_n)`, the objective of R-TPT.

    Args:
        logits: logits of the selected views ``(…, N, K)``.

    Returns:
        The mean ``(…)`` in float32; a scalar for the views of one image.

    >>> mean_entropy(torch.tensor([[9.0, -torch.inf], [-torch.inf, 9.0]]))  # each view is sure
    tensor(0.)
    """
    _check(logits, "mean_entropy", 2)
    return entropy(logits).mean(dim=-1)


def weighted_entropy(logits: Float[Tensor, "*b n k"], *, margin: float = 0.4) -> Float[Tensor, "*b"]:
    r"""Return a weighted mean of the views' entropies, in which confident views weigh more (TTL, Imam et al., 2024).

    .. math:: \frac 1N \sum_n e^{m - \mathbf H(p_n)}\, \mathbf H(p_n), \quad \text{no gradient through the weights}

    TTL uses it on all views: ``select=lambda logits: torch.arange(len(logits))``.

    Args:
        logits: logits of the views ``(…, N, K)``.
        margin: entropy :math:`m` of a view with weight 1 (default 0.4).

    Returns:
        The weighted mean ``(…)`` in float32; a scalar for the views of one image.

    >>> weighted_entropy(torch.zeros(3, 2), margin=0.0)  # log 2 / 2
    tensor(0.3466)
    """
    _check(logits, "weighted_entropy", 2)
    found = entropy(logits)
    return ((margin - found.detach()).exp() * found).mean(dim=-1)


def select_similar(
    logits: Float[Tensor, "*b n k"], *, similar: float = 0.8, fraction: float = 0.3
) -> Int[Tensor, "*b m"]:
    r"""Return the indices of the most confident of the views that resemble the plain image (DiffTPT, Feng et al., ICCV 2023).

    View 0 is a candidate, and so are the :math:`\lfloor 0.8 (N - 1) \rfloor` other views whose logits have the largest cosine
    to those of view 0. ``select_confident`` picks the 30% of lowest entropy among the candidates.

    Convention: cosines are of logits, as in the released code. The paper describes cosines of features.

    Args:
        logits: logits of the views ``(…, N, K)``, row 0 the plain image.
        similar: share of the other views to keep by cosine (default 0.8).
        fraction: share of the candidates to keep by entropy (default 0.3).

    Returns:
        Indices ``(…, M)``, the most confident view first.

    >>> select_similar(torch.tensor([[5.0, 0.0], [0.0, 9.0], [7.0, 0.0]]), similar=0.5, fraction=0.5)
    tensor([2])
    """
    _check(logits, "select_similar", 2)
    if not 0 <= similar <= 1:
        raise ValueError(f"select_similar: similar must be from 0 to 1, but got {similar}")
    logits = logits.float()
    cosines = F.cosine_similarity(logits[..., 1:, :], logits[..., :1, :], dim=-1)
    nearest = cosines.sort(descending=True, stable=True).indices[..., : int(similar * cosines.shape[-1])]
    near = F.pad(1 + nearest, (1, 0))
    chosen = select_confident(logits.take_along_dim(near[..., None], dim=-2), fraction=fraction)
    return near.take_along_dim(chosen, dim=-1)


def _entropy(log_p: Tensor) -> Tensor:
    return (log_p.exp() * -log_p).sum(dim=-1)


def _log_softmax(logits: Tensor) -> Tensor:
    """Return the log-softmax clamped to finite values, so that a class of probability 0 gives no NaN, here or in a gradient."""
    _check(logits, "entropy", 1)
    return logits.float().log_softmax(dim=-1).clamp(min=torch.finfo(torch.float32).min)


def _check(logits: Tensor, name: str, dims: int) -> None:
    if (
        not isinstance(logits, Tensor)
        or not logits.is_floating_point()
        or logits.ndim < dims
        or 0 in logits.shape[-dims:]
    ):
        raise ValueError(
            f"{name}: logits must be floats of shape {'(…, N, K) with N and K' if dims == 2 else '(…, K) with K'} at least 1, "
            f"but got {kind_of(logits)}"
        )

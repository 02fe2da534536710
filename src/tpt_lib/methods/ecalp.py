"""ECALP (Li et al., ICLR 2025): labels propagate over a graph of the classes and the images seen so far."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tpt_lib.logits import unchecked_logits
from tpt_lib.methods.base import OnlineMethod, method
from tpt_lib.methods.cache import feature_width
from tpt_lib.methods.online import begin, finish
from tpt_lib.models.protocol import ClipLike
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.class_prompts import ClassPrompts

__all__ = ["EcalpState", "ecalp"]


@dataclass(frozen=True, eq=False)
class EcalpState:
    """The images of the graph, oldest first: features ``(C, E)``, the class each carries ``(C,)`` and how much of it ``(C,)``,
    and how many there are."""

    features: Float[Tensor, "c e"]
    labels: Int[Tensor, " c"]
    scores: Float[Tensor, " c"]
    count: Int[Tensor, ""]


@dataclass(frozen=True)
class EcalpSettings:
    """The keywords of ``ecalp`` without its capacity."""

    images: int
    texts: int
    power: int
    rounds: int
    decay: float


@method(
    name="ecalp", title="ECALP", paper="Li et al., ICLR 2025", published="ECALP", probabilities=False, online=True
)  # fmt: skip
def ecalp(
    *, capacity: int = 1000, images: int = 8, texts: int = 3, power: int = 10, rounds: int = 3, decay: float = 0.2
) -> OnlineMethod[EcalpState]:
    r"""Return ECALP: classes of past images and of the prompts, propagated to this image.

    With the variance :math:`\mathbf u` of the text features over classes, an image and a later one have the similarity

    .. math:: s_{ab} = \mathrm{normalize}(\mathbf u \odot \mathbf v_a)^\top \mathbf v_b, \quad a \leq b

    Each image is linked to its 8 nearest images (itself included) with weights :math:`s^{10}`, and to its 3 nearest classes
    with weights :math:`(\mathbf t^\top \mathbf v)^{10}`. The image to predict is in the graph twice; the second is read.

    .. math::
        \tilde W = D^{-1/2} (W + W^\top) D^{-1/2}, \quad Y_{\mathrm{images}} \leftarrow \tilde W Y \;\; (3 \times)

    An image carries the largest entry of its row to the next step, divided by 5.

    Convention: the authors keep all images, so their graph grows. Here the oldest is dropped when ``capacity`` is reached; a
    step costs :math:`O(C^2)` in time and memory, whatever the length of the stream.

    Args:
        capacity: number of images in the graph (default 1000). Results equal the authors' rule until it is reached.
        images: number of images that each image is linked to (default 8).
        texts: number of classes that each image is linked to (default 3).
        power: exponent of similarities (default 10).
        rounds: number of propagations per image (default 3).
        decay: factor of what an image carries to the next step (default 0.2).

    Returns:
        The method. Its logits are logarithms of scores that sum to 1, not probabilities.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> found = ecalp(capacity=4)
    >>> state, prediction = found.step(model, prompts, found.init(model, prompts), torch.eye(256)[:1])
    >>> state.count, state.features.shape
    (tensor(1), torch.Size([4, 256]))
    """
    if min(capacity, images, texts, power, rounds) < 1:
        raise ValueError(
            "ecalp: capacity, images, texts, power and rounds must be at least 1, but got "
            f"{capacity}, {images}, {texts}, {power} and {rounds}"
        )
    settings = EcalpSettings(images, texts, power, rounds, decay)
    return OnlineMethod(partial(_init, capacity), partial(_step, settings))


def _init(capacity: int, model: ClipLike, prompts: ClassPrompts) -> EcalpState:
    places = torch.zeros(capacity, dtype=torch.long, device=prompts.context.device)
    features = torch.zeros(capacity, feature_width(model, prompts), device=places.device)
    return EcalpState(features, places, features.new_zeros(capacity), torch.zeros_like(places[0]))


def _step(
    settings: EcalpSettings, model: ClipLike, prompts: ClassPrompts, state: EcalpState, features: Tensor
) -> tuple[EcalpState, Prediction]:
    text, views = begin("ecalp", model, prompts, features)
    state = _append(state, views[0])
    between, to_texts = _graph(settings, state, views[:1], text)
    carried = F.one_hot(state.labels, len(text)) * state.scores[:, None]
    rows = torch.cat([carried, torch.zeros_like(carried[:1])])
    for _ in range(settings.rounds):
        rows = between @ rows + to_texts
    scores, labels = rows[:-1].max(dim=1)
    found = rows[-1].clamp(min=torch.finfo(torch.float32).tiny)
    state = EcalpState(state.features, labels, settings.decay * scores, state.count)
    before = unchecked_logits(model, views[:1], text)[0]
    return state, finish("ecalp", prompts, features, (found / found.sum()).log(), before)


def _graph(
    settings: EcalpSettings, state: EcalpState, image: Float[Tensor, "1 e"], text: Float[Tensor, "k e"]
) -> tuple[Float[Tensor, "n n"], Float[Tensor, "n k"]]:
    """Return the normalized weights of images to images and to classes; the image to predict is also the last row."""
    seen = torch.cat([state.features, image])
    places = torch.arange(len(seen), device=seen.device)
    there = (places < state.count) | (places == len(state.features))
    to_images = _strongest(_similar(seen, text), there, settings.images, settings.power) * there[:, None]
    to_texts = _strongest(seen @ text.mT, None, settings.texts, settings.power) * there[:, None]
    between = to_images + to_images.mT
    degrees = between.sum(dim=1) + to_texts.sum(dim=1), to_texts.sum(dim=0)
    of_images, of_texts = (1 / (degree.sqrt() + 1e-6) for degree in degrees)
    return of_images[:, None] * between * of_images, of_images[:, None] * to_texts * of_texts


def _append(state: EcalpState, feature: Tensor) -> EcalpState:
    """Return the images with one more, which carries nothing yet. If the graph is full, the oldest is dropped."""
    capacity = len(state.labels)
    full = state.count == capacity
    at = state.count.clamp(max=capacity - 1)[None]

    def put(values: Tensor, new: Tensor) -> Tensor:
        return torch.where(full, values.roll(-1, 0), values).index_copy(0, at, new[None])

    return EcalpState(
        put(state.features, feature),
        put(state.labels, torch.zeros_like(state.labels[0])),
        put(state.scores, torch.zeros_like(state.scores[0])),
        (state.count + 1).clamp(max=capacity),
    )


def _similar(images: Float[Tensor, "n e"], text: Float[Tensor, "k e"]) -> Float[Tensor, "n n"]:
    """Return the similarity of each pair of images, in which the earlier one is weighted by the variance over classes."""
    later = (F.normalize(text.var(dim=0, correction=0) * images, dim=-1) @ images.mT).triu()
    return later + later.triu(1).mT


def _strongest(
    similar: Float[Tensor, "n m"], there: Bool[Tensor, " m"] | None, count: int, power: int
) -> Float[Tensor, "n m"]:
    """Return the largest entries of each row to a power, 0 elsewhere. Only columns that are ``there`` count."""
    candidates = similar if there is None else similar.masked_fill(~there, -torch.inf)
    near = candidates.sort(dim=1, descending=True, stable=True).indices[:, :count]
    kept = torch.zeros_like(similar).scatter(1, near, 1) * candidates.isfinite()
    return kept * similar**power

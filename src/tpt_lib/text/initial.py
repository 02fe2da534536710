"""Text features at the prompts' own context, where every image starts. They are computed once and cached with the prompts."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from tpt_lib.models.identity import Fingerprint, text_fingerprint
from tpt_lib.models.protocol import ClipLike
from tpt_lib.prompts.class_prompts import ClassPrompts, conditional_context
from tpt_lib.text.encode import TextEncoder, check_model, encode_prompts
from tpt_lib.text.half_precision import autocast_dtype

T = TypeVar("T")


@dataclass(frozen=True)
class InitialText:
    """Text features at the initial context and the graph that leads to them, shared by all images."""

    features: Float[Tensor, "k e"]
    leaves: list[Tensor] = field(repr=False)
    graph: Tensor = field(repr=False)  # the features with their graph, which a backward() of the caller must not reach
    together: bool = False  # whether the gradients of a batch of images are pulled back in one backward pass

    def gradients(self, upstream: Float[Tensor, "k e"]) -> list[Tensor]:
        """Return the gradients in the context, and in free name tokens if there are any, from the gradient in the features."""
        with torch.inference_mode(False):
            return list(torch.autograd.grad(self.graph, self.leaves, upstream, retain_graph=True))

    def gradients_of_each(self, upstream: Float[Tensor, "b k e"]) -> list[Tensor]:
        """Return ``gradients`` for several images, each tensor with the batch dimension in front."""
        if self.together and len(upstream) > 1:
            return list(torch.func.vmap(lambda one: tuple(self.gradients(one)))(upstream))
        return [torch.stack(found) for found in zip(*map(self.gradients, upstream), strict=True)]


def initial_text(encoder: TextEncoder) -> InitialText:
    """Return the text features at the prompts' own context with their graph, cached while the weights stay the same.

    Every image starts here, so a step of TPT costs one backward pass through this graph and one forward pass.
    """
    prompts = encoder.prompts

    def build() -> InitialText:
        free = [prompts.context] if prompts.name_tokens is None else [prompts.context, prompts.name_tokens]
        leaves = [token.clone().requires_grad_() for token in free]
        together = encoder.layout == "padded" and not isinstance(encoder.tower, str) and len(encoder.plan(1).parts) == 1
        graph = replace(encoder, fused=not together)(leaves[0], leaves[1] if len(leaves) > 1 else None)
        return InitialText(graph.detach(), leaves, graph, together)

    key = ("graph", isinstance(encoder.tower, str), encoder.chunk, encoder.layout)
    return _keep(prompts, key, encoder.fingerprint, build)


def start_features(
    model: ClipLike, prompts: ClassPrompts, image_features: Float[Tensor, "*b n e"]
) -> Float[Tensor, "*b k e"]:
    """Return the text features that an image starts from, without gradient. A CoCoOp context is computed from row 0.

    Args:
        model: the model the prompts were made for.
        prompts: what ``class_prompts`` returned.
        image_features: normalized features of the views ``(N, E)``, or of several images ``(B, N, E)``.

    Returns:
        Text features ``(K, E)``, or ``(B, K, E)``.
    """
    check_model(model, prompts)
    batch = image_features.shape[:-2]
    if prompts.meta_net is None:
        text = keep_features(model, prompts)
        return text.expand(*batch, *text.shape)
    with torch.inference_mode(False), torch.no_grad():
        contexts = conditional_context(prompts, image_features[..., 0, :]).reshape(-1, *prompts.context.shape)
        text = torch.stack([encode_prompts(model, prompts, context) for context in contexts])
    return text.reshape(*batch, *text.shape[1:])


def keep_features(
    model: ClipLike, prompts: ClassPrompts, known: Float[Tensor, "k e"] | None = None
) -> Float[Tensor, "k e"]:
    """Return the text features of prompts, cached without a graph. ``known`` features replace cached ones."""
    if known is not None:
        prompts.cache.drop(("features", autocast_dtype(prompts.context)))
    build = torch.no_grad()(lambda: encode_prompts(model, prompts) if known is None else known)
    return keep(model, prompts, "features", build)


def keep(model: ClipLike, prompts: ClassPrompts, key: Hashable, build: Callable[[], T]) -> T:
    """Return what ``build`` computes, cached with the prompts under ``key`` while the text tower's weights stay the same."""
    return _keep(prompts, key, text_fingerprint(model), build)


def _keep(prompts: ClassPrompts, key: Hashable, fingerprint: Fingerprint | None, build: Callable[[], T]) -> T:
    with torch.inference_mode(False), torch.enable_grad():
        return prompts.cache.keep((key, autocast_dtype(prompts.context)), fingerprint, build)

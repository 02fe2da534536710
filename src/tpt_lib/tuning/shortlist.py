"""Tune few of many classes: those that are plausible in the views of an image. All others keep their initial features."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from tpt_lib.prompts.class_prompts import ClassPrompts
from tpt_lib.text.encode import TOKENS_A_GRAPH, TextEncoder, open_encoder
from tpt_lib.tuning.checks import function_name, inner_function
from tpt_lib.types import Regularizer


@dataclass(frozen=True)
class Shortlist:
    """The classes of each image that are tuned, and an encoder of their prompts.

    Attributes:
        classes: their indices, in ascending order ``(B, S)``.
        encoders: one per image.
    """

    classes: Int[Tensor, "b s"]
    encoders: list[TextEncoder]

    @classmethod
    def of(cls, encoder: TextEncoder, classes: Tensor) -> Shortlist:
        """Return a shortlist of some classes of an encoder."""
        parts = [some_prompts(encoder.prompts, own) for own in classes.cpu()]
        return cls(classes, [open_encoder(encoder.model, part, layout=encoder.layout) for part in parts])

    def __call__(self, context: Tensor, name_tokens: Tensor | None) -> Float[Tensor, "b s e"]:
        """Encode the classes of each image with its own tokens, each with the images in front."""
        names = [None] * len(context) if name_tokens is None else list(name_tokens)
        calls = list(zip(self.encoders, context, names, strict=True))
        tokens = sum(int((one.prompts.lengths - one.prompts.prefix).sum()) for one in self.encoders)
        if tokens <= TOKENS_A_GRAPH or len(calls) == 1:
            return torch.stack([encoder(*own) for encoder, *own in calls])
        again: Any = {"use_reentrant": False, "preserve_rng_state": False}
        return torch.stack([checkpoint(encoder, *own, **again) for encoder, *own in calls])

    def take(self, values: Float[Tensor, "b k *rest"]) -> Float[Tensor, "b s *rest"]:
        """Return the values of the shortlist from those of all classes."""
        return values.gather(1, self._like(values))

    def put(self, values: Float[Tensor, "b k *rest"], own: Float[Tensor, "b s *rest"]) -> Float[Tensor, "b k *rest"]:
        """Return the values of all classes with those of the shortlist replaced."""
        return values.scatter(1, self._like(values), own)

    def _like(self, values: Tensor) -> Tensor:
        rest = values.shape[2:]
        return self.classes.reshape(*self.classes.shape, *[1] * len(rest)).expand(*self.classes.shape, *rest)


def some_prompts(prompts: ClassPrompts, classes: Int[Tensor, " s"]) -> ClassPrompts:
    """Return the prompts of some classes."""
    at = classes.to(prompts.context.device)
    return replace(
        prompts,
        names=tuple(prompts.names[i] for i in classes.tolist()),
        ids=prompts.ids[classes],
        roles=prompts.roles[classes],
        lengths=prompts.lengths[classes],
        context=prompts.context[at] if prompts.context.ndim == 3 else prompts.context,
        name_tokens=None if prompts.name_tokens is None else prompts.name_tokens[at],
    )


def check_shortlist(shortlist: int | None, classes: int, regularizer: Regularizer | None) -> None:
    """Refuse an invalid number of classes, and a regularizer that needs the features of all classes."""
    if shortlist is None:
        return
    if isinstance(shortlist, bool) or not isinstance(shortlist, int) or not 1 <= shortlist <= classes:
        raise ValueError(
            f"tune_prompt: shortlist must be an int from 1 to the number of classes, {classes}, or None for all of them, but "
            f"got {shortlist!r}"
        )
    if regularizer is not None and not getattr(inner_function(regularizer), "works_on_part", False):
        name = function_name(regularizer)
        raise ValueError(
            f"tune_prompt: the regularizer {name} is a function of the text features of all classes, but a shortlist tunes "
            f"only {shortlist} of them. Leave shortlist out; or, if {name} may be given the features of some classes, set "
            f"{name}.works_on_part = True"
        )

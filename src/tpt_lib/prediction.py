"""The prediction of a method for an image or a batch of images."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from tpt_lib.objectives import entropy

__all__ = ["Prediction"]

SHOWN = 8  # images of a batch that a notebook shows


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """Class logits of one image ``(K,)`` or of a batch ``(B, K)``, and how they were computed.

    Every tensor has the batch dimension in front. ``len``, indexing and iteration work on a batch and give one prediction
    per image.

    Attributes:
        names: the class names.
        logits: logits of the plain image ``(…, K)``, float32.
        before: the prediction without the method; None for zero-shot itself. ``zero_shot`` returns it.
        tuned: whether tuning was applied ``(…)``. It is False where a loss or gradient was not finite, and then the prediction
            equals ``zero_shot``. None for methods that do not tune.
        loss_before: the objective on the selected views before tuning ``(…)``; not finite where tuning was not applied.
        loss_after: the same after tuning.
        selected: indices of the views that were used ``(…, M)``, padded with -1 if an image has fewer than others of its
            batch. Padded indices are on the CPU.
        context: the tuned context ``(…, *prompts.context.shape)``.

    >>> one = Prediction(("cat", "dog"), torch.tensor([2.0, 0.0]))
    >>> one.label, one.index, one
    ('cat', 0, <Prediction 'cat' 0.88, 'dog' 0.12>)
    >>> batch = Prediction(("cat", "dog"), torch.tensor([[2.0, 0.0], [0.0, 1.0]]))
    >>> batch.labels, [each.label for each in batch]
    (['cat', 'dog'], ['cat', 'dog'])
    """

    names: tuple[str, ...]
    logits: Float[Tensor, "*b k"]
    before: Prediction | None = None
    tuned: Bool[Tensor, "*b"] | None = None
    loss_before: Float[Tensor, "*b"] | None = None
    loss_after: Float[Tensor, "*b"] | None = None
    selected: Int[Tensor, "*b kept"] | None = None
    context: Float[Tensor, "*bk l d"] | None = None

    def __post_init__(self) -> None:
        if self.logits.ndim not in (1, 2) or self.logits.shape[-1] != len(self.names):
            raise ValueError(
                f"Prediction: there are {len(self.names)} names, so logits must have shape ({len(self.names)},), or "
                f"(B, {len(self.names)}) for a batch, but got {tuple(self.logits.shape)}"
            )
        check_finite("Prediction", self.logits)

    @classmethod
    def stack(cls, predictions: Sequence[Prediction]) -> Prediction:
        """Stack predictions of single images into a batch.

        Args:
            predictions: one or more predictions, all from the same method and with the same class names.

        Returns:
            A prediction with a leading dimension for the images.

        >>> one = Prediction(("cat", "dog"), torch.tensor([2.0, 0.0]))
        >>> len(Prediction.stack([one, one, one]))
        3
        """
        if len({one.names for one in predictions}) != 1:
            raise ValueError(
                "Prediction.stack: predictions must be one or more with the same class names, but got "
                f"{len(predictions)} with {len({one.names for one in predictions})} different lists of names"
            )
        values: dict[str, Any] = {}
        for name in (field.name for field in fields(cls) if field.name != "names"):
            each: list[Any] = [getattr(one, name) for one in predictions]
            if any(value is None for value in each):
                values[name] = None
            elif name == "before":
                values[name] = cls.stack(each)
            elif name == "selected":
                values[name] = stack_indices(each)
            else:
                values[name] = torch.stack(each)
        return _of_checked(predictions[0].names, **values)

    def __len__(self) -> int:
        self._of_batch("len()")
        return len(self.logits)

    def __getitem__(self, index: int | slice) -> Prediction:
        self._of_batch("indexing")
        parts: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        values: dict[str, Any] = {
            name: None if part is None else part[index] for name, part in parts.items() if name != "names"
        }
        if values["logits"].ndim == 1 and values["selected"] is not None and values["selected"].device.type == "cpu":
            values["selected"] = values["selected"][values["selected"] >= 0]
        return _of_checked(self.names, **values)

    def __bool__(self) -> bool:
        return True  # else ``prediction.zero_shot or prediction`` would ask for the length of one image

    def __iter__(self) -> Iterator[Prediction]:
        self._of_batch("iteration")
        return (self[i] for i in range(len(self)))

    @property
    def zero_shot(self) -> Prediction:
        """The prediction without the method; for zero-shot, this prediction itself."""
        return self if self.before is None else self.before

    @property
    def probs(self) -> Float[Tensor, "*b k"]:
        """Class probabilities ``(…, K)``."""
        return self.logits.softmax(dim=-1)

    @property
    def indices(self) -> Int[Tensor, "*b"]:
        """The likeliest class of each image ``(…)``."""
        return self.logits.argmax(dim=-1)

    @property
    def labels(self) -> list[str]:
        """The name of the likeliest class, for each image of a batch."""
        return [self.names[i] for i in self.indices.reshape(-1).tolist()]

    @property
    def index(self) -> int:
        """The likeliest class of one image."""
        self._of_one("index", "indices")
        return int(self.indices)

    @property
    def label(self) -> str:
        """The name of the likeliest class of one image."""
        self._of_one("label", "labels")
        return self.names[self.index]

    @property
    def entropy(self) -> Float[Tensor, "*b"]:
        """Entropy of each prediction ``(…)``, in nats."""
        return entropy(self.logits)

    def top(self, k: int = 5) -> list[tuple[str, float]]:
        """Return the ``k`` likeliest classes of one image with their probabilities, or all if there are fewer.

        Args:
            k: number of classes (default 5).

        Returns:
            Pairs of a class and its probability, the likeliest first.
        """
        self._of_one("top", "probs.topk")
        values, at = self.probs.topk(min(k, len(self.names)))
        return [(self.names[i], p) for i, p in zip(at.tolist(), values.tolist(), strict=True)]

    def to_dict(self) -> dict[str, Any]:
        """Return the prediction of one image as JSON types, without its context.

        Returns:
            A dict of the label, probabilities, losses and selected views; ``zero_shot`` is such a dict, or None.
        """
        self._of_one("to_dict", "[one.to_dict() for one in prediction]")
        return {
            "label": self.label,
            "index": self.index,
            "probs": self.probs.tolist(),
            "logits": self.logits.tolist(),
            "entropy": float(self.entropy),
            "tuned": None if self.tuned is None else bool(self.tuned),
            "loss_before": _finite(self.loss_before),
            "loss_after": _finite(self.loss_after),
            "selected": None if self.selected is None else self.selected.tolist(),
            "zero_shot": None if self.before is None else self.before.to_dict(),
        }

    def __repr__(self) -> str:
        if self.logits.ndim == 2:
            shown = ", ".join(map(repr, self.labels[:3])) + (", …" if len(self) > 3 else "")
            return f"<Prediction of {len(self)} images: {shown}>"
        top = ", ".join(f"{name!r} {p:.2f}" for name, p in self.top(3))
        if self.before is None:
            return f"<Prediction {top}>"
        if self.tuned is not None and not self.tuned:
            return f"<Prediction {top}; not tuned>"
        return f"<Prediction {top}; zero-shot {self.zero_shot.label!r} {self.zero_shot.probs.max():.2f}>"

    def _repr_html_(self) -> str:
        """Show bars of the likeliest classes before and after, as in the paper's appendix."""
        if self.logits.ndim == 2:
            return "".join(one._repr_html_() for one in self[:SHOWN])
        shown = dict.fromkeys([name for name, _ in self.top()] + [name for name, _ in self.zero_shot.top(3)])
        rows = []
        for name in shown:
            at = self.names.index(name)
            bars = [(self.probs[at].item(), "#2b6cb0")]
            if self.before is not None:
                bars.insert(0, (self.before.probs[at].item(), "#b0b7c3"))
            weight = "bold" if name == self.label else "normal"
            label = f'<td style="text-align:right;font-weight:{weight}">{html.escape(name)}</td>'
            rows.append(f'<tr>{label}<td style="text-align:left">{"".join(_bar(*bar) for bar in bars)}</td></tr>')
        legend = "gray: zero-shot, blue: this method" if self.before is not None else "zero-shot"
        return f'<table>{"".join(rows)}<caption style="caption-side:bottom">{legend}</caption></table>'

    def _of_one(self, what: str, instead: str) -> None:
        if self.logits.ndim == 2:
            raise TypeError(f"Prediction: {what} is for one image, and this is a batch of {len(self)}; use {instead}")

    def _of_batch(self, what: str) -> None:
        if self.logits.ndim == 1:
            raise TypeError(f"Prediction: {what} is for a batch, and this is one image; classify a list to get a batch")


def compared(names: tuple[str, ...], logits: Tensor, before: Tensor, **values: Any) -> Prediction:
    """Return a prediction together with the one without the method. Checks both logits in one synchronization."""
    if not torch.stack([before, logits]).isfinite().all():
        check_finite("Prediction", before)
        check_finite("Prediction", logits)
    return compared_unchecked(names, logits, before, **values)


def compared_unchecked(names: tuple[str, ...], logits: Tensor, before: Tensor, **values: Any) -> Prediction:
    """Do what ``compared`` does, for logits that are already checked."""
    return _of_checked(names, logits=logits, before=_of_checked(names, logits=before), **values)


def stack_indices(each: Sequence[Tensor]) -> Int[Tensor, "b m"]:
    """Stack the indices of several images. If their numbers differ, pad with -1 and return the result on the CPU."""
    if len({len(one) for one in each}) == 1:
        return torch.stack(list(each))
    return pad_sequence([one.cpu() for one in each], batch_first=True, padding_value=-1)


def _of_checked(names: tuple[str, ...], **values: Any) -> Prediction:
    """Return a prediction without checking its logits again, which would wait for an accelerator."""
    made = object.__new__(Prediction)
    vars(made).update({field.name: field.default for field in fields(Prediction)}, names=names, **values)
    return made


def check_finite(what: str, logits: Tensor) -> None:
    if not logits.isfinite().all():
        raise ValueError(
            f"{what}: {int((~logits.isfinite()).sum())} of {logits.numel()} logits are not finite; look for NaN or infinite "
            "weights in the model"
        )


def _finite(value: Tensor | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def _bar(p: float, color: str) -> str:
    return (
        f'<div style="display:flex;align-items:center;gap:6px"><div style="background:{color};height:9px;'
        f'width:{max(1, round(240 * p))}px"></div><small>{p:.3f}</small></div>'
    )

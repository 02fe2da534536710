"""What a method says of an image, in numbers, in a line and in a notebook."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Float
from torch import Tensor

from tpt_lib.objectives import entropy

__all__ = ["Prediction"]


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """The classes' logits for one image, and how they came about.

    Attributes:
        names: the class names.
        logits: those of the plain image ``(K,)``, float32.
        zero_shot: what the model said before tuning; None if this is that.
        tuned: whether tuning was applied; if a loss was not finite it was not, and this equals ``zero_shot``.
        loss_before: the objective (for TPT the marginal entropy) on the selected views, before tuning.
        loss_after: the same, after tuning.
        selected: indices of the views that were trusted.
        context: the tuned context.
    """

    names: tuple[str, ...]
    logits: Float[Tensor, " k"]
    zero_shot: Prediction | None = None
    tuned: bool = False
    loss_before: float | None = None
    loss_after: float | None = None
    selected: Tensor | None = field(default=None)
    context: Tensor | None = field(default=None)

    def __post_init__(self) -> None:
        check_finite("Prediction", self.logits)

    @property
    def probs(self) -> Float[Tensor, " k"]:
        return self.logits.softmax(dim=-1)

    @property
    def index(self) -> int:
        return int(self.logits.argmax())

    @property
    def label(self) -> str:
        return self.names[self.index]

    @property
    def entropy(self) -> float:
        """Entropy of the prediction for the plain image; ``zero_shot.entropy`` is that before tuning."""
        return float(entropy(self.logits))

    def top(self, k: int = 5) -> list[tuple[str, float]]:
        """The ``k`` likeliest classes with their probabilities, or all where there are fewer."""
        values, at = self.probs.topk(min(k, len(self.names)))
        return [(self.names[i], p) for i, p in zip(at.tolist(), values.tolist(), strict=True)]

    def to_dict(self) -> dict[str, Any]:
        """All of it but the context, in types that JSON has."""
        return {
            "label": self.label,
            "index": self.index,
            "probs": self.probs.tolist(),
            "logits": self.logits.tolist(),
            "entropy": self.entropy,
            "tuned": self.tuned,
            "loss_before": self.loss_before,
            "loss_after": self.loss_after,
            "selected": None if self.selected is None else self.selected.tolist(),
            "zero_shot": None if self.zero_shot is None else self.zero_shot.to_dict(),
        }

    def __repr__(self) -> str:
        top = ", ".join(f"{name!r} {p:.2f}" for name, p in self.top(3))
        if self.zero_shot is None:
            return f"<Prediction {top}>"
        before = f"{self.zero_shot.label!r} {self.zero_shot.probs.max():.2f}"
        return f"<Prediction {top}; before tuning {before}>" if self.tuned else f"<Prediction {top}; not tuned>"

    def _repr_html_(self) -> str:
        """Bars of the likeliest classes, before and after tuning, as in the paper's appendix."""
        before = self.zero_shot or self
        shown = dict.fromkeys([name for name, _ in self.top()] + [name for name, _ in before.top(3)])
        rows = []
        for name in shown:
            at = self.names.index(name)
            bars = [(self.probs[at].item(), "#2b6cb0")]
            if self.zero_shot is not None:
                bars.insert(0, (before.probs[at].item(), "#b0b7c3"))
            drawn = "".join(
                f'<div style="display:flex;align-items:center;gap:6px"><div style="background:{colour};height:9px;'
                f'width:{max(1, round(240 * p))}px"></div><small>{p:.3f}</small></div>'
                for p, colour in bars
            )
            weight = "bold" if name == self.label else "normal"
            label = f'<td style="text-align:right;font-weight:{weight}">{html.escape(name)}</td>'
            rows.append(f'<tr>{label}<td style="text-align:left">{drawn}</td></tr>')
        legend = "grey: before tuning, blue: after" if self.zero_shot is not None else "zero-shot"
        return f'<table>{"".join(rows)}<caption style="caption-side:bottom">{legend}</caption></table>'


def check_finite(what: str, logits: Tensor) -> None:
    if not logits.isfinite().all():
        raise ValueError(
            f"{what}: {int((~logits.isfinite()).sum())} of {logits.numel()} logits are not finite; look for NaN or infinite "
            "weights in the model"
        )

"""Run a method on one image: the prediction, the views before and after, the losses, the words of the context."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

import tpt_lib as tpt
from tpt_lib.app.choices import Choice, keywords_of
from tpt_lib.app.python_call import python_call
from tpt_lib.app.stoppable import Report, ignore
from tpt_lib.app.stored import Sample
from tpt_lib.app.words import NamedModel, nearest_words
from tpt_lib.features.encode import default_chunk
from tpt_lib.tiny.model import strange_words

ENCODED, TUNED = 0.6, 0.95  # shares of the work that are done then


@dataclass(frozen=True)
class Explained:
    """What the page shows about one image.

    Attributes:
        prediction: what the method says, next to zero-shot.
        views: the views ``(N, 3, H, W)``, normalized; None for a sample of a store.
        before: logits of the views before tuning ``(N, K)``.
        after: the same after tuning; None if the method does not tune a context.
        losses: the known losses, before each step and after the last, by the number of steps done.
        words: for each token of the tuned context the word it started from, and its nearest words with their distances.
        code: the Python call that gives the same prediction.
        notes: what the user should know about this result.
    """

    prediction: tpt.Prediction
    views: Float[Tensor, "n 3 h w"] | None
    before: Float[Tensor, "n k"]
    after: Float[Tensor, "n k"] | None
    losses: dict[int, float]
    words: list[tuple[str, list[tuple[str, float]]]]
    code: str
    notes: list[str]


@dataclass(frozen=True)
class Encoded:
    """Prompts, views (None for a sample of a store) and the features of the views, which all methods share."""

    prompts: tpt.ClassPrompts
    views: Float[Tensor, "n 3 h w"] | None
    features: Float[Tensor, "n e"]


def explain(named: NamedModel, choice: Choice, report: Report = ignore) -> Explained:
    """Run a method on one image as ``classify`` does, or on a sample of a store, and collect what happened.

    Args:
        named: the model.
        choice: what the user chose.
        report: called with the share of the work that is done and a text; what it raises stops the work.
    """
    model, encoded = named.model, encode(named.model, choice, report)
    prompts, features = encoded.prompts, encoded.features
    entry, keywords = tpt.get_method(choice.method), keywords_of(choice.method, choice.settings)
    method: Any = entry.predict
    predict = partial(method, **keywords)
    steps, losses = int(keywords.get("steps", 0)), dict[int, float]()

    def on_step(step: int, before: Tensor, _: Tensor) -> None:
        losses[step] = float(before[0])
        report(ENCODED + (TUNED - ENCODED) * (step + 1) / steps, f"step {step + 1} of {steps}")

    if entry.predict is tpt.tpt_predict or "on_step" in inspect.signature(predict).parameters:
        predict = partial(predict, on_step=on_step)
    report(ENCODED, entry.title)
    pixels = encoded.views if "views" in entry.needs else None
    said = predict(model, prompts, (features if pixels is None else pixels).clone())
    losses |= _ends(said, steps)
    report(TUNED, "predictions of the views")
    return Explained(
        said,
        encoded.views,
        tpt.class_logits(model, features, tpt.encode_prompts(model, prompts)),
        None
        if said.context is None
        else tpt.class_logits(model, features, tpt.encode_prompts(model, prompts, said.context)),
        dict(sorted(losses.items())),
        [] if said.context is None else _words(named, prompts.context, said.context),
        python_call(named.code, choice),
        _notes(model, choice, said),
    )


def encode(model: tpt.ClipLike, choice: Choice, report: Report = ignore) -> Encoded:
    """Return prompts, views and features as ``classify`` makes them, with a report after each chunk of views.

    The features of a sample are those of its store; the image tower does not run.
    """
    report(0.0, "prompts")
    prompts = tpt.class_prompts(model, choice.names, template=choice.template)
    if isinstance(choice.source, Sample):
        stored, _ = choice.source.store[choice.source.index]
        return Encoded(prompts, None, stored.to(prompts.context.device))
    report(0.05, "views")
    views = tpt.augment_views(
        choice.source.pixels,
        model.image_spec,
        n_views=choice.n_views,
        seed=choice.seed,
        device=prompts.context.device,
    )

    def encoded() -> Iterator[Tensor]:
        done = 0
        for part in views.split(default_chunk(views)):
            report(0.1 + (ENCODED - 0.1) * done / len(views), f"features of view {done + 1} of {len(views)}")
            yield tpt.encode_views(model, part)
            done += len(part)

    return Encoded(prompts, views, torch.cat(list(encoded())))


def _words(named: NamedModel, before: Tensor, after: Tensor) -> list[tuple[str, list[tuple[str, float]]]]:
    """Return the word of each token before tuning, if the vocabulary has it, and the words nearest to the token after."""
    old, new = (nearest_words(named.model, named.vocabulary, context) for context in (before, after))
    starts = [near[0][0] if near and near[0][1] == 0 else "" for near in old]
    return list(zip(starts, new, strict=True))


def _ends(said: tpt.Prediction, steps: int) -> dict[int, float]:
    """Return the losses before the first step and after the last, if the method reports them."""
    ends = {0: said.loss_before, steps: said.loss_after}
    return {step: float(loss) for step, loss in ends.items() if loss is not None and bool(loss.isfinite())}


def _notes(model: tpt.ClipLike, choice: Choice, said: tpt.Prediction) -> list[str]:
    notes = []
    if said.tuned is not None and not said.tuned and choice.settings.get("steps", 1):
        notes.append(
            "A loss or gradient was not finite, so the prompt was left as it was. Try a smaller learning rate."
        )
    if not tpt.get_method(choice.method).probabilities:
        notes.append("The confidences of this method are votes, not probabilities.")
    strange = [name for name in choice.names if strange_words(name)] if getattr(model, "name", "") == "tiny" else []
    if strange:
        shown = ", ".join(repr(name) for name in strange[:5]) + (", …" if len(strange) > 5 else "")
        notes.append(f"The embedded model was not trained on {shown} and can only guess what that looks like.")
    return notes

"""MEMO on a CLIP: tune its prompt, its text tower, its image tower, or all of it to one image (section 5, figure 4a)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from tpt_lib.features.encode import encode_views
from tpt_lib.methods.base import method
from tpt_lib.methods.tpt import tpt_predict
from tpt_lib.methods.tune_weights import FreeWeights, Rows, adapt, named_weights
from tpt_lib.models.module_clip import IMAGE_PARTS, ModuleClip, weight_of
from tpt_lib.models.protocol import ClipLike
from tpt_lib.models.structural_copy import without_graph
from tpt_lib.objectives import select_confident
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.class_prompts import ClassPrompts, check_one_template, conditional_context, is_learned
from tpt_lib.prompts.templates import CONTEXT
from tpt_lib.text.encode import class_chunk, open_encoder
from tpt_lib.text.packed import packed_features
from tpt_lib.text.packing import Packing
from tpt_lib.text.place_tokens import free_places, put_tokens
from tpt_lib.types import OptimizerFactory

__all__ = ["memo_clip_predict"]

Group = Literal["prompt", "text", "image", "all"]


@method(name="memo_clip", title="MEMO on CLIP", paper="Shu et al., NeurIPS 2022, section 5", needs=("views",))
def memo_clip_predict(
    model: ClipLike,
    prompts: ClassPrompts,
    views: Float[Tensor, "n 3 h w"],
    *,
    group: Group = "all",
    fraction: float = 1.0,
    steps: int = 1,
    lr: float | None = None,
    optimizer: OptimizerFactory | None = None,
    prior: float | None = None,
    chunk: int = 8,
) -> Prediction:
    """Minimize the marginal entropy over one group of a CLIP's parameters, then classify the plain image (figure 4a).

    ``"prompt"`` is TPT itself. ``"text"`` and ``"image"`` are all weights of that tower, projection and token embedding
    included; ``"all"`` is both and the logit scale (and bias). The model is only read, as by ``memo_predict``. A learned
    context is held fixed; CoCoOp's is the one for the plain image before tuning.

    Args:
        model: one that ``wrap`` or a loader made.
        prompts: what ``class_prompts`` returned.
        views: preprocessed views ``(N, 3, H, W)``, row 0 the plain image; this method takes views where others take features.
        group: ``"prompt"``, ``"text"``, ``"image"`` or ``"all"`` (default).
        fraction: share of the views in the loss, the most confident, chosen before the first step (default 1; figure 4a has no
            selection).
        steps: number of steps (default 1).
        lr: learning rate (default None: 5e-3 for the prompt, as TPT, and 2.5e-4 for weights, as MEMO).
        optimizer: called as ``optimizer(parameters, lr=lr)`` (default None: AdamW for the prompt and SGD for weights).
        prior: as for ``memo_predict``, for batch norms in the image tower (default None: their running statistics alone).
        chunk: number of views whose graph is held at the same time (default 8). Affects speed and memory, not results.

    Returns:
        A prediction.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> memo_clip_predict(model, prompts, torch.randn(4, 3, 224, 224), group="image").tuned
    tensor(True)
    """
    check_one_template("memo_clip_predict", prompts)
    if group not in get_args(Group):
        raise ValueError(f"memo_clip_predict: group must be one of {', '.join(get_args(Group))}, but got {group!r}")
    features = encode_views(model, views)
    if group == "prompt":
        given = {"lr": lr, "optimizer": optimizer}
        own: Any = {name: value for name, value in given.items() if value is not None}
        select = partial(select_confident, fraction=fraction)
        return tpt_predict(model, prompts, features, steps=steps, select=select, **own)
    if not isinstance(model, ModuleClip):
        raise TypeError(
            f"memo_clip_predict: group={group!r} needs a model that wrap or a loader made, which shows its weights, but got "
            f"{type(model).__name__}; group='prompt' works with any model"
        )
    with torch.inference_mode(False), torch.enable_grad():
        views = without_graph(views)
        towers = {"image": image_tower(model, views, chunk, prior), "text": _text_tower(model, prompts, features[0])}
        free = FreeWeights.of(_in_group(model, group))
        live = [name for name in towers if group in (name, "all")]
        fixed = {"image": features, "text": towers["text"].plain({}, towers["text"].rows)}

        def logits_of(free: Mapping[str, Tensor], *outputs: Tensor) -> Tensor:
            found = fixed | dict(zip(live, outputs, strict=True))
            text = found["text"][towers["text"].rows.argsort().to(found["text"].device)]
            scale = free["logit_scale"].exp() if "logit_scale" in free else model.logit_scale
            bias = free.get("logit_bias", model.logit_bias)
            return scale * (found["image"] @ text.mT) + bias

        before = logits_of({}, *(fixed[name] for name in live))[0]
        done = adapt(
            "memo_clip_predict", [towers[name] for name in live], logits_of, free,
            fraction=fraction, steps=steps, lr=2.5e-4 if lr is None else lr, optimizer=optimizer or torch.optim.SGD,
        )  # fmt: skip
        rows = {"image": views[:1], "text": towers["text"].rows}
        after = logits_of(free.named, *(towers[name].outputs(free.named, rows[name]) for name in live))[0]
    return done.prediction(prompts.names, before, after)


def _in_group(model: ModuleClip, group: Group) -> list[tuple[str, Tensor]]:
    images = {id(weight) for weight in model.image_tower(model.module).parameters()}
    chosen = []
    for name, weight in named_weights(model.module):
        kind = "image" if id(weight) in images or name.startswith(IMAGE_PARTS) else "text"
        if group == "all" or (group == kind and name not in ("logit_scale", "logit_bias")):
            chosen.append((name, weight))
    return chosen


def image_tower(
    model: ModuleClip, views: Tensor, chunk: int, prior: float | None = None, *, every: bool = False
) -> Rows:
    """Return the image tower from pixels to normalized features."""
    dtype = weight_of(model.image_tower(model.module)).dtype

    def features(module: Any, pixels: Tensor) -> Tensor:
        return F.normalize(model.image_features(module, pixels.to(dtype)).float(), dim=-1)

    return Rows(model.module, features, views, chunk=chunk, prior=prior, every=every)


def _text_tower(model: ModuleClip, prompts: ClassPrompts, plain: Tensor) -> Rows:
    """Return the text tower with classes as rows, shortest prompts first. Words are embedded by the tower that is tuned;
    learned tokens are held fixed."""
    encoder = open_encoder(model, prompts)
    packed = not isinstance(encoder.tower, str)
    name_tokens = None if prompts.name_tokens is None else prompts.name_tokens[None]
    held = conditional_context(prompts, plain) if is_learned(prompts) else None

    def features(module: Any, part: Tensor) -> Tensor:
        ids = prompts.ids[part].to(prompts.context.device)
        embedding = model.token_embedding(module)
        context = embedding(ids[0, prompts.roles[part[0]] == CONTEXT]) if held is None else held
        context = context[None] if context.ndim == 3 else context[None, None]
        if packed:
            tower: Any = model.tower(module)
            packing = Packing.of(prompts, part, encoder.layout)
            return F.normalize(packed_features(tower, packing, context, name_tokens)[0].float(), dim=-1)
        rows, columns = torch.ones_like(prompts.ids[part]).nonzero(as_tuple=True)
        places = free_places(prompts, part[rows], columns)
        x = put_tokens(embedding(ids).flatten(0, 1), places, context, name_tokens)
        handle = embedding.register_forward_hook(lambda *_: x.reshape(*ids.shape, -1))
        try:
            return F.normalize(model.text_features(module, ids).float(), dim=-1)
        finally:
            handle.remove()

    order = prompts.lengths.argsort(stable=True)
    return Rows(model.module, features, order, chunk=class_chunk(prompts, 1, None, not packed), prior=None)

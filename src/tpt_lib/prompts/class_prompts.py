"""Build prompts with a context that can be tuned from class names and a template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tpt_lib.models.protocol import ClipLike, check_clip
from tpt_lib.prompts.cache import TextCache
from tpt_lib.prompts.contexts import LearnedPrompt, MetaNet
from tpt_lib.prompts.names import check_start, checked_texts, listed_names, warn_of_twins
from tpt_lib.prompts.templates import CONTEXT, NAME, Split, Template, placeholder, split
from tpt_lib.types import kind_of

__all__ = ["ClassPrompts", "class_prompts", "conditional_context"]


@dataclass(frozen=True, eq=False)
class ClassPrompts:
    """One prompt per class, split into context, name and rest on token ids. Made by ``class_prompts`` and never changed.

    Text features are cached with the prompts until the model changes. Copies and pickles start with an empty cache.

    Attributes:
        model: the model whose tokens these are.
        names: the class names as given.
        ids: token ids ``(K, T)``, with a placeholder where a position is free.
        roles: role of each position ``(K, T)``: 1 context, 2 name, 0 the rest (start, punctuation, end, padding).
        lengths: number of tokens including the end of text ``(K,)``.
        prefix: number of leading positions that do not depend on the class.
        context: the initial context in float32, ``(L, D)``, or ``(K, L, D)`` where it is class-specific.
        name_tokens: the initial name embeddings ``(K, M, D)`` where names are free to be tuned, else None.
        meta_net: CoCoOp's network, where the context depends on the image.
        others: prompts of further templates, whose text features are averaged with those of this one.
    """

    model: ClipLike = field(repr=False)
    names: tuple[str, ...]
    ids: Int[Tensor, "k t"] = field(repr=False)
    roles: Int[Tensor, "k t"] = field(repr=False)
    lengths: Int[Tensor, " k"] = field(repr=False)
    prefix: int
    context: Float[Tensor, "*k l d"] = field(repr=False)
    name_tokens: Float[Tensor, "k m d"] | None = field(default=None, repr=False)
    meta_net: MetaNet | None = field(default=None, repr=False)
    others: tuple[ClassPrompts, ...] = field(default=(), repr=False)
    cache: TextCache = field(default_factory=TextCache, init=False, repr=False)

    def forget(self) -> None:
        """Drop the text features cached with these prompts.

        Changes of weights, modules and hooks are noticed without this call. Only a write through ``.data``, which PyTorch does
        not record, needs it.
        """
        self.cache.clear()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "cache": TextCache()}


def class_prompts(
    model: ClipLike,
    names: Sequence[str],
    *,
    template: str | Sequence[str] = "a photo of a {}.",
    context: str | Tensor | LearnedPrompt | None = None,
    name_tokens: Float[Tensor, "k m d"] | None = None,
) -> ClassPrompts:
    r"""Build prompts :math:`\{\mathbf p; y_i\}` for a list of classes (section 3.1).

    The context is the tokens of the template's words, except the word that holds ``{}`` and punctuation at the very end.
    Anything that touches the name is never context.

    Args:
        model: the model whose tokenizer and token embedding are used.
        names: one or more class names; ``_`` is read as a space.
        template: a text with one ``{}``, anywhere; or several, whose text features are averaged and normalized as CLIP does.
            Methods that tune a context take one template.
        context: initial context (default None: the template's words). Other words, a tensor ``(L, D)`` or class-specific
            ``(K, L, D)``, or what ``load_prompt`` returned. Words, and tensors of another length than the template's context,
            replace all its words.
        name_tokens: embeddings ``(K, M, D)`` to use, and to tune, instead of the names' own tokens (default None).

    Returns:
        The prompts.

    Raises:
        TypeError: if the model, the names, the context or the name tokens are of a wrong type.
        ValueError: if a name is empty or too long, a template has not exactly one ``{}``, or a shape does not fit.

    >>> prompts = class_prompts(model, ["cat", "red_panda"])
    >>> prompts.context.shape, prompts.roles[1, :9].tolist()
    (torch.Size([4, 256]), [0, 1, 1, 1, 1, 2, 2, 0, 0])
    """
    several = template if isinstance(template, Sequence) else ()
    templates = [template] if isinstance(template, str) else list(several)
    if not templates or not all(isinstance(text, str) for text in templates):
        raise ValueError(f"class_prompts: template must be a text or a list of one or more texts, but got {template!r}")
    if len(templates) > 1 and (context is not None or name_tokens is not None):
        raise ValueError(
            f"class_prompts: a context or name tokens belong to one template, but got {len(templates)}; pass one template"
        )
    check_clip("class_prompts", model, "tokenize", "embed_tokens", "encode_embeddings")
    names = listed_names("class_prompts: names", names)
    check_start("context", context.context if isinstance(context, LearnedPrompt) else context, (str,))
    check_start("name_tokens", name_tokens, ())
    warn_of_twins(names, checked_texts(names))
    first, *rest = (_of_template(model, names, text, context, name_tokens) for text in templates)
    return replace(first, others=tuple(rest)) if rest else first


def check_prompts(caller: str, prompts: object) -> None:
    """Refuse anything that ``class_prompts`` did not return, such as bare names."""
    if not isinstance(prompts, ClassPrompts):
        raise TypeError(
            f"{caller}: prompts must be what class_prompts(model, names) returned, but got {kind_of(prompts)}; the order of "
            "arguments is model, prompts, features"
        )


def check_one_template(caller: str, prompts: ClassPrompts) -> None:
    """Refuse prompts of several templates, for methods that tune the context of one."""
    check_prompts(caller, prompts)
    if prompts.others:
        raise ValueError(
            f"{caller}: tunes the context of one template, but these prompts have {1 + len(prompts.others)}; build them with "
            "one, class_prompts(model, names, template='a photo of a {}.')"
        )


def _of_template(
    model: ClipLike,
    names: Sequence[str],
    template: str,
    context: str | Tensor | LearnedPrompt | None,
    name_tokens: Tensor | None,
) -> ClassPrompts:
    texts = checked_texts(names)
    form = Template.parse(template)
    learned = LearnedPrompt(context) if isinstance(context, Tensor) else context
    if name_tokens is not None:
        texts = [" ".join([placeholder(model)] * name_tokens.shape[-2])] * len(texts)
    if isinstance(learned, str):
        form = form.with_context(learned.split())
    parts = split(model, form, texts)
    if isinstance(learned, LearnedPrompt) and learned.context.shape[-2] != (parts.roles[0] == CONTEXT).sum():
        parts = split(model, form.with_context([placeholder(model)] * learned.context.shape[-2]), texts)
    words = _words(model, parts)
    start = learned.context if isinstance(learned, LearnedPrompt) else words
    device = words.device
    prompts = ClassPrompts(
        model=model,
        names=tuple(names),
        ids=parts.ids,
        roles=parts.roles,
        lengths=parts.lengths,
        prefix=parts.start + (parts.before if start.ndim == 2 else 0),
        context=start.detach().float().to(device),
        name_tokens=None if name_tokens is None else name_tokens.detach().float().to(device),
        meta_net=learned.meta_net.to(device) if isinstance(learned, LearnedPrompt) and learned.meta_net else None,
    )
    _check_shapes(prompts)
    return prompts


def conditional_context(prompts: ClassPrompts, image_features: Float[Tensor, "*b e"]) -> Float[Tensor, "*bk l d"]:
    r"""Return the context an image starts from: :math:`\mathbf p + h(\mathbf v)` for CoCoOp, else :math:`\mathbf p`.

    Args:
        prompts: the prompts, with a network :math:`h` if they come from a CoCoOp checkpoint.
        image_features: normalized features of the plain image ``(…, E)``, as CoCoOp was trained with.

    Returns:
        Contexts ``(…, *prompts.context.shape)``.

    >>> prompts = class_prompts(model, ["cat", "dog"])
    >>> conditional_context(prompts, torch.ones(3, 256)).shape
    torch.Size([3, 4, 256])
    """
    batch = image_features.shape[:-1]
    if prompts.meta_net is None:
        return prompts.context.expand(*batch, *prompts.context.shape)
    wanted = prompts.meta_net.weight1.shape[1]
    if image_features.shape[-1] != wanted:
        raise ValueError(
            f"conditional_context: CoCoOp's network (meta_net.linear1.weight) takes image features of width {wanted}, but got "
            f"{image_features.shape[-1]}; the checkpoint belongs to another model"
        )
    shift = prompts.meta_net(image_features.float())
    return prompts.context + shift.reshape(*batch, *(1,) * (prompts.context.ndim - 1), -1)


def is_learned(prompts: ClassPrompts) -> bool:
    """Return whether the prompts hold anything other than the embeddings of words."""
    if prompts.meta_net is not None or prompts.name_tokens is not None:
        return True
    return not torch.equal(_words(prompts.model, prompts), prompts.context)


def _words(model: ClipLike, parts: Split | ClassPrompts) -> Tensor:
    return model.embed_tokens(parts.ids[:1])[0][parts.roles[0] == CONTEXT].float()


def _check_shapes(prompts: ClassPrompts) -> None:
    count, width = len(prompts.names), _words(prompts.model, prompts).shape[-1]
    context, names = prompts.context, prompts.name_tokens
    if context.ndim not in (2, 3) or context.shape[-1] != width or (context.ndim == 3 and len(context) != count):
        raise ValueError(
            f"class_prompts: for {count} classes and a model of width {width} a context has shape (L, {width}), or "
            f"({count}, L, {width}) where each class has its own, but got {tuple(context.shape)}"
        )
    if names is not None and (names.ndim != 3 or names.shape[0] != count or names.shape[2] != width):
        raise ValueError(
            f"class_prompts: for {count} classes and a model of width {width} name_tokens have shape ({count}, M, {width}), "
            f"but got {tuple(names.shape)}"
        )
    if names is not None and ((prompts.roles == NAME).sum(dim=1) != names.shape[1]).any():
        raise ValueError(
            "class_prompts: free name tokens need a template in which {} is a word of its own, as in 'a photo of a {} .'"
        )
    if prompts.meta_net is not None and prompts.meta_net.bias2.shape != (width,):
        raise ValueError(
            f"class_prompts: the CoCoOp network gives shifts of width {len(prompts.meta_net.bias2)}, the model has {width}"
        )

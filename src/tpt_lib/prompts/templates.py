"""Turn templates into token ids, and find which tokens are context and which are name; see ``split``."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from tpt_lib.models.protocol import ClipLike

REST, CONTEXT, NAME = 0, 1, 2


@dataclass(frozen=True)
class Template:
    """A template's words before, with and after its ``{}``."""

    before: tuple[str, ...]
    word: str
    after: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Template:
        if text.count("{}") != 1 or set("{}") & set(text.replace("{}", "")):
            raise ValueError(
                f"class_prompts: a template must contain {{}} exactly once, for the class name, but got {text!r}; "
                "for example 'a photo of a {}.'"
            )
        words = text.split()
        at = next(i for i, word in enumerate(words) if "{}" in word)
        return cls(tuple(words[:at]), words[at], tuple(words[at + 1 :]))

    def with_context(self, words: list[str]) -> Template:
        """Return the template with other context words. Its own must all be on one side of the name."""
        if self.before and self.after:
            raise ValueError(
                f"class_prompts: the template {self.fill('{}')!r} has context on both sides of the name, so it is not "
                f"clear where the {len(words)} given context tokens go. Pass as many as the template has, or a one-sided "
                "template"
            )
        if not self.after:
            return replace(self, before=tuple(words))
        end = self.after[-1][len(self.after[-1].rstrip(_PUNCTUATION)) :]
        return replace(self, after=(*words[:-1], words[-1] + end))

    def fill(self, name: str) -> str:
        return " ".join([*self.before, self.word.replace("{}", name), *self.after])


_PUNCTUATION = ".,;:!?\"'()[]"


@dataclass(frozen=True)
class Split:
    """Token ids ``(K, T)``, the role of each position, and the number of tokens including the end of text ``(K,)``."""

    ids: Int[Tensor, "k t"]
    roles: Int[Tensor, "k t"]
    lengths: Int[Tensor, " k"]
    start: int
    before: int


@dataclass(frozen=True)
class Specials:
    """The tokens that a tokenizer adds to a text, read from the empty text: ``start`` tokens, then ``end``, then padding."""

    empty: list[int]
    start: int

    @classmethod
    def of(cls, model: ClipLike) -> Specials:
        empty, letter = model.tokenize(["", "a"]).tolist()
        return cls(empty, next(i for i, (e, a) in enumerate(zip(empty, letter, strict=True)) if e != a))

    def bodies(self, model: ClipLike, texts: list[str]) -> list[list[int]]:
        """Return the tokens of each text without start, end and padding."""
        return [self.body(row) for row in model.tokenize(texts).tolist()] if texts else []

    def body(self, row: list[int]) -> list[int]:
        end = self.empty[self.start]
        return row[self.start : row.index(end, self.start) if end in row[self.start :] else None]

    def intrudes(self, row: list[int]) -> bool:
        """Return whether there is a start or end token inside the text."""
        body = self.body(row)
        left = row[self.start + len(body) :]
        as_empty = left in (self.empty[self.start :][: len(left)], self.empty[len(self.empty) - len(left) :])
        return not as_empty or bool(set(body) & set(self.empty[: self.start]))


def split(model: ClipLike, template: Template, names: list[str]) -> Split:
    """Return the prompts' ids and roles, found by comparing each prompt's tokens with those of its beginnings.

    Tokens decide, never words. A beginning that ends between two words has the first tokens of the prompt. So
    ``len(tokens("a photo of a"))`` positions are context whatever the name is. The name ends at
    ``len(tokens("a photo of a kite"))``, or, if it merges with the punctuation after it, at the end of that token.
    """
    specials = Specials.of(model)
    texts = [template.fill(name) for name in names]
    ids = model.tokenize(texts).cpu()
    rows = ids.tolist()
    for name, text, row in zip(names, texts, rows, strict=True):
        _check_row(model, specials, template, name, text, row)
    full = [specials.body(row) for row in rows]
    before = specials.bodies(model, [" ".join(template.before)])[0]
    upto_name = Template(template.before, template.word[: template.word.index("{}") + 2], ())
    upto_word = Template(template.before, template.word, ())
    named = specials.bodies(model, [upto_name.fill(name) for name in names])
    heads = specials.bodies(model, [upto_word.fill(name) for name in names]) if template.after else full
    stems = specials.bodies(model, [t.rstrip(_PUNCTUATION) for t in texts]) if template.after else full

    roles = torch.full(ids.shape, REST)
    for role, name, body, upto, head, stem in zip(roles, names, full, named, heads, stems, strict=True):
        if body[: len(before)] != before or body[: len(head)] != head or len(head) <= len(before):
            raise ValueError(
                f"class_prompts: the tokenizer gives the class {short(name)} no tokens of its own in "
                f"{template.fill('{}')!r}; it may drop or join the characters around it. Rephrase the name"
            )
        role = role[specials.start :]
        role[: len(before)] = CONTEXT
        role[len(before) : len(upto) if head[: len(upto)] == upto else len(head)] = NAME
        if template.after:
            role[len(head) : _common(stem, body)] = CONTEXT
    counts = (roles == CONTEXT).sum(dim=1)
    if (counts != counts[0]).any():
        odd = int((counts != counts[0]).nonzero()[0])
        raise ValueError(
            f"class_prompts: the context has {counts[0]} tokens with {short(names[0])} and {counts[odd]} with "
            f"{short(names[odd])}, because the tokenizer joins words of the template with the name. Rephrase the template"
        )
    lengths = torch.tensor([specials.start + len(body) + 1 for body in full])
    return Split(ids, roles, lengths, specials.start, len(before))


def placeholder(model: ClipLike) -> str:
    """Return a word of exactly one token, to hold the place of a learned token."""
    specials = Specials.of(model)
    for word in ("X", "a", "the", "."):
        if len(specials.bodies(model, [" ".join([word] * 4)])[0]) == 4:
            return word
    raise ValueError(
        "class_prompts: the tokenizer has no one-token word among X, a, the and '.' to hold a learned token"
    )


def _check_row(model: ClipLike, specials: Specials, template: Template, name: str, text: str, row: list[int]) -> None:
    if specials.intrudes(row):
        raise ValueError(
            f"class_prompts: the class {short(name)} holds text that the tokenizer reads as its start or end token; "
            "remove it from the name"
        )
    full = specials.start + len(specials.body(row)) >= len(row) - 2
    if full and model.tokenize([text[:-1]]).tolist()[0] == row:
        raise ValueError(
            f"class_prompts: the class {short(name)} ({len(name)} characters) does not fit: with the template "
            f"{template.fill('{}')!r} it has more than the {len(row)} tokens of the model's context length. Shorten it"
        )


def _common(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def short(name: str) -> str:
    """Return a name for a message, shortened if it is long."""
    return repr(name if len(name) <= 40 else re.sub(r"\s+", " ", name[:40]) + "…")

"""Learned tokens against a loop that places them one at a time."""

import pytest
import torch
from support.text_cases import NAMES
from support.zoo import build
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tpt_lib import class_prompts, gaussian_context
from tpt_lib.prompts.templates import CONTEXT, NAME
from tpt_lib.text.place_tokens import free_places, put_tokens


def put_one_by_one(x, prompts, classes, positions, context, name_tokens):
    """Walk along each prompt, and take the next learned token wherever one goes."""
    rows = x.expand(len(context), *x.shape).clone()
    for member in range(len(context)):
        for at, (k, position) in enumerate(zip(classes.tolist(), positions.tolist(), strict=True)):
            roles = prompts.roles[k].tolist()
            before = roles[:position].count(roles[position])
            if roles[position] == CONTEXT:
                rows[member, at] = context[member, k if context.shape[1] > 1 else 0, before]
            elif roles[position] == NAME and name_tokens is not None:
                rows[member, at] = name_tokens[member, k, before]
    return rows


@pytest.mark.parametrize("own_names", [False, True])
@pytest.mark.parametrize("own_contexts", [False, True])
@pytest.mark.parametrize("template", ["a photo of a {} .", "a photo {} of a", "{} of a photo"])
def test_tokens_are_where_a_loop_puts_them(template, own_contexts, own_names):
    model = build("open_clip-vit")
    tokens = gaussian_context(model, 2, n_classes=5, seed=1) if own_names else None
    length = len(template.replace("{}", "").replace(".", "").split())
    context = gaussian_context(model, length, n_classes=5 if own_contexts else None)
    prompts = class_prompts(model, NAMES, template=template, context=context, name_tokens=tokens)
    classes, positions = (prompts.ids >= 0).nonzero(as_tuple=True)
    order = torch.randperm(len(classes))[:150]  # any tokens in any order
    classes, positions = classes[order], positions[order]
    x = torch.randn(len(order), 32)
    contexts = context[None] if own_contexts else context[None, None]
    contexts = contexts + torch.randn(3, *contexts.shape[1:])
    names = None if tokens is None else tokens + torch.randn(3, *tokens.shape)
    before = x.clone()
    got = put_tokens(x, free_places(prompts, classes, positions), contexts, names)
    assert torch.equal(got, put_one_by_one(x, prompts, classes, positions, contexts, names))
    assert torch.equal(x, before)
    assert not torch.equal(got, x.expand_as(got))


def test_only_the_classes_of_the_tokens_are_looked_at():
    """All of 20,000 names, once for each of a hundred parts, would take gigabytes that are freed but not reused."""
    prompts = class_prompts(build("open_clip-vit"), [f"name {i}" for i in range(50)])
    classes, positions = torch.tensor([30] * 6 + [7] * 6), torch.arange(6).repeat(2)

    class Largest(TorchDispatchMode):
        size = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            found = function(*args, **(kwargs or {}))
            self.size = max(
                [self.size, *(each.numel() for each in tree_leaves(found) if isinstance(each, torch.Tensor))]
            )
            return found

    with Largest() as largest:
        (place,) = free_places(prompts, classes, positions)
    assert place.at.tolist() == [1, 2, 3, 4, 7, 8, 9, 10]
    assert place.source.tolist() == [0, 1, 2, 3] * 2
    assert largest.size == 2 * prompts.ids.shape[1]


def test_learned_tokens_take_the_embeddings_dtype():
    model = build("open_clip-vit")
    prompts = class_prompts(model, ["cat"])
    at = torch.arange(8)
    places = free_places(prompts, torch.zeros_like(at), at)
    got = put_tokens(torch.zeros(8, 32).half(), places, torch.ones(1, 1, 4, 32), None)
    assert got.dtype == torch.float16
    assert got[0, :, 0].tolist() == [0, 1, 1, 1, 1, 0, 0, 0]

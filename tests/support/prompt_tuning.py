"""A model, its prompts and views, and their text features as a plain function of the context in float64."""

import functools
from types import SimpleNamespace

import torch
from oracles.tpt import Put, float64, plain_text
from support.cases import model_of, views_for

from tpt_lib import class_prompts

NAMES = ["cat", "red panda", "kite (bird of prey)", "dog", "tabby"]


@functools.cache
def plain_case(number=40):
    model = model_of()
    prompts = class_prompts(model, NAMES)
    module, columns = float64(model.module), torch.tensor([[1, 2, 3, 4]] * len(NAMES))

    def text_of(context):
        return plain_text(module, prompts.ids, Put(columns, context))

    with torch.no_grad():
        text = text_of(prompts.context.double())
    views = views_for(text, number)

    def logits(text):
        return 100 * views.double() @ text.T

    return SimpleNamespace(
        model=model, prompts=prompts, context=prompts.context, views=views, text=text, text_of=text_of, logits=logits
    )

"""Prompts: the default template, where their context comes from, and what is refused."""

import pytest
import torch
from support.cases import meta_net
from support.zoo import fresh

import tpt_lib
from tpt_lib.prompts import LearnedPrompt
from tpt_lib.prompts.class_prompts import is_learned
from tpt_lib.prompts.templates import CONTEXT

SOS, EOT = 49406, 49407
A, PHOTO, OF = 320, 1125, 539


def test_convention_default_template(model):
    prompts = tpt_lib.class_prompts(model, ["cat", "red_panda"])
    assert prompts.ids[0, :9].tolist() == [SOS, A, PHOTO, OF, A, 2368, 269, EOT, 0]
    assert prompts.ids[1, :9].tolist() == [SOS, A, PHOTO, OF, A, 736, 12952, 269, EOT]
    assert prompts.roles[0, :9].tolist() == [0, 1, 1, 1, 1, 2, 0, 0, 0]
    assert prompts.roles[1, :9].tolist() == [0, 1, 1, 1, 1, 2, 2, 0, 0]
    assert prompts.lengths.tolist() == [8, 9]
    assert prompts.prefix == 5
    assert prompts.names == ("cat", "red_panda")
    assert torch.equal(prompts.context, model.module.token_embedding.weight[[A, PHOTO, OF, A]])
    assert not prompts.context.requires_grad


def test_context_from_words(model):
    prompts = tpt_lib.class_prompts(model, ["cat"], context="a blurry picture of some")
    same = tpt_lib.class_prompts(model, ["cat"], template="a blurry picture of some {}.")
    assert torch.equal(prompts.ids, same.ids)
    assert torch.equal(prompts.roles, same.roles)
    assert torch.equal(prompts.context, same.context)
    behind = tpt_lib.class_prompts(model, ["cat"], template="{} in a photo.", context="seen from above")
    same = tpt_lib.class_prompts(model, ["cat"], template="{} seen from above.")
    assert torch.equal(behind.ids, same.ids)
    assert torch.equal(behind.roles, same.roles)
    assert torch.equal(behind.context, same.context)


@pytest.mark.parametrize("length", [1, 4, 16])
def test_context_from_a_tensor(model, length):
    context = tpt_lib.gaussian_context(model, length, seed=3)
    prompts = tpt_lib.class_prompts(model, ["cat", "red panda"], context=context)
    assert torch.equal(prompts.context, context)
    assert (prompts.roles == CONTEXT).sum(dim=1).tolist() == [length, length]
    assert prompts.prefix == 1 + length
    assert prompts.ids.max(dim=1).values.tolist() == [EOT, EOT]
    assert prompts.lengths.tolist() == [length + 4, length + 5]


def test_class_specific_context_shares_no_prefix(model):
    prompts = tpt_lib.class_prompts(model, ["cat", "dog"], context=torch.randn(2, 16, 32))
    assert prompts.context.shape == (2, 16, 32)
    assert prompts.prefix == 1


def test_context_around_the_name(model):
    context = torch.randn(4, 32)
    prompts = tpt_lib.class_prompts(model, ["cat"], template="a photo {} of a.", context=context)
    assert prompts.roles[0, :9].tolist() == [0, 1, 1, 2, 1, 1, 0, 0, 0]


def test_free_names(model):
    tokens = torch.randn(2, 1, 32)
    prompts = tpt_lib.class_prompts(model, ["positive", "negative"], context=torch.randn(4, 32), name_tokens=tokens)
    assert prompts.names == ("positive", "negative")
    assert prompts.roles[:, :9].tolist() == [[0, 1, 1, 1, 1, 2, 0, 0, 0]] * 2
    assert prompts.ids[0, 6].item() == 269
    assert torch.equal(prompts.name_tokens, tokens)


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize(("call", "kind", "message"), [
    ({"names": []}, ValueError, "names is empty; at least one class is needed"),
    ({"names": "cat"}, TypeError, r"names must be a list of strings, but got 'cat'; for one class, pass \['cat'\]"),
    ({"names": ["cat", 3]}, TypeError, r"names must be a list of strings, but got \['cat', 3\]"),
    ({"names": ["cat", " _ "]}, ValueError, "class 1 of 2 has an empty name, ' _ '"),
    ({"names": ["cat", "word " * 71]}, ValueError,
     r"the class 'word word .*…' \(354 characters\) does not fit: .* more than the 77 tokens of the model's context"),
    ({"template": "a photo."}, ValueError, r"a template must contain \{\} exactly once, .* but got 'a photo\.'"),
    ({"template": "a {} of {}."}, ValueError, r"a template must contain \{\} exactly once"),
    ({"template": "a {name}."}, ValueError, r"a template must contain \{\} exactly once"),
    ({"template": "a {} of", "context": torch.zeros(5, 32)}, ValueError, "context on both sides .* the 5 given context"),
    ({"template": ["a {}.", "my {}"], "context": torch.zeros(1, 32)}, ValueError, "belong to one template, but got 2"),
    ({"template": ["a {}.", "my {}"], "name_tokens": torch.zeros(1, 1, 32)}, ValueError, "belong to one template, but got 2"),
    ({"context": torch.zeros(4, 31)}, ValueError, r"a context has shape \(L, 32\), or \(1, L, 32\) .* got \(4, 31\)"),
    ({"context": torch.zeros(2, 4, 32)}, ValueError, r"for 1 classes .* but got \(2, 4, 32\)"),
    ({"name_tokens": torch.zeros(2, 1, 32)}, ValueError, r"name_tokens have shape \(1, M, 32\), but got \(2, 1, 32\)"),
    ({"template": "a #{}.", "name_tokens": torch.zeros(1, 1, 32)}, ValueError, "a template in which {} is a word of its own"),
    ({"context": tpt_lib.prompts.LearnedPrompt(torch.zeros(4, 32), tpt_lib.prompts.MetaNet(
        torch.zeros(1, 16), torch.zeros(1), torch.zeros(8, 1), torch.zeros(8)))}, ValueError, "width 8, the model has 32"),
])  # fmt: skip
def test_bad_input(model, call, kind, message):
    with pytest.raises(kind, match=message):
        tpt_lib.class_prompts(model, **{"names": ["cat"], **call})


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize("template", [[], ["a {}.", 3], None, 3])
def test_bad_lists_of_templates(model, template):
    with pytest.raises(
        ValueError, match="class_prompts: template must be a text or a list of one or more texts, but got"
    ):
        tpt_lib.class_prompts(model, ["cat"], template=template)


def test_what_is_learned(model):
    words = tpt_lib.class_prompts(model, ["cat", "dog"])
    near = tpt_lib.class_prompts(model, ["cat", "dog"], context=words.context + 1e-6)
    own = tpt_lib.class_prompts(model, ["cat", "dog"], context=words.context.expand(2, 4, 32))
    net = tpt_lib.class_prompts(model, ["cat", "dog"], context=LearnedPrompt(words.context, meta_net()))
    free = tpt_lib.class_prompts(model, ["cat", "dog"], name_tokens=torch.zeros(2, 1, 32))
    same = tpt_lib.class_prompts(model, ["cat", "dog"], context=words.context)
    assert [is_learned(prompts) for prompts in (words, same, near, own, net, free)] == [False, False, *[True] * 4]
    half = fresh("open_clip-vit")
    half.module.half()
    assert not is_learned(tpt_lib.class_prompts(half, ["cat", "dog"]))


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
@pytest.mark.parametrize("shape", [(4, 32), (2, 4, 32)])
def test_a_conditional_context_is_shifted_by_what_the_network_gives_each_image(model, shape, batch):
    net, features = meta_net(), torch.randn(*batch, 16)
    prompts = tpt_lib.class_prompts(model, ["cat", "dog"], context=LearnedPrompt(torch.randn(shape), net))
    found = tpt_lib.prompts.conditional_context(prompts, features)
    assert found.shape == (*batch, *shape)
    for one, feature in zip(found.reshape(-1, *shape), features.reshape(-1, 16), strict=True):
        torch.testing.assert_close(one, prompts.context + net(feature))
    half = tpt_lib.prompts.conditional_context(prompts, features.half())
    torch.testing.assert_close(half, tpt_lib.prompts.conditional_context(prompts, features.half().float()))
    plain = tpt_lib.class_prompts(model, ["cat", "dog"], context=prompts.context)
    assert torch.equal(tpt_lib.prompts.conditional_context(plain, features), plain.context.expand(*batch, *shape))


def test_given_tokens_become_plain_float32(model):
    context, names = (torch.randn(shape).half().requires_grad_() for shape in [(4, 32), (2, 1, 32)])
    prompts = tpt_lib.class_prompts(model, ["cat", "dog"], context=context, name_tokens=names)
    for got, given in ((prompts.context, context), (prompts.name_tokens, names)):
        assert torch.equal(got, given.float())
        assert got.dtype == torch.float32
        assert not got.requires_grad


def test_forget(model):
    prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    tpt_lib.zero_shot_predict(model, prompts, torch.eye(16)[:2])
    assert prompts.cache._kept
    prompts.forget()
    assert not prompts.cache._kept

"""What is kept with prompts: while a fingerprint holds, once for all threads, and never in a copy."""

import copy
import multiprocessing
import os
import pickle
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from support.letters import KeptLetters, Letters
from support.marking import slow_but
from support.remote import predict_elsewhere
from support.zoo import build

import tpt_lib
from tpt_lib import class_prompts
from tpt_lib.models.identity import text_fingerprint
from tpt_lib.prompts.cache import TextCache

NAMES = ["cat", "dog", "bee"]


def counter():
    made = []

    def make():
        made.append(object())
        return made[-1]

    return made, make


def test_a_value_is_kept_while_the_fingerprint_is_the_same():
    model, cache = KeptLetters(), TextCache()
    made, make = counter()
    first = cache.keep("a", text_fingerprint(model), make)
    assert cache.keep("a", text_fingerprint(model), make) is first
    assert cache.keep("b", text_fingerprint(model), make) is not first
    assert len(made) == 2
    model.weights += 1
    second = cache.keep("a", text_fingerprint(model), make)
    assert second is not first
    assert cache.keep("a", text_fingerprint(model), make) is second
    assert len(cache._kept) == 2, "what is stale is replaced"


def test_without_a_fingerprint_nothing_is_kept():
    cache, (made, make) = TextCache(), counter()
    assert text_fingerprint(Letters()) is None
    assert cache.keep("a", None, make) is not cache.keep("a", None, make)
    assert len(made) == 2
    assert not cache._kept


def test_clear():
    model, cache, (made, make) = KeptLetters(), TextCache(), counter()
    first = cache.keep("a", text_fingerprint(model), make)
    cache.clear()
    assert cache.keep("a", text_fingerprint(model), make) is not first
    assert len(made) == 2


def test_drop():
    model, cache, (made, make) = KeptLetters(), TextCache(), counter()
    first, other = (cache.keep(key, text_fingerprint(model), make) for key in "ab")
    cache.drop("a")
    cache.drop("c")
    assert cache.keep("a", text_fingerprint(model), make) is not first
    assert cache.keep("b", text_fingerprint(model), make) is other
    assert len(made) == 3


def test_a_value_that_fails_to_build_is_not_kept():
    model, cache = KeptLetters(), TextCache()
    with pytest.raises(ZeroDivisionError):
        cache.keep("a", text_fingerprint(model), lambda: 1 / 0)
    assert cache.keep("a", text_fingerprint(model), lambda: 3) == 3


def test_threads_build_a_value_once_and_one_value_may_need_another():
    model, cache, (made, make) = KeptLetters(), TextCache(), counter()
    barrier = threading.Barrier(4)

    def work(_):
        barrier.wait()
        mark = text_fingerprint(model)
        return cache.keep("outer", mark, lambda: [cache.keep("inner", mark, make)])

    with ThreadPoolExecutor(4) as pool:
        assert len({id(value) for value in pool.map(work, range(4))}) == 1
    assert len(made) == 1


def test_two_prompts_of_one_model_keep_apart():
    model = build("open_clip-vit")
    prompts, others = class_prompts(model, NAMES), class_prompts(model, NAMES[::-1])
    views = F.normalize(torch.randn(6, 16), dim=-1)
    found, turned = (tpt_lib.zero_shot_predict(model, each, views).logits for each in (prompts, others))
    torch.testing.assert_close(found, turned.flip(0))
    assert prompts.cache is not others.cache


def pickled(thing):
    return pickle.loads(pickle.dumps(thing))


COPIES = {"deepcopy": copy.deepcopy, "copy": copy.copy, "pickle": pickled}


def used(model, prompts, views):
    return [tpt_lib.tpt_predict(model, prompts, views, steps=2), tpt_lib.zero_shot_predict(model, prompts, views)]


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("template", ["my {}", ["my {}", "the {}"]])
def test_copies_of_prompts_say_the_same_and_start_empty(template, how, before):
    check_copies(KeptLetters(), template, COPIES[how], before)


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("how", ["deepcopy", "copy"])
@pytest.mark.parametrize("kind", slow_but(["open_clip-vit"], ["open_clip-vit", "open_clip-not-causal"]))
def test_copies_of_prompts_of_wrapped_models(kind, how, before):
    check_copies(build(kind), "a photo of a {}.", COPIES[how], before)


def check_copies(model, template, copied, before):
    prompts = class_prompts(model, NAMES, template=template)
    views = F.normalize(torch.randn(8, 6 if isinstance(model, Letters) else 16), dim=-1)
    predict = used if isinstance(template, str) else lambda *given: [tpt_lib.zero_shot_predict(*given)]
    other = copied(prompts) if before else None
    want = predict(model, prompts, views)
    assert prompts.cache._kept
    other = other or copied(prompts)
    assert not other.cache._kept
    for got, wanted in zip(predict(other.model, other, views), want, strict=True):
        assert torch.equal(got.logits, wanted.logits)
        assert got.names == wanted.names
    assert other.cache._kept
    assert other.cache is not prompts.cache
    other.forget()
    assert prompts.cache._kept
    assert all(torch.equal(a.logits, b.logits) for a, b in zip(predict(model, prompts, views), want, strict=True))


@pytest.mark.parametrize("how", COPIES)
def test_copies_of_predictions_say_the_same(how):
    model = build("open_clip-vit")
    found = tpt_lib.tpt_predict(model, class_prompts(model, NAMES), F.normalize(torch.randn(2, 8, 16), dim=-1))
    again = COPIES[how](found)
    assert again.labels == found.labels
    for name in ("logits", "context", "selected", "tuned", "loss_before", "loss_after"):
        assert torch.equal(getattr(again, name), getattr(found, name))
    assert torch.equal(again.zero_shot.logits, found.zero_shot.logits)


@pytest.mark.slow
def test_a_spawned_process_gives_the_same_numbers():
    views = F.normalize(torch.randn(8, 6), dim=-1)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        for model in (Letters(), KeptLetters()):
            prompts = class_prompts(model, NAMES, template="my {}")
            found, zero_shot = used(model, prompts, views)
            logits, zero, sent, label, process = pool.submit(predict_elsewhere, model, prompts, views, found).result()
            assert process != os.getpid()
            torch.testing.assert_close(logits, found.logits, atol=1e-6, rtol=1e-6)
            torch.testing.assert_close(zero, zero_shot.logits, atol=1e-6, rtol=1e-6)
            assert torch.equal(sent, found.logits)
            assert label == found.label

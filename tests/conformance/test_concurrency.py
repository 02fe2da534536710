"""Threads and processes give exactly what one gives, and a fork of a process that has used torch goes on."""

import multiprocessing
import os
import pickle
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tpt_lib as tpt

NAMES = ["cat", "dog", "bee"]


class Letters(nn.Module):
    """A model of nothing but torch, so that a process starts soon: a text is the weighted mean of its letters."""

    image_spec, logit_scale, logit_bias = tpt.ImageSpec((8, 8)), 100.0, 0.0

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.weights = nn.Embedding(128, 16), nn.Parameter(torch.rand(24, 1))
        self.image, self.text = nn.Linear(192, 24), nn.Linear(16, 24)

    def tokenize(self, texts):
        rows = [[1, *(ord(c) for c in text.replace(" ", "")), 2] for text in texts]
        return torch.tensor([row + [0] * (24 - len(row)) for row in rows])

    def embed_tokens(self, ids):
        return self.words(ids).detach()

    def encode_image(self, pixels):
        return self.image(pixels.flatten(1))

    def encode_embeddings(self, embeddings, ids):
        return self.text((embeddings.tanh() * self.weights * (ids != 0)[..., None]).sum(dim=1))


def answers(model, number):
    """All that is computed for one image, from pixels on."""
    pixels = torch.randn(8, 3, 8, 8, generator=torch.Generator().manual_seed(number))
    prompts = tpt.class_prompts(model, NAMES, template="my {}")
    found = tpt.tpt_predict(model, prompts, tpt.encode_views(model, pixels), steps=3)
    solved = tpt.bongard_tpt(model, *(tpt.encode_views(model, pixels[i : i + 2]) for i in (0, 2, 4)), steps=3)
    return [found.logits.tolist(), found.context.tolist(), solved.logits.tolist()]


def from_images(model, prompts, classifier, number):
    image = torch.randint(256, (3, 40, 60), dtype=torch.uint8, generator=torch.Generator().manual_seed(number))
    found = tpt.tpt_classify(model, image, prompts, n_views=8, recipe="augmix", steps=2)
    adapted = tpt.memo_classify(classifier, image, spec=tpt.ImageSpec((32, 32)), n_views=4, lr=0.1)
    group = tpt.memo_clip_predict(model, prompts, tpt.augment_views(image, model.image_spec, n_views=4), group="image")
    return [each.logits for each in (found, found.zero_shot, adapted, group)] + [found.context, found.selected]


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize("shared", [True, False])
def test_four_threads_on_one_model(shared):
    from support.cases import model_of

    model, prompts = model_of(), tpt.class_prompts(model_of(), NAMES)
    classifier = nn.Sequential(nn.Conv2d(3, 4, 4, 4), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(256, 2)).eval()

    def work(number):
        own = prompts if shared else tpt.class_prompts(model, NAMES)
        return from_images(model, own, classifier, number)

    want = [work(number) for number in range(4)]
    prompts = tpt.class_prompts(model_of(), NAMES)  # the threads build what is kept with them
    with ThreadPoolExecutor(4) as pool:
        for got, alone in zip(pool.map(work, list(range(4)) * 2), want * 2, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(got, alone, strict=True))


def in_a_process(number):
    torch.set_num_threads(1)
    return answers(Letters(), number), os.getpid()


def test_four_processes():
    want = [answers(Letters(), number) for number in range(4)]
    with ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("spawn")) as pool:
        found = list(pool.map(in_a_process, range(4)))
    assert [got for got, _ in found] == want
    assert os.getpid() not in {process for _, process in found}


def in_a_fork(sender, model, number):
    torch.randn(2_000_000).exp()  # enough for several threads
    sender.send((answers(model, number), torch.get_num_threads()))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_after_torch_was_used_with_several_threads():
    """OpenMP's threads do not survive a fork, and torch would wait for them; without the library's care this hangs."""
    model = Letters()
    want = [answers(model, number) for number in range(2)]
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        torch.randn(2_000_000).exp()  # starts the threads
        for number, expected in enumerate(want):
            child = context.Process(target=in_a_fork, args=(sender, model, number), daemon=True)
            child.start()
            answered = receiver.poll(60)
            if not answered:
                child.kill()
            assert answered, "the forked process hangs"
            assert receiver.recv() == (expected, 1)
            child.join()
        assert torch.get_num_threads() == 2, "the parent keeps its threads"
    finally:
        torch.set_num_threads(before)


def test_prompts_and_results_can_be_sent():
    model = Letters()
    prompts = tpt.class_prompts(model, NAMES, template="my {}")
    features = F.normalize(torch.randn(8, 24), dim=-1)
    tpt.tune_prompt(model, prompts, features)
    found = pickle.loads(pickle.dumps(tpt.tpt_predict(model, prompts, features)))
    assert found.label in NAMES

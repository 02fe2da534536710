"""Threads and spawned processes give exactly what one gives. Forks of a process with threads are the caller's affair."""

import copy
import multiprocessing
import os
import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from support.marking import slow_but
from torch import nn
from torch.utils.data import DataLoader

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


def prompts_of(model):
    return tpt.class_prompts(model, NAMES, template="my {}")


def answers(model, prompts, number):
    """All that is computed for one image, from pixels on."""
    pixels = torch.randn(8, 3, 8, 8, generator=torch.Generator().manual_seed(number))
    found = tpt.tpt_predict(model, prompts, tpt.encode_views(model, pixels), steps=3)
    solved = tpt.bongard_tpt(model, *(tpt.encode_views(model, pixels[i : i + 2]) for i in (0, 2, 4)), steps=3)
    return [found.logits.tolist(), found.context.tolist(), solved.logits.tolist()]


def from_images(model, prompts, classifier, number):
    image = torch.randint(256, (3, 40, 60), dtype=torch.uint8, generator=torch.Generator().manual_seed(number))
    found = tpt.tpt_classify(model, image, prompts, n_views=8, recipe="augmix", steps=2)
    adapted = tpt.memo_classify(classifier, image, spec=tpt.ImageSpec((32, 32)), n_views=4, lr=0.1)
    group = tpt.memo_clip_predict(model, prompts, tpt.augment_views(image, model.image_spec, n_views=4), group="image")
    return [each.logits for each in (found, found.zero_shot, adapted, group)] + [found.context, found.selected]


@pytest.mark.slow
@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize("shared", slow_but([True], [True, False]))
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


def in_a_process(given):
    """What a spawned process makes of things that were sent to it."""
    torch.set_num_threads(1)
    model, prompts, prediction, number = given
    assert prediction.label in prompts.names
    return answers(model, prompts, number), os.getpid()


@pytest.mark.slow
def test_spawned_processes_give_what_this_one_gives():
    """The model, the prompts and a prediction are sent, before and after they were used; what is kept stays here."""
    model = Letters()
    new, used = prompts_of(model), prompts_of(model)
    want = [answers(model, used, number) for number in range(2)]
    features = F.normalize(torch.randn(2, 24), dim=-1)
    given = [
        (model, new, tpt.zero_shot_predict(model, used, features), 0),
        (model, used, tpt.tpt_predict(model, used, features), 1),
    ]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        found = list(pool.map(in_a_process, given))
    assert [got for got, _ in found] == want
    assert os.getpid() not in {process for _, process in found}


def test_a_wrapped_model_and_its_prompts_can_be_copied():
    """Prompts belong to their model, so both are copied together, also after use, and give the same."""
    from support.zoo import fresh

    model = fresh("open_clip-vit")
    prompts = tpt.class_prompts(model, NAMES)
    features = F.normalize(torch.randn(4, 16), dim=-1)
    want = tpt.tpt_predict(model, prompts, features)
    for send in (copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))):
        their_model, theirs = send((model, prompts))
        assert theirs.model is their_model is not model
        torch.testing.assert_close(tpt.tpt_predict(their_model, theirs, features).logits, want.logits)


FORKS = """
import os, sys

seen = []
os.register_at_fork = lambda **_: seen.append(sys._getframe(1).f_globals["__name__"])
import torch
import tpt_lib as tpt

model = tpt.load_tiny()
tpt.tpt_classify(model, torch.rand(3, 40, 40), ["cat", "dog"], n_views=2)
mine = [name for name in seen if name.startswith("tpt_lib")]
assert not mine, mine
print("standard library:", "threading" in seen or "random" in seen or "logging" in seen)
"""


@pytest.mark.slow
def test_nothing_of_the_library_happens_at_a_fork():
    """An at-fork handler cannot be taken back, so importing the library and using it registers none."""
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "standard library: True", (
        "the recorder must see handlers, or it would see none of ours"
    )


@pytest.mark.slow
def test_workers_of_a_loader_make_views_after_threads_were_used():
    """A DataLoader forks by default, and gives its workers one thread, before they could wait for those they lost."""
    images = [torch.randint(256, (3, 300, 400), dtype=torch.uint8) for _ in range(2)]
    made = tpt.views.ViewsDataset(images, tpt.ImageSpec((224, 224)), n_views=3, recipe="augmix")
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        torch.randn(2_000_000).exp()  # starts the threads
        want = [made[i] for i in range(2)]
        loader = DataLoader(made, batch_size=None, num_workers=2, timeout=120)
        for got, alone in zip(loader, want, strict=True):
            torch.testing.assert_close(got, alone)
        assert torch.get_num_threads() == 2, "this process keeps its threads"
    finally:
        torch.set_num_threads(before)

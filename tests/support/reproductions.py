"""Miniature datasets in the real layouts, a small model with the name of the paper's, and learned prompts for it."""

import dataclasses
import functools

import PIL.Image
import torch
from support.miniatures import coop, put
from support.zoo import fresh

import tpt_lib
from tpt_lib import paper
from tpt_lib.evaluation.data import folders, load
from tpt_lib.methods import template_ensemble
from tpt_lib.paper import reproduce
from tpt_lib.paper.reproduction import jobs
from tpt_lib.prompts.contexts import LearnedPrompt, MetaNet

SYNSETS = {"n01498041": "stingray", "n01531178": "goldfinch", "n01534433": "junco"}
LABELS = {"dtd", "pets"}


@functools.cache
def model(name="ViT-B-16/openai"):
    return dataclasses.replace(fresh("open_clip-vit"), name=name)


def published(monkeypatch, **counts):
    """Make entries of the registry expect three classes and a number of images."""
    changed = {
        name: dataclasses.replace(
            load.ENTRIES[name], classes=3, counts={**dict.fromkeys(load.ENTRIES[name].counts, 6), "test": count}
        )
        for name, count in counts.items()
    }
    monkeypatch.setattr(load, "ENTRIES", {**load.ENTRIES, **changed})


def write(root):
    """Write DTD, Pets and ImageNet-A with three classes and six test images each; the pictures differ."""
    for name in LABELS:
        entry = load.ENTRIES[name]
        coop(entry, root / entry.folders[0], "images")
    put(*(root / "imagenet-a" / synset / f"{i}.jpg" for synset in SYNSETS for i in range(2)))
    draw = torch.Generator().manual_seed(0)
    for file in sorted(root.rglob("*.jpg")):
        noise = torch.randint(256, (12, 16, 3), dtype=torch.uint8, generator=draw)
        PIL.Image.fromarray(noise.numpy()).save(file)


def as_published(monkeypatch):
    """Make the registry expect what ``write`` writes."""
    published(monkeypatch, **dict.fromkeys(LABELS, 6), **{"imagenet-a": 6})
    for module in (template_ensemble, jobs):  # two are quicker than 80
        monkeypatch.setattr(module, "openai_templates", lambda: ["a photo of the {}.", "a {}."])
    names = folders.imagenet_names
    monkeypatch.setattr(
        folders, "imagenet_names", lambda one="imagenet": SYNSETS if one == "imagenet-a" else names(one)
    )


def plan(root, name="table2", own=None, **options):
    return paper.plan_experiment(own or model(), name, root, **{"out": root / "out", **options})


def done(root, out, name="table2", **options):
    return reproduce(plan(root, name, out=out, **options), progress=False)


def rows(done):
    """The rows by method and dataset."""
    return {(row["method"], row["dataset"]): row for row in done.rows()}


def checkpoints(folder):
    """Three prompts of CoOp and three of CoCoOp."""
    draw = torch.Generator().manual_seed(0)

    def random(*shape):
        return torch.randn(*shape, generator=draw)

    files = {"coop": [], "cocoop": []}
    for i in range(3):
        for kind in files:
            net = MetaNet(random(2, 16), random(2), random(32, 2), random(32)) if kind == "cocoop" else None
            files[kind].append(folder / f"{kind}{i}.pth.tar")
            tpt_lib.prompts.save_prompt(files[kind][-1], LearnedPrompt(random(4, 32), net))
    return files


def counted(monkeypatch):
    """Count the images that are encoded from now on, and the rows that are computed."""
    from tpt_lib.evaluation.run import encode_work
    from tpt_lib.evaluation.run.work import Work

    counts = {"encoded": 0, "rows": 0}
    encode, start = encode_work.encode_views, Work.start

    def encode_views(*args):
        counts["encoded"] += 1
        return encode(*args)

    def counted_start(self, seed, group):
        counts["rows"] += len(group)
        return start(self, seed, group)

    monkeypatch.setattr(encode_work, "encode_views", encode_views)
    monkeypatch.setattr(Work, "start", counted_start)
    return counts

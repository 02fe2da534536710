"""What calls of the library cost an accelerator, counted on the simulated one, and the bars that they must keep.

Counts do not depend on the width of a tower, so that a narrow tower with the layers of ViT-B/16 gives ViT-B/16's.
"""

import contextlib
import dataclasses
import functools
import math
import pathlib
import pickle
import tempfile
import unittest.mock
import warnings

import torch
import torch.nn.functional as F
from support.simulated import DEVICE, Counts, counting, to_simulated
from torch.utils.data import DataLoader

import tpt_lib

SPEC = tpt_lib.ImageSpec((224, 224))
LAYERS = 12
BATCH = 8
METHODS = ["tpt", "view_average"]

ONE, MANY_CLASSES, EIGHT = "tpt_predict, K=200", "tpt_predict, K=1000", "tpt_predict, K=200, batch of 8"
CROPS, AUGMIX, ENCODE = "63 crops", "63 AugMix views", "encode_views"
EVALUATE, WORKER = "evaluate, two methods, batch of 8", "evaluate, one worker"
BARS = {  # (call, what is counted): the highest count allowed
    (ONE, "launches"): 800,
    (MANY_CLASSES, "launches"): 800,
    (EIGHT, "launches"): 250,
    (EIGHT, "synchronizations"): 2,
    (CROPS, "launches"): 80,
    (CROPS, "synchronizations"): 0,
    (AUGMIX, "launches"): 400,
    (AUGMIX, "synchronizations"): 0,
    (EVALUATE, "synchronizations"): 10,
    (EVALUATE, "bytes_in"): 1_200_000,
    (WORKER, "bytes_from_worker"): 1_200_000,
}


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a call costs: launches and bytes per image, synchronizations per call or batch, with the lines that caused them."""

    launches: float = 0
    synchronizations: int = 0
    waits: dict = dataclasses.field(default_factory=dict)
    uploads: dict = dataclasses.field(default_factory=dict)
    bytes_in: float = 0
    bytes_out: float = 0
    bytes_from_worker: float = 0

    @classmethod
    def of(cls, counts, images=1):
        return cls(
            launches=counts.launches / images,
            synchronizations=counts.synchronizations,
            waits=dict(counts.waits.most_common()),
            uploads=dict(counts.uploads.most_common()),
            bytes_in=counts.bytes_in / images,
            bytes_out=counts.bytes_out / images,
        )


def narrow_module(width=32, heads=2):
    """Return a CLIP with the layers of ViT-B/16's towers, and its image size, that takes little time to run.

    ViT-B/16's text tower has a width of 512 and 8 heads.
    """
    import open_clip

    torch.manual_seed(0)
    vision = {"image_size": SPEC.size[0], "patch_size": 112, "width": 32, "head_width": 16, "layers": LAYERS}
    return open_clip.CLIP(16, vision, {"width": width, "heads": heads, "layers": LAYERS}).eval().requires_grad_(False)


def simulated_model(module):
    """Return a module on the device, with CLIP's logit scale."""
    with torch.no_grad():
        module.logit_scale.fill_(math.log(100))
    return tpt_lib.wrap(to_simulated(module))


def imagenet_prompts(model, k):
    import open_clip

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="class_prompts: 2 of 1000 classes have the same name as another")
        return tpt_lib.class_prompts(model, open_clip.IMAGENET_CLASSNAMES[:k])


def random_features(module, draw):
    """Return unit features of a batch of images with 64 views each."""
    width = module.text_projection.shape[1]
    return F.normalize(torch.randn(BATCH, 64, width, generator=draw), dim=-1).to(DEVICE)


def launches_per_image(callers):
    """Return how many operations each method launches for one image with 64 views, K=200, after its first image.

    Args:
        callers: for each name a function ``(model, prompts)`` that returns a function of the features of the next image.
    """
    found, module = {}, narrow_module()
    with counting():
        model = simulated_model(module)
        prompts = imagenet_prompts(model, 200)
        first, second, *_ = random_features(module, torch.Generator().manual_seed(0))
        for name, caller in callers.items():
            call = caller(model, prompts)
            call(first)
            with counting() as counts:
                call(second)
            found[name] = counts.launches
    return found


def calls_of(module):
    """Return functions that count each call on a module, by the call's name; the first use of the model is not counted."""
    model = simulated_model(module)
    prompts = functools.cache(functools.partial(imagenet_prompts, model))
    draw = torch.Generator().manual_seed(0)
    features = random_features(module, draw)
    images = list(torch.randint(256, (2 * BATCH, 3, 375, 500), dtype=torch.uint8, generator=draw))

    def predict(k, given):
        tpt_lib.tpt_predict(model, prompts(k), given)
        with counting() as counts:
            tpt_lib.tpt_predict(model, prompts(k), given)
        return Cost.of(counts, images=len(given) if given.ndim == 3 else 1)

    def views(recipe):
        with counting() as counts:
            tpt_lib.augment_views(images[0], SPEC, recipe=recipe, device=DEVICE)
        return Cost.of(counts)

    def encode():
        given = torch.randn(2, 3, *model.image_spec.size, generator=draw).to(DEVICE)
        with counting() as counts:
            tpt_lib.encode_views(model, given)
        return Cost.of(counts)

    def evaluate(number, num_workers=0):
        data = tpt_lib.EvalSet("noise", [(image, 0) for image in images[:number]], prompts(200).names)
        options = {"prompts": prompts(200), "batch_size": BATCH, "num_workers": num_workers, "progress": False}
        with tempfile.TemporaryDirectory() as folder, counting() as counts:
            tpt_lib.evaluate(model, data, METHODS, out=pathlib.Path(folder) / "run.jsonl", **options)
        return counts

    def batch_of_evaluate():
        predict(200, features)  # so that neither run builds the graph
        return Cost.of(_difference(evaluate(2 * BATCH), evaluate(BATCH)), images=BATCH)

    def from_worker():
        with _bytes_of_items() as sizes:
            evaluate(2, num_workers=1)
        return Cost(bytes_from_worker=sum(sizes) / len(sizes))

    return {
        ONE: lambda: predict(200, features[0]),
        MANY_CLASSES: lambda: predict(1000, features[0]),
        EIGHT: lambda: predict(200, features),
        CROPS: lambda: views("crop"),
        AUGMIX: lambda: views("augmix"),
        ENCODE: encode,
        EVALUATE: batch_of_evaluate,
        WORKER: from_worker,
    }


def _difference(more, fewer):
    """Return what two batches cost beyond one, without what a run does once."""
    return Counts(
        operations=more.operations - fewer.operations,
        waits=more.waits - fewer.waits,
        uploads=more.uploads - fewer.uploads,
        bytes_in=more.bytes_in - fewer.bytes_in,
        bytes_out=more.bytes_out - fewer.bytes_out,
    )


@contextlib.contextmanager
def _bytes_of_items():
    """Yield a list that gets the size of everything that workers of a ``DataLoader`` send in the block."""
    sizes, own = [], DataLoader.__iter__

    def items(loader):
        for item in own(loader):
            if loader.num_workers:
                sizes.append(len(pickle.dumps(item)))
            yield item

    with unittest.mock.patch.object(DataLoader, "__iter__", items):
        yield sizes

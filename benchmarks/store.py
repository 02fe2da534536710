"""Cost of feature stores: TPT and the methods without tuning from one, reading, filling and opening it; 2 threads.

Runs that are compared are interleaved in one process. TPT and filling use real towers with random weights. Runs into a file and
reading use random features of the width of ViT-B/16, as their cost does not depend on what made the features. The store of a
million samples has its labels and paths, and as many files of features as it would have, which are links to one.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import open_clip
import torch
import torch.nn.functional as F
from harness import (
    Times,
    in_own_process,
    open_model,
    parser,
    peak_gb,
    prepare,
    print_times,
    rounds,
    seconds,
    spread,
    write_json,
)

import tpt_lib as tpt
from tpt_lib.evaluation.run.fill_store import Encoded, complete, write_shard
from tpt_lib.features.store_index import COLUMNS, INDEX, Index, StoredType, shard_count, shard_path, shard_samples
from tpt_lib.features.whole_file import join_texts, write_tensors

BARS: dict[str, Any] = {
    "tpt": 0.10,
    "rates": {"zero_shot": 2000, "view_average": 500, "view_vote": 500},
    "reading": 1.2,
    "filling": 1.03,
    "opening": {"seconds": 1.0, "megabytes": 200},
}
CLASSES, SHARD = 200, 64
DTYPES: tuple[StoredType, ...] = ("float16", "float32")


def noise(count: int) -> tpt.EvalSet:
    """Return random images with labels."""
    draw = torch.Generator().manual_seed(0)
    images = (torch.randint(256, (3, 375, 500), dtype=torch.uint8, generator=draw) for _ in range(count))
    names = list(dict.fromkeys(open_clip.IMAGENET_CLASSNAMES))[:CLASSES]
    return tpt.EvalSet("noise", [(image, i % CLASSES) for i, image in enumerate(images)], names)


def miniature() -> tpt.ClipLike:
    """Return a model with features as wide as those of ViT-B/16, whose towers cost next to nothing."""
    image = open_clip.CLIPVisionCfg(layers=1, width=64, head_width=32, patch_size=16, image_size=16)
    text = open_clip.CLIPTextCfg(layers=1, width=64, heads=2)
    torch.manual_seed(0)
    return tpt.wrap(open_clip.CLIP(512, image, text).eval().requires_grad_(False))


def change_length(store: tpt.FeatureStore, samples: int) -> Index:
    """Let the index of a store say that it has another number of samples."""
    index = store.index
    index["dataset"]["n"] = samples
    (store.path / INDEX).write_text(json.dumps(index))
    return index


def made_up(model: tpt.ClipLike, folder: Path, samples: int, dtype: StoredType) -> tpt.FeatureStore:
    """Return a store of random features, which says that they are those of a model."""
    index = change_length(tpt.encode_dataset(model, noise(1), folder, dtype=dtype, progress=False), samples)
    (folder / COLUMNS).unlink()
    draw = torch.Generator().manual_seed(0)
    for shard in range(shard_count(index)):
        own = shard_samples(index, shard)
        features = F.normalize(torch.randn(len(own), 64, 512, generator=draw), dim=-1)
        encoded = [
            Encoded(sample=i, label=i % CLASSES, path=f"val/{i:08d}.JPEG", error="", features=one)
            for i, one in zip(own, features, strict=True)
        ]
        write_shard(folder, index, "model", 0, shard, encoded)
    complete(folder, index, "model", 0)
    return tpt.FeatureStore.open(folder)


def tuning(architecture: str, pairs: int, folder: Path) -> Times:
    """Measure TPT of one image from its features in a store and from its pixels."""
    _, model = open_model(architecture)
    data = noise(1)
    prompts = tpt.class_prompts(model, data.classes)
    store = tpt.encode_dataset(model, data, folder, progress=False)
    from_store = lambda: tpt.tpt_predict(model, prompts, tpt.FeatureStore.open(store.path)[0][0])  # noqa: E731
    from_store()
    calls: dict[str, Callable[[], object]] = {
        "from images": partial(tpt.tpt_classify, model, data.samples[0][0], prompts),
        "from a store": from_store,
    }
    return rounds({name: partial(seconds, call) for name, call in calls.items()}, pairs)


def run(model: tpt.ClipLike, store: tpt.FeatureStore, method: str, prompts: tpt.ClassPrompts) -> None:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run.jsonl"
        tpt.evaluate(model, store, method, out=out, prompts=prompts, batch_size=64, progress=False)


def running(model: tpt.ClipLike, store: tpt.FeatureStore, pairs: int) -> Times:
    """Measure images per second of ``evaluate`` from a store into a run file, from opening the store to the report."""
    prompts = tpt.class_prompts(model, store.classes)
    rate = lambda method: len(store) / seconds(run, model, tpt.FeatureStore.open(store.path), method, prompts)  # noqa: E731
    run(model, store.select(range(SHARD)), "zero_shot", prompts)
    return rounds({method: partial(rate, method) for method in BARS["rates"]}, pairs)


def keep_freed_memory() -> None:
    """Tell glibc not to return freed memory: whether a batch gets pages that must be cleared first is luck otherwise."""
    for name in (-1, -3):  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
        ctypes.CDLL(None).mallopt(name, 2**30)


def mapped_read(store: tpt.FeatureStore) -> None:
    """Map each file of a store, and read its features as float32. A batch is kept until the next is there, as in any loop."""
    dtype: torch.dtype = getattr(torch, store.entry["dtype"])
    for path in sorted(shard_path(store.path, store.model, store.view_seed, 0).parent.iterdir()):
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        start = 8 + int.from_bytes(mapped[:8], "little")
        first, end = json.loads(mapped[8:start])["features"]["data_offsets"]
        count = (end - first) // dtype.itemsize
        stored = torch.frombuffer(mapped, dtype=dtype, offset=start + first, count=count)
        _batch = stored.to(torch.float32, copy=True)


def batches(store: tpt.FeatureStore) -> None:
    opened = tpt.FeatureStore.open(store.path)
    for first in range(0, len(opened), SHARD):
        _batch = opened.features(range(first, min(first + SHARD, len(opened))))


def loader(store: tpt.FeatureStore) -> None:
    for _batch in tpt.FeatureStore.open(store.path).loader(batch_size=SHARD):
        pass


def reading(store: tpt.FeatureStore, pairs: int) -> Times:
    """Measure the reading of all features, in batches of one file each, from opening the store."""
    keep_freed_memory()
    calls: dict[str, Callable[[], None]] = {
        "memory map": partial(mapped_read, store),
        "store.features": partial(batches, store),
        "store.loader": partial(loader, store),
    }
    for call in calls.values():
        call()
    return rounds({name: partial(seconds, call) for name, call in calls.items()}, pairs)


def thrown_away(model: tpt.ClipLike, data: tpt.EvalSet) -> None:
    for i in range(len(data)):
        image, _ = data.samples[i]
        tpt.encode_views(model, tpt.augment_views(image, model.image_spec))


def stored(model: tpt.ClipLike, data: tpt.EvalSet) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tpt.encode_dataset(model, data, folder, progress=False)


def filling(architecture: str, images: int, pairs: int, folder: Path) -> Times:
    """Measure what an image costs when it is encoded, what a store adds to that, and what a call costs whatever it encodes.

    What a store adds is taken from a model whose towers cost next to nothing: the noise of encoding is larger.
    """
    _, model = open_model(architecture)
    data, small, many = noise(images), miniature(), noise(8 * images)
    again = partial(tpt.encode_dataset, model, data, folder, progress=False)
    again()
    calls = rounds(
        {
            "thrown away": partial(seconds, thrown_away, model, data),
            "small, thrown away": partial(seconds, thrown_away, small, many),
            "small, stored": partial(seconds, stored, small, many),
            "a call with nothing left": partial(seconds, again),
        },
        pairs,
    )
    encoding = [value / images for value in calls["thrown away"]]
    both = zip(calls["small, stored"], calls["small, thrown away"], strict=True)
    added = [(with_store - without) / len(many) for with_store, without in both]
    return {
        "encoding": encoding,
        "encoding into a store": [one + more for one, more in zip(encoding, added, strict=True)],
        "once a call": calls["a call with nothing left"],
    }


def make_large(folder: Path, samples: int) -> None:
    """Make a store of many samples whose files of features are links to one."""
    index = change_length(made_up(miniature(), folder, SHARD, "float16"), samples)
    text, ends = join_texts([f"val/n{i % 1000:08d}/ILSVRC2012_val_{i:08d}.JPEG" for i in range(samples)])
    labels = (torch.arange(samples) % CLASSES).int()
    write_tensors(folder / COLUMNS, {"labels": labels, "paths": text, "path_ends": ends}, {})
    for shard in range(1, shard_count(index)):
        os.link(shard_path(folder, "model", 0, 0), shard_path(folder, "model", 0, shard))


def print_opening(path: str) -> None:
    """Open a store and use its last sample; print the seconds, and the megabytes over the imports, as JSON."""
    prepare(open_clip, quiet=True)
    imported, start = peak_gb(), time.perf_counter()
    store = tpt.FeatureStore.open(path)
    store[len(store) - 1], store.sample_path(len(store) - 1), store.labels
    print(json.dumps({"seconds": time.perf_counter() - start, "megabytes": 1000 * (peak_gb() - imported)}))


def opening(samples: int, pairs: int, folder: Path) -> Times:
    make_large(folder, samples)
    runs = [in_own_process(__file__, "--open", folder) for _ in range(pairs)]
    return {name: [each[name] for each in runs] for name in ("seconds", "megabytes")}


def main() -> None:
    options = parser(__doc__, pairs=5)
    options.add_argument("--quick", action="store_true", help="small towers and small stores, for a trial")
    options.add_argument("--open", metavar="FOLDER", help="print what opening this store costs")
    arguments = options.parse_args()
    if arguments.open:
        print_opening(arguments.open)
        return
    prepare(open_clip)
    pairs, quick = arguments.pairs, arguments.quick
    architecture = "ViT-S-32-alt" if quick else "ViT-B-16"
    samples, images, many = (128, 1, 10_000) if quick else (2048, 8, 1_000_000)
    with tempfile.TemporaryDirectory() as name:
        folder, model = Path(name), miniature()
        small = {dtype: made_up(model, folder / dtype, samples, dtype) for dtype in DTYPES}
        found: dict[str, Any] = {"model": architecture, "classes": CLASSES, "samples": samples, "images": images}
        found["tpt"] = tuning(architecture, pairs, folder / "tpt")
        print(f"\nTPT of one image, {architecture}, K={CLASSES}: median (min-max), and over that from images")
        print_times(found["tpt"], "from images", note=f"   bar {BARS['tpt']}")
        found["rates"] = running(model, small["float16"], pairs)
        print(f"\nImages per second from a store of {samples} into a run file, K={CLASSES}, batches of {SHARD}")
        for method, bar in BARS["rates"].items():
            print(f"  {method:14} {spread(found['rates'][method], '', 0)}   bar {bar}")
        found["reading"] = {dtype: reading(store, 5 * pairs) for dtype, store in small.items()}
        for dtype, times in found["reading"].items():
            print(f"\nReading a store of {samples} of {dtype}: median (min-max), and over a bare memory map")
            print_times(times, "memory map", note=f"   bar {BARS['reading']}")
        found["filling"] = filling("ViT-S-32-alt", images, pairs, folder / "filled")
        print("\nAn image with ViT-S-32-alt: median (min-max), and over throwing features away")
        print_times(found["filling"], "encoding", note=f"   bar {BARS['filling']}")
        found["opening"] = {"samples": many, **opening(many, pairs, folder / "large")}
        print(f"\nOpening a store of {many} samples, and over the imports: {spread(found['opening']['seconds'])}")
        print(f"{spread(found['opening']['megabytes'], ' MB', 0)}   bars {BARS['opening']}")
    write_json(arguments.json, {**found, "bars": BARS})


if __name__ == "__main__":
    main()

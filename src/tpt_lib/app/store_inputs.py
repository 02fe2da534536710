"""Add the inputs that choose a sample of a store in place of an image."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from tpt_lib.app.choices import MAX_VIEWS, STORED
from tpt_lib.app.show import notes, sample_card
from tpt_lib.app.stored import ServedStore, check_sample
from tpt_lib.app.wiring import HIDDEN
from tpt_lib.evaluation.page.thumbnails import file_below
from tpt_lib.features.store import FeatureStore
from tpt_lib.views.reading import read_image

IMAGE = "An image"
OF_IMAGES = ("image", "drawing", "names", "template")  # hidden for a sample, whose store has the names and the template


def add_store_inputs(gr: Any, served: ServedStore) -> dict[str, Any]:
    """Add the choice between the store and an image, and the number of the sample. Return the components by name."""
    store = served.first
    parts = {
        "source": gr.Radio([STORED, IMAGE], value=STORED, label="Source"),
        "sample": gr.Number(0, precision=0, label=f"Sample, 0 to {len(store) - 1}"),
        "card": gr.HTML(describe_sample(store, 0), elem_id="sample"),
    }
    changed: Any = {"trigger_mode": "always_last", **HIDDEN}
    parts["sample"].change(partial(describe_sample, store), parts["sample"], parts["card"], **changed)
    return parts


def on_source(gr: Any, served: ServedStore, parts: Mapping[str, Any]) -> None:
    """Show the inputs of the source that a user chooses; ``parts`` are those of the store and of images."""
    names = ("sample", "card", *OF_IMAGES, "views", "seed")

    def switched(source: str) -> list[Any]:
        seen = {"sample": source == STORED, "card": source == STORED} | dict.fromkeys(OF_IMAGES, source != STORED)
        views, seed = first_views(served) if source == STORED else (64, 0)
        return [*(gr.update(visible=visible) for visible in seen.values()), views, seed]

    parts["source"].input(switched, parts["source"], [parts[name] for name in names], **HIDDEN)


def first_views(served: ServedStore | None) -> tuple[int, int]:
    """Return the number of views and the seed to start with: those of the store if there is one."""
    return (64, 0) if served is None else (min(served.first.n_views, MAX_VIEWS), served.first.view_seed)


def describe_sample(store: FeatureStore, index: Any) -> str:
    """Return what is known about a sample as HTML: its label, path and picture, or why there is no such sample."""
    try:
        check_sample(store, index)
        label, path = int(store.labels[index]), store.sample_path(index)
        known = {
            "true label": "" if label < 0 else store.classes[label],
            "path": path or "",
            "no features": store.error_of(index),
            "dataset": f"{store.name}/{store.split}, {len(store.classes):,} classes",
            "template": store.template,
        }
    except (ValueError, OSError) as error:
        return notes([str(error)])
    return sample_card(known, _picture(store, path))


def _picture(store: FeatureStore, path: str | None) -> Tensor | None:
    """Return the pixels of a sample whose file is below the folder of the dataset and can be read."""
    file = None if store.root is None else file_below(Path(store.root).resolve(), path)
    try:
        return None if file is None else read_image(file)
    except (ValueError, OSError):
        return None

"""Read what a user chose, and check its limits: the image or sample, the class names, the method and its settings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

import tpt_lib as tpt
from tpt_lib.app.stored import Sample, ServedStore, read_sample
from tpt_lib.app.words import NamedModel
from tpt_lib.evaluation.data.registry import STYLES
from tpt_lib.views.reading import read_encoded

MAX_CLASSES, MAX_NAME = 1000, 200  # names, and characters of a name
MAX_VIEWS, MAX_STEPS, MAX_BONGARD_STEPS = 128, 64, 256
MAX_GROUP = 16  # images on a side of a Bongard problem
MAX_UPLOAD = "10mb"  # of a file
LIMITS = {"fraction": (0.01, 1.0), "steps": (0, MAX_STEPS), "lr": (0.0, 1.0)}
STORED = "A sample of the store"
UNSET = {"fraction": 1.0, "lr": 2.5e-4}  # what None means to the methods that have it as their default


@dataclass(frozen=True)
class Picture:
    """An image that a user chose: uint8 pixels ``(3, H, W)``, and the Python expression that gives the same image."""

    pixels: Tensor
    code: str


@dataclass(frozen=True)
class Choice:
    """What to do with an image, or with a sample of a store.

    Attributes:
        source: the image; or the sample, whose store has the names, the template, the number of views and their seed.
        names: class names.
        template: prompt with ``{}`` for the class name.
        n_views: number of views.
        seed: seed of the views.
        method: name of an episodic method.
        settings: ``fraction``, ``steps`` and ``lr``; the method is given those that it takes.
    """

    source: Picture | Sample
    names: tuple[str, ...]
    template: str = "a photo of a {}."
    n_views: int = 64
    seed: int = 0
    method: str = "tpt"
    settings: Mapping[str, int | float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_number("views", self.n_views, 1, MAX_VIEWS)
        check_number("seed", self.seed, 0, 2**31)
        for name, value in self.settings.items():
            check_number(name, value, *LIMITS[name])
        if self.method not in selectable_methods():
            raise ValueError(f"there is no method {self.method!r} to choose; there are {selectable_methods()}")
        if isinstance(self.source, Sample) and "views" in tpt.get_method(self.method).needs:
            raise ValueError(
                f"{self.method} needs the pixels of views, and a store has their features; choose another method, or an image"
            )

    @property
    def truth(self) -> int | None:
        """The index of the true class, which is known for the samples of a store; else None."""
        return self.source.truth if isinstance(self.source, Sample) else None


def check_number(name: str, value: Any, low: int | float, high: int | float) -> None:
    """Refuse a number outside the limits of this page. A client without sliders may send one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ValueError(f"{name} must be a number from {low:g} to {high:g} here, but got {value!r}")


def read_names(text: str) -> tuple[str, ...]:
    """Return the class names in a text, one per line or separated by commas.

    >>> read_names("cat, dog\\nred panda\\n")
    ('cat', 'dog', 'red panda')
    """
    names = tuple(name.strip() for name in re.split(r"[\n,]", text) if name.strip())
    if not names:
        raise ValueError("there are no class names; write one per line, or separate them by commas")
    if len(names) > MAX_CLASSES:
        raise ValueError(f"there are {len(names):,} class names, but this page takes at most {MAX_CLASSES:,}")
    if len(longest := max(names, key=len)) > MAX_NAME:
        raise ValueError(f"a class name has {len(longest):,} characters, but this page takes at most {MAX_NAME}")
    return names


def read_upload(path: str | Path) -> Picture:
    """Return an uploaded file as a picture. Errors have its name, not the path on the server."""
    name = Path(path).name
    return Picture(read_encoded(Path(path).read_bytes(), repr(name)), repr(name))


def drawing_labels() -> list[str]:
    """Return the labels of all embedded drawings, as ``"noto-v1: unicorn"``."""
    return [f"{style}: {name}" for style in STYLES for name in tpt.load_tiny_drawings(style).classes]


def read_drawing(label: str) -> Picture:
    """Return an embedded drawing by its label."""
    style, _, name = label.partition(": ")
    drawings = tpt.load_tiny_drawings(style)
    if name not in drawings.classes:
        raise ValueError(f"there is no embedded drawing {label!r}; choose one from the list")
    at = drawings.classes.index(name)
    return Picture(drawings.samples[at][0], f"tpt.load_tiny_drawings({style!r}).samples[{at}][0]")


def selectable_methods(*, features_only: bool = False) -> list[str]:
    """Return the episodic methods that can run on one image without a second model, TPT first.

    Args:
        features_only: whether to leave out those that need the pixels of the views, which are slower (default False).
    """
    allowed = {"features"} if features_only else {"features", "views"}
    names = [name for name in tpt.list_methods() if {*tpt.get_method(name).needs} <= allowed]
    return sorted(names, key=lambda name: name != "tpt")


def default_settings(method: str) -> dict[str, int | float]:
    """Return those of ``fraction``, ``steps`` and ``lr`` that a method takes, with its defaults.

    >>> default_settings("tpt"), default_settings("zero")
    ({'fraction': 0.1, 'steps': 1, 'lr': 0.005}, {'fraction': 0.3})
    """
    predict: Any = tpt.get_method(method).predict
    found = dict(inspect.signature(predict).parameters)
    if predict is tpt.tpt_predict:  # takes the keywords of these two
        found |= {"fraction": inspect.signature(tpt.select_confident).parameters["fraction"]}
        found |= inspect.signature(tpt.tune_prompt).parameters
    defaults = {name: found[name].default for name in LIMITS if name in found}
    return {name: UNSET[name] if value is None else value for name, value in defaults.items()}


def keywords_of(method: str, settings: Mapping[str, int | float]) -> dict[str, Any]:
    """Return the settings as keywords of a method's function, without those that it does not take."""
    taken = {name: value for name, value in settings.items() if name in default_settings(method)}
    if tpt.get_method(method).predict is tpt.tpt_predict and "fraction" in taken:
        return {"select": partial(tpt.select_confident, fraction=taken.pop("fraction")), **taken}
    return taken


def read_group(what: str, paths: Sequence[str]) -> list[Picture]:
    """Return the uploaded images of one group of a Bongard problem."""
    if not paths:
        raise ValueError(f"there are no {what} images; add at least one")
    if len(paths) > MAX_GROUP:
        raise ValueError(f"there are {len(paths)} {what} images, but this page takes at most {MAX_GROUP}")
    return [read_upload(path) for path in paths]


def read_choice(
    models: Mapping[str, NamedModel], given: Mapping[str, Any], served: ServedStore | None = None
) -> tuple[NamedModel, Choice]:
    """Return the model and the choice of a user.

    Args:
        models: the models that users may choose.
        given: the values of the components, by name.
        served: the store that users may choose samples of (default None).
    """
    named, method = find_model(models, given["model"]), given.get("method", "tpt")
    settings = {name: given[name] for name in default_settings(method) if name in given}
    source: Picture | Sample
    if served is not None and given["source"] == STORED:
        source = read_sample(served, given)
        names, template = source.store.classes, source.store.template
    else:
        if not given["drawing"] and not given["image"]:
            raise ValueError("there is no image; drop one, or pick an embedded drawing")
        source = read_drawing(given["drawing"]) if given["drawing"] else read_upload(given["image"])
        names, template = read_names(given["names"]), given["template"]
    return named, Choice(source, names, template, given["views"], given["seed"], method, settings)


def find_model(models: Mapping[str, NamedModel], name: str) -> NamedModel:
    """Return the model that a user chose. No other model is ever loaded."""
    if name not in models:
        raise ValueError(f"there is no model {name!r} here; there are {', '.join(models)}")
    return models[name]

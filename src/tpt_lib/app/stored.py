"""Read the sample that a user chose in place of an image, from the store that the owner of the server named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tpt_lib.app.words import NamedModel
from tpt_lib.evaluation.from_store import store_of_model
from tpt_lib.features.store import FeatureStore


@dataclass(frozen=True)
class ServedStore:
    """A store, compared with the models that users may choose.

    Attributes:
        of: the features of each model that has some, by the name that users see; at least one.
        refused: for each of the other models, why it has none.
    """

    of: Mapping[str, FeatureStore]
    refused: Mapping[str, str]

    @property
    def first(self) -> FeatureStore:
        """The features that the page starts with."""
        return next(iter(self.of.values()))


@dataclass(frozen=True)
class Sample:
    """A sample that a user chose: its number in a store of one model, one seed and the views to use."""

    store: FeatureStore
    index: int

    def __post_init__(self) -> None:
        check_sample(self.store, self.index)
        if error := self.store.error_of(self.index):
            raise ValueError(f"sample {self.index} has no features: {error}; choose another sample")
        if damaged := self.store.select([self.index]).verify():
            raise ValueError(f"sample {self.index} cannot be used: {damaged[0]}. Encode the store again to mend it")

    @property
    def truth(self) -> int:
        """The index of its true class."""
        return self.store[self.index][1]


def check_sample(store: FeatureStore, index: Any) -> None:
    """Refuse a number that is not that of a sample."""
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(store):
        raise ValueError(f"there is no sample {index!r} in this store; its samples are 0 to {len(store) - 1}")


def compare_with_models(store: FeatureStore, models: Mapping[str, NamedModel]) -> ServedStore:
    """Find the features of each model in a store, as ``evaluate`` does. Weights are read once, before the page is served.

    Args:
        store: the store.
        models: the models that users may choose.

    Returns:
        The store with what was found.

    Raises:
        ValueError: if it has features of none of them.
    """
    of, refused = dict[str, FeatureStore](), dict[str, str]()
    for name, named in models.items():
        try:
            of[name] = store_of_model("app", store, named.model)
        except ValueError as error:
            refused[name] = str(error)
    if not of:
        raise ValueError(f"{next(iter(refused.values()))}. Or name the model of the store with --models")
    return ServedStore(of, refused)


def read_sample(served: ServedStore, given: Mapping[str, Any]) -> Sample:
    """Return the sample of a user from the values of the components, by name."""
    model = given["model"]
    if model in served.refused:
        raise ValueError(served.refused[model])
    return Sample(served.of[model].seed(given["seed"]).first_views(given["views"]), given["sample"])

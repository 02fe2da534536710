"""Check that a store has the features that a run asks for, before the work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typing_extensions import Unpack

from tpt_lib.evaluation.run_checks import short
from tpt_lib.features.store import FeatureStore
from tpt_lib.features.store_index import differing_model
from tpt_lib.methods.cases import Case, rewards_of
from tpt_lib.models.identity import UNKNOWN, identify, identify_text
from tpt_lib.models.protocol import ClipLike
from tpt_lib.types import Images, UnseededViewOptions, ViewOptions
from tpt_lib.views.settings import ViewSettings

__all__ = ["check_no_pixels", "check_store", "first_views", "reward_names", "store_of_model", "with_views"]


def with_views(
    caller: str, model: ClipLike, images: Images | FeatureStore, **options: Unpack[ViewOptions]
) -> tuple[Images | FeatureStore, ViewSettings]:
    """Return images and the settings of their views, or the part of a store that has these views.

    Args:
        caller: the function to name in errors.
        model: the model whose features a store must have.
        images: images, or a store.
        **options: the view keywords of the caller. The seed of a store is its own by default.
    """
    if not isinstance(images, FeatureStore):
        return images, ViewSettings.of(caller, **options)
    seed: Any = options.pop("seed", images.view_seed)
    rest: Any = options
    store = first_views(caller, store_of_model(caller, images, model), **rest).seed(seed)
    return store, ViewSettings(n_views=store.n_views, seed=seed)


def first_views(caller: str, store: FeatureStore, **options: Unpack[UnseededViewOptions]) -> FeatureStore:
    """Return the store with the first ``n_views`` of its views.

    Raises:
        ValueError: if there are fewer, or another option differs from what the views were made with.
    """
    given = ViewSettings.of(caller, **options).to_dict()
    for name in options:
        known = store.index["views"][name]
        if name != "n_views" and given[name] != known:
            raise ValueError(
                f"{caller}: the views of this store were made with {name}={short(repr(known))}, but got "
                f"{short(repr(given[name]))}; leave it out, or encode another store"
            )
    return store.first_views(options.get("n_views", store.n_views))


def store_of_model(caller: str, store: FeatureStore, model: ClipLike) -> FeatureStore:
    """Return the features of a model in a store. Only the towers that the model has are compared.

    Raises:
        ValueError: if the store has none of this model; the message says how it differs.
    """
    own = identify(model) if callable(getattr(model, "encode_image", None)) else identify_text(model)
    if UNKNOWN in own.values():
        raise ValueError(
            f"{caller}: the weights of {own['model']} cannot be seen, so it cannot be checked whether the features in "
            f"{str(store.path)!r} are its own. Give it a name that identifies its weights (model.name), or a method describe()"
        )
    names = [store.model, *(name for name in store.models if name != store.model)]
    differing = {name: differing_model(store.index["models"][name]["identity"], own) for name in names}
    if found := next((name for name in names if not differing[name]), None):
        return store if found == store.model else store.of_model(found)
    said = [f"{key} is {short(repr(a))} there and {short(repr(b))} here" for key, (a, b) in differing[names[0]].items()]
    raise ValueError(
        f"{caller}: {str(store.path)!r} has features of another model ({'; '.join(said)}); there are {list(store.models)}. "
        "encode_dataset(model, dataset, out, name=…) adds those of this one"
    )


def reward_names(caller: str, store: FeatureStore, cases: Sequence[Case]) -> tuple[str, ...]:
    """Return the names of the reward models in a store."""
    return tuple(store_of_model(caller, store, model).model for model, _ in rewards_of(cases))


def check_no_pixels(caller: str, cases: Sequence[Case]) -> None:
    """Refuse methods that need pixels, which a store does not have."""
    if pixels := [case.name for case in cases if not case.needs_features]:
        raise ValueError(
            f"{caller}: {', '.join(pixels)} needs the pixels of views, but a store has only their features; pass the dataset"
        )


def check_store(
    caller: str, store: FeatureStore, cases: Sequence[Case], seeds: Sequence[int], rewards: Sequence[str] = ()
) -> None:
    """Refuse methods that need pixels, seeds that are not stored, and files that are damaged.

    Args:
        caller: the function to name in errors.
        store: the store.
        cases: the methods.
        seeds: the seeds of the run.
        rewards: the names of reward models whose features are used too.
    """
    check_no_pixels(caller, cases)
    for name in (store.model, *rewards):
        for seed in seeds:
            if damaged := store.of_model(name).seed(seed).verify():
                raise ValueError(
                    f"{caller}: {len(damaged)} file(s) of the store cannot be used: {damaged[0]}. encode_dataset with the same "
                    "settings repairs them"
                )

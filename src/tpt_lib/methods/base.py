"""The contracts of episodic and online methods, and the registry of methods."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from typing import Any, Generic, Literal, Protocol, TypeVar, get_args, runtime_checkable

from torch import Tensor
from typing_extensions import get_type_hints, is_typeddict

from tpt_lib.features.check import check_unit
from tpt_lib.html_tables import html_table
from tpt_lib.methods.presets import Presets, check_preset
from tpt_lib.models.protocol import ClipLike
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.class_prompts import ClassPrompts
from tpt_lib.types import check_options, kind_of

__all__ = ["MethodEntry", "OnlineMethod", "get_method", "list_methods", "method"]

Needs = Literal["features", "views", "images", "reward"]
State = TypeVar("State")
F = TypeVar("F", bound=Callable[..., Any])


@runtime_checkable
class Method(Protocol):
    """An episodic method: ``f(model, prompts, features) -> Prediction``, keyword arguments aside.

    ``features`` are those of an image's views ``(N, E)``, row 0 the plain image, or of several images ``(B, N, E)``; a method
    that needs views gets those of one image ``(N, 3, H, W)``. Nothing carries over from one image to the next, so order,
    batches, workers and ranks do not affect results.
    """

    def __call__(self, model: ClipLike, prompts: Any, features: Tensor, /) -> Prediction: ...


@dataclass(frozen=True)
class OnlineMethod(Generic[State]):
    """A method that learns from the stream of images, as a fold: ``step`` returns the next state and a prediction.

    A state is a frozen dataclass of tensors of fixed shape, so that it can be saved. Results depend on the order of images.

    Attributes:
        init: ``init(model, prompts) -> state``.
        step: ``step(model, prompts, state, features) -> (state, Prediction)``. The last argument is what the method needs:
            the features of one image's views, or a batch of images.
        needs: ``("features",)`` (default), or ``("images",)`` for batches of preprocessed images.

    >>> counting = OnlineMethod(
    ...     init=lambda model, prompts: 0,
    ...     step=lambda model, prompts, state, features: (state + 1, tpt_lib.zero_shot_predict(model, prompts, features)),
    ... )
    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> state = counting.init(model, prompts)
    >>> for features in torch.eye(256)[:3, None]:
    ...     state, prediction = counting.step(model, prompts, state, features)
    >>> state
    3
    """

    init: Callable[[ClipLike, ClassPrompts], State]
    step: Callable[[ClipLike, ClassPrompts, State, Tensor], tuple[State, Prediction]]
    needs: tuple[Needs, ...] = ("features",)


@dataclass(frozen=True)
class MethodEntry:
    """A method with its metadata, which ``classify``, ``compare``, ``evaluate`` and the command line use.

    Attributes:
        name: name that ``get_method`` takes, such as ``"tpt"``.
        title: name in tables, such as ``"TPT"``.
        predict: the function itself. For an online method an ``OnlineMethod``, or the function that returns one.
        paper: where it was published.
        needs: its inputs: ``"features"`` or ``"views"`` of one image's views, ``"images"`` for a batch of images, in online
            methods only; ``"reward"`` for a second model.
        published: the row of the published tables that has its numbers, or None.
        presets: its authors' keywords for each dataset, if they differ from the defaults.
        probabilities: whether its confidences are meant as probabilities. Reports leave the calibration of others, such as
            shares of votes, empty.
        online: whether it learns from the stream; ``stream``, ``fold`` and ``evaluate`` run it.
    """

    name: str
    title: str
    predict: Method | OnlineMethod[Any] | Callable[..., OnlineMethod[Any]]
    paper: str = ""
    needs: tuple[Needs, ...] = ("features",)
    published: str | None = None
    presets: Presets = field(default_factory=dict)
    probabilities: bool = True
    online: bool = False


AnyMethod = str | Method | OnlineMethod[Any] | Callable[..., OnlineMethod[Any]] | MethodEntry
_entries: dict[str, MethodEntry] = {}


def method(
    *,
    name: str,
    title: str,
    paper: str,
    needs: tuple[Needs, ...] = ("features",),
    published: str | None = None,
    presets: Presets | None = None,
    probabilities: bool = True,
    online: bool = False,
) -> Callable[[F], F]:
    """Register a method under a name; use it as a decorator. The function itself is not changed.

    Args:
        name: name that ``classify(method=…)`` and other functions take.
        title: name in tables.
        paper: where it was published.
        needs: its inputs; see ``MethodEntry`` (default features).
        published: the row of the published tables that has its numbers (default None).
        presets: its authors' keywords for each dataset, if they differ from the defaults (default None).
        probabilities: whether its confidences are meant as probabilities (default True).
        online: whether the function returns an ``OnlineMethod`` for its settings instead of a prediction (default False).

    Returns:
        A decorator that registers a function and returns it unchanged.

    >>> @method(name="first_view", title="first view", paper="none")
    ... def first_view(model, prompts, features):
    ...     return tpt_lib.zero_shot_predict(model, prompts, features[..., :1, :])
    >>> get_method("first_view").needs
    ('features',)
    >>> _ = _entries.pop("first_view")
    """

    def register(function: F) -> F:
        known = _entries.get(name)
        if known is not None and getattr(known.predict, "__qualname__", None) != getattr(function, "__qualname__", ""):
            raise ValueError(f"method: the name {name!r} is taken by {known.predict!r}; choose another")
        _entries[name] = MethodEntry(
            name, title, function, paper, needs, published, presets or {}, probabilities, online
        )
        return function

    return register


def list_methods(*, online: bool = False) -> tuple[str, ...]:
    """Return the names of the registered methods.

    Args:
        online: whether to list the methods that learn from a stream instead of the episodic ones (default False).

    Returns:
        The names, sorted. A notebook shows them as a table with titles, needs and papers.

    >>> "tpt" in list_methods()
    True
    """
    return _Names(sorted(name for name, entry in _entries.items() if entry.online == online))


class _Names(tuple[str, ...]):
    """Names of methods, which a notebook shows as a table."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        entries = [_entries[name] for name in self]
        rows = [(one.name, one.title, ", ".join(one.needs), one.paper) for one in entries]
        return html_table(["name", "title", "needs", "paper"], rows)


def registered_name(function: object) -> str | None:
    """Return the name that a function was registered under, or None."""
    return next((entry.name for entry in _entries.values() if entry.predict is function), None)


def get_method(method: AnyMethod, *, preset: str | None = None) -> MethodEntry:
    """Return the registry entry of a method, with its authors' settings for a dataset if ``preset`` is given.

    Args:
        method: a name from ``list_methods()`` or ``list_methods(online=True)``; or a function. A ``functools.partial`` of a
            registered function keeps its entry; a function that is not registered is taken as one that needs features.
        preset: a dataset of the paper, such as ``"imagenet-a"`` (default None: the method's defaults). Keywords of a
            ``functools.partial`` take precedence over it.

    Returns:
        The entry. Its ``predict`` has the keywords of the preset.

    Raises:
        ValueError: if there is no method or preset of that name.
        TypeError: if ``method`` is neither a name nor a method.

    >>> get_method("tpt").title, get_method("memo_clip").needs
    ('TPT', ('views',))
    >>> get_method("ctpt", preset="imagenet-a").predict.keywords
    {'weight': 20.0}
    """
    entry = _find(method)
    if preset is None:
        return entry
    check_preset(preset)
    predict: Any = entry.predict
    given = predict.keywords if isinstance(predict, partial) else {}
    new = {name: value for name, value in entry.presets.get(preset, {}).items() if name not in given}
    return replace(entry, predict=partial(predict, **new)) if new else entry


def _find(method: AnyMethod) -> MethodEntry:
    if isinstance(method, MethodEntry):
        return method
    if isinstance(method, str):
        key = method.lower().replace("-", "_").replace(" ", "_")
        by_title = {entry.title.lower().replace("-", "_").replace(" ", "_"): entry for entry in _entries.values()}
        if key not in _entries and key not in by_title:
            near = get_close_matches(key, _entries)
            hint = f"did you mean {near[0]!r}? There" if near else "there"
            raise ValueError(f"get_method: there is no method {method!r}; {hint} are {', '.join(sorted(_entries))}")
        return _entries.get(key) or by_title[key]
    inner: Any = method
    while isinstance(inner, partial):
        inner = inner.func
    known = next((entry for entry in _entries.values() if entry.predict is inner), None)
    if known is not None:
        return replace(known, predict=method)
    if not callable(inner) and not isinstance(inner, OnlineMethod):
        raise TypeError(
            f"get_method: a method must be a name, a function or an OnlineMethod, but got {type(inner).__name__}"
        )
    name = getattr(inner, "__name__", type(inner).__name__)
    if isinstance(inner, OnlineMethod):
        return MethodEntry(name, name, method, needs=inner.needs, online=True)
    return MethodEntry(name, name, method)


def check_arguments(what: str, function: Any, given: int, **more: object) -> None:
    """Refuse a function, or ``functools.partial`` of one, that cannot be called, before any work is done.

    Args:
        what: the caller and the name of the function, for error messages.
        function: what will be called.
        given: number of positional arguments it will be called with.
        **more: keywords it will be called with.

    Raises:
        TypeError: if it has a keyword that is unknown, or lacks an argument.
    """
    inner: Any = function
    keywords: dict[str, Any] = {}
    while isinstance(inner, partial):
        keywords, inner = {**inner.keywords, **keywords}, inner.func
    try:
        signature, hints = inspect.signature(inner), get_type_hints(inner)
    except (TypeError, ValueError, NameError, AttributeError):  # built-in, or annotated with undefined names
        return
    names = [p.name for p in signature.parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    open_ended = next((p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD), None)
    if open_ended is not None:
        known = get_args(hints.get(open_ended))
        if not known or not is_typeddict(known[0]):
            return
        names += known[0].__annotations__
    check_options(what, {**keywords, **more}, names)
    try:
        inspect.signature(function).bind(*[None] * given, **more)
    except TypeError as error:
        raise TypeError(f"{what}: cannot be called with {given} arguments: {error}") from error


def check_features(caller: str, features: Tensor) -> None:
    """Refuse features that are not floats ``(N, E)`` or ``(B, N, E)`` of unit length."""
    check_layout(caller, features)
    check_unit(caller, "features", features)


def check_layout(caller: str, features: Tensor) -> None:
    """Refuse features that are not floats ``(N, E)`` or ``(B, N, E)``, without waiting for an accelerator."""
    floats = isinstance(features, Tensor) and features.is_floating_point()
    if not floats or features.ndim not in (2, 3) or 0 in features.shape:
        raise ValueError(
            f"{caller}: features must be floats of shape (N, E), or (B, N, E) for several images, with no empty dimension, "
            f"but got {kind_of(features)}; encode_views returns such features"
        )

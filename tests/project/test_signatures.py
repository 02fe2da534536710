"""What signatures say: few ``Any``, no untyped keywords, model first."""

import inspect
import re

import pytest
from support.scripts import script

import tpt_lib

ROOMS = ["evaluation", "methods", "models", "paper", "plots", "prompts", "text", "types", "views"]


def public():
    """Every public function and class by its full name, once."""
    found = {}
    for room in [tpt_lib, *(getattr(tpt_lib, name) for name in ROOMS)]:
        for name in room.__all__:
            value = getattr(room, name)
            own = getattr(value, "__module__", "").startswith("tpt_lib.") and not getattr(value, "_is_protocol", False)
            if own and callable(value):
                found[f"{value.__module__}.{name}"] = value
    return found


def parameters(value):
    """The parameters of a function, or of a class that is called."""
    try:
        return inspect.signature(value).parameters.values()
    except (TypeError, ValueError):  # a Protocol or a TypedDict
        return []


def untyped(value):
    return [p.name for p in parameters(value) if re.search(r"\bAny\b", str(p.annotation))]


def test_few_signatures_say_any():
    found = {name: untyped(value) for name, value in public().items() if untyped(value)}
    assert sum(map(len, found.values())) <= 10, found


@pytest.mark.parametrize("name", sorted(public()))
def test_keywords_that_are_passed_on_are_typed(name):
    for parameter in parameters(public()[name]):
        if parameter.kind is parameter.VAR_KEYWORD and name.rpartition(".")[2] not in FOREIGN:
            assert "Unpack[" in str(parameter.annotation), f"{name}(**{parameter.name})"


OTHER_ORDER = {
    "tpt_lib.evaluation.published.paper_accuracy",
    "tpt_lib.evaluation.run.encode_dataset.encode_dataset",  # where the features go is no setting
    *(
        f"tpt_lib.methods.stream.{name}" for name in ("fold", "load_state", "save_state", "stream")
    ),  # of a method or state
}
FOREIGN = {"load_open_clip", "load_transformers", "save_prompt"}  # keywords of other libraries, entries of a file


@pytest.mark.parametrize("name", sorted(public()))
def test_the_model_comes_first_and_settings_are_keywords(name):
    value = public()[name]
    names = [p.name for p in parameters(value)]
    if inspect.isfunction(value) and "model" in names and name not in OTHER_ORDER:
        assert names[0] == "model"
        settings = {"seed", "steps", "lr", "n_views", "out", "batch_size", "num_workers", "progress", "fraction"}
        loose = [p.name for p in parameters(value) if p.name in settings and p.kind is not p.KEYWORD_ONLY]
        assert not loose


def test_that_any_would_be_counted():
    def one(model, images: "Any", **options: "Any"):  # noqa: F821
        return model

    assert untyped(one) == ["images", "options"]


def functions():
    """Every public function, and every public method of a class, by name. Properties are named after what they return."""
    found = {}
    for name, value in script("api").public_values().items():
        if not getattr(value, "__module__", "").startswith("tpt_lib."):
            continue
        members = vars(value).items() if inspect.isclass(value) else [("", value)]
        for key, member in members:
            function = getattr(member, "__func__", member)
            if not key.startswith("_") and callable(function) and not inspect.isclass(function):
                found[f"{name}.{key}".rstrip(".")] = function
    return found


def says_what_it_returns(function):
    result = inspect.signature(function).return_annotation
    return result in (None, "None") or bool(re.search(r"^\s*(Returns|Yields):\n", function.__doc__ or "", re.MULTILINE))


def test_every_public_function_says_what_it_returns():
    assert len(functions()) > 150
    assert [name for name, function in functions().items() if not says_what_it_returns(function)] == []


def test_that_a_missing_returns_is_noticed():
    def one() -> int:
        """Return 1, and no section ``Returns:``."""
        return 1

    assert not says_what_it_returns(one)

"""Keywords that a function does not know are refused by name; the words of signatures are exported."""

import pytest

import tpt_lib
from tpt_lib.methods.memo import MemoClassifyOptions
from tpt_lib.types import UnseededViewOptions, ViewOptions, check_options


@pytest.mark.parametrize(("known", "given", "message"), [
    (ViewOptions, {"n_view": 8}, "^f: unknown keyword 'n_view'; did you mean 'n_views'\\?$"),
    (ViewOptions, {"n_views": 8, "sed": 0}, "^f: unknown keyword 'sed'; did you mean 'seed'\\?$"),
    (ViewOptions, {"x": 8}, "^f: unknown keyword 'x'; it takes n_views, recipe, scale, ratio, severity, seed$"),
    (UnseededViewOptions, {"seed": 8}, "^f: unknown keyword 'seed'; it takes n_views, recipe, scale, ratio, severity$"),
    (MemoClassifyOptions, {"step": 8}, "^f: unknown keyword 'step'; did you mean 'steps'\\?$"),
])  # fmt: skip
def test_unknown_keywords_are_refused_by_name(known, given, message):
    with pytest.raises(TypeError, match=message):
        check_options("f", given, known)


def test_known_keywords_pass():
    assert check_options("f", {"n_views": 8, "seed": 1, "recipe": "crop"}, ViewOptions) is None
    assert check_options("f", {}, ViewOptions) is None
    assert check_options("f", {"n_views": 8, "lr": 0.1, "prior": None}, MemoClassifyOptions) is None


def test_every_exported_word_is_there():
    assert sorted(tpt_lib.types.__all__) == tpt_lib.types.__all__
    assert all(hasattr(tpt_lib.types, name) for name in tpt_lib.types.__all__)

"""What a user's click shows while the work runs, and after it failed."""

import pytest

from tpt_lib.app.wiring import watch

gr = pytest.importorskip("gradio")


@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [(ValueError("<b>no</b>"), gr.Error, "&lt;b&gt;no&lt;/b&gt;"), (RuntimeError("a fault"), RuntimeError, "a fault")],
)
def test_an_error_leaves_no_progress_bar(error, raised, message):
    def work(report):
        raise error

    shown = []
    with pytest.raises(raised, match=message):
        shown.extend(watch(gr, "status", work))
    assert "progress" in shown[0]["status"]
    assert shown[-1] == {"status": ""}


def test_the_result_takes_the_place_of_the_progress_bar():
    *bars, last = watch(gr, "status", lambda report: {"table": 7})
    assert "progress" in bars[0]["status"]
    assert last == {"status": "", "table": 7}

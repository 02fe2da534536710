"""HTML of results: everything is there, in order, and escaped."""

import base64
import dataclasses
import io
import re

import PIL.Image
import pytest
import torch
from support.app import tiny

import tpt_lib
from tpt_lib.app import show
from tpt_lib.app.choices import Choice, default_settings, read_drawing
from tpt_lib.app.explain import explain
from tpt_lib.app.other_tabs import MethodRow
from tpt_lib.app.stoppable import Progress

EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def found():
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        choice = Choice(
            read_drawing("noto-v1: unicorn"), ("unicorn", EVIL), n_views=12, settings=default_settings("tpt")
        )
        return explain(tiny(), choice)


def test_views_are_ordered_by_entropy_with_the_kept_ones_first(found):
    text = show.view_grid(found, tiny().model.image_spec)
    order = [int(view) for view in re.findall(r'data-view="(\d+)"', text)]
    entropies = tpt_lib.entropy(found.before)
    assert order == entropies.sort(stable=True).indices.tolist()
    marked = [int(view) for view in re.findall(r'class="kept" data-view="(\d+)"', text)]
    assert marked == found.prediction.selected.tolist() == order[: len(marked)]
    first = order[0]
    shown = re.search(rf'data-view="{first}".*?<br>([^<]*)</figcaption>', text).group(1)
    assert (
        shown
        == f"unicorn {found.before[first].softmax(-1).max():.2f} → unicorn {found.after[first].softmax(-1).max():.2f}"
    )


def test_the_views_of_a_sample_have_no_pictures(found):
    text = show.view_grid(dataclasses.replace(found, views=None), tiny().model.image_spec)
    assert "<img" not in text
    assert (
        "12 views, the most confident first; 1 kept, framed in blue; no pictures, as a store has only features" in text
    )
    assert text.count("<figure") == 12


def test_the_true_label_and_who_is_right(found):
    cat, dog = (tpt_lib.Prediction(("cat", "dog"), torch.tensor(logits)) for logits in ([1.0, 0.0], [0.0, 1.0]))
    told = show.true_label(1, {"zero-shot": cat, "TPT": dog, "ZERO": dog})
    assert "True label: <b>dog</b>. Right: TPT, ZERO. Wrong: zero-shot.</p>" in told
    assert show.true_label(0, {"TPT": cat}).endswith("<b>cat</b>. Right: TPT.</p>")
    assert show.true_label(None, {"TPT": cat}) == ""


def test_thumbnails_are_the_views(found):
    (url, *_) = show.thumbnails(found.views, tiny().model.image_spec)
    image = PIL.Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))
    levels = tpt_lib.read_image(image).float() / 255
    assert (levels - (found.views[0] * 0.5 + 0.5)).abs().mean() < 0.02  # the image is compressed
    wide = show.data_url(PIL.Image.new("RGB", (600, 300)))
    assert PIL.Image.open(io.BytesIO(base64.b64decode(wide.partition(",")[2]))).size == (112, 56)


def test_what_users_typed_is_escaped(found):
    said = dataclasses.replace(found.prediction, names=(EVIL, "cat"), before=None)
    found = dataclasses.replace(found, prediction=said)
    row = MethodRow(EVIL, said, 0.1)
    refused = MethodRow("x", None, 0.1, EVIL)
    texts = [
        show.view_grid(found, tiny().model.image_spec),
        show.notes([EVIL]),
        show.progress_bar(Progress(0.5, EVIL)),
        show.word_table([(EVIL, [(EVIL, 0.1)])]),
        show.method_table([row, refused]),
        show.true_label(0, {EVIL: said}),
        show.sample_card({"path": EVIL}, None),
        said._repr_html_(),
    ]
    for text in texts:
        assert EVIL not in text
        assert "&lt;img" in text


def test_methods_that_disagree_with_zero_shot_stand_out():
    def saying(*logits):
        return tpt_lib.Prediction(("cat", "dog"), torch.tensor(logits))

    rows = [MethodRow("zero-shot", saying(2.0, 0.0), 0.001), MethodRow("TPT", saying(0.0, 1.0), 0.002)]
    same, changed = re.findall(r'<tr class="(\w+)">(.*?)</tr>', show.method_table(rows))
    assert (same[0], changed[0]) == ("same", "changed")
    assert re.findall("<td>(.*?)</td>", changed[1]) == ["TPT", "dog 0.73", "cat 0.27", "0.58", "2"]


def test_a_progress_bar_has_its_value():
    assert '<progress value="0.50"' in show.progress_bar(Progress(0.5, "views"))


def test_the_losses_are_drawn():
    (axes,) = show.plot_losses({0: 2.0, 1: 1.5, 4: 1.0}).axes
    assert axes.lines[0].get_xydata().tolist() == [[0, 2.0], [1, 1.5], [4, 1.0]]

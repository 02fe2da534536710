"""The page of a report, in a real browser."""

import importlib.util
import json
import pathlib

import pytest
from support.pages import column, contrasts, drawn_report, opened, too_wide
from support.runs import FOUR, header, report, row, said

import tpt_lib

HOSTILE = "</script><img src=x onerror=\"document.title='caught'\">'&"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """A report of a real run, and its page with four thumbnails."""
    folder = tmp_path_factory.mktemp("page")
    found, data = drawn_report(folder)
    found.to_html(folder / "report.html", dataset=data, thumbnails=4)
    return found, folder / "report.html"


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200])
def test_it_fits_and_can_be_read(browser, drawn, width, scheme):
    with opened(browser, drawn[1], width=width, scheme=scheme) as page:
        page.wait_for_selector("#cards li")
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert too_wide(page) == []
        found = contrasts(page)
        assert len(found) > 100
        assert [text for ratio, text in found if ratio < 4.5] == []
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
        assert dark == (scheme == "dark")


@pytest.mark.slow
def test_tables_sort_by_mouse_and_by_keyboard(browser, drawn):
    with opened(browser, drawn[1]) as page:
        region = page.get_by_role("region", name="table: results")
        expected = [f"{row['top1']:.2f}" for row in drawn[0].rows()]
        assert column(page, "results", "top-1") == expected
        head = region.get_by_role("columnheader", name="top-1")
        assert head.get_attribute("aria-sort") == "none"
        head.get_by_role("button").click()
        assert head.get_attribute("aria-sort") == "ascending"
        assert column(page, "results", "top-1") == sorted(expected, key=float)
        page.keyboard.press("Enter")
        assert head.get_attribute("aria-sort") == "descending"
        assert column(page, "results", "top-1") == sorted(expected, key=float, reverse=True)
        region.get_by_role("button", name="ECE, 15 bins").press("Enter")
        assert head.get_attribute("aria-sort") == "none"
        errors = column(page, "results", "ECE, 15 bins")
        assert errors[-1] == "-", "votes have no calibration error, and stay last"
        assert errors[:-1] == sorted(errors[:-1], key=float)
        region.get_by_role("button", name="method").click()
        names = column(page, "results", "method")
        assert names == sorted(names, key=str.lower)


@pytest.mark.slow
def test_what_the_charts_say(browser, drawn):
    rows = {row["method"]: row for row in drawn[0].rows()}
    with opened(browser, drawn[1]) as page:
        figures = page.locator("figure")
        accuracy, cost, stream = (
            page.get_by_role("img", name=name).get_attribute("aria-label")
            for name in ("top-1 accuracy", "milliseconds", "over the stream")
        )
        for name, found in rows.items():
            assert f"{name} {found['top1']:.1f} (" in accuracy
            assert f"{name} {found['top1']:.1f} at " in cost
            assert f"{name} {found['top1']:.1f}" in stream
            panel = figures.filter(has_text=f"{name} on noto-v1")
            assert panel.locator("svg").count() == (name != "ZERO")
        assert "votes, not probabilities" in figures.filter(has_text="ZERO on noto-v1").inner_text()


@pytest.mark.slow
def test_the_gallery_shows_what_was_fixed_and_broken(browser, drawn):
    found = drawn[0]
    (counts,) = found.compare("zero-shot", "averaged prediction").rows
    (run,) = found.runs
    classes = run.header["classes"]
    with opened(browser, drawn[1]) as page:
        page.wait_for_selector("#cards li")
        page.get_by_label("by method").select_option("averaged prediction")
        page.get_by_label("relative to").select_option("zero-shot")
        for kind, number in (("broken", counts["only_a"]), ("fixed", counts["only_b"])):
            page.get_by_label("show").select_option(kind)
            assert number > 1
            assert page.get_by_role("status").inner_text() == f"{number} images"
            assert page.locator("#cards li").count() == number
        table = dict(
            zip(column(page, "fixed and broken", "method"), column(page, "fixed and broken", "fixed"), strict=True)
        )
        assert table["averaged prediction"] == str(counts["only_b"])
        truth = page.locator("#cards h3").first.inner_text()
        page.get_by_label("true class").select_option(truth)
        card = page.locator("#cards li")
        assert card.count() == 1
        (row,) = [row for row in run.rows if classes[row["truth"]] == truth]
        answer = row["methods"]["averaged prediction"]
        (before, after), name = card.locator("table").all(), classes[answer["index"]]
        assert before.locator("caption").inner_text() == "zero-shot: wrong"
        assert after.locator("caption").inner_text() == "averaged prediction: right"
        cells = after.locator("tbody tr").first.locator("th, td").all_inner_texts()
        shares = answer["zero_shot"]["probs"][0], answer["confidence"]
        assert name == truth
        assert cells == [truth, *(f"{100 * share:.1f}%" for share in shares)]
        page.get_by_label("by method").select_option("zero-shot")
        assert page.get_by_role("status").inner_text() == "0 images"


@pytest.mark.slow
def test_thumbnails_are_as_many_as_the_page_says(browser, drawn):
    with opened(browser, drawn[1]) as page:
        page.wait_for_selector("#cards li")
        assert "4 have a thumbnail of at most 128 by 128 pixels" in page.locator("main").inner_text()
        shown = set()
        for method in page.get_by_label("by method").locator("option").all_inner_texts():
            page.get_by_label("by method").select_option(method)
            for other in page.get_by_label("relative to").locator("option").all_inner_texts():
                page.get_by_label("relative to").select_option(other)
                shown |= {image.get_attribute("alt") for image in page.locator("#cards img").all()}
        assert len(shown) == 4
        assert all(text.startswith("sample ") for text in shown)


def hostile_report():
    top = header(methods=("zero-shot", HOSTILE), dataset=HOSTILE, model=f"{HOSTILE}\udcff", n=2)
    top["classes"] = [HOSTILE, "plain"]
    rows = [
        {**row(i, 0, zero_shot=said(i), **{HOSTILE: said(1 - i)}), "path": f"{HOSTILE}\udcff", "position": i}
        for i in range(2)
    ]
    top["settings"]["stream"] = {"order": HOSTILE}
    rows[0]["seconds"] = {"zero-shot": 0.1, HOSTILE: 0.2, f"{HOSTILE}!": 0.3}
    return report((top, rows))


@pytest.mark.slow
def test_no_text_of_a_run_is_read_as_markup(browser, tmp_path):
    hostile_report().to_html(tmp_path / "report.html")
    with opened(browser, tmp_path / "report.html") as page:
        page.wait_for_selector("#cards li")
        assert page.title() == f"zero-shot, {HOSTILE} on {HOSTILE}"
        assert page.locator("#cards h3").inner_text() == HOSTILE
        assert page.locator("img").count() == 0
        assert page.get_by_label("by method").locator("option").all_inner_texts() == ["zero-shot", HOSTILE]
        assert HOSTILE in page.get_by_role("img", name="milliseconds").get_attribute("aria-label")


@pytest.mark.slow
def test_pages_of_the_gallery(browser, tmp_path):
    top = header(methods=("a", "b"), n=60)
    rows = [{**row(i, i % 2, a=said(1 - i % 2), b=said(i % 2)), "path": f"images/{i}.png"} for i in range(60)]
    nine = header("dtd", methods=("a", "b"), n=9), [row(i, 0, a=said(0), b=said(0)) for i in range(9)]
    report((top, rows), nine).to_html(tmp_path / "report.html")
    with opened(browser, tmp_path / "report.html", width=360) as page:
        page.wait_for_selector("#cards li")
        page.get_by_role("region", name="table: results").get_by_role("button", name="n", exact=True).click()
        assert column(page, "results", "n") == ["9", "9", "60", "60"], "numbers are sorted as numbers"
        status, following = page.get_by_role("status"), page.get_by_role("button", name="next")
        assert status.inner_text() == "60 images, here 1 to 24"
        assert "0 have a thumbnail" in page.locator("main").inner_text()
        assert "images/0.png, sample 0, seed 0" in page.locator("#cards li").first.inner_text()
        assert page.get_by_role("button", name="previous").is_disabled()
        following.press("Enter")
        following.click()
        assert status.inner_text() == "60 images, here 49 to 60"
        assert page.locator("#cards li").count() == 12
        assert following.is_disabled()
        page.get_by_label("true class").select_option("class 1")
        assert status.inner_text() == "30 images, here 1 to 24"


@pytest.mark.slow
def test_one_method_old_rows_and_bongard(browser, tmp_path):
    one = report((header(methods=["TPT"], n=2), [row(0, 0, TPT=said(0)), row(1, 0, TPT=said(1))]))
    one.to_html(tmp_path / "one.html")
    with opened(browser, tmp_path / "one.html") as page:
        assert "No image was right by one method and wrong by another." in page.locator("main").inner_text()
        assert page.locator("nav a").all_inner_texts() == ["Results", "Accuracy", "Calibration", "Gallery"]
    top = {**header("bongard-hoi", methods=("a", "b"), n=1), "classes": []}
    report((top, [row(0, "negative", a=said(0) | {"top5": []}, b=said(1) | {"top5": []})])).to_html(
        tmp_path / "two.html"
    )
    with opened(browser, tmp_path / "two.html") as page:
        page.wait_for_selector("#cards li")
        assert page.locator("#cards h3").inner_text() == "negative"
        assert page.locator("#cards tbody tr").all_inner_texts() == ["positive\t50.0%", "negative\t50.0%"]


@pytest.mark.slow
def test_runs_without_results(browser, tmp_path):
    bad = {"seed": 0, "sample": 0, "truth": None, "error": "ImageError: x"}
    for name, rows in (("errors", [bad]), ("nothing", [])):
        report((header(stream={"order": "shuffle"}), rows), (header("dtd"), FOUR)).to_html(tmp_path / f"{name}.html")
        with opened(browser, tmp_path / f"{name}.html") as page:
            page.wait_for_selector("#cards li")
            assert page.locator("figure").filter(has_text="No results.").count() == 2
            assert page.locator("header p").inner_text() == "Model: RN50"


def test_it_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    found, file = report((header(n=1, methods=["TPT"]), [row(0, 0, TPT=said(0))])), tmp_path / "report.html"
    file.write_text("before")
    monkeypatch.setattr("os.fsync", lambda number: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        found.to_html(file)
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]
    assert file.read_text() == "before"


@pytest.mark.parametrize(
    ("out", "options", "says"),
    [
        (".", {}, "to_html: '.' is a folder; pass the name of a file"),
        ("none/report.html", {}, "'none/report.html' is in a folder that does not exist"),
        ("report.html", {"thumbnails": -1}, "thumbnails must be an int, 0 or more, but got -1"),
        ("report.html", {"thumbnails": True}, "thumbnails must be an int, 0 or more, but got True"),
    ],
)
def test_what_is_refused_before_the_work(out, options, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tpt_lib.Report, "table", None)
    with pytest.raises(ValueError, match=says.replace(".", r"\.", 1)):
        report((header(), [row(0, 0, zero_shot=said(0), TPT=said(0))])).to_html(out, **options)


@pytest.mark.slow
def test_50_000_rows(browser, tmp_path):
    path = pathlib.Path(__file__).parents[3] / "scripts/large_report.py"
    spec = importlib.util.spec_from_file_location("large_report", path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    run = script.made_up(50_000, 2)
    tpt_lib.Report((run,)).to_html(tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size < 20e6
    assert len(json.dumps(run.rows[0])) * len(run.rows) > 40e6, "the run itself is larger"
    with opened(browser, tmp_path / "report.html") as page:
        page.wait_for_selector("#cards li")
        assert page.get_by_role("status").inner_text().endswith(" images, here 1 to 24")

"""Open pages of reports in a browser, and ask what a reader would."""

import contextlib

import tpt_lib

METHODS = ["zero_shot", "view_average", "zero", "tda"]


def drawn_report(folder, n=40):
    """Evaluate a few drawings, one method of votes and one stream among them; return the report and the drawings."""
    data = tpt_lib.load_tiny_drawings(n=n)
    out = folder / "run.jsonl"
    return tpt_lib.evaluate(tpt_lib.load_tiny(), data, METHODS, out=out, n_views=4, num_workers=0), data


@contextlib.contextmanager
def opened(browser, file, *, width=1200, scheme="light"):
    """Open a file; after the block, assert that it asked for nothing else and had no errors."""
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    asked, errors = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: errors.append(message.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(file.as_uri())
    yield page
    assert [url for url in asked if not url.startswith("data:")] == [file.as_uri()]
    assert errors == []
    page.close()


TOO_WIDE = """() => [...document.querySelectorAll("body *")]
  .filter((one) => one.getBoundingClientRect().right > innerWidth + 1 && !one.closest(".scroll table"))
  .map((one) => one.outerHTML.slice(0, 80))"""

CONTRASTS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const levels = (color) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = (rgb) => rgb.slice(0, 3).map((v) => v / 255)
    .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (one) => { while (one) { const found = levels(getComputedStyle(one).backgroundColor);
    if (found[3] === 255) return found; one = one.parentElement; } return [255, 255, 255]; };
  const texts = [...document.querySelectorAll("main *, header *")].filter((one) =>
    [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim())
    && one.checkVisibility() && one.tagName !== "SCRIPT");
  return texts.map((one) => {
    const style = getComputedStyle(one), color = one.namespaceURI.endsWith("svg") ? style.fill : style.color;
    const [a, b] = [light(levels(color)), light(behind(one))].sort((x, y) => y - x);
    return [(a + 0.05) / (b + 0.05), one.outerHTML.slice(0, 80)];
  });
}"""


def too_wide(page):
    """What reaches beyond the window, except in tables that scroll."""
    return page.evaluate(TOO_WIDE)


def contrasts(page):
    """The contrast of every text with what is behind it, as WCAG measures it."""
    return page.evaluate(CONTRASTS)


def column(page, table, name):
    """The texts of a column of a table, by the labels that a screen reader says."""
    region = page.get_by_role("region", name=f"table: {table}", exact=True)
    names = [head.removesuffix(" ") for head in region.locator("thead th").all_inner_texts()]
    return region.locator(f"tbody td:nth-child({names.index(name) + 1})").all_inner_texts()

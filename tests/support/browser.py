"""A real browser for tests of pages: Debian's chromium, driven by playwright."""

import contextlib
import importlib.util
import shutil

CHROMIUM = shutil.which("chromium")


def why_not():
    """Return why there is no browser, or None."""
    if CHROMIUM is None:
        return "no chromium: apt-get install chromium"
    return None if importlib.util.find_spec("playwright") else "no playwright: pip install playwright"


@contextlib.contextmanager
def open_browser():
    """Yield a playwright ``Browser``. Until it is closed, ``asyncio.run`` cannot be called in this thread."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])  # root has no sandbox
        yield browser
        browser.close()

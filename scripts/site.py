"""Build the documentation site: ``python scripts/site.py``, then open build/site/index.html.

Fails on a warning, a broken internal link, or a public name that the reference does not have. Fetches nothing; links to other
sites are listed in build/site/external.txt.
"""

import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

sys.path.append(str(Path(__file__).parent))
from api import public_values

ROOT = Path(__file__).parents[1]
SITE = ROOT / "build/site"
HOME = '<!doctype html><title>tpt_lib</title><meta http-equiv="refresh" content="0; url=docs/index.html">\n'


class Page(HTMLParser):
    """What a page links to, and the places in it that can be linked to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.places: set[str] = {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.places.add(value)
            elif name in ("href", "src") and value and tag != "link":
                self.links.add(value)


def build() -> None:
    shutil.rmtree(SITE, ignore_errors=True)  # pages of sources are not written again while a source is unchanged
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", "--fresh-env"]
    if subprocess.run([*command, "-c", ROOT / "docs", ROOT, SITE], check=False).returncode:
        sys.exit("the site was not built: see the warnings above")
    (SITE / "index.html").write_text(HOME)


def links(site: Path) -> tuple[list[str], set[str]]:
    """Internal links that are broken, as "page -> link", and all external ones."""
    pages = {path: Page(path) for path in site.rglob("*.html")}
    broken, external = [], set()
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                external.add(link)
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file() or (target in pages and unquote(parts.fragment) not in pages[target].places):
                broken.append(f"{path.relative_to(site)} -> {link}")
    return sorted(broken), {link for link in external if not link.startswith("data:")}


def undocumented(reference: Path) -> list[str]:
    """Public names without a place on that page."""
    places = Page(reference).places
    return [name for name in public_values() if f"tpt_lib.{name}" not in places]


def main() -> int:
    build()
    broken, external = links(SITE)
    (SITE / "external.txt").write_text("\n".join(sorted(external)) + "\n")
    missing = undocumented(SITE / "docs/api.html")
    for line in (*broken, *(f"not in docs/api.md: {name}" for name in missing)):
        print(line)
    print(f"{len(list(SITE.rglob('*.html')))} pages, {len(external)} links to other sites not fetched")
    return 1 if broken or missing else 0


if __name__ == "__main__":
    sys.exit(main())

"""Put generated tables into a page, and tell whether a page is stale."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path


def with_tables(page: Path, text: str, tables: Mapping[str, str]) -> str:
    """Return the text of a page with each table between ``<!-- name -->`` and ``<!-- end -->``."""
    for name, table in tables.items():
        parts = re.split(rf"(?s)(?<=<!-- {name} -->\n).*?(?=\n<!-- end -->)", text)
        if len(parts) != 2:
            raise SystemExit(f"{page} must have one place for the table of {name}, but has {len(parts) - 1}")
        text = f"\n{table}\n".join(parts)
    return text


def write_or_check(page: Path, new: str, *, check: bool, command: str) -> int:
    """Write a page; or write nothing and return 1 if it would change."""
    if check:
        stale = new != page.read_text(encoding="utf-8")
        print(f"{page} is stale: run {command}" if stale else "")
        return int(stale)
    page.write_text(new, encoding="utf-8")
    print(f"wrote {page}")
    return 0

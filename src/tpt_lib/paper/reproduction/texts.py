"""Format texts about a reproduction."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

__all__ = ["did_you_mean", "duration", "slug"]


def slug(text: str) -> str:
    """Return a text in a form that can be part of a file name.

    >>> slug("TPT (rho=0.3)"), slug("bongard-hoi/seen_act_seen_obj")
    ('tpt-rho-0.3', 'bongard-hoi-seen_act_seen_obj')
    """
    return re.sub(r"[^a-z0-9._]+", "-", text.lower()).strip("-.") or "unnamed"


def duration(seconds: float) -> str:
    """Return a duration in words.

    >>> duration(0.04), duration(90.0), duration(5400.0), duration(2e5)
    ('under a second', 'about 90 seconds', 'about 90 minutes', 'about 56 hours')
    """
    if seconds < 1:
        return "under a second"
    for unit, size, most in (("seconds", 1, 100), ("minutes", 60, 100), ("hours", 3600, 100)):
        if seconds < most * size:
            return f"about {seconds / size:.0f} {unit}"
    return f"about {seconds / 86400:.0f} days"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of an error about an unknown name."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(known)}"

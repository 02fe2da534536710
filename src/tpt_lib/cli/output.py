"""Print results to standard output, and everything else to standard error."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from typing import Any

import tpt_lib as tpt

__all__ = ["print_json", "report_values", "say", "show"]


def say(text: object) -> None:
    """Print a text to standard error as one line, without its line breaks."""
    print(f"tpt-lib: {' '.join(str(text).split())}", file=sys.stderr)


def show(args: Namespace, value: Any, text: object) -> None:
    """Print a result: its value with ``--json``, its text otherwise."""
    print_json(value) if args.json else print(text)


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    print(json.dumps(value, ensure_ascii=False, indent=2))


def report_values(report: tpt.Report) -> dict[str, Any]:
    """Return the contents of a report for ``--json``."""
    return {"rows": report.rows(), "averages": report.averages(), "notes": report.notes()}

"""Read text and JSON files, and say which file, which line and what to do where one is damaged."""

from __future__ import annotations

import codecs
import json
from pathlib import Path
from typing import Any

__all__ = ["read_json", "read_text"]

UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def read_text(caller: str, path: Path) -> str:
    """Return the text of a UTF-8 file, without a byte order mark.

    Args:
        caller: the function or the dataset to name in errors.
        path: the file.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is not UTF-8; the message has the encoding, if it can be told, and how to convert the file.
    """
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise FileNotFoundError(f"{caller}: {str(path)!r} {what}")
    data = path.read_bytes()
    encoding, line = "UTF-16", 1
    if not data.startswith(UTF16) and b"\0" not in data:
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            encoding, line = "Latin-1", data.count(b"\n", 0, error.start) + 1
    raise ValueError(
        f"{caller}: {str(path)!r} is not UTF-8, from line {line} on; it may be {encoding}. Convert it with "
        f"'iconv -f {encoding} -t UTF-8', or save it as UTF-8 in an editor"
    )


def read_json(caller: str, path: Path) -> Any:
    """Return what a JSON file holds.

    Args:
        caller: the function or the dataset to name in errors.
        path: the file.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is not JSON, as a file that was cut short; the message has the line.
    """
    text = read_text(caller, path)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        what = "is empty" if not text.strip() else f"is cut short or broken at line {error.lineno}: {error.msg}"
    except RecursionError:
        what = "is nested too deeply"
    raise ValueError(f"{caller}: {str(path)!r} {what}. Download it again")

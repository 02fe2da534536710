"""Read text and JSON files. Errors name the damaged file, the line and what to do."""

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

    Returns:
        The text.

    Raises:
        FileNotFoundError: if the file is missing or a folder.
        ValueError: if it is not UTF-8; the message gives its likely encoding and how to convert it.
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
    """Return the content of a JSON file.

    Args:
        caller: the function or the dataset to name in errors.
        path: the file.

    Returns:
        The decoded value.

    Raises:
        FileNotFoundError: if the file is missing or a folder.
        ValueError: if it is not JSON, for example because it was cut short; the message gives the line.
    """
    text = read_text(caller, path)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        what = "is empty" if not text.strip() else f"is cut short or broken at line {error.lineno}: {error.msg}"
    except RecursionError:
        what = "is nested too deeply"
    raise ValueError(f"{caller}: {str(path)!r} {what}. Download it again")

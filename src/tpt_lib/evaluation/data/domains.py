"""Read sets of several domains: one folder per domain, with one folder of images per class."""

from __future__ import annotations

import re
from pathlib import Path

from tpt_lib.evaluation.data.folders import Listing, candidate_folders, quoted, read_folder
from tpt_lib.evaluation.data.registry import Entry

__all__ = ["read_domain"]


def read_domain(entry: Entry, root: Path, domain: str) -> Listing:
    """Return the listing of a domain. Its folder may be written with capitals, spaces, ``_`` or ``-``.

    Args:
        entry: the dataset, whose splits are its domains.
        root: its folder, or the folder that holds it.
        domain: name of the domain.

    Raises:
        FileNotFoundError: if the domain has no folder.
    """
    places = candidate_folders(entry, root)
    below = [folder for place in places for folder in sorted(place.iterdir()) if folder.is_dir()]
    found = next((folder for folder in below if _plain(folder.name) == _plain(domain)), None)
    if found is None:
        names = quoted(sorted({folder.name for folder in below}))
        raise FileNotFoundError(
            f"{entry.name}: no folder {domain!r} in {root}; found {names}. Expected below the root: {entry.layout}"
        )
    return read_folder(found, None, subset=True)


def _plain(name: str) -> str:
    return re.sub("[ _-]", "", name.casefold())

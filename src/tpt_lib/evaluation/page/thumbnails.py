"""Make the thumbnails of a page from the dataset, or from the files below a folder."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jaxtyping import UInt8
from torch import Tensor

from tpt_lib.content import digest
from tpt_lib.evaluation.data.data_identity import dataset_identity, differing_data
from tpt_lib.evaluation.data.eval_set import EvalSet
from tpt_lib.evaluation.page.gallery import Changes
from tpt_lib.evaluation.run_reading import Run
from tpt_lib.evaluation.run_schema import Row
from tpt_lib.types import PathLike, kind_of
from tpt_lib.views.reading import read_image

__all__ = ["SIDE", "Find", "file_below", "image_finder", "thumbnails_of"]

SIDE = 128  # pixels of the longer side of a thumbnail

Reader = Callable[[], Tensor]
Find = Callable[[Run, Row], Reader | None]  # how to read the image of a row, or None if there is none


def image_finder(dataset: EvalSet | PathLike | None, runs: Sequence[Run]) -> Find | None:
    """Return a function that finds the image of a row, after checking that the images are those of the runs.

    Args:
        dataset: the dataset, a folder that the paths of the runs are relative to, or None.
        runs: the runs.

    Raises:
        FileNotFoundError: if there is no such folder.
        TypeError: if it is anything else, such as a store, which has no images.
        ValueError: if the dataset is not that of a run, or a folder has none of the images, or different ones.
    """
    if dataset is None:
        return None
    if not isinstance(dataset, EvalSet | str | os.PathLike):
        raise TypeError(
            f"to_html: dataset must be the EvalSet that was evaluated, or a folder of images, but got {kind_of(dataset)}"
        )
    return _from_dataset(dataset, runs) if isinstance(dataset, EvalSet) else _from_folder(dataset, runs)


def _from_dataset(dataset: EvalSet, runs: Sequence[Run]) -> Find:
    own = [run for run in runs if (run.header["dataset"], run.header["split"]) == (dataset.name, dataset.split)]
    if not own:
        known = ", ".join(dict.fromkeys(f"{run.header['dataset']}/{run.header['split']}" for run in runs))
        raise ValueError(
            f"to_html: the dataset is {dataset.name}/{dataset.split}, but the runs are on {known}; pass one of those"
        )
    samples: Any = dataset.samples
    images: Any = samples if len(samples[0]) != 4 else [(query,) for problem in samples for query in problem[2]]
    identity = dataset_identity(dataset)
    for run in own:
        if len(images) != run.header["n"]:
            raise ValueError(
                f"to_html: the dataset {dataset.name} has {len(images)} samples, but the run has {run.header['n']}; pass the "
                "dataset that was evaluated"
            )
        there = run.header["settings"].get("data")
        if there and (differing := differing_data({**there, "root": None}, identity)):  # it may have been copied
            said = "; ".join(f"{name}: {a} there, {b} here" for name, (a, b) in differing.items())
            raise ValueError(
                f"to_html: the dataset {dataset.name} is not the one that was evaluated ({said}); pass that one"
            )

    def find(run: Run, row: Row) -> Reader | None:
        return (lambda: read_image(images[row["sample"]][0])) if run in own else None

    return find


def _from_folder(folder: PathLike, runs: Sequence[Run]) -> Find:
    root = Path(folder).expanduser()
    if not root.is_dir():
        raise FileNotFoundError(
            f"to_html: {str(folder)!r} is not a folder; pass the one that has the images of the run"
        )
    root = root.resolve()
    paths = [path for run in runs for row in run.rows if (path := row.get("path"))]
    if not any(file_below(root, path) for path in paths):
        first = (
            f"pass the folder that has {paths[0]!r}, the first of them"
            if paths
            else "the run has no paths; pass the dataset that was evaluated"
        )
        raise ValueError(f"to_html: {str(folder)!r} has none of the images of the run; {first}")
    for run in runs:
        _check_pixels(root, run)

    def find(_: Run, row: Row) -> Reader | None:
        file = file_below(root, row.get("path"))
        return None if file is None else lambda: read_image(file)

    return find


def _check_pixels(root: Path, run: Run) -> None:
    """Compare the few images whose pixels the run knows."""
    known = run.header["settings"].get("data", {}).get("images", {})
    for row in run.rows:
        if "error" in row or isinstance(row["truth"], str) or str(row["sample"]) not in known:
            continue  # images of Bongard problems are numbered otherwise
        file = file_below(root, row.get("path"))
        if file is not None and digest([read_image(file)]) != known[str(row["sample"])]:
            raise ValueError(
                f"to_html: {str(file)!r} has different pixels than when it was evaluated; pass the folder of that dataset"
            )


def file_below(root: Path, path: str | None) -> Path | None:
    """Return the file of a path below the folder, or None; a foreign run file must not reach other files."""
    try:
        file = (root / path).resolve() if path else root
        return file if file.is_relative_to(root) and file.is_file() else None
    except (OSError, ValueError):  # a path that is too long, or has a null character
        return None


def thumbnails_of(changes: Sequence[Changes], find: Find | None, most: int) -> list[dict[int, str]]:
    """Return up to ``most`` thumbnails, spread over all changes: for each group, data URLs by sample."""
    readers = {
        (group, change.row["sample"]): reader
        for group, one in enumerate(changes)
        for change in one.listed
        if find is not None and (reader := find(one.runs[0], change.row)) is not None
    }
    keys, found = list(readers), [dict[int, str]() for _ in changes]
    for i in range(min(most, len(keys))):
        group, sample = keys[i * len(keys) // min(most, len(keys))]
        try:
            found[group][sample] = _data_url(readers[group, sample]())
        except (ValueError, OSError):  # the gallery shows its path
            continue
    return found


def _data_url(pixels: UInt8[Tensor, "3 h w"]) -> str:
    from PIL import Image

    image = Image.fromarray(pixels.permute(1, 2, 0).numpy())
    image.thumbnail((SIDE, SIDE))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"

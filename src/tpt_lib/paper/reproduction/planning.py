"""Plan a reproduction: find the datasets, divide the work, estimate its time and disk."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from tpt_lib.evaluation.metrics import require_torchmetrics
from tpt_lib.evaluation.table import Table
from tpt_lib.models.identity import identify
from tpt_lib.models.protocol import ClipLike
from tpt_lib.paper.reproduction.definitions import Experiment, find_experiment, listed, paper_experiments
from tpt_lib.paper.reproduction.estimate import estimate
from tpt_lib.paper.reproduction.followers import ALL, follower_experiments
from tpt_lib.paper.reproduction.jobs import check_used, jobs_of, lacking
from tpt_lib.paper.reproduction.plan import Plan
from tpt_lib.paper.reproduction.sources import find_source
from tpt_lib.paper.reproduction.texts import slug
from tpt_lib.prompts.checkpoints import load_prompt
from tpt_lib.prompts.class_prompts import class_prompts
from tpt_lib.prompts.contexts import LearnedPrompt
from tpt_lib.types import PathLike

__all__ = ["list_experiments", "plan_experiment"]


def list_experiments(*, followers: str | None = None) -> Table:
    """List the tables and figures of the paper, with what each runs, or why it is not run.

    Args:
        followers: a model, such as ``"ViT-B/16"``, to list the published numbers of later methods with it instead (default
            None).

    Returns:
        A row per experiment: ``name``, ``title`` and ``what is run``.

    >>> list_experiments().column("name")[:3]
    ['table1', 'table2', 'table3']
    """
    return listed(follower_experiments(followers) if followers else paper_experiments())


def plan_experiment(
    model: ClipLike,
    name: str | None,
    root: PathLike,
    *,
    out: PathLike,
    coop: Sequence[PathLike] = (),
    cocoop: Sequence[PathLike] = (),
    reward: ClipLike | None = None,
    subset: bool = False,
    limit: int | None = None,
    followers: bool = False,
) -> Plan:
    """Plan what ``reproduce`` would do: rows, missing datasets, time and disk space. Writes nothing.

    The time is estimated from one image and one step, which are measured.

    Args:
        model: the model; the paper's are CLIP's RN50 and ViT-B/16 with OpenAI's weights.
        name: one of ``list_experiments()``, such as ``"table1"``. With ``followers``, None means all of them.
        root: the folder that has the datasets.
        out: the folder of all results, with a folder for each model: stores, run files and pages.
        coop: checkpoints of CoOp's prompts, learned on ImageNet; three for tables 5, 6 and 7 (default none).
        cocoop: the same for CoCoOp (default none).
        reward: a second CLIP, for RLCF (default None).
        subset: whether to accept incomplete datasets (default False). Their results are not compared.
        limit: number of samples per dataset to use, evenly spaced (default: all). Results are not compared.
        followers: whether the experiment is that of a later method (default False).

    Returns:
        The plan, for ``reproduce``.

    Raises:
        ValueError: if the experiment is unknown or cannot be run, or a checkpoint does not fit.
        FileNotFoundError: if ``root`` or a checkpoint is missing.

    >>> plan = plan_experiment(model, "table1", folder, out=folder / "results")
    >>> [source.label for source in plan.missing][:2], plan.jobs
    (['imagenet', 'imagenet-a'], ())
    """
    require_torchmetrics()
    model_name = identify(model)["model"]
    folder = Path(root).expanduser()
    experiment = _experiment(name, model_name if followers else None)
    _check(folder, limit)
    check_used(experiment.rows, {"coop": bool(coop), "cocoop": bool(cocoop), "reward": reward is not None})
    learned = {"coop": _learned(model, "coop", coop), "cocoop": _learned(model, "cocoop", cocoop)}
    skipped = {row.name: row.why or lacking(row, experiment.seeds, learned, reward) for row in experiment.rows}
    rows = [row for row in experiment.rows if not skipped[row.name]]
    labels = dict.fromkeys(label for row in rows for label in experiment.datasets_of(row))
    sources = {label: find_source(label, folder, subset=subset, limit=limit) for label in labels}
    place = Path(out) / slug(model_name)
    views = max([64, *(row.views for row in rows)])
    jobs = [
        job
        for label, source in sources.items()
        for row in rows
        if source.data is not None and label in experiment.datasets_of(row)
        for job in jobs_of(row, source, experiment.seeds, place, views)
    ]
    return Plan(
        experiment=experiment,
        model=model,
        model_name=model_name,
        reward=reward,
        reward_name="" if reward is None else identify(reward)["model"],
        learned=learned,
        out=place,
        sources=sources,
        jobs=tuple(jobs),
        skipped={row: why for row, why in skipped.items() if why},
        estimate=estimate(model, reward, jobs, views),
        free=_free_bytes(place),
    )


def _experiment(name: str | None, followers: str | None) -> Experiment:
    """Return the experiment of a name: of the paper, or of later methods with a model."""
    if followers is not None:
        return find_experiment(name or ALL, follower_experiments(followers))
    if name is None:
        raise ValueError("plan_experiment: name is missing; pass one of list_experiments(), such as 'table1'")
    return find_experiment(name, paper_experiments())


def _check(root: Path, limit: int | None) -> None:
    if not root.is_dir():
        raise FileNotFoundError(f"plan_experiment: the root {str(root)!r} is not a folder")
    if limit is not None and limit < 1:
        raise ValueError(f"plan_experiment: limit must be at least 1, but got {limit}")


def _free_bytes(place: Path) -> int:
    """Return the free space on the disk of a folder that may not exist yet."""
    above = next(path for path in (place, *place.absolute().parents) if path.is_dir())
    return shutil.disk_usage(above).free


def _learned(model: ClipLike, kind: str, files: Sequence[PathLike]) -> list[LearnedPrompt]:
    """Return learned prompts, after checking that they fit the model and are of the given kind."""
    found = []
    for file in files:
        prompt = load_prompt(file)
        if (prompt.meta_net is None) == (kind == "cocoop"):
            raise ValueError(
                f"plan_experiment: {str(file)!r} has {'no ' if prompt.meta_net is None else 'a '}network of CoCoOp, so it is "
                f"not a checkpoint for {kind}; pass it as {'coop' if prompt.meta_net is None else 'cocoop'}"
            )
        class_prompts(model, ["thing"], context=prompt)
        found.append(prompt)
    return found

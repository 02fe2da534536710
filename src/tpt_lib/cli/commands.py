"""Run each command: call the library, print what it returns."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tpt_lib as tpt
from tpt_lib import paper, plots
from tpt_lib.cli import store_commands
from tpt_lib.cli.ignored import check_dataset_options, check_image_options, check_problem_options, refuse
from tpt_lib.cli.loading import (
    classes_of,
    methods_of,
    model_of,
    named_models_of,
    prompts_of,
    reward_of,
    rewards_of,
    settings_of,
    views_of,
)
from tpt_lib.cli.output import say
from tpt_lib.evaluation.compare import BASELINES_AND_TPT
from tpt_lib.evaluation.data.bongard_hoi import Problem
from tpt_lib.evaluation.data.registry import ENTRIES, SPLITS_OF_BONGARD
from tpt_lib.evaluation.data.subsets import take_evenly
from tpt_lib.evaluation.metrics import require_torchmetrics
from tpt_lib.evaluation.table import Table
from tpt_lib.plots.figure import require_matplotlib
from tpt_lib.tiny.drawings import STYLES

__all__ = ["COMMANDS"]

EMBEDDED = (*STYLES, "tiny-bongard")


def classify(args: Namespace) -> int:
    if args.json:
        refuse(args, ("top",), "no effect with --json, which has the probabilities of all classes; leave it out")
    top = 3 if args.top is None else args.top
    if top < 1:
        raise ValueError(f"--top must be at least 1, but is {top}")
    model = model_of(args)
    names, template = classes_of(args), "a photo of a {}."
    prompts = prompts_of(args, model, names, template)
    how = settings_of(args) | rewards_of(args, prompts.names, template)
    views = views_of(args, seed=args.seed)
    found: list[dict[str, Any]] = []
    for image in args.images:
        try:
            said = tpt.classify(model, image, prompts, method=args.method, **how, **views)
        except (tpt.ImageError, OSError) as error:
            found.append({"image": image, "error": str(error)})
            say(f"{image}: {error}")
            continue
        found.append({"image": image, **said.to_dict()})
        if not args.json:
            likeliest = ", ".join(f"{name} {p:.2f}" for name, p in said.top(top))
            before = "" if said.before is None else "; zero-shot {} {:.2f}".format(*said.zero_shot.top(1)[0])
            print(f"{image}: {likeliest}{before}")
    if args.json:
        _print_json({"classes": prompts.names, "predictions": found})
    return int(any("error" in one for one in found))


def evaluate(args: Namespace) -> int:
    data = _dataset(args)
    if _of_problems(data):
        check_problem_options(args)
    model = model_of(args)
    out = args.out or _default_out(args, data)
    options: dict[str, Any] = {
        "out": out,
        "seeds": args.seeds,
        "strict": args.strict,
        "retry_errors": args.retry_errors,
    }
    if args.batch_size is not None:
        options["batch_size"] = args.batch_size
    if _of_problems(data):
        report = tpt.evaluate_bongard(model, data, args.methods or ["prototype", "tpt"], **options)
    else:
        options |= {"num_workers": args.num_workers, "backend": args.backend or "local", **views_of(args)}
        options |= {"order": args.order, "streams": args.streams}
        options["prompts"] = prompts_of(args, model, data.classes, data.template)
        options |= settings_of(args, data.name) | rewards_of(args, data.classes, data.template)
        report = tpt.evaluate(model, data, methods_of(args, ["zero_shot", "tpt"]), **options)
    if args.json:
        _print_json({"out": out, **_report(report)})
    else:
        print(report)
        print(f"The run is in {out}")
    return int(any(row["errors"] for row in report.rows()))


def encode(args: Namespace) -> int:
    args.classes = args.classes_file = None
    data = _dataset(args)
    if isinstance(data, tpt.FeatureStore) or _of_problems(data):
        raise ValueError(f"encode takes a dataset of images with classes, but got {data!r}")
    options: dict[str, Any] = {"seeds": args.seeds, "dtype": args.dtype, "name": args.name, "strict": args.strict}
    options |= {"num_workers": args.num_workers, "backend": args.backend or "local", **views_of(args)}
    store = tpt.encode_dataset(model_of(args), data, args.out, **options)
    found = store_commands.show(Namespace(stores=[args.out]))
    _print_json(found) if args.json else print(store_commands.as_text(found))
    for sample, error in store.errors.items():
        say(f"sample {sample}: {error}")
    return int(bool(store.errors))


def store(args: Namespace) -> int:
    if args.action == "merge" and args.out is None:
        raise ValueError("store merge needs --out, the folder of the merged store")
    if args.action != "merge":
        refuse(args, ("out",), "for merge; leave it out")
        if len(args.stores) > 1:
            raise ValueError(f"store {args.action} takes one store, but got {len(args.stores)}")
    actions = {"info": store_commands.show, "verify": store_commands.verify, "merge": store_commands.merge}
    found = actions[args.action](args)
    _print_json(found) if args.json else print(store_commands.as_text(found))
    return int(bool(found.get("damaged")))


def compare(args: Namespace) -> int:
    views = views_of(args, seed=args.seed)
    images: Any = args.images
    names: Any
    dataset = None
    if args.images:
        check_image_options(args)
        names, template = classes_of(args), "a photo of a {}."
    else:
        data = _dataset(args)
        if _of_problems(data):
            raise ValueError("compare is for images with classes; evaluate takes Bongard problems")
        images, names, template, dataset = data, data.classes, data.template, data.name
        if not isinstance(data, tpt.FeatureStore):
            views.setdefault("recipe", data.recipe)
            images = data.samples
    model = model_of(args)
    prompts = prompts_of(args, model, names, template)
    how = settings_of(args, dataset) | rewards_of(args, prompts.names, template)
    table = tpt.compare(model, images, prompts, methods=methods_of(args, BASELINES_AND_TPT), **how, **views)
    _print_json(table.to_dict()) if args.json else print(table)
    return 0


def report(args: Namespace) -> int:
    if args.json:
        refuse(args, ("format",), "no effect with --json; leave one of them out")
    if args.plots:
        require_matplotlib()
    if args.html is None:
        refuse(args, ("root",), "no effect without --html, which has thumbnails; leave it out")
    require_torchmetrics()
    found = tpt.Report.read(args.runs)
    if args.html is not None:
        found.to_html(args.html, dataset=args.root)
        say(f"The page is in {args.html}")
    if args.plots:
        Path(args.plots).mkdir(parents=True, exist_ok=True)
        plots.plot_accuracies(found).savefig(Path(args.plots, "accuracies.png"))
        plots.plot_reliability(found).savefig(Path(args.plots, "reliability.png"))
    tested = found.compare(*args.compare) if args.compare else None
    if args.json:
        _print_json({**_report(found), "compare": tested and tested.to_dict()})
        return 0
    print(
        {"table": repr, "markdown": tpt.Report.to_markdown, "csv": tpt.Report.to_csv}[args.format or "table"](
            found
        ).rstrip()
    )
    if tested is not None:
        print()
        print(tested.to_markdown() if args.format == "markdown" else tested)
    return 0


def reproduce(args: Namespace) -> int:
    if args.list:
        given = ("experiment", "root", "dry_run", "coop", "cocoop", "reward", "subset", "limit")
        refuse(args, given, "no effect with --list; leave it out")
        table = paper.list_experiments(followers=args.model if args.from_followers else None)
        _print_json(table.to_dict()) if args.json else print(table)
        return 0
    if args.experiment is None and not args.from_followers:
        raise ValueError("reproduce needs a name from 'tpt-lib reproduce --list', such as table1")
    if args.root is None:
        raise ValueError("--root is missing: pass the folder that has the datasets")
    reward = None if args.reward is None else reward_of(args, args.reward)
    options: dict[str, Any] = {name: getattr(args, name) for name in ("out", "subset", "limit")}
    options |= {"coop": args.coop or (), "cocoop": args.cocoop or (), "followers": args.from_followers}
    plan = paper.plan_experiment(model_of(args), args.experiment, args.root, reward=reward, **options)
    if not args.json:
        print(plan, flush=True)
    if args.dry_run:
        if args.json:
            _print_json({"plan": plan.to_dict()})
        return 0
    done = paper.reproduce(plan)
    if args.json:
        _print_json({"plan": plan.to_dict(), **done.to_dict(), "page": str(done.page)})
    else:
        print(f"\n{done}\nThe page is {done.page}")
    return int(any(one.errors for one in done.results))


def datasets(args: Namespace) -> int:
    if args.root and not Path(args.root).is_dir():
        raise FileNotFoundError(f"--root: {args.root!r} is not a folder")
    rows: list[dict[str, Any]] = []
    for name in EMBEDDED:
        data = _embedded(name)
        rows.append({"name": name, "classes": len(data.classes), "train": None, "val": None, "test": len(data)})
        rows[-1] |= {"views": data.recipe, **({"found": "embedded"} if args.root else {})}
    for entry in ENTRIES.values():
        counts = {split: entry.counts.get(split) for split in ("train", "val", "test")}
        rows.append({"name": entry.name, "classes": entry.classes, **counts, "views": entry.recipe})
        if args.root:
            rows[-1]["found"] = _found(entry, args.root)
    _print_json(rows) if args.json else print(Table(tuple(rows)))
    return 0


def methods(args: Namespace) -> int:
    entries = [tpt.get_method(name) for online in (False, True) for name in tpt.list_methods(online=online)]
    rows = [
        {
            "name": e.name,
            "title": e.title,
            "kind": "online" if e.online else "episodic",
            "needs": ", ".join(e.needs),
            "paper": e.paper,
        }
        for e in entries
    ]
    _print_json(rows) if args.json else print(Table(tuple(rows)))
    return 0


def models(args: Namespace) -> int:
    import open_clip

    pairs = [("tiny", None), *open_clip.list_pretrained()]
    rows = [
        {"model": name, "pretrained": tag}
        for name, tag in pairs
        if args.contains.lower() in f"{name} {tag or ''}".lower()
    ]
    if not rows and not args.json:
        say(f"no model has {args.contains!r} in its name")
    else:
        _print_json(rows) if args.json else print(Table(tuple(rows)))
    return 0


def demo(args: Namespace) -> int:
    from tpt_lib.tiny.demo import demo

    with contextlib.redirect_stdout(sys.stderr if args.json else sys.stdout):
        told = demo(style=args.style, n=args.n, seed=args.seed, out=args.out)
    if args.json:
        _print_json(told)
    return 0


def app(args: Namespace) -> int:
    from tpt_lib.app.page import serve
    from tpt_lib.app.wiring import require_gradio
    from tpt_lib.app.words import named_model

    refuse(args, ("json",), "the app prints no result; leave it out")
    require_gradio()
    require_matplotlib()
    store = None if args.store is None else tpt.FeatureStore.open(args.store)
    named = {name: named_model(model, code) for name, (model, code) in named_models_of(args).items()}
    if args.host not in ("127.0.0.1", "localhost", "::1"):
        say(f"warning: everyone who can reach {args.host} can use this app; there is no password")
    page, address = serve(named, store=store, host=args.host, port=args.port)
    print(f"The app is at {address} until you press Ctrl-C", flush=True)
    page.block_thread()
    return 0


_ALL = (classify, encode, store, evaluate, compare, report, reproduce, datasets, methods, models, demo, app)
COMMANDS: Mapping[str, Callable[[Namespace], int]] = {command.__name__: command for command in _ALL}


def _dataset(args: Namespace) -> Any:
    """Return the dataset, or the store that was made of one."""
    if args.dataset is None:
        raise ValueError(
            "--dataset is missing: pass a name from 'tpt-lib datasets', or a folder with a subfolder per class"
        )
    if store_commands.is_store(args.dataset):
        refuse(args, ("root", "split", "subset"), "for datasets; a store knows its own; leave it out")
        return _limited(args, tpt.FeatureStore.open(args.dataset))
    check_dataset_options(args, EMBEDDED, ENTRIES)
    if args.dataset in EMBEDDED:
        data = _embedded(args.dataset)
    else:
        split = args.split or "test"
        data = tpt.load_dataset(args.dataset, args.root, split=split, classes=classes_of(args), subset=args.subset)
    return _limited(args, data)


def _limited(args: Namespace, data: Any) -> Any:
    if args.limit is not None and args.limit < 1:
        raise ValueError(f"--limit must be at least 1, but is {args.limit}")
    return data if args.limit is None else take_evenly(data, args.limit)


def _default_out(args: Namespace, data: tpt.EvalSet) -> str:
    """Return the name of the dataset, and for a folder or file a digest of its path: another may have the same name."""
    if args.dataset in EMBEDDED or args.dataset.lower().replace("_", "-") in ENTRIES:
        return f"{data.name}.jsonl"
    given = Path(args.dataset).expanduser()
    place = os.path.realpath(given if given.is_file() else Path(args.root or "", given))
    return f"{data.name}-{hashlib.blake2b(os.fsencode(place), digest_size=3).hexdigest()}.jsonl"


def _embedded(name: str) -> tpt.EvalSet:
    return tpt.load_tiny_drawings(name) if name in STYLES else tpt.load_tiny_bongard()


def _of_problems(data: Any) -> bool:
    return not isinstance(data, tpt.FeatureStore) and isinstance(data.samples[0], Problem)


def _found(entry: Any, root: str) -> str:
    split = "test" if "test" in entry.counts else next(iter(entry.counts), SPLITS_OF_BONGARD[0])
    try:
        return f"{len(tpt.load_dataset(entry.name, root, split=split)):,}"
    except (ValueError, OSError) as error:
        return f"no: {str(error).split('. ')[0]}"


def _report(report: tpt.Report) -> dict[str, Any]:
    return {"rows": report.rows(), "averages": report.averages(), "notes": report.notes()}


def _print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))

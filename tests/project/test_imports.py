"""Imports run one way: a module imports only modules listed above it, lazy and typing imports included."""

import ast
import pathlib

import pytest

SOURCE = pathlib.Path(__file__).parents[2] / "src/tpt_lib"
LISTED = """
types content text_files html_tables objectives prediction

models.protocol models.identity models.kept_parts models.structural_copy models.causal_towers models.module_clip
models.weights_files models.open_clip_weights models.open_clip models.openai models.transformers models.wrap models

views.reading views.seeding views.devices views.preprocessing views.crops_batched views.crops
views.augmix_parameters views.augmix_operations views.augmix_batched views.augmix views.settings views.augment views

features.check features.encode features.whole_file features.store_index features.shards features.store features

prompts.cache prompts.templates prompts.contexts prompts.names prompts.class_prompts prompts.checkpoints prompts

text.place_tokens text.full_length text.packing text.attention text.packed
text.half_precision text.choose text.encode text.initial text.stored text

logits

tuning.descent tuning.checks tuning.free_tokens tuning.goal tuning.shortlist tuning.tune tuning

methods.presets methods.base methods.reward methods.cases methods.stream methods.classify methods.zero_shot
methods.template_ensemble methods.prompt_ensemble methods.view_average methods.view_vote methods.zero methods.vte
methods.mean_shift methods.mta methods.moved_features methods.tune_features methods.tps methods.tpt methods.ctpt
methods.otpt methods.rtpt methods.rlcf
methods.tune_weights methods.memo methods.memo_clip
methods.bongard_prediction methods.bongard methods.coop_batches methods.coop_checkpoint
methods.coop_identity methods.coop
methods.online methods.cache methods.tda methods.boostadapter methods.dmn methods.dpe methods.onzeta methods.ecalp
methods.dynaprompt methods.tent_norms methods.tent methods

evaluation.data.registry evaluation.data.folders evaluation.data.split_files evaluation.data.domains
evaluation.data.image_lists evaluation.data.cifar evaluation.data.bongard_hoi
evaluation.data.class_names evaluation.data.samples evaluation.data.columns evaluation.data.tables
evaluation.data.stream evaluation.data.hugging_face evaluation.data.tar_format evaluation.data.tar_shards
evaluation.data.eval_set evaluation.data.data_identity evaluation.data.registered
evaluation.data.objects evaluation.data.load evaluation.data.subsets evaluation.data.orders evaluation.data
evaluation.published_names evaluation.published evaluation.table evaluation.metrics evaluation.significance
evaluation.run_identity evaluation.run_schema evaluation.run_rows evaluation.run_checks evaluation.run_lines
evaluation.run_lock evaluation.run_reading evaluation.run_file evaluation.run_summary
evaluation.page.svg evaluation.page.charts evaluation.page.gallery evaluation.page.thumbnails evaluation.page.write
evaluation.page
evaluation.report_table evaluation.several_runs evaluation.report evaluation.profiling evaluation.from_store evaluation.compare
evaluation.run.distributed evaluation.run.ray_cluster evaluation.run.checks evaluation.run.progress
evaluation.run.clock evaluation.run.items
evaluation.run.describe_store evaluation.run.agree_on_index evaluation.run.fill_store evaluation.run.merge_stores
evaluation.run.encode_work evaluation.run.encode_dataset
evaluation.run.work evaluation.run.stream_plan evaluation.run.stream_state evaluation.run.stream_groups
evaluation.run.evaluate_stream evaluation.run.settings evaluation.run.write_run
evaluation.run.evaluate evaluation.run.evaluate_bongard evaluation.run evaluation

paper.sweeps paper.budgets paper.transfer
paper.reproduction.texts paper.reproduction.definitions paper.reproduction.followers paper.reproduction.sources
paper.reproduction.jobs paper.reproduction.cost paper.reproduction.estimate paper.reproduction.plan
paper.reproduction.planning paper.reproduction.page paper.reproduction.outcome paper.reproduction.run paper.reproduction paper

plots.figure plots.prediction plots.bongard plots.sweep plots.improvement plots.stream plots.report plots.gallery
plots.methods plots

tiny.model tiny.drawings tiny.demo tiny

tpt_lib

app.stoppable app.words app.stored app.choices app.python_call app.explain app.other_tabs app.show app.wiring
app.store_inputs app.image_tabs app.bongard_tab app.page app

cli.output cli.options cli.loading cli.dataset
cli.commands.demo cli.commands.classify cli.commands.app cli.commands.evaluate cli.commands.store cli.commands.encode
cli.commands.compare cli.commands.report cli.commands.reproduce cli.commands.datasets cli.commands.methods
cli.commands.models cli.commands cli.parser cli.main cli
__main__
"""
ORDER = LISTED.split()


def modules(source):
    """Every module by its name below the package; the package itself is ``tpt_lib``."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        found[".".join(parts) or "tpt_lib"] = path
    return found


def imported(path, known):
    """The modules that a file imports, at any depth of its code, each with the line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            if name.split(".")[0] == "tpt_lib":
                inner = name.removeprefix("tpt_lib").lstrip(".")
                while inner and inner not in known:  # a name in a module: the module
                    inner = inner.rpartition(".")[0]
                yield inner or "tpt_lib", node.lineno


def backward(source, order):
    """Every import that breaks the order, as a line to print."""
    known = modules(source)
    place = {name: i for i, name in enumerate(order)}
    return [
        f"{path.relative_to(source.parent)}:{line}: {name} imports {other}, which is not listed above it"
        for name, path in known.items()
        for other, line in imported(path, known)
        if place[other] >= place[name]
    ]


def test_the_order_lists_every_module_once():
    assert sorted(ORDER) == sorted(modules(SOURCE))


def test_imports_run_one_way():
    assert backward(SOURCE, ORDER) == []


@pytest.mark.parametrize(
    "code",
    [
        "from tpt_lib.late import f",
        "import tpt_lib.late",
        "from tpt_lib import late",
        "def f():\n    from tpt_lib.late import f",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tpt_lib.late import f",
        "import tpt_lib",
    ],
)
def test_that_this_test_can_fail(tmp_path, code):
    source = tmp_path / "tpt_lib"
    source.mkdir()
    for name in ("__init__", "late"):
        (source / f"{name}.py").write_text("")
    (source / "early.py").write_text(code)
    (line,) = backward(source, ["early", "late", "tpt_lib"])
    assert line.startswith("tpt_lib/early.py:")
    (source / "early.py").write_text("import torch")
    assert backward(source, ["early", "late", "tpt_lib"]) == []

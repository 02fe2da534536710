"""Mutate the library's syntax trees and check that the tests notice. ``python scripts/mutate.py``

A mutant is one small change of one function. It is written into a copy of the tree, where the tests of its module run and, if
those do not notice, the quick ones of the conformance suites. Exits with 1 if fewer than 90% of the mutants are caught. No
mutant depends on the text or the lines of the source: it is named ``module:function operator#k``, for the k-th place in the
function where the operator applies.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import hashlib
import importlib
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src/tpt_lib"
BAR = 0.9
CONFORMANCE = ("-m", "not slow", "tests/conformance")
HEAVY = ["torch", "torchvision.transforms.v2", "open_clip"]  # imported once, then forked

# Modules below tpt_lib, and the tests of those that have none of their own: a/b.py is tested by tests/a/test_b.py if that
# exists. An entry without a star takes precedence.
TARGETS = {
    "objectives": "",
    "logits": "",
    "prediction": "",
    "tuning.*": "",
    "tuning.checks": "tuning/test_tune.py",
    "tuning.tune": "tuning/test_tune.py tuning/test_shortlist.py",
    "tuning.goal": "tuning/test_tune.py tuning/test_shortlist.py",
    "features.*": "",
    "features.shards": "features/test_store.py",
    "features.store_index": "features/test_store.py evaluation/run/test_encode_dataset.py",
    "text.*": "",
    "text.encode": "text/test_encode.py text/test_half_precision.py",
    "text.attention": "text/test_packed.py",
    "text.packing": "text/test_packed.py",
    "prompts.*": "",
    "views.*": "",
    "views.augmix_parameters": "views/test_augmix_parameters.py views/test_augmix.py",
    "methods.*": "",
    "methods.bongard_prediction": "methods/test_bongard.py",
    "methods.cache": "methods/test_tda.py methods/test_dmn.py",
    "methods.online": "methods/test_onzeta.py conformance/test_online.py",
    "methods.ctpt": "methods/test_ctpt_otpt.py",
    "methods.otpt": "methods/test_ctpt_otpt.py",
    "methods.mean_shift": "methods/test_mta.py",
    "methods.presets": "methods/test_base.py",
    "methods.tda": "methods/test_tda.py methods/test_presets.py methods/test_boostadapter.py",
    "methods.boostadapter": "methods/test_boostadapter.py methods/test_presets.py",
    "methods.dpe": "methods/test_dpe.py methods/test_presets.py",
    "methods.reward": "methods/test_rlcf.py methods/test_cases.py",
    "methods.tent_norms": "methods/test_tent.py",
    "methods.tune_weights": "methods/test_tune_weights.py methods/test_memo.py methods/test_tent.py",
    "methods.moved_features": "methods/test_tps.py",
    "methods.tune_features": "methods/test_tps.py",
    "methods.coop": "methods/test_coop.py methods/test_coop_batches.py methods/test_coop_checkpoint.py",
    "methods.coop_identity": "methods/test_coop_checkpoint.py",
    "prompts.checkpoints": "prompts/test_checkpoints.py models/test_weights_files.py",
    "prompts.class_prompts": "prompts/test_class_prompts.py conformance/test_hostile_inputs.py",
    "prompts.names": "prompts/test_class_prompts.py conformance/test_hostile_inputs.py",
    "evaluation.metrics": "",
    "evaluation.significance": "",
    "models.identity": "models/test_identity.py prompts/test_cache.py text/test_initial.py",
}

# Names of constants that affect speed only, or are arbitrary; keyword arguments that a correct call never shows.
UNSEEN_NAMES = {
    "FEW",
    "MOST_PADDING",
    "IN_CACHE",
    "MOST_TOGETHER",
    "TOKENS_A_GRAPH",
    "FLOATS_A_PASS",
    "ROWS_A_GRAPH",
    "EPOCH_SEED",
    "HALF_SCALE",
    "NARROWEST",
}
UNSEEN_KEYWORDS = {"buffering", "device", "digest_size", "memory_format", "non_blocking", "stacklevel", "strict"}

# Mutants that compute the same as the original, each with the reason.
EQUIVALENT = {
    "features.whole_file:write_whole chain#3": "os.fsync takes a file as well as its number",
    "views.augmix_parameters:sample_augmix minus#1": "the weights are divided by their sum",
    "views.augmix_operations:translate_x number#2": "an image moved out of its frame has no columns left to be written to",
    "views.crops:_middle comparison#1": "where the ratios are equal, both branches give the whole image",
    "views.augment:augment_views number#10": "images taken ahead are put back before the others",
    "models.identity:_marks number#1": "no version is negative, so any negative number stands for a missing one",
    "prompts.checkpoints:_loaded keyword#2": "torch.load has weights_only=True by default",
    "methods.tpt:as_prediction number#1": "row 0 of the logits does not depend on the rows after it",
    "methods.zero_shot:zero_shot_predict number#1": "row 0 of the logits does not depend on the rows after it",
    "views.augmix_parameters:sample_augmix chain#8": "a whole number is above x exactly if it is above x rounded down",
    "views.crops:_middle comparison#2": "where the ratios are equal, both branches give the whole image",
    "views.preprocessing:_resized comparison#4": "a square image has the same target in both branches",
    "views.crops:_cut_one_by_one chain#1": "tensors of one number slice and test as ints do; tolist is faster",
    "views.augmix_batched:move keyword#1": "torch promotes whole numbers to the offsets' float32",
    "views.augment:_normalize_into number#4": "views normalized together; affects speed only",
    "views.augmix:_chains chain#1": "tensors of one number index a list as ints do",
    "views.augmix_batched:_mix chain#4": "torch promotes uint8 to float32",
    "views.augmix_batched:_steps number#6": "there are as many amounts as chains",
    "views.augmix_operations:autocontrast number#4": "no pixel has level 256",
    "views.augmix_operations:translate_x chain#1": "tensors of one number slice and compare as ints do",
    "views.augmix_operations:shear_x number#2": "more padding that no window shows",
    "views.augmix_operations:shear_x chain#13": "levels are in 0..255; through short is faster",
    "views.augmix_operations:rotate chain#8": "levels are in 0..255; through short is faster",
    "views.crops_batched:weights keyword#2": "out= saves memory only",
    "text.encode:TextEncoder.plan.build keyword#1": "places undoes the order, whatever it is among equal lengths",
    "text.packing:Grid.repeated chain#3": "attention converts the mask to the dtype of the queries",
    "text.packing:_grid number#2": "any negative number marks padding",
    "text.packing:_grid number#7": "any negative number marks padding",
    "prompts.class_prompts:_words number#1": "only row 0 is used",
    "models.identity:_marks minus#1": "a tensor stays an inference tensor, so any constant stands for its version",
    "methods.otpt:text_overlap dim#1": "the Gram matrix is symmetric",
    "methods.mean_shift:twice_squared_bandwidths number#1": "the matrix is square",
    "methods.mean_shift:twice_squared_bandwidths minus#1": "the matrix is square, of one image or a batch",
    "methods.tda:_step number#5": "row 0 of the logits does not depend on the rows after it",
    "methods.ecalp:_step number#7": "row 0 of the logits does not depend on the rows after it",
    "methods.onzeta:_step number#2": "row 0 of the logits does not depend on the rows after it",
    "methods.memo:memo_predict number#6": "in eval mode row 0 does not depend on the rows after it",
    "methods.reward:clip_scores number#1": "the weights are divided by their sum",
    "methods.reward:policy_loss chain#6": "the advantages of a view sum to 0, so the normalization cancels",
    "methods.dpe:_step number#4": "row 0 of the logits does not depend on the rows after it",
    "methods.dynaprompt:_step number#7": "row 0 of the logits does not depend on the rows after it",
    "methods.dynaprompt:_step number#11": "row 0 of the logits does not depend on the rows after it",
    "methods.dpe:_alignment number#3": "only the gradient of the loss is used, and a constant has none",
    "methods.dynaprompt:_renewed chain#1": "unused prompts come before used ones, so if the oldest was used, all were",
    "methods.dynaprompt:_step chain#10": "booleans sort as 0 and 1",
    "methods.bongard_prediction:BongardPrediction.verdicts chain#1": "a tensor of one int is an index, too",
    "methods.bongard_prediction:BongardPrediction.__repr__ chain#2": "a tensor of one number is formatted as the number",
    "methods.coop:_epoch.gradients chain#3": "the graph of the loss is not used again; detaching frees it",
    "methods.coop:_accuracy number#1": "the size of the parts affects memory only",
    "methods.coop_batches:feature_width number#1": "the width does not depend on the number of rows",
    "methods.coop_batches:training_batches.crops number#1": "a view does not depend on how many follow it",
    "features.check:are_unit comparison#1": "no float32 length differs from 1 by exactly the tolerance",
    "tuning.shortlist:some_prompts chain#1": "a tuple takes a tensor of one integer as an index",
    "evaluation.metrics:scores.mean chain#3": "MeanMetric casts to its own dtype",
    "evaluation.metrics:calibration_error chain#3": "torchmetrics casts the targets to the dtype of the confidences",
}


Arguments = tuple[str, ...]  # of pytest


class Mutant(NamedTuple):
    name: str  # module:function operator#k
    old: ast.AST  # a node of the module's tree
    new: ast.AST

    @property
    def module(self) -> str:
        return self.name.partition(":")[0]


def altered(node: ast.AST, **fields: Any) -> ast.AST:
    """Return a copy of the node with other fields; the children are shared."""
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}
LOGIC = {ast.And: ast.Or, ast.Or: ast.And, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd}
FLIPS = {ast.Lt: ast.LtE, ast.Gt: ast.GtE, ast.Eq: ast.NotEq, ast.Is: ast.IsNot, ast.In: ast.NotIn}
COMPARISONS = {**FLIPS, **{new: old for old, new in FLIPS.items()}}


def arithmetic(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in ARITHMETIC:
        yield altered(node, op=ARITHMETIC[type(node.op)]())


def logic(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in LOGIC:
        yield altered(node, op=LOGIC[type(node.op)]())


def comparison(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            yield altered(node, ops=[*node.ops[:i], COMPARISONS[type(op)](), *node.ops[i + 1 :]])


def negation(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.Invert):
        yield node.operand


def condition(node: ast.AST) -> Iterator[ast.AST]:
    """Negate a condition, unless another operator does."""
    if not isinstance(node, ast.If | ast.While | ast.IfExp) or skipped(node.test) or any(negation(node.test)):
        return
    ops = node.test.ops if isinstance(node.test, ast.Compare) else []
    if [type(op) for op in ops] not in [[kind] for kind in (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)]:
        yield altered(node, test=ast.UnaryOp(ast.Not(), node.test))


def number(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield altered(node, value=node.value + 1)
    if isinstance(node, ast.Constant) and type(node.value) is float:
        yield altered(node, value=2 * node.value or 1.0)


def minus(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield node.operand


def dim(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.keyword) and node.arg in ("dim", "axis") and ast.unparse(node.value) in ("-1", "-2"):
        yield altered(node, value=ast.parse("-2" if ast.unparse(node.value) == "-1" else "-1", mode="eval").body)


def keyword(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Call):
        for given in node.keywords:
            default = given.arg == "dim" and ast.unparse(node.func) == "F.normalize"  # of matrices; see ``dim``
            if given.arg is not None and given.arg not in UNSEEN_KEYWORDS and not default:
                yield altered(node, keywords=[other for other in node.keywords if other is not given])


def chain(node: ast.AST) -> Iterator[ast.AST]:
    """Take ``x`` for ``x.method(...)``."""
    match node:
        case ast.Call(ast.Attribute(ast.Name("self" | "cls"))) | ast.Call(ast.Attribute(attr="contiguous" | "cpu")):
            return
        case ast.Call(ast.Attribute(attr="to"), [ast.Name("device") | ast.Attribute(attr="device")]):
            return
        case ast.Call(ast.Attribute(value)):
            yield value


def unwrap(node: ast.AST) -> Iterator[ast.AST]:
    """Return or assign ``x`` instead of ``f(x)``."""
    match node:
        case ast.Return(ast.Call(func, [x])) | ast.Assign(_, ast.Call(func, [x])):
            if not isinstance(x, ast.Starred | ast.GeneratorExp) and ast.unparse(func) not in ("list", "tuple", "dict"):
                yield altered(node, value=x)


def delete(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)):
        yield ast.Pass()


Operator = Callable[[ast.AST], Iterator[ast.AST]]
OPERATORS: list[Operator] = [
    arithmetic, logic, comparison, negation, condition, number, minus, dim, keyword, chain, unwrap, delete
]  # fmt: skip
OUTSIDE_FUNCTIONS = [number, delete]  # the rest of a module's own statements is types and tables


def names_in(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def skipped(node: ast.AST) -> bool:
    """Return whether nothing in the node is to be mutated: messages, types, and what affects speed only."""
    match node:
        case ast.Raise() | ast.Assert() | ast.JoinedStr():
            return True
        case ast.If():
            return "TYPE_CHECKING" in names_in(node.test)
        case ast.Expr(ast.Call(ast.Attribute(ast.Name("logging" | "logger")))):
            return True
        case ast.Call():
            return ast.unparse(node.func) == "warnings.warn"
        case ast.keyword():
            return node.arg in UNSEEN_KEYWORDS
        case ast.Assign() | ast.AnnAssign():
            written = node.targets if isinstance(node, ast.Assign) else [node.target]
            return any(ast.unparse(target) in {"__all__", *UNSEEN_NAMES} for target in written)
        case ast.BinOp() | ast.BoolOp() | ast.Compare() | ast.UnaryOp():
            return bool(names_in(node) & UNSEEN_NAMES)
    return False


def sites(node: ast.AST, scope: str = "", *, inside: bool = False) -> Iterator[tuple[str, bool, ast.AST]]:
    """Yield the nodes that may be mutated, with the qualified name they are in, and whether that is of a function."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not skipped(child):
                own, within = scope, inside
                if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    own = f"{scope}.{child.name}".lstrip(".")
                    within = inside or not isinstance(child, ast.ClassDef)
                yield own or "<module>", within, child
                if not any(dim(child)):
                    yield from sites(child, own, inside=within)


def mutants(module: str, tree: ast.Module) -> list[Mutant]:
    """Return every mutant of a module."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    imported = {(alias.asname or alias.name).partition(".")[0] for node in imports for alias in node.names}
    statements = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found: dict[str, list[Mutant]] = defaultdict(list)
    for scope, inside, node in sites(tree):
        for operator in OPERATORS if inside else OUTSIDE_FUNCTIONS:
            if operator is chain and node in statements:
                continue  # which deletes it
            same = found[f"{module}:{scope} {operator.__name__}"]
            for new in operator(node):
                text = ast.unparse(new)
                if text != ast.unparse(node) and not (operator is chain and text.partition(".")[0] in imported):
                    same.append(Mutant(f"{module}:{scope} {operator.__name__}#{len(same) + 1}", node, new))
    return [mutant for same in found.values() for mutant in same]


def sample(found: list[Mutant], *, count: int, each: int, seed: int) -> list[Mutant]:
    """Choose up to ``each`` mutants of a function, of different operators if it can, and up to ``count`` in total."""

    def draw(text: str) -> str:
        return hashlib.sha256(f"{seed} {text}".encode()).hexdigest()

    def places(ordered: Iterable[Mutant], end: str) -> dict[str, int]:
        """Return each mutant's place among those whose names agree up to ``end``."""
        taken: Counter[str] = Counter()
        place = {}
        for mutant in ordered:
            group = mutant.name.rpartition(end)[0]
            place[mutant.name], taken[group] = taken[group], taken[group] + 1
        return place

    in_operator = places(sorted(found, key=lambda m: draw(m.name)), "#")
    in_function = places(sorted(found, key=lambda m: (in_operator[m.name], draw(m.name.rpartition("#")[0]))), " ")
    few = [mutant for mutant in found if in_function[mutant.name] < each]
    kept = {mutant.name for mutant in sorted(few, key=lambda m: (in_function[m.name], draw(m.name)))[:count]}
    return [mutant for mutant in found if mutant.name in kept]


class Replace(ast.NodeTransformer):
    """Put one node in the place of another, in place; the other way round undoes it."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else self.generic_visit(node)


def mutated(tree: ast.Module, mutant: Mutant) -> str:
    """Return the source of the mutant."""
    source = ast.unparse(Replace(mutant.old, mutant.new).visit(tree))
    Replace(mutant.new, mutant.old).visit(tree)
    return source


def difference(tree: ast.Module, mutant: Mutant) -> str:
    """Return the first line that differs, before and after."""
    pairs = zip(ast.unparse(tree).splitlines(), mutated(tree, mutant).splitlines(), strict=False)
    return next(f"    - {old.strip()}\n    + {new.strip()}" for old, new in pairs if old != new)


def targets() -> dict[str, Arguments]:
    """Return the modules to mutate, each with its tests; exit if there is no such module or test file."""
    found: dict[str, Arguments] = {}
    for pattern, tests in sorted(TARGETS.items(), key=lambda item: "*" in item[0]):
        paths = sorted(PACKAGE.glob(f"{pattern.replace('.', '/')}.py"))
        if not paths:
            sys.exit(f"TARGETS names {pattern!r}, but there is no such module in {PACKAGE}")
        for path in paths:
            module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
            if path.name != "__init__.py" and module not in found:
                found[module] = selection(module, tests)
    return found


def selection(module: str, tests: str) -> Arguments:
    """Return the test files of the module's entry; if it has none, the module's own."""
    *folders, name = module.split(".")
    files = tests.split() or ["/".join([*folders, f"test_{name}.py"])]
    for file in files:
        if not (ROOT / "tests" / file).exists():
            sys.exit(f"{module}: there is no tests/{file}; add it, or name the module's tests in TARGETS")
    return tuple(f"tests/{file}" for file in files)


def outcome(tree: Path, tests: Arguments, timeout: float) -> int | None:
    """Run tests in a process of their own and return its exit code, or None after the timeout."""
    child = multiprocessing.get_context("fork").Process(target=run, args=(tree, tests))
    child.start()
    child.join(timeout)
    code = child.exitcode
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid or 0, signal.SIGKILL)  # and the workers it started
    child.join()
    return code


def run(tree: Path, tests: Arguments) -> None:
    """Run pytest on the tree up to the first failure, and end the process."""
    os.setsid()
    os.chdir(tree)
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    sys.path.insert(0, str(tree / "src"))
    os.environ["PYTHONPATH"] = str(tree / "src")  # for processes that tests start
    sys.dont_write_bytecode = True  # a mutant may have the size and the second of the one before
    import pytest

    options = ["-x", "--tb=no", "--basetemp=tmp", "-p", "no:cacheprovider"]
    quiet = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what is imported already
    os._exit(pytest.main([*options, *quiet, *tests]))


def copy_tree(to: Path) -> None:
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("conftest.py", "pyproject.toml"):
        shutil.copy(ROOT / name, to / name)


def check(chosen: list[Mutant], trees: dict[str, ast.Module], tests: dict[str, Arguments], folder: Path) -> int:
    """Run the tests on each mutant, print a line for each, and return the number of mutants caught."""
    for name in HEAVY:
        importlib.import_module(name)
    limits: dict[Arguments, float] = {}
    for selected in sorted({CONFORMANCE, *(tests[mutant.module] for mutant in chosen)}):
        start = time.perf_counter()
        if (code := outcome(folder, selected, 1800)) != 0:
            sys.exit(f"these tests do not pass without a mutant (pytest's exit code is {code}): {' '.join(selected)}")
        limits[selected] = 30 + 4 * (time.perf_counter() - start)
    caught = 0
    for mutant in chosen:
        start, tree, selected = time.perf_counter(), trees[mutant.module], tests[mutant.module]
        path = folder / "src/tpt_lib" / f"{mutant.module.replace('.', '/')}.py"
        original = path.read_text()
        path.write_text(mutated(tree, mutant))
        if (code := outcome(folder, selected, limits[selected])) == 0:
            code = outcome(folder, CONFORMANCE, limits[CONFORMANCE])
        path.write_text(original)
        caught += code != 0
        said = "SURVIVED" if code == 0 else "timeout" if code is None else "caught"
        print(f"{said:8} {time.perf_counter() - start:4.0f} s  {mutant.name}", flush=True)
        if code == 0:
            print(difference(tree, mutant), flush=True)
    return caught


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="WORD", help="mutants whose module, function or operator has it")
    parser.add_argument("--count", type=int, default=100, help="mutants in total (default 100)")
    parser.add_argument("--each", type=int, default=2, help="mutants per function (default 2)")
    parser.add_argument("--seed", type=int, default=0, help="for another sample")
    parser.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    args = parser.parse_args()
    tests = targets()
    trees = {module: ast.parse((PACKAGE / f"{module.replace('.', '/')}.py").read_text()) for module in tests}
    found = [mutant for module, tree in trees.items() for mutant in mutants(module, tree)]
    if stale := EQUIVALENT.keys() - {mutant.name for mutant in found}:
        sys.exit(f"EQUIVALENT names mutants that do not exist: {', '.join(sorted(stale))}")
    wanted = [mutant for mutant in found if args.only in mutant.name and mutant.name not in EQUIVALENT]
    chosen = sample(wanted, count=args.count, each=args.each, seed=args.seed)
    if args.list:
        for mutant in chosen:
            print(f"{mutant.name}\n{difference(trees[mutant.module], mutant)}")
        return
    with tempfile.TemporaryDirectory() as folder:
        copy_tree(Path(folder))
        caught = check(chosen, trees, tests, Path(folder))
    share = caught / max(1, len(chosen))
    print(f"{caught} of {len(chosen)} mutants caught, {share:.0%} (bar {BAR:.0%})")
    sys.exit(int(share < BAR))


if __name__ == "__main__":
    main()

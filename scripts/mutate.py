"""Breaks the maths on purpose, one line at a time, and sees whether the tests notice. ``python scripts/mutate.py``

Each mutant is made in a copy of the tree, where the tests named beside it are run. Exits with 1 if fewer than 90% are caught.
``--only WORD`` takes those whose file or text holds the word.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
BAR, FAILED = 0.9, 42
HEAVY = ["torch", "torchvision.transforms.v2", "open_clip"]  # imported once, then forked
OBJECTIVES, TUNING = "test_objectives.py", "test_tuning.py -k"
PLAIN = "test_tuning.py -k plain_method and open_clip-vit"
TEXT = "test_text.py -k (features_logits or path_is) and open_clip-vit"  # an engine that errs is not taken
NUMBERS = "test_numbers.py -k"
VIEWS, MEMO = "test_views.py -k", "test_memo.py -k memo_is_the_plain or options_are"


class Mutant(NamedTuple):
    file: str  # in src/tpt_lib
    old: str  # stands in it once
    new: str
    tests: str  # a file of tests, and what to choose of it


MUTANTS = [
    # the equations of section 3.2
    Mutant("objectives.py", "(log_p.exp() * -log_p)", "(log_p.exp() * log_p)", OBJECTIVES),
    Mutant("objectives.py", "logsumexp(dim=-2)", "logsumexp(dim=-1)", OBJECTIVES),
    Mutant("objectives.py", "math.log(logits.shape[-2])", "math.log(logits.shape[-1])", OBJECTIVES),
    Mutant("objectives.py", "int(fraction * logits.shape[-2])", "round(fraction * logits.shape[-2])", OBJECTIVES),
    Mutant("objectives.py", "max(1, int(", "max(0, int(", OBJECTIVES),
    Mutant("objectives.py", "stable=True).indices", "stable=True, descending=True).indices", OBJECTIVES),
    Mutant("objectives.py", "0 < fraction <= 1", "0 <= fraction <= 1", OBJECTIVES),
    Mutant("objectives.py", ".clamp(min=torch.finfo(torch.float32).min)", "", OBJECTIVES),
    Mutant("objectives.py", "logits.float().log_softmax", "logits.log_softmax", OBJECTIVES),
    # the loop
    Mutant("tuning.py", "pull_back(torch.autograd.grad(", "pull_back(-torch.autograd.grad(", PLAIN),
    Mutant("tuning.py", "class_logits(model, v[kept], t)", "class_logits(model, v, t)", PLAIN),
    Mutant("tuning.py", "loss + regularizer(t)", "loss - regularizer(t)", f"{TUNING} swapped"),
    Mutant("tuning.py", "conditional_context(prompts, views[:, 0])",
           "conditional_context(prompts, views[:, 1])", PLAIN),
    Mutant("tuning.py", "token.detach().clone().requires_grad_() for token in free",
           "token.detach().requires_grad_() for token in free", f"{TUNING} carries"),
    Mutant("tuning.py", "applied &= loss.isfinite() &", "applied &= loss.isfinite() |", f"{TUNING} not_finite"),
    Mutant("tuning.py", "text = _where(applied, text, untuned)",
           "text = _where(~applied, text, untuned)", PLAIN),
    Mutant("tuning.py", "selected = [_checked_selection(select, class_logits(model, v, t))",
           "selected = [_checked_selection(select, -class_logits(model, v, t))", PLAIN),
    Mutant("classify.py", "after = class_logits(model, views[:, :1]",
           "after = class_logits(model, views[:, -1:]", "test_classify.py -k parts"),
    Mutant("classify.py", "tuned=steps > 0 and applied", "tuned=steps >= 0 and applied", "test_classify.py -k steps_0"),
    # features and logits
    Mutant("model.py", "model.logit_scale * similarity + model.logit_bias",
           "model.logit_scale * similarity", "test_adapters.py -k logits_are"),
    Mutant("model.py", "F.normalize(model.encode_image(part).float(), dim=-1)",
           "model.encode_image(part).float()", "test_adapters.py -k image_features"),
    # the text engine
    Mutant("packed.py", ".triu(1 + keys - queries)", ".triu(keys - queries)", TEXT),
    Mutant("packed.py", "_no_later(q @ k.mT * q.shape[-1] ** -0.5)", "_no_later(q @ k.mT)", TEXT),
    Mutant("packed.py", "ends=prompts.prefix + own.cumsum(0) - 1",
           "ends=prompts.prefix + own.cumsum(0) - 2", TEXT),
    Mutant("packed.py", "related.tril()", "related", "test_text.py -k few_tokens and open_clip-vit"),
    Mutant("text.py", "and torch.equal(self.sums, other.sums)", "", "test_text.py -k stale"),
    Mutant("text.py", "names = None if names is None else _scaled_gradient(names, 1 / HALF_SCALE)",
           "pass", "test_numbers.py -k those_of_float32"),
    Mutant("prompts.py", 'name.replace("_", " ")', "name", "test_prompts.py -k odd"),
    Mutant("prompts.py", "if start.ndim == 2 else 0)", "if start.ndim >= 2 else 0)", "test_prompts.py -k class_specific"),
    Mutant("tokens.py", "role[: len(before)] = CONTEXT", "role[: len(before) - 1] = CONTEXT", "test_prompts.py -k roles"),
    Mutant("contexts.py", "self.bias1).relu()", "self.bias1)", "test_prompts.py -k cocoop"),
    # views
    Mutant("crops.py", "view.flip(-1) if flip else view", "view", VIEWS + " by_hand"),
    Mutant("crops.py", "coin < 0.5)", "coin < 0.4)", VIEWS + " mirrored"),
    Mutant("crops.py", "(w <= width)", "(w < width)", VIEWS + " box"),
    Mutant("crops.py", "(y * (height - h + 1))", "(y * (height - h))", VIEWS + " box"),
    Mutant("crops.py", "(low + (high - low) * shape).exp()", "ratio[0] + (ratio[1] - ratio[0]) * shape", VIEWS + " box"),
    Mutant("views.py", "1 / (255 * std)", "1 / (256 * std)", VIEWS + " odd_sizes"),
    Mutant("views.py", ".sub_(mean / std)", ".sub_(mean)", VIEWS + " odd_sizes"),
    Mutant("views.py", "int(want_h * long / short)", "round(want_h * long / short)", "test_adapters.py -k preprocess"),
    Mutant("views.py", "generator = image_generator(pixels, seed)",
           "generator = torch.Generator().manual_seed(seed)", VIEWS + " views_depend"),
    Mutant("images.py", "levels = levels / 257", "levels = levels / 256", VIEWS + " 16_bits"),
    Mutant("augmix.py", "4 - (0.4 * level).floor()", "4 - (0.4 * level).ceil()", VIEWS + " amounts"),
    Mutant("augmix.py", "torch.arange(DEPTH) >", "torch.arange(DEPTH) >=", VIEWS + " numpys"),
    Mutant("augmix.py", "(1 - plain) * params.weight", "params.weight", VIEWS + " released_codes"),
    Mutant("augmix.py", "exponential = -(1 - weight).log()", "exponential = weight", VIEWS + " distributed"),
    Mutant("operations.py", "_each(threshold - 1, images)", "_each(threshold - 2, images)", VIEWS + " operations"),
    Mutant("operations.py", "level * scale - low * scale", "level * scale", VIEWS + " operations"),
    # what TPT is compared with
    Mutant("bongard.py", "(everything >= positives).long()", "(everything < positives).long()",
           "test_bongard.py -k plain_step"),
    Mutant("baselines.py", "return logits.log_softmax(dim=-1).logsumexp(dim=-2)",
           "return logits.log_softmax(dim=-1).mean(dim=-2)", "test_baselines.py -k hand"),
    Mutant("baselines.py", "torch.logaddexp(votes.log(), _log_mean(voters))",
           "votes.add(1e-9).log()", "test_baselines.py -k vote or tie"),
    Mutant("adapting.py", "(prior * running.float() + batch)", "(running.float() + prior * batch)", MEMO),
    Mutant("adapting.py", "marginal_entropy(logits[done.selected])", "marginal_entropy(logits)", MEMO),
    Mutant("adapting.py", "        steppers.zero_grad()\n", "", MEMO),
    Mutant("fitting.py", "lr * (1 + math.cos(", "lr * (1 - math.cos(", "test_fitting.py -k plain"),
    Mutant("fitting.py", "WARM_UP_LR if epoch == 0 else", "WARM_UP_LR if epoch < 0 else", "test_fitting.py -k plain"),
    Mutant("evaluation/metrics.py", "(said.top5 == said.truth[:, None]).any(1)",
           "(said.top5 == said.truth[:, None])[:, 0]", "test_report.py -k scores"),
    # hard use
    Mutant("prediction.py", "if not logits.isfinite().all():", "if not len(logits):", f"{NUMBERS} error or memo"),
    Mutant("text.py", "HALF_SCALE = 1024.0", "HALF_SCALE = 1.0", f"{NUMBERS} vanish"),
    Mutant("objectives.py", "logits.float().log_softmax(dim=-1)", "logits.float().softmax(dim=-1).log()",
           f"{NUMBERS} any_scale"),
    Mutant("objectives.py", "- math.log(logits.shape[-2])", "", f"{NUMBERS} identical_views"),
    Mutant("objectives.py", "(log_p.exp() * -log_p)", "-log_p", f"{NUMBERS} identical_classes"),
    Mutant("model.py", "model.logit_scale * similarity + model.logit_bias",
           "similarity / model.logit_scale + model.logit_bias", f"{NUMBERS} probabilities"),
    Mutant("model.py", "os.register_at_fork(after_in_child=functools.partial(torch.set_num_threads, 1))", "pass",
           "test_concurrency.py -k fork"),
    Mutant("views.py", "generator = image_generator(pixels, seed)", "generator = torch.default_generator",
           "test_concurrency.py -k threads"),
    Mutant("contexts.py", "generator=torch.Generator().manual_seed(seed)", "generator=torch.Generator().manual_seed(id(model))",
           "test_concurrency.py -k processes"),
    Mutant("model.py", "    with torch.inference_mode(False), torch.no_grad():\n        return torch.cat([F",
           "    torch.set_grad_enabled(False)\n    if True:\n        return torch.cat([F", "test_untouched.py -k encode_views"),
]  # fmt: skip


def caught(mutant: Mutant, tree: Path, timeout: float) -> bool:
    """Whether a test fails on the mutant, or does not end; and then the tree is as it was."""
    path = tree / "src/tpt_lib" / mutant.file
    text = path.read_text()
    path.write_text(text.replace(mutant.old, mutant.new))
    try:
        return not passes(tree, mutant.tests, timeout)
    finally:
        path.write_text(text)


def passes(tree: Path, tests: str, timeout: float) -> bool:
    child = multiprocessing.get_context("fork").Process(target=run, args=(tree, tests))
    child.start()
    child.join(timeout)
    child.kill()
    child.join()
    if child.exitcode not in (0, FAILED, -9):
        raise RuntimeError(f"pytest itself failed, with {child.exitcode}: {tests}")
    return child.exitcode == 0


class EndAtFailure:
    """For pytest: a test that fails, or a file that cannot be imported, ends the process."""

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            os._exit(FAILED)

    pytest_collectreport = pytest_runtest_logreport


def run(tree: Path, tests: str) -> None:
    """In a process of its own: pytest on the tree."""
    os.chdir(tree)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.path.insert(0, str(tree / "src"))
    sys.dont_write_bytecode = True  # a mutant may have the size and the second of the one before
    import pytest

    file, _, chosen = tests.partition(" -k ")
    options = ["-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning", f"tests/{file}"]
    os._exit(pytest.main([*options, *(["-k", chosen] if chosen else [])], plugins=[EndAtFailure()]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for a mutant's tests")
    arguments = parser.parse_args()
    for name in HEAVY:
        importlib.import_module(name)
    mutants = [mutant for mutant in MUTANTS if any(arguments.only in part for part in mutant)]
    survived = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for part in ("src", "tests", "scripts"):
            shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("conftest.py", "pyproject.toml"):
            shutil.copy(ROOT / name, tree / name)
        for tests in sorted({mutant.tests for mutant in mutants}):
            if not passes(tree, tests, arguments.timeout):
                raise RuntimeError(f"these tests fail without a mutant: {tests}")
        for mutant in mutants:
            start = time.perf_counter()
            noticed = caught(mutant, tree, arguments.timeout)
            survived += not noticed
            took = f"{'caught' if noticed else 'SURVIVED':8} {time.perf_counter() - start:4.0f} s"
            print(f"{took}  {mutant.file}: {mutant.old!r} -> {mutant.new!r}", flush=True)
    share = 1 - survived / max(1, len(mutants))
    print(f"{len(mutants) - survived} of {len(mutants)} mutants caught, {share:.0%} (bar {BAR:.0%})")
    sys.exit(int(share < BAR))


if __name__ == "__main__":
    main()

"""The options of every command: help, examples, bad use."""

import pathlib
import re
import shlex

import pytest
from support.command_line import STYLE, ran

import tpt_lib
from tpt_lib.cli.commands import COMMANDS
from tpt_lib.cli.parser import parser


def commands():
    return next(action for action in parser()._actions if action.dest == "command").choices


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_that_parse_and_exit_codes(name):
    text = commands()[name].format_help()
    examples = re.findall(r"^  (tpt-lib .*)", text, flags=re.MULTILINE)
    assert examples
    for example in examples:
        assert parser().parse_args(shlex.split(example)[1:]).command == name
    assert "exit codes:" in text


@pytest.mark.parametrize(
    ("page", "named"), [("evaluating.md", {*COMMANDS}), ("stores.md", {"encode", "evaluate", "store"})]
)
def test_the_commands_in_the_pages_parse(page, named):
    text = (pathlib.Path(__file__).parents[2] / "docs" / page).read_text()
    lines = re.findall(r"^tpt-lib .*", text, flags=re.MULTILINE)
    assert {parser().parse_args(shlex.split(line)[1:]).command for line in lines} == named


def test_the_list_of_commands_reads_well():
    text = parser().format_help()
    first_words = {"Run", "Classify", "Encode", "Describe", "Evaluate", "Compare", "Summarize", "List"}
    for name, module in COMMANDS.items():
        assert module.ABOUT.split()[0] in first_words, module.ABOUT
        assert f"\n    {name}" in text
        assert not module.ABOUT.endswith(".")
    assert "run several methods on drawings" in " ".join(text.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained(name):
    for action in commands()[name]._actions:
        assert action.help, action


@pytest.mark.parametrize("old", ["--views 4", "--workers 0", "--batch 2", "--engine ray", "--num 0"])
def test_old_names_and_abbreviations_are_not_taken(old, capsys):
    code, _, (error,) = ran(capsys, f"evaluate --dataset {STYLE} {old}")
    assert (code, "unknown" in error) == (2, True)


def test_an_unknown_option_gets_the_nearest_one_and_the_help_of_its_command(capsys):
    code, _, (error,) = ran(capsys, f"evaluate --dataset {STYLE} --nviews 4")
    assert (code, error) == (
        2, "tpt-lib: error: unknown '--nviews'; did you mean '--n-views'?; 'tpt-lib evaluate --help' has examples"
    )  # fmt: skip


def test_the_version(capsys):
    assert ran(capsys, "--version") == (0, f"tpt-lib {tpt_lib.__version__}\n", [])


def test_bad_use_is_one_line(capsys):
    for line, says in {
        "classify a.png": "one of the arguments --classes --classes-file is required",
        "classify a.png --classes cat --n-views many": "argument --n-views: invalid int value: 'many'",
        "clasify": "invalid choice: 'clasify'",
        "": "the following arguments are required: COMMAND",
    }.items():
        code, out, (error,) = ran(capsys, line)
        assert (code, out) == (2, "")
        assert error.startswith("tpt-lib: error: ")
        assert says in error

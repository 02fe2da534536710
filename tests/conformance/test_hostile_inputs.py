"""What users really pass by mistake: each is refused in the library's own words, none is taken for something else."""

import functools
import pathlib
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.cases import model_of
from support.prompting import NAMES, unit, words

import tpt_lib as tpt
from tpt_lib.prompts import LearnedPrompt

IMAGE = torch.rand(3, 40, 50)
PAIRS = [(IMAGE, 0), (IMAGE, 1)]
NAN = float("nan")


def prompts(names=NAMES, **options):
    return tpt.class_prompts(model_of(), names, **options)


def given(name, *values, **more):
    """Call a flat function with the model in front."""
    return functools.partial(getattr(tpt, name), model_of(), *values, **more)


def pair():
    return tpt.EvalSet("pair", PAIRS, ("cat", "dog"))


REFUSED = {
    # taken for something else before: a silent wrong number
    "a path as context": (lambda: prompts(context=pathlib.Path("coop.pth.tar")), TypeError, r"but got .*; load_prompt\(path\)"),
    "a path's text as context": (lambda: prompts(context="coop.pth.tar"), TypeError, r"but got 'coop.pth.tar'; load_prompt"),
    "an array as context": (lambda: prompts(context=np.zeros((4, 32))), TypeError, "words, a tensor or what load_prompt"),
    "ints as context": (lambda: prompts(context=torch.zeros(4, 32).long()), ValueError, "must be finite floats .* torch.int64"),
    "NaN as context": (lambda: prompts(context=torch.full((4, 32), NAN)), ValueError, "finite floats .* with NaN or"),
    "NaN in a prompt": (lambda: prompts(context=LearnedPrompt(torch.full((4, 32), NAN))), ValueError, "with NaN or"),
    "NaN as names": (lambda: prompts(name_tokens=torch.full((4, 1, 32), NAN)), ValueError, "name_tokens must be finite"),
    "a set of names": (lambda: prompts({"cat", "dog"}), TypeError, "names must be a list .* a set, which has no order"),
    "a dict of names": (lambda: prompts({"cat": 1}), TypeError, "names must be a list of strings"),
    "a set of classes": (lambda: tpt.EvalSet("x", PAIRS, {"a", "b"}), ValueError, "classes must be a list of names"),
    "letters as classes": (lambda: tpt.load_dataset(PAIRS, classes="ab"), ValueError, "classes must be a list of names"),
    "no name at all": (lambda: tpt.load_dataset(""), ValueError, "pass a folder or one of the names"),
    "a mask": (lambda: pair().take([True, False]), ValueError, r"one is True; for a mask, pass mask.nonzero"),
    "a tensor mask": (lambda: pair().take(torch.tensor([True, False])), ValueError, "one is True"),
    "half an index": (lambda: pair().take([0.9]), ValueError, "must be ints below its 2 samples, but one is 0.9"),
    "an index too far": (lambda: pair().take([2]), ValueError, "but one is 2"),
    "half a label": (given("compare", [IMAGE], NAMES, labels=[0.7], n_views=2), ValueError, "a label is the index .* got 0.7"),
    "no label": (given("compare", [IMAGE], NAMES, labels=[None], n_views=2), ValueError, "a label is the index .* None"),
    "confidence above 1": (lambda: calibration([2.0]), ValueError, "confidences from 0 to 1"),
    "confidence of NaN": (lambda: calibration([NAN]), ValueError, "out of range or NaN"),
    "no confidence": (lambda: calibration([]), ValueError, "one or more confidences"),
    "a tensor as fixed words": (given("bongard_tpt", *[unit(2, 16)] * 3, context=torch.zeros(4, 32)), TypeError,
                                "context must be fixed words"),
    "sigma of NaN": (given("gaussian_context", 4, sigma=NAN), ValueError, "sigma must be a finite number"),
    "no classes": (given("gaussian_context", 4, n_classes=0), ValueError, "n_classes must be an int of at least 1"),
    "a mean of NaN": (lambda: tpt.ImageSpec((8, 8), (NAN, 0.5, 0.5)), ValueError, "mean and std need three"),
    "a std of NaN": (lambda: tpt.ImageSpec((8, 8), (0.5,) * 3, (0.5, NAN, 0.5)), ValueError, "mean and std need three"),
    # a bare internal error before
    "half a size": (lambda: tpt.ImageSpec((8.5, 8)), ValueError, "size must be two positive ints"),
    "one size": (lambda: tpt.ImageSpec(224), ValueError, "size must be two positive ints"),
    "a recipe there is not": (lambda: tpt.EvalSet("x", PAIRS, ("a", "b"), recipe="crops"), ValueError, "one of crop, augmix"),
    "a generator of samples": (lambda: tpt.EvalSet("x", (p for p in PAIRS), ("a", "b")), ValueError, "but got generator"),
    "no classes at all": (lambda: tpt.EvalSet("x", PAIRS, None), ValueError, "classes must be a list of names"),
    "None as names": (lambda: prompts(None), TypeError, "names must be a list of strings, but got None"),
    "a flat context": (lambda: prompts(context=torch.zeros(32)), ValueError, "of at least two dimensions"),
    "arrays as name tokens": (lambda: prompts(name_tokens=np.zeros((4, 1, 32))), TypeError, "name_tokens must be a tensor"),
    "a bare module": (lambda: tpt.class_prompts(model_of().module, NAMES), TypeError, r"wrap a model .* tpt_lib.wrap\(model\)"),
    "half a model": (
        lambda: tpt.class_prompts(SimpleNamespace(tokenize=len, embed_tokens=len, encode_embeddings=None), NAMES),
        TypeError, "got SimpleNamespace, which lacks encode_embeddings; .* or implement these members of tpt_lib.ClipLike",
    ),
    "a rate as text": (given("tune_prompt", prompts(), unit(2, 16), lr="0.005"), TypeError, "lr must be a number"),
    "a module's views": (lambda: tpt.encode_views(model_of().module, IMAGE), TypeError, "model must be a ClipLike"),
    "views as an array": (given("encode_views", np.zeros((2, 3, 32, 32))), TypeError, "views must be a tensor"),
    "a size as image_spec": (lambda: tpt.wrap(model_of().module, image_spec=(8, 8)), TypeError, "must be an ImageSpec"),
    "names as prompts": (given("zero_shot_predict", NAMES, unit(2, 16)), TypeError, "prompts must be what class_prompts"),
    "names to tune": (given("tpt_predict", NAMES, unit(2, 16)), TypeError, "prompts must be what class_prompts"),
    "names to encode": (given("encode_prompts", NAMES), TypeError, "prompts must be what class_prompts"),
    "names for a budget": (lambda: tpt.paper.budget_table(model_of(), IMAGE, NAMES), TypeError, "budget_table: prompts must"),
    "names for strategies": (lambda: tpt.paper.strategy_table(model_of(), IMAGE, NAMES), TypeError, "strategy_table: prompts"),
    "an engine for names": (lambda: tpt.text.text_engine(model_of(), NAMES), TypeError, "text_engine: prompts must"),
    "an array as features": (given("zero_shot_predict", words(), np.ones((2, 16))), ValueError, "but got ndarray"),
    "a list to tune on": (given("tune_prompt", words(), [unit(2, 16)]), ValueError, "but got list"),
    "arrays to logits": (given("class_logits", np.eye(16), unit(2, 16)), TypeError, "image_features .* but got ndarray"),
    "other batches": (given("class_logits", unit(2, 1, 16), unit(3, 4, 16)), ValueError, r"batch shape \(2,\) and .* \(3,\)"),
    "an array's entropy": (lambda: tpt.entropy(np.zeros((2, 3))), ValueError, "but got ndarray"),
    "a text as context": (given("encode_prompts", words(), "a photo"), ValueError, "context must be floats .* but got str"),
    "a tensor to save": (lambda: tpt.save_prompt("x.pt", torch.zeros(4, 32)), TypeError, r"LearnedPrompt\(context\)"),
    "a folder that is not": (lambda: tpt.save_prompt("none/x.pt", words()), FileNotFoundError, "a file in an existing folder"),
    "a generator as seed": (given("gaussian_context", 4, seed=torch.Generator()), TypeError, "seed must be an int"),
    "half a shot": (lambda: tpt.evaluation.sample_few_shot([0, 1], 1.5), ValueError, "shots must be an int"),
    "names as labels": (lambda: tpt.evaluation.sample_few_shot(["a", "b"], 1), ValueError, "labels must be a list"),
    "no labels": (lambda: tpt.evaluation.sample_few_shot([], 1), ValueError, "labels must be a list or a tensor"),
    "features of two models": (given("bongard_tpt", unit(2, 16), unit(2, 8), unit(2, 16)), ValueError, r"widths \[8, 16\]"),
    "of prototypes": (given("bongard_prototype", unit(2, 16), unit(2, 8), unit(2, 16)), ValueError, r"widths \[8, 16\]"),
}  # fmt: skip


def calibration(confidence):
    return tpt.evaluation.calibration_error(torch.tensor(confidence), torch.ones(len(confidence), dtype=torch.bool))


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize("what", REFUSED)
def test_refused_in_own_words(what):
    call, kind, message = REFUSED[what]
    with pytest.raises(kind, match=message):
        call()


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize("names", [(n for n in ("cat", "dog")), np.array(["cat", "dog"]), [np.str_("cat"), "dog"]])
def test_names_from_any_list(names):
    found = prompts(names, template=["a {}.", "the {}."])
    assert found.names == found.others[0].names == ("cat", "dog")
    assert {type(name) for name in found.names} == {str}


@pytest.mark.usefixtures("no_shape_checks")
def test_numbers_of_numpy():
    assert tpt.gaussian_context(model_of(), np.int64(4), seed=np.int64(3)).equal(
        tpt.gaussian_context(model_of(), 4, seed=3)
    )
    assert tpt.ImageSpec((np.int64(8), 8)).size == (8, 8)
    assert pair().take(np.array([1, 0])).labels == pair().take(torch.tensor([1, 0])).labels == [1, 0]
    table = tpt.compare(model_of(), [IMAGE], NAMES, labels=np.array([1]), methods="zero_shot", n_views=1)
    assert table.column("accuracy")[0] in (0, 1)


def test_a_prompt_that_diverged_is_not_loaded(tmp_path):
    torch.save({"ctx": torch.full((4, 32), NAN)}, tmp_path / "coop.pth")
    with pytest.raises(ValueError, match=r"load_prompt: in .*coop.pth' 'ctx' has NaN or infinite values"):
        tpt.load_prompt(tmp_path / "coop.pth")
    for content in ({"state_dict": None}, {"state_dict": [1]}):
        torch.save(content, tmp_path / "coop.pth")
        with pytest.raises(ValueError, match=r"load_prompt: .* holds no tensor 'ctx'"):
            tpt.load_prompt(tmp_path / "coop.pth")


def test_classes_with_one_name_are_told(recwarn):
    prompts(["cat", "dog"])
    assert not recwarn
    for names, says in {
        ("cat", "dog", "cat"): "1 of 3 classes have the same name as another, such as 0 and 2, 'cat'",
        ("red_panda", "red panda"): "1 of 2 classes have the same name as another, such as 0 and 1, 'red panda'",
    }.items():
        with pytest.warns(UserWarning, match=says) as told:
            found = prompts(list(names))
        assert found.names == names
        assert len(told) == 1

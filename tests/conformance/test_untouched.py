"""The caller's model after every public function that is given one, also if it fails at any point inside."""

import dataclasses
import functools
import hashlib
import inspect
import random
import warnings

import pytest
import torch
import torch.nn.functional as F
import torchmetrics  # noqa: F401  what it imports adds filters of warnings, the first time
from support.miniatures import coop
from support.zoo import fresh
from torch import nn
from torch.overrides import TorchFunctionMode

import tpt_lib as tpt

NAMES = ["cat", "dog"]
pytestmark = pytest.mark.usefixtures("no_shape_checks")  # which take four times as long as all the rest


class Counting(nn.Module):
    """Writes to a buffer in its forward."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x


@functools.cache
def setting():
    """A model with what a caller may have on it: hooks, a gradient, frozen weights, a part in train mode."""
    model = fresh("open_clip-vit")
    module = model.module
    module.visual.ln_post.register_forward_hook(lambda *_: None)
    module.visual.transformer.train()
    module.visual.proj.requires_grad_(False)
    module.text_projection.grad = torch.ones_like(module.text_projection)
    module.positional_embedding.register_hook(lambda gradient: gradient)
    classifier = nn.Sequential(
        nn.Conv2d(3, 4, 4, 4), nn.BatchNorm2d(4), Counting(), nn.Flatten(), nn.Linear(256, 2)
    ).eval()
    classifier[0].weight.requires_grad_(False)
    return model, classifier


HOOKS = [name for name in vars(nn.Module()) if "hooks" in name]


def state(module):
    """All that a caller could see of a module, as one string for each part."""
    found = {}
    for name, part in module.named_modules():
        hooks = [[(key, id(hook)) for key, hook in getattr(part, table).items()] for table in HOOKS]
        settings = {k: v for k, v in vars(part).items() if isinstance(v, bool | int | float | str | type(None))}
        found[name] = f"{part.training} {hooks} {settings} {sorted(vars(part))}"
    tensors = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    for name, tensor in tensors:
        of_tensor = tensor.requires_grad, tensor.dtype, tensor.shape, tensor.data_ptr(), tensor._version
        hooks = list((tensor._backward_hooks or {}).values())
        found[f"{name} as a tensor"] = f"{of_tensor} {hooks} {digest(tensor)} {digest(tensor.grad)}"
    return found


def digest(tensor):
    return tensor if tensor is None else hashlib.blake2b(tensor.detach().contiguous().numpy().data).hexdigest()


def world():
    """What is the process's, not the model's."""
    modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")
    return modes, torch.get_default_dtype(), torch.get_num_threads(), digest(torch.get_rng_state()), warnings.filters[:]


@functools.cache
def given():
    """What the functions are called with."""
    model, _ = setting()
    draw = torch.Generator().manual_seed(0)
    image = torch.randint(256, (3, 40, 50), dtype=torch.uint8, generator=draw)
    views = tpt.augment_views(image, model.image_spec, n_views=4)
    features = F.normalize(torch.randn(4, 16, generator=draw), dim=-1)
    return image, views, features, (features[:2], features[2:], features)


def calls(folder):
    """Every public function that takes a model, or prompts, which hold one, of the flat names and of the rooms."""
    model, classifier = setting()
    image, views, features, problem = given()
    prompts = tpt.class_prompts(model, NAMES)
    few = {"n_views": 4, "seed": 1}
    spec = tpt.ImageSpec((32, 32))
    classified = tpt.EvalSet("noise", [(image, 0)], tuple(NAMES))
    other = tpt.EvalSet("other", [(image, 0), (image, 1)], tuple(NAMES))
    solved = tpt.EvalSet("mine", [(*problem, ("positive",) * 4)], ("positive", "negative"))
    run = {"out": folder / "run.jsonl", "progress": False}
    methods = ["zero_shot", "tpt"]
    short = {"epochs": 2, "progress": False}
    quick = {"fit": functools.partial(tpt.fit_coop, **short), "n_views": 4, "num_workers": 0, "progress": False}
    in_methods, paper = tpt.methods, tpt.paper
    memory = in_methods.tda().init(model, prompts)
    with torch.random.fork_rng(devices=[]):
        normed = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(3 * 32 * 32, 2)).eval()
    return {
        "average_predict": lambda: tpt.average_predict(model, prompts, features),
        "bongard_prototype": lambda: tpt.bongard_prototype(model, [image], [image, image], image),
        "bongard_tpt": lambda: tpt.bongard_tpt(model, *problem, steps=2),
        "bongard_tpt_many": lambda: tpt.bongard_tpt_many(model, [problem] * 2, steps=2),
        "class_logits": lambda: tpt.class_logits(model, features, features),
        "class_prompts": lambda: tpt.class_prompts(model, NAMES, context="a drawing of the"),
        "classify": lambda: tpt.classify(model, [image, image], prompts, method="memo_clip", **few),
        "compare": lambda: tpt.compare(model, image, prompts, methods=methods, **few),
        "encode_dataset": lambda: list(tpt.encode_dataset(model, classified, folder / "store", n_views=2)),
        "encode_images": lambda: tpt.encode_images(model, [image, image]),
        "encode_prompts": lambda: tpt.encode_prompts(model, prompts, engine="full_length", chunk=1),
        "encode_views": lambda: tpt.encode_views(model, views),
        "evaluate": lambda: tpt.evaluate(model, classified, methods, **run, num_workers=0, n_views=4),
        "evaluate_bongard": lambda: tpt.evaluate_bongard(model, solved, ["prototype", "tpt"], **run),
        "fit_cocoop": lambda: tpt.fit_cocoop(model, prompts, features, [0, 1] * 2, **short),
        "fit_coop": lambda: tpt.fit_coop(model, prompts, [image] * 2, [0, 1], **short),
        "gaussian_context": lambda: tpt.gaussian_context(model, 4),
        "memo_classify": lambda: tpt.memo_classify(classifier, image, spec=spec, n_views=4, lr=0.1),
        "memo_clip_predict": lambda: tpt.memo_clip_predict(model, prompts, views, group="all", steps=2, lr=0.1),
        "save_prompt": lambda: tpt.save_prompt(folder.parent / "prompt.pth", prompts),
        "template_ensemble_predict": lambda: tpt.template_ensemble_predict(
            model, prompts, features, templates=["a {}.", "the {}."]
        ),
        "tpt_classify": lambda: tpt.tpt_classify(model, [image, image], prompts, **few, steps=2),
        "tpt_predict": lambda: tpt.tpt_predict(model, prompts, features),
        "tune_prompt": lambda: tpt.tune_prompt(model, prompts, features, steps=2),
        "vote_predict": lambda: tpt.vote_predict(model, prompts, features),
        "wrap": lambda: tpt.wrap(model.module),
        "zero_shot_predict": lambda: tpt.zero_shot_predict(model, prompts, features),
        "methods.ctpt_predict": lambda: in_methods.ctpt_predict(model, prompts, features),
        "methods.fold": lambda: [
            *(in_methods.fold(name, model, prompts, [features] * 2) for name in ("dpe", "dynaprompt", "ecalp")),
            *(in_methods.fold("tent", *of, [views] * 2) for of in ((model, prompts), (normed, ["cat", "dog"]))),
        ],
        "methods.load_state": lambda: [
            in_methods.save_state(memory, folder / "state.safetensors", model, prompts),
            in_methods.load_state("tda", folder / "state.safetensors", model, prompts),
        ],
        "methods.memo_predict": lambda: in_methods.memo_predict(classifier, views, steps=2, lr=0.1),
        "methods.mta_predict": lambda: in_methods.mta_predict(model, prompts, features),
        "methods.otpt_predict": lambda: in_methods.otpt_predict(model, prompts, features),
        "methods.prompt_ensemble_predict": lambda: in_methods.prompt_ensemble_predict(
            model, [prompts] * 2, features, method=tpt.tpt_predict
        ),
        "methods.rlcf_predict": lambda: in_methods.rlcf_predict(
            model, prompts, features, reward=features[:, :2], steps=2
        ),
        "methods.rtpt_predict": lambda: in_methods.rtpt_predict(model, prompts, features),
        "methods.save_state": lambda: in_methods.save_state(memory, folder / "state.safetensors", model, prompts),
        "methods.stream": lambda: list(in_methods.stream("tda", model, prompts, [features, features])),
        "methods.tps_predict": lambda: in_methods.tps_predict(model, prompts, features, steps=2),
        "methods.vte_predict": lambda: in_methods.vte_predict(model, prompts, features),
        "methods.zero_predict": lambda: in_methods.zero_predict(model, prompts, features),
        "models.tower_digest": lambda: tpt.models.tower_digest(model, "image"),
        "paper.budget_table": lambda: paper.budget_table(model, image, prompts, methods=methods, **few),
        "paper.plan_experiment": lambda: reproduced(model, folder),
        "paper.strategy_table": lambda: paper.strategy_table(model, image, prompts, methods=methods, **few),
        "paper.sweep_fractions": lambda: paper.sweep_fractions(model, image, prompts, fractions=[0.5], **few),
        "paper.sweep_groups": lambda: paper.sweep_groups(
            model, image, prompts, rates={"image": [0.1]}, steps=[1], **few
        ),
        "paper.sweep_steps": lambda: paper.sweep_steps(model, image, prompts, steps=[2], **few),
        "paper.sweep_views": lambda: paper.sweep_views(model, image, prompts, numbers=[2, 4]),
        "paper.transfer_matrix": lambda: paper.transfer_matrix(model, [classified], [other], out=folder, **quick),
        "prompts.conditional_context": lambda: tpt.prompts.conditional_context(prompts, features),
        "text.load_text_features": lambda: [
            function(model, prompts, folder / "stored.safetensors")
            for function in (tpt.text.save_text_features, tpt.text.load_text_features)
        ],
        "text.save_text_features": lambda: tpt.text.save_text_features(model, prompts, folder / "stored.safetensors"),
        "text.text_engine": lambda: tpt.text.text_engine(model, prompts),
    }


def reproduced(model, folder):
    """Reproduce table 2 on one image."""
    coop(tpt.evaluation.ENTRIES["dtd"], folder / "data/dtd", "images")
    plan = tpt.paper.plan_experiment(model, "table2", folder / "data", out=folder / "out", subset=True, limit=1)
    return tpt.paper.reproduce(plan, progress=False).rows()


def takes_a_model(thing):
    given = inspect.signature(thing).parameters.values() if inspect.isfunction(thing) else []
    return any(kind in str(each) for each in given for kind in ("ClipLike", "nn.Module", "ClassPrompts"))


def public_functions():
    """The names of public functions that take a model: the flat ones, then what only a room has."""
    flat = [name for name in tpt.__all__ if takes_a_model(getattr(tpt, name))]
    rooms = {name: getattr(tpt, name) for name in tpt.__all__ if inspect.ismodule(getattr(tpt, name))}
    return flat + [
        f"{room}.{name}"
        for room, module in rooms.items()
        for name in getattr(module, "__all__", ())
        if name not in flat and takes_a_model(getattr(module, name))
    ]


COVERED = public_functions()


def test_no_function_is_forgotten(tmp_path):
    assert list(calls(tmp_path)) == COVERED
    assert len(COVERED) >= 45


class Fault(BaseException):
    """What no ``except Exception`` catches, like a user's Ctrl-C."""


class Breaking(TorchFunctionMode):
    """Counts the calls of torch functions, and raises in one of them."""

    def __init__(self, at=None):
        super().__init__()
        self.calls, self.at = 0, at

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.calls += function is not torch._C._set_grad_enabled  # else torch.no_grad itself would fail to end
        if self.calls == self.at:
            self.at = None
            raise Fault
        return function(*args, **(kwargs or {}))


def tensors(thing):
    """All tensors in what a function returned."""
    if isinstance(thing, torch.Tensor):
        return [thing.detach()]
    if isinstance(thing, dict):
        return tensors(list(thing.values()))
    if isinstance(thing, list | tuple):
        return [tensor for each in thing for tensor in tensors(each)]
    if dataclasses.is_dataclass(thing) and not isinstance(thing, tpt.ClipLike):
        return [
            t
            for field in dataclasses.fields(thing)
            if field.name != "cache"
            for t in tensors(getattr(thing, field.name))
        ]
    return []


@pytest.mark.parametrize("name", COVERED)
@pytest.mark.slow
def test_the_model_is_untouched_also_by_faults(name, tmp_path):
    model, classifier = setting()
    everything = nn.ModuleList([model.module, classifier])
    before, around = state(everything), world()
    want = tensors(calls(tmp_path / "alone")[name]())
    call = calls(tmp_path / "counted")[name]
    with Breaking() as counting:
        call()
    assert (state(everything), world()) == (before, around)
    number = counting.calls
    for at in sorted({1 + random.Random(f"{name} {i}").randrange(number) for i in range(3)} if number else {}):
        call = calls(tmp_path / str(at))[name]
        with pytest.raises(Fault), Breaking(at):
            call()
        assert (state(everything), world()) == (before, around), f"after a fault in call {at} of {number}"
    for one, other in zip(tensors(call()), want, strict=True):
        assert torch.equal(one, other), "what failed left something behind"

"""CoOp's checkpoints: a run that was interrupted, or met what is not finite, resumes where it was."""

from dataclasses import replace
from itertools import product

import PIL.Image
import pytest
import torch
from support.cases import model_of
from support.command_line import save
from support.fitting import DECAY, LABELS, MOMENTUM, NAMES, features_of
from support.marking import slow_but
from support.prompting import saying
from support.zoo import fresh

import tpt_lib
from tpt_lib import class_prompts, fit_cocoop, fit_coop, load_prompt
from tpt_lib.methods.coop_checkpoint import Fitted, save_fit


class StopError(Exception):
    pass


SCRIPT = {"steps": 0, "stop": None, "poison": None}  # apart from the optimizer, which is known by its content


@pytest.fixture(autouse=True)
def no_script():
    SCRIPT.update(steps=0, stop=None, poison=None)


class Scripted(torch.optim.SGD):
    """CoOp's SGD, which stops, or finds a gradient that is not finite, in one step of all."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, lr=lr, momentum=MOMENTUM, weight_decay=DECAY)

    def step(self, closure=None):
        SCRIPT["steps"] += 1
        if SCRIPT["steps"] == SCRIPT["stop"]:
            raise StopError
        if SCRIPT["steps"] == SCRIPT["poison"]:
            self.param_groups[0]["params"][0].grad[0, 0] = torch.nan
        return super().step(closure)


@pytest.mark.parametrize(
    ("fit", "patience"), slow_but([(fit_coop, 5), (fit_cocoop, None)], list(product([fit_coop, fit_cocoop], [None, 5])))
)
def test_an_interrupted_run_resumes_where_it_was(fit, patience, tmp_path):
    model, features = model_of(), features_of(20)
    labels = torch.arange(20) % 3
    prompts = class_prompts(model, NAMES)
    options = {"epochs": 5, "batch_size": 6, "seed": 4, "patience": patience, "validation": (features, labels)}
    whole = fit(model, prompts, features, labels, **options)
    SCRIPT["stop"] = 11  # in the third epoch
    options["optimizer"] = Scripted
    file = tmp_path / "model.pth.tar"
    with pytest.raises(StopError):
        fit(model, prompts, features, labels, checkpoint=file, **options)
    assert len(torch.load(file, weights_only=True)["resume"]["history"]["losses"]) == 2
    resumed = fit(model, prompts, features, labels, checkpoint=file, **options)
    again = fit(model, prompts, features, labels, checkpoint=file, **options)  # a finished run is not run again
    for other in (resumed, again):
        assert torch.equal(other.prompts.context, whole.prompts.context)
        assert (other.losses, other.accuracies, other.validation) == (whole.losses, whole.accuracies, whole.validation)
        assert other.epoch == whole.epoch
        if whole.prompts.meta_net is not None:
            assert all(map(torch.equal, other.prompts.meta_net.parts, whole.prompts.meta_net.parts))
    elsewhere = replace(prompts, context=prompts.context + 1)
    with pytest.raises(ValueError, match=r"belongs to a run with different settings \(start is '\w+' there"):
        fit(model, elsewhere, features, labels, checkpoint=file, **options)
    with pytest.raises(ValueError, match=r"different settings \(batch_size is 6 there and 7 here\)"):
        fit(model, prompts, features, labels, checkpoint=file, **{**options, "batch_size": 7})
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize(  # the first and the last step of the third epoch
    ("fit", "at"), slow_but([(fit_coop, 7), (fit_cocoop, 9)], list(product([fit_coop, fit_cocoop], [7, 9])))
)
def test_a_gradient_that_is_not_finite_ends_learning_at_the_epoch_before(fit, at, tmp_path):
    model, features = model_of(), features_of()
    prompts = class_prompts(model, NAMES)
    options = {"batch_size": 3, "seed": 4, "epochs": 5}
    file = tmp_path / "model.pth.tar"
    whole = fit(model, prompts, features, LABELS, **options)
    SCRIPT["poison"] = at
    options["optimizer"] = Scripted
    with pytest.warns(UserWarning, match="fit_coop: a loss or gradient was not finite in 1 of 1 cases"):
        ended = fit(model, prompts, features, LABELS, checkpoint=file, **options)
    assert not ended.applied
    assert whole.applied
    assert ended.epoch == 2
    assert ended.losses == whole.losses[:2]
    assert ended.accuracies == whole.accuracies[:2]
    saved = load_prompt(file)
    assert torch.equal(ended.prompts.context, saved.context)
    assert ended.prompts.context.isfinite().all()
    if fit is fit_cocoop:
        assert all(map(torch.equal, ended.prompts.meta_net.parts, saved.meta_net.parts))
    resumed = fit(model, prompts, features, LABELS, checkpoint=file, **options)
    assert resumed.applied
    assert torch.equal(resumed.prompts.context, whole.prompts.context)
    assert resumed.losses == whole.losses


def test_a_loss_that_is_not_finite_in_the_first_epoch_leaves_the_start():
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    batches = [(features_of(), LABELS), (features_of(seed=1), LABELS)]
    SCRIPT["poison"] = 1
    with pytest.warns(UserWarning, match="fit_coop: a loss or gradient was not finite"):
        fitted = fit_coop(model, prompts, batches, epochs=3, optimizer=Scripted)
    assert (fitted.applied, fitted.epoch, fitted.losses, fitted.accuracies) == (False, 0, [], [])
    assert torch.equal(fitted.prompts.context, prompts.context)


def test_a_rate_that_is_far_too_high(tmp_path):
    """What is kept is finite and can be used, though the step that broke it had a finite gradient itself."""
    model, prompts, file = model_of(), class_prompts(model_of(), NAMES), tmp_path / "model.pth.tar"
    with pytest.warns(UserWarning, match="fit_coop: a loss or gradient was not finite"):
        fitted = fit_coop(model, prompts, features_of(), LABELS, epochs=5, lr=1e38, checkpoint=file)
    assert not fitted.applied
    for context in (fitted.prompts.context, load_prompt(file).context):
        assert context.isfinite().all()
        assert tpt_lib.encode_prompts(model, class_prompts(model, NAMES, context=context)).isfinite().all()


@pytest.mark.parametrize(("validation", "epoch", "percent"), [([], 1, 25.0), ([], 2, 50.0), ([0.75, 0.7], 1, 75.0)])
def test_a_file_has_the_accuracy_of_its_epoch(validation, epoch, percent, tmp_path):
    """On the validation images if there are any."""
    prompts = class_prompts(model_of(), NAMES)
    free = [prompts.context.clone().requires_grad_()]
    fitted = Fitted(prompts, [2.0, 1.0], [0.25, 0.5], validation, epoch)
    save_fit(tmp_path / "model.pth.tar", {}, fitted, free, torch.optim.SGD(free))
    saved = torch.load(tmp_path / "model.pth.tar", weights_only=True)
    assert (saved["epoch"], saved["val_result"]) == (epoch, pytest.approx(percent))
    assert not saved["resume"]["free"][0].requires_grad


def fit(file, **changes):
    options = {"model": model_of(), "images": features_of(), "labels": LABELS, "epochs": 2, **changes}
    model, images, labels = (options.pop(name) for name in ("model", "images", "labels"))
    return fit_coop(model, class_prompts(model, NAMES), images, labels, checkpoint=file, progress=False, **options)


def scaled_model():
    """A model of the same width, with other weights in its text tower."""
    model = fresh("open_clip-vit")
    with torch.no_grad():
        model.module.text_projection.mul_(2)
    return model


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": features_of(seed=1)}, r"data is '\w+' there"),
        ({"labels": LABELS.flip(0)}, r"data is '\w+' there"),
        ({"model": scaled_model()}, r"text_tower is '\w+' there"),
        (
            {"optimizer": torch.optim.AdamW},
            r"optimizer is 'torch.optim.sgd.SGD\(momentum=0.9, .*' there and 'torch.*AdamW'",
        ),
        ({"validation": (features_of(), LABELS)}, "validation is None there"),
        ({"validation": (features_of(), LABELS), "patience": 3}, "patience is None there and 3 here"),
    ],
    ids=["features", "labels", "model", "optimizer", "validation", "patience"],
)
def test_a_checkpoint_of_another_run_is_refused(change, message, tmp_path):
    file = tmp_path / "model.pth.tar"
    first = fit(file)
    before = file.read_bytes()
    with pytest.raises(ValueError, match=rf"belongs to a run with different settings \(.*{message}"):
        fit(file, **change)
    assert file.read_bytes() == before
    assert torch.equal(fit(file, labels=LABELS.tolist()).prompts.context, first.prompts.context)


def test_images_count_by_their_content_wherever_they_are(tmp_path):
    for folder, seed in [("one", 0), ("moved", 0), ("other", 9)]:
        for i in range(2):
            save(tmp_path / folder / f"{i}.png", seed + i)

    def learn(folder):
        return fit(tmp_path / "model.pth.tar", images=[tmp_path / folder / f"{i}.png" for i in range(2)], labels=[0, 1])

    first = learn("one")
    assert torch.equal(learn("moved").prompts.context, first.prompts.context)
    with pytest.raises(ValueError, match=r"different settings \(data is"):
        learn("other")


def test_files_count_to_the_last_byte(tmp_path):
    """Whatever the length of the file."""
    image, file = tmp_path / "0.png", tmp_path / "model.pth.tar"
    save(image)
    content = image.read_bytes()
    for i in range(8):
        image.write_bytes(content + bytes(i))
        fit(file, images=[str(image)], labels=[0])
        image.write_bytes(content + bytes(i)[1:] + b"!")
        with pytest.raises(ValueError, match=r"different settings \(data is"):
            fit(file, images=[str(image)], labels=[0])
        file.unlink()


def test_images_in_memory_count_by_their_pixels(tmp_path):
    file = tmp_path / "model.pth.tar"
    pixels = torch.randint(256, (2, 40, 50, 3), dtype=torch.uint8)
    first = fit(file, images=[PIL.Image.fromarray(one.numpy()) for one in pixels], labels=[0, 1])
    assert fit(file, images=list(pixels.permute(0, 3, 1, 2)), labels=[0, 1]).losses == first.losses
    with pytest.raises(ValueError, match=r"different settings \(data is"):
        fit(file, images=list(pixels.permute(0, 3, 1, 2).flip(0)), labels=[0, 1])


def test_a_model_of_unknown_weights_cannot_resume(tmp_path):
    model, prompts, features = saying([[0.7, 0.1, 0.1, 0.1], [0.1, 0.7, 0.1, 0.1]])
    options = {"epochs": 1, "checkpoint": tmp_path / "model.pth.tar"}
    with pytest.warns(UserWarning, match="fit_coop: this run cannot be resumed if it is stopped: the weights of Said"):
        fit_coop(model, prompts, features, [0, 1], **options)
    with pytest.raises(ValueError, match=r"fit_coop: .*model\.pth\.tar' exists and cannot be resumed"):
        fit_coop(model, prompts, features, [0, 1], **options)


def test_a_loader_must_say_what_it_holds(tmp_path):
    file = tmp_path / "model.pth.tar"
    batches = [(features_of(), LABELS)]
    first = fit(file, images=batches, labels=None)
    assert fit(file, images=[(features_of(), LABELS)], labels=None).losses == first.losses
    with pytest.raises(ValueError, match=r"different settings \(data is"):
        fit(file, images=[(features_of(seed=1), LABELS)], labels=None)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(features_of(), LABELS), batch_size=7)
    with pytest.raises(ValueError, match=r"the content of a DataLoader cannot be seen\. .*loader.describe = lambda: "):
        fit(tmp_path / "loader.pth.tar", images=loader, labels=None)
    loader.describe = lambda: "seven features"
    assert fit(tmp_path / "loader.pth.tar", images=loader, labels=None).losses == first.losses


def test_unknown_keywords_are_refused_before_the_work(no_shape_checks):
    with pytest.raises(TypeError, match="fit_cocoop: unknown keyword 'patient'; did you mean 'patience'"):
        fit_cocoop(None, None, None, patient=3)

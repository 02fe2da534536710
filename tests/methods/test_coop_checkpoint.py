"""CoOp's checkpoints: a run that was interrupted, or met what is not finite, resumes where it was."""

from dataclasses import replace

import pytest
import torch
from support.cases import model_of
from support.fitting import DECAY, LABELS, MOMENTUM, NAMES, features_of

import tpt_lib
from tpt_lib import class_prompts, fit_cocoop, fit_coop, load_prompt


class StopError(Exception):
    pass


@pytest.mark.parametrize("fit", [fit_coop, fit_cocoop])
@pytest.mark.parametrize("patience", [None, 5])
def test_an_interrupted_run_resumes_where_it_was(fit, patience, tmp_path):
    model, features = model_of(), features_of(20)
    labels = torch.arange(20) % 3
    prompts = class_prompts(model, NAMES)
    options = {"epochs": 5, "batch_size": 6, "seed": 4, "patience": patience, "validation": (features, labels)}
    whole = fit(model, prompts, features, labels, **options)
    seen = []

    class Breaks(torch.optim.SGD):
        def __init__(self, parameters, lr):
            super().__init__(parameters, lr=lr, momentum=MOMENTUM, weight_decay=DECAY)

        def step(self, closure=None):
            seen.append(1)
            if len(seen) == 11:  # in the third epoch
                raise StopError
            return super().step(closure)

    file = tmp_path / "model.pth.tar"
    with pytest.raises(StopError):
        fit(model, prompts, features, labels, checkpoint=file, optimizer=Breaks, **options)
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
    with pytest.raises(ValueError, match=r"belongs to a run with different settings \(checksum of the start is"):
        fit(model, elsewhere, features, labels, checkpoint=file, **options)
    with pytest.raises(ValueError, match=r"different settings \(batch_size is 6 there and 7 here\)"):
        fit(model, prompts, features, labels, checkpoint=file, **{**options, "batch_size": 7})
    assert not list(tmp_path.glob("*.part"))


class Poisoned(torch.optim.SGD):
    """CoOp's SGD, which finds a gradient that is not finite in one step of all."""

    steps, at = 0, None

    def __init__(self, parameters, lr):
        super().__init__(parameters, lr=lr, momentum=MOMENTUM, weight_decay=DECAY)

    def step(self, closure=None):
        Poisoned.steps += 1
        if Poisoned.steps == Poisoned.at:
            self.param_groups[0]["params"][0].grad[0, 0] = torch.nan
        return super().step(closure)


@pytest.mark.parametrize("fit", [fit_coop, fit_cocoop])
@pytest.mark.parametrize("at", [7, 9])  # the first and the last step of the third epoch
def test_a_gradient_that_is_not_finite_ends_learning_at_the_epoch_before(fit, at, tmp_path):
    model, features = model_of(), features_of()
    prompts = class_prompts(model, NAMES)
    options = {"batch_size": 3, "seed": 4, "epochs": 5}
    file = tmp_path / "model.pth.tar"
    whole = fit(model, prompts, features, LABELS, **options)
    Poisoned.steps, Poisoned.at = 0, at
    with pytest.warns(UserWarning, match="fit_coop: a loss or gradient was not finite in 1 of 1 cases"):
        ended = fit(model, prompts, features, LABELS, checkpoint=file, optimizer=Poisoned, **options)
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
    Poisoned.steps, Poisoned.at = 0, 1
    with pytest.warns(UserWarning, match="fit_coop: a loss or gradient was not finite"):
        fitted = fit_coop(model, prompts, batches, epochs=3, optimizer=Poisoned)
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

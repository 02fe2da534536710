"""Images, features and loaders as batches for CoOp: what is drawn in each epoch, and what is refused."""

import pytest
import torch
from support.cases import model_of
from support.fitting import LABELS, NAMES, features_of
from support.zoo import fresh
from torch.utils.data import DataLoader, TensorDataset

import tpt_lib
from tpt_lib import class_prompts, fit_coop


def test_images_are_cropped_anew_in_each_epoch_and_reproducibly(photo):
    model = fresh("open_clip-vit")
    images, labels = [photo, photo.rotate(90), photo.rotate(180)], [0, 1, 2]
    seen = []
    encode = model.module.visual.register_forward_hook(lambda _m, inputs, _o: seen.append(inputs[0].clone()))
    prompts = class_prompts(model, NAMES)
    first = fit_coop(model, prompts, images, labels, epochs=2, seed=1)
    encode.remove()
    assert [len(part) for part in seen] == [3, 3]
    assert not torch.equal(seen[0].sum(dim=0), seen[1].sum(dim=0))
    assert torch.equal(
        first.prompts.context, fit_coop(model, prompts, images, labels, epochs=2, seed=1).prompts.context
    )
    other = fit_coop(model, prompts, images, labels, epochs=2, seed=2)
    assert not torch.equal(first.prompts.context, other.prompts.context)


@pytest.mark.parametrize("kind", [torch.uint8, torch.int32])
def test_labels_of_any_integers(kind):
    model, features = model_of(), features_of()
    prompts = class_prompts(model, NAMES)
    got, want = (fit_coop(model, prompts, features, labels, epochs=2) for labels in (LABELS.to(kind), LABELS))
    assert torch.equal(got.prompts.context, want.prompts.context)


@pytest.mark.parametrize("kind", ["pixels", "features"])
def test_loaders(kind):
    model = fresh("open_clip-vit")
    pixels = torch.randn(7, 3, 32, 32)
    features = tpt_lib.encode_views(model, pixels)
    loader = DataLoader(TensorDataset(pixels if kind == "pixels" else 3 * features, LABELS), batch_size=7)
    prompts = class_prompts(model, NAMES)
    got = fit_coop(model, prompts, loader, epochs=3)
    want = fit_coop(model, prompts, features, LABELS, epochs=3)
    assert torch.allclose(got.prompts.context, want.prompts.context, atol=1e-7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": [0, 1]}, "for 7 images labels must be 7 ints"),
        ({"labels": LABELS + 1}, r"labels are 0\.\.2, but got 1\.\.3"),
        ({"labels": LABELS.float()}, "must be 7 ints, but got torch.float32"),
        ({"images": features_of(width=5)}, "features have width 5, but those of this model have 16"),
        ({"images": features_of() / 0}, "finite"),
        ({"epochs": 0}, "epochs and batch_size must be at least 1"),
        ({"batch_size": 0}, "epochs and batch_size must be at least 1"),
        ({"patience": 2}, "patience must be at least 1 and needs validation"),
        ({"images": [], "labels": []}, "no images to learn from"),
        ({"images": iter([]), "labels": None}, "yielded no batch"),
    ],
)
def test_bad_input(change, message, no_shape_checks):
    model = model_of()
    arguments = {"images": features_of(), "labels": LABELS} | change
    with pytest.raises(ValueError, match=message):
        fit_coop(model, class_prompts(model, NAMES), **arguments)

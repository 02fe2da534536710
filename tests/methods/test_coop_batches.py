"""Images, features and loaders as batches for CoOp: what is drawn in each epoch, and what is refused."""

from dataclasses import replace

import pytest
import torch
from support.cases import model_of
from support.fitting import LABELS, NAMES, features_of
from support.simulated import on_host, to_simulated
from support.zoo import fresh
from torch.utils.data import DataLoader, Dataset, TensorDataset

import tpt_lib
from tpt_lib import class_prompts, fit_coop
from tpt_lib.methods.coop_batches import training_batches


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


class Numbered(Dataset):
    """Pictures of one color, which is their number."""

    def __len__(self):
        return 7

    def __getitem__(self, index):
        assert type(index) is int
        return torch.full((3, 40, 40), index, dtype=torch.uint8), "a label of its own"


def epoch_of(images, epoch, seed):
    """Return the batches of an epoch, three images each."""
    return list(training_batches(model_of(), class_prompts(model_of(), NAMES), images, LABELS, 3, seed)(epoch))


@pytest.mark.parametrize("images", [features_of(), Numbered()], ids=["features", "images"])
def test_every_epoch_has_an_order_of_its_own(images):
    first, again, later, other = (epoch_of(images, *which) for which in ((0, 1), (0, 1), (1, 1), (0, 2)))
    orders = [torch.cat([labels for _, labels in epoch]).tolist() for epoch in (first, later, other)]
    assert [len(labels) for _, labels in first] == [3, 3, 1]
    assert all(sorted(order) == sorted(LABELS.tolist()) for order in orders)
    assert len(set(map(tuple, orders))) == 3
    for (a, labels), (b, same) in zip(first, again, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(labels, same)


def test_features_keep_their_labels():
    features = features_of()
    for part, labels in epoch_of(features, 4, 0):
        for feature, label in zip(part, labels, strict=True):
            assert label == LABELS[(features @ feature).argmax()]


def test_a_crop_is_the_first_random_view(photo):
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    ((features, labels),) = training_batches(model, prompts, photo, [2], 1, 5)(0)
    view = tpt_lib.augment_views(photo, model.image_spec, n_views=2, seed=5)[1:]
    torch.testing.assert_close(features, tpt_lib.encode_views(model, view))
    assert labels.tolist() == [2]


@pytest.mark.usefixtures("simulated")
def test_what_a_loader_yields_is_moved_to_the_model():
    cpu, pixels = model_of(), torch.randn(7, 3, 32, 32)
    model = replace(cpu, module=to_simulated(cpu.module))
    ((features, labels),) = training_batches(model, class_prompts(model, NAMES), [(pixels, LABELS)], None, 7, 0)(0)
    torch.testing.assert_close(on_host(features), tpt_lib.encode_views(cpu, pixels), atol=1e-5, rtol=1e-4)
    assert torch.equal(on_host(labels), LABELS)


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
        ({"labels": LABELS - 1}, r"labels are 0\.\.2, but got -1\.\.1"),
        ({"labels": LABELS.float()}, "must be 7 ints, but got torch.float32"),
        ({"images": features_of(width=5)}, "features have width 5, but those of this model have 16"),
        ({"images": features_of() / 0}, "finite"),
        ({"epochs": 0}, "epochs and batch_size must be at least 1"),
        ({"batch_size": 0}, "epochs and batch_size must be at least 1"),
        ({"patience": 2}, "patience must be at least 1 and needs validation"),
        ({"patience": 0, "validation": (features_of(), LABELS)}, "patience must be at least 1 .*but got patience=0$"),
        ({"images": [], "labels": []}, "no images to learn from"),
        ({"images": iter([]), "labels": None}, "yielded no batch"),
    ],
)
def test_bad_input(change, message, no_shape_checks):
    model = model_of()
    arguments = {"images": features_of(), "labels": LABELS} | change
    with pytest.raises(ValueError, match=message):
        fit_coop(model, class_prompts(model, NAMES), **arguments)

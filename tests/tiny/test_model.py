"""The embedded model: what is shipped, and that TPT does on it what its card says."""

import warnings

import pytest
import torch

import tpt_lib
from tpt_lib.evaluation.data.registry import STYLES
from tpt_lib.tiny.model import FOLDER, known, new_clip, pack, strange_words, unpack


def test_the_package_stays_small():
    sizes = {file.name: file.stat().st_size for file in FOLDER.iterdir() if file.is_file()}
    assert sizes["weights.safetensors"] <= 8e6
    assert sum(sizes.values()) <= 8e6


def test_loading_takes_no_randomness_and_gives_the_same(tiny):
    state = torch.get_rng_state()
    again = tpt_lib.load_tiny()
    assert torch.equal(state, torch.get_rng_state())
    for name, weight in tiny.module.state_dict().items():
        assert torch.equal(weight, again.module.state_dict()[name]), name
    assert not any(p.requires_grad for p in tiny.module.parameters())


def test_its_text_is_packed(tiny, prompts):
    assert tpt_lib.text.text_engine(tiny, prompts) == "packed"


def test_packing_keeps_weights_to_half_a_step_and_tokens_exactly():
    torch.manual_seed(0)
    module, fresh = new_clip().to(memory_format=torch.channels_last), new_clip()
    packed = pack(module)
    assert all(weight.is_contiguous() for weight in packed.values()), "safetensors takes no others"
    unpack(fresh, packed)
    assert torch.equal(fresh.token_embedding.weight, module.token_embedding.weight)
    for name, weight in module.state_dict().items():
        rows = weight.contiguous().reshape(len(weight) if weight.ndim > 1 else 1, -1)
        step = rows.abs().amax(1, keepdim=True) / 127 if weight.ndim > 1 else 0
        assert ((fresh.state_dict()[name].view_as(rows) - rows).abs() <= 0.501 * step).all(), name


def test_names_it_was_not_trained_on_draw_a_warning(tiny):
    with pytest.warns(UserWarning, match=r"not trained on 'zebra', 'purple'.*load_tiny_drawings\(\).classes"):
        tiny.tokenize(["a photo of a zebra.", "a purple dog"])
    with pytest.warns(UserWarning, match="not trained on 'hippo'"):
        tpt_lib.class_prompts(tiny, ["dog", "hippo"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tpt_lib.class_prompts(tiny, list(known()["names"]), template="a line drawing of a {}.")
        tpt_lib.class_prompts(tiny, ["dog", "cat"], context=torch.zeros(4, 128))
        tpt_lib.class_prompts(tiny, ["dog", "cat"], template="itap of my {}.")  # of 80 templates half would warn
    assert strange_words("a photo of a hot dog.") == []
    assert strange_words("dogs") == ["dogs"]


def test_any_text_works(tiny):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prompts = tpt_lib.class_prompts(tiny, ["完全に未知", "qwertz", "dog"])
    assert tpt_lib.encode_prompts(tiny, prompts).isfinite().all()


@pytest.fixture(scope="module")
def drawings(tiny, prompts):
    """Features of the views ``(B, 64, E)``, and labels, of the drawings of all held-out styles that zero-shot is least sure of.

    Of the others TPT changes no verdict, so that they would add time to a paired test and nothing else.
    """
    data = [sample for style in STYLES for sample in tpt_lib.load_tiny_drawings(style).samples]
    plain = tpt_lib.encode_images(tiny, [image for image, _ in data])
    first, second = tpt_lib.class_logits(tiny, plain, tpt_lib.encode_prompts(tiny, prompts)).topk(2).values.T
    unsure = [data[i] for i in (first - second).argsort()[:360].tolist()]
    views = [tpt_lib.encode_views(tiny, tpt_lib.augment_views(image, tiny.image_spec)) for image, _ in unsure]
    return torch.stack(views), torch.tensor([label for _, label in unsure])


def right_by_tpt(tiny, prompts, drawings, **settings):
    features, labels = drawings
    said = [tpt_lib.tpt_predict(tiny, prompts, part, **settings).indices for part in features.split(16)]
    return torch.cat(said) == labels


@pytest.fixture(scope="module")
def right(tiny, prompts, drawings):
    """Which drawings are classified rightly: zero-shot, with TPT, and after a random step of the same size."""
    features, labels = drawings
    found = {"TPT": right_by_tpt(tiny, prompts, drawings)}
    found["zero-shot"] = (
        tpt_lib.class_logits(tiny, features[:, 0], tpt_lib.encode_prompts(tiny, prompts)).argmax(-1) == labels
    )
    generator = torch.Generator().manual_seed(0)
    steps = [5e-3 * torch.randn(prompts.context.shape, generator=generator).sign() for _ in range(8)]
    texts = [tpt_lib.encode_prompts(tiny, prompts, prompts.context + step) for step in steps]
    said = [tpt_lib.class_logits(tiny, row[:1], texts[i % 8]).argmax() for i, row in enumerate(features)]
    found["random"] = torch.stack(said) == labels
    return found


def changes(right, method):
    """How many drawings a method mends, and how many it breaks."""
    mended, broken = right[method] & ~right["zero-shot"], right["zero-shot"] & ~right[method]
    return int(mended.sum()), int(broken.sum())


@pytest.mark.slow
@pytest.mark.statistical
def test_tpt_beats_zero_shot_and_a_random_step_does_not(right):
    mended, broken = changes(right, "TPT")
    assert mended > broken
    assert tpt_lib.evaluation.mcnemar(mended, broken) < 0.05, (mended, broken)  # 21 and 8, 0.02
    assert tpt_lib.evaluation.mcnemar(*changes(right, "random")) > 0.2, changes(right, "random")


@pytest.mark.slow
@pytest.mark.statistical
def test_settings_behave_as_on_the_card(tiny, prompts, drawings):
    views, labels = (part[::13] for part in drawings)
    n = len(views)
    one, four, large = (tpt_lib.tpt_predict(tiny, prompts, views, **more) for more in ({}, {"steps": 4}, {"lr": 2e-2}))
    before, after_one, after_four = one.loss_before, one.loss_after, four.loss_after
    assert (after_one < before).float().mean() > 0.9
    assert after_four.mean() < after_one.mean() < before.mean()
    changed, changed_more = (int((many.indices != many.zero_shot.indices).sum()) for many in (one, large))
    assert changed < changed_more
    right, right_less = (int((many.indices == labels).sum()) for many in (one, large))
    assert right > right_less
    entropies = tpt_lib.entropy(tpt_lib.class_logits(tiny, views.flatten(0, 1), tpt_lib.encode_prompts(tiny, prompts)))
    assert one.selected.shape == (n, 6)
    assert (entropies.view(n, 64).gather(1, one.selected).mean(1) < entropies.view(n, 64).mean(1)).all()

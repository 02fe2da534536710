"""The drawings: what they are, and that Bongard problems made of them can be solved."""

import pytest
import torch

import tpt_lib
from tpt_lib.evaluation.data.registry import STYLES
from tpt_lib.tiny.model import known


@pytest.mark.parametrize("style", STYLES)
def test_samples_are_one_drawing_of_each_name(style):
    data = tpt_lib.load_tiny_drawings(style)
    assert data.labels == list(range(len(data.classes))) == list(range(len(known()["names"])))
    pixels = torch.stack([image for image, _ in data.samples])
    assert pixels.shape[1:] == (3, 96, 96)
    assert pixels.dtype == torch.uint8
    assert (pixels.float().flatten(1).std(dim=1) > 5).all()
    assert len({image.numpy().tobytes() for image in pixels}) > 0.99 * len(pixels)


def test_a_choice_of_samples_is_seeded_and_theirs_to_change():
    first, again, other = (tpt_lib.load_tiny_drawings(n=20, seed=seed) for seed in (0, 0, 1))
    assert first.labels == again.labels != other.labels
    first.samples[0][0].zero_()
    assert again.samples[0][0].any()
    assert tpt_lib.load_tiny_drawings(n=20).samples[0][0].any()
    with pytest.raises(ValueError, match=r"style must be one of noto-v1, .* but got 'noto'"):
        tpt_lib.load_tiny_drawings("noto")
    with pytest.raises(ValueError, match=r"n must be between 1 and \d+, but got 0"):
        tpt_lib.load_tiny_drawings(n=0)


def test_bongard_problems_are_of_sibling_categories_without_repetition():
    data = tpt_lib.load_tiny_bongard(3, n=30)
    names = list(known()["names"].items())
    where = {
        image.numpy().tobytes(): (label, style)
        for style in STYLES
        for image, label in tpt_lib.load_tiny_drawings(style).samples
    }
    styles = set()
    for problem in data.samples:
        sides = [[*problem.positives, problem.queries[0]], [*problem.negatives, problem.queries[1]]]
        found = [[where[image.numpy().tobytes()] for image in side] for side in sides]
        (a,), (b,) = ({names[label][1] for label, _ in side} for side in found)
        assert a != b
        assert a.partition("/")[0] == b.partition("/")[0]
        assert all(len({label for label, _ in side}) == 7 for side in found)
        styles |= {style for side in found for _, style in side}
    assert styles == set(STYLES)
    again = tpt_lib.load_tiny_bongard(3, n=30)
    assert all(torch.equal(a.queries[0], b.queries[0]) for a, b in zip(data.samples, again.samples, strict=True))


@pytest.mark.slow
@pytest.mark.statistical
def test_bongard_tpt_beats_chance_clearly(tiny):
    problems = [problem for seed in range(3) for problem in tpt_lib.load_tiny_bongard(seed, n=50).samples]
    solved = tpt_lib.bongard_tpt_many(tiny, [problem[:3] for problem in problems])
    right = sum(
        v == t for said, p in zip(solved, problems, strict=True) for v, t in zip(said.verdicts, p.truths, strict=True)
    )
    assert right >= 178, right  # of 300; by chance once in a thousand

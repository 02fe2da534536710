"""The randomness of an image: a stream that depends on the seed and the pixels."""

import re

import numpy as np
import pytest
import torch
from support.pictures import generator

from tpt_lib import ImageSpec
from tpt_lib.views import augment_views, image_generator, read_image
from tpt_lib.views.seeding import as_seed, uniform_rows


def test_an_images_stream_depends_on_nothing_else():
    pixels = read_image(torch.rand(3, 5, 4))
    want = torch.rand(4, generator=image_generator(pixels))
    torch.manual_seed(77)
    torch.rand(5)
    assert torch.rand(4, generator=image_generator(pixels.clone())).equal(want)
    assert torch.rand(4, generator=image_generator(pixels.contiguous())).equal(want)


def test_convention_the_stream_is_a_hash_of_seed_shape_and_pixels():
    pixels = read_image(torch.arange(24, dtype=torch.uint8).view(3, 2, 4))
    streams = [
        image_generator(pixels),
        image_generator(pixels, 1),
        image_generator(pixels, -1),
        image_generator(pixels.flip(2)),
        image_generator(pixels.permute(0, 2, 1)),
        image_generator(pixels.permute(1, 2, 0).reshape(4, 2, 3).permute(2, 0, 1)),
    ]
    assert len({s.initial_seed() for s in streams}) == len(streams)
    assert streams[0].initial_seed() == 3637970459149736353


def test_a_seed_of_numpys(no_shape_checks):
    pixels = read_image(torch.rand(3, 4, 4))
    assert image_generator(pixels, np.int64(1)).initial_seed() == image_generator(pixels, 1).initial_seed()
    assert type(as_seed(np.int64(1))) is int


def test_a_generator_is_drawn_from_once():
    pixels, stream = read_image(torch.rand(3, 4, 4)), generator(8)
    first, second = (int(torch.randint(2**62, (), generator=g)) for g in [generator(8)] for _ in range(2))
    assert image_generator(pixels, stream).initial_seed() == image_generator(pixels, first).initial_seed()
    assert as_seed(stream) == second


@pytest.mark.parametrize("seed", [1.5, None, "1"])
def test_a_seed_that_is_none(seed, no_shape_checks):
    kind = type(seed).__name__
    with pytest.raises(TypeError, match=re.escape(f"seed must be an int or a torch.Generator, but got {kind}")):
        as_seed(seed)
    with pytest.raises(TypeError, match=re.escape(f"seed must be an int or a torch.Generator, but got {kind}")):
        augment_views(torch.zeros(3, 40, 60), ImageSpec((32, 32)), seed=seed)


def test_rows_are_drawn_as_torch_draws_them_and_never_twice():
    stream = generator(3)
    first, second, third = (uniform_rows(50, 4, stream) for _ in range(3))
    assert first.equal(torch.rand(50, 4, generator=generator(3), dtype=torch.float64))
    drawn = torch.cat([first, second, third]).flatten()
    assert len(drawn.unique()) == 600


def test_the_state_after_rows_does_not_depend_on_their_number():
    def after(n):
        stream = generator(3)
        uniform_rows(n, 4, stream)
        return torch.rand(3, generator=stream)

    want = after(0)
    assert all(after(n).equal(want) for n in (1, 2, 50))
    assert not want.equal(torch.rand(3, generator=generator(3)))


def test_pixels_on_an_accelerator_have_the_same_stream(simulated):
    from support.simulated import DEVICE

    pixels = read_image(torch.rand(3, 5, 4))
    assert image_generator(pixels.to(DEVICE)).initial_seed() == image_generator(pixels).initial_seed()

import pytest
import torch
from support.pictures import PHOTOS, generator, load

from tpt_lib.views import apply_crops, read_image, sample_crops


@pytest.fixture(scope="session")
def cut():
    """Real crops at 224 of all photographs, ``(48, 3, 224, 224)``."""
    pixels = [read_image(load(name)) for name in PHOTOS]
    return torch.cat([apply_crops(p, sample_crops(12, p.shape[1:], generator=generator()), (224, 224)) for p in pixels])


@pytest.fixture(scope="session")
def images():
    """Small photographs of different widths."""
    return [load(name).resize((90 + 7 * i, 80)) for i, name in enumerate(PHOTOS)]

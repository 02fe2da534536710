import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import hypothesis
import pytest
import torch

torch.set_num_threads(1)  # small models: more threads only wait for each other

hypothesis.settings.register_profile("default", deadline=None, derandomize=True, max_examples=25)
hypothesis.settings.load_profile("default")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture
def no_shape_checks():
    """Turns jaxtyping's checks off, so that the library's own errors show."""
    import jaxtyping

    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="session")
def photo():
    """A real photograph, as PIL gives it."""
    import PIL.Image
    import skimage.data

    return PIL.Image.fromarray(skimage.data.chelsea())


@pytest.fixture
def simulated():
    """The counts of a simulated accelerator, which is available during the test."""
    from support.simulated import AVAILABLE, WHY_NOT, counting

    if not AVAILABLE:
        pytest.skip(WHY_NOT)
    with counting() as counts:
        yield counts

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
    torch.default_generator.manual_seed(0)  # torch.manual_seed also notes the stack for GPUs, which takes milliseconds


@pytest.fixture(scope="session", autouse=True)
def quick_shape_checks():
    """Know wrapped models for what they are: every checked call asks, and Python 3.11 runs all their properties to answer."""
    from tpt_lib.models.module_clip import ModuleClip
    from tpt_lib.models.protocol import ClipLike

    class Quick(type(ClipLike)):
        def __instancecheck__(cls, instance):
            return type(instance) is ModuleClip or super().__instancecheck__(instance)

    ClipLike.__class__ = Quick


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


@pytest.fixture(scope="module")
def browser():
    """A playwright ``Browser``, one per module: while it is open, other tests could not call ``asyncio.run``."""
    from support.browser import open_browser, why_not

    if reason := why_not():
        pytest.skip(reason)
    with open_browser() as opened:
        yield opened

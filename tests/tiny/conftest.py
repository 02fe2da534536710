import pytest

import tpt_lib


@pytest.fixture(scope="session")
def tiny():
    return tpt_lib.load_tiny()


@pytest.fixture(scope="session")
def prompts(tiny):
    return tpt_lib.class_prompts(tiny, tpt_lib.load_tiny_drawings().classes)

import pytest
from support.zoo import build


@pytest.fixture(scope="module")
def model():
    return build("open_clip-vit")

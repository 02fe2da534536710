"""The whole suite checks shapes and types at every call of the library."""

import jaxtyping
import pytest
import torch

import tpt_lib


@pytest.mark.slow
def test_shapes_are_checked():
    with pytest.raises(jaxtyping.TypeCheckError, match="marginal_entropy"):
        tpt_lib.marginal_entropy(torch.zeros(()))

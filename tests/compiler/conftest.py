"""What tests of the compiler share."""

import pytest
import torch


@pytest.fixture
def fresh_dynamo():
    """Dynamo remembers nothing of other tests, and random numbers begin anew."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()

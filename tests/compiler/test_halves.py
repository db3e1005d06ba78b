"""Functions of the bits of 16-bit floats, through g++: eager's answer to every bit pattern."""

import pytest
import torch

from compiler import backend
from compiler.stats import TALLY

BITS = {
    "signbit": torch.signbit,
    "isnan": torch.isnan,
    "angle": torch.angle,
    "frexp": torch.frexp,
    "nextafter": lambda x: torch.nextafter(x, x.flip(0)),
}
EVERY = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("function", BITS.values(), ids=BITS)
def test_every_value_of_16_bits(function, dtype):
    x = EVERY.view(dtype)
    try:
        expected = function(x)
    except RuntimeError as error:
        pytest.skip(str(error))  # nobody can ask for it
    torch._dynamo.reset()
    TALLY.clear()
    actual = torch.compile(function, backend=backend)(x)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
    assert not TALLY.report()["fallbacks"]

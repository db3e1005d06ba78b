"""Memory seen as another dtype: the results share it as eager's do, and loops and calls read the values that are there."""

import pytest
import torch

from compiler import backend
from compiler.options import POLICIES

X = torch.tensor([1.5, -2.0, 0.0, 3.25, float("inf"), -7.0, 1e-20, 9.0])


def complex_numbers(x):
    q = x + 1
    return q, torch.view_as_complex(q.view(4, 2))


def parts(x):
    q = x.to(torch.complex64) * 2
    return q, torch.view_as_real(q)


def bits(x):
    q = x + 1
    return q, q.view(torch.int32)


def small_float(x):
    q = x.to(torch.float8_e4m3fn)
    return q, q.view(torch.uint8)


def slices(x):
    q = x + 1
    return q[2:], q.view(torch.int32)[:3], q[4:].view(torch.int16)


def there_and_back(x):
    v = (x + 1).view(torch.int32) + 1
    return v.view(torch.float32), v


def read_by_loops(x):
    q = x + 1
    seen = q.view(torch.int32)
    return q, seen, seen + 1, (seen ^ 3).sum(), q.view(torch.int16).float().sin()


def read_by_calls(x):
    q = torch.view_as_complex((x + 1).nan_to_num(posinf=0).view(4, 2))
    return q, torch.fft.fft(q), torch.view_as_real(q * 2) + 1


def wider(x):
    q = (x + 1).view(torch.int64)
    return q, q >> 32, q[1:].view(torch.float32)


def of_an_input(x):
    return x.view(torch.int32), x.view(torch.int32) + 1


def written_as_another(x):
    x.view(torch.int32).add_(1)
    return x * 2


def shared(given, results):
    """For each tensor, the first one that lies in the same storage."""
    storages = [value.untyped_storage().data_ptr() for value in (given, *results)]
    return [storages.index(one) for one in storages]


PROGRAMS = [
    complex_numbers, parts, bits, small_float, slices, there_and_back, read_by_loops, read_by_calls, wider, of_an_input, written_as_another,
]  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "open"])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_results_share_memory_as_in_eager(program, policy, dynamic, fresh_dynamo):
    mine, theirs = X.clone(), X.clone()
    compiled = torch.compile(program, backend=backend, dynamic=dynamic, options={"policy": policy, "check": True})
    ours, eager = compiled(mine), program(theirs)
    ours, eager = (value if isinstance(value, tuple) else (value,) for value in (ours, eager))
    assert shared(mine, ours) == shared(theirs, eager)
    for one, other in zip((*ours, mine), (*eager, theirs), strict=True):
        same_bytes = one.dtype.itemsize == 1 and one.is_floating_point()
        torch.testing.assert_close(*((v.view(torch.uint8) if same_bytes else v) for v in (one, other)), equal_nan=True)
        assert one.stride() == other.stride()

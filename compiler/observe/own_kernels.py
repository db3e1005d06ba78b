"""A script's own Triton kernels where their GPU is not here: Dynamo captures their launches all the same, as it does where the GPU is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

RELIES_ON = (
    "torch.utils._triton.has_triton",
    "torch._higher_order_ops.triton_kernel_wrap.kernel_side_table",
    "torch._higher_order_ops.triton_kernel_wrap.triton_kernel_wrapper_mutation",
    "torch._higher_order_ops.triton_kernel_wrap.triton_kernel_wrapper_functional",
)


@contextmanager
def launches_captured() -> Iterator[None]:
    """Dynamo asks, at each value that it meets, whether there is a device for Triton; inside there is."""
    from torch.utils import _triton

    plain = _triton.has_triton

    def has_triton() -> bool:
        return True

    has_triton.cache_clear = plain.cache_clear  # type: ignore[attr-defined]  # ``absent_gpu.forget`` clears it for those that hold ``plain``
    with patch.object(_triton, "has_triton", has_triton):
        yield


def launched_kernel(op: Any, given: dict[str, Any]) -> str:  # noqa: ANN401  # a HigherOrderOperator
    """The name of the kernel that a node of the graph launches, "" if the op is no launch."""
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    if not str(getattr(op, "_name", "")).startswith("triton_kernel_wrapper"):
        return ""
    kernel = kernel_side_table.get_kernel(given["kernel_idx"])
    while hasattr(kernel, "fn") and not hasattr(kernel, "__name__"):
        kernel = kernel.fn
    return str(getattr(kernel, "__name__", "a kernel"))

"""What stands for libdevice where Triton's interpreter runs a kernel, which cannot call it: PyTorch's function of the same meaning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor


def log1p(value: Tensor) -> Tensor:
    """NumPy's, which keeps denormals as libdevice does."""
    return torch.from_numpy(np.log1p(value.numpy()))


FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "acos": torch.acos,
    "acosh": torch.acosh,
    "asin": torch.asin,
    "asinh": torch.asinh,
    "atan": torch.atan,
    "atan2": torch.atan2,
    "atanh": torch.atanh,
    "cosh": torch.cosh,
    "cyl_bessel_i0": torch.special.i0,
    "cyl_bessel_i1": torch.special.i1,
    "erfc": torch.erfc,
    "erfcx": torch.special.erfcx,
    "erfinv": torch.erfinv,
    "exp2": torch.exp2,
    "expm1": torch.expm1,
    "fmod": torch.fmod,
    "hypot": torch.hypot,
    "j0": torch.special.bessel_j0,
    "j1": torch.special.bessel_j1,
    "lgamma": torch.lgamma,
    "log10": torch.log10,
    "log1p": log1p,
    "nextafter": torch.nextafter,
    "pow": torch.pow,
    "rint": torch.round,
    "sinh": torch.sinh,
    "tan": torch.tan,
    "tanh": torch.tanh,
    "y0": torch.special.bessel_y0,
    "y1": torch.special.bessel_y1,
}


def install() -> None:
    """Put the functions in libdevice's place, for the rest of the process, which must have been started with TRITON_INTERPRET=1."""
    from triton import language as tl
    from triton.language.extra import libdevice
    from triton.runtime.interpreter import TensorHandle

    def standing_for(function: Callable[..., Tensor]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:  # noqa: ANN401  # Triton's values
            typed = next(argument for argument in arguments if hasattr(argument, "handle"))
            kind = typed.handle.data.dtype
            arrays = [argument.handle.data if hasattr(argument, "handle") else np.asarray(argument, kind) for argument in arguments]
            wide = [torch.from_numpy(np.ascontiguousarray(array)) for array in np.broadcast_arrays(*arrays)]
            result = function(*wide).numpy()
            scalar = typed.type.scalar
            is_block = result.shape != (1,) or typed.type.is_block()
            return tl.tensor(TensorHandle(result, scalar), tl.block_type(scalar, list(result.shape)) if is_block else scalar)

        return call

    for name, function in FUNCTIONS.items():
        setattr(libdevice, name, standing_for(function))

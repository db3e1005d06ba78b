"""``python -m compiler.runtime.interpret WRAPPER.py IN.pt OUT.pt ...``: runs Triton wrappers on CPU tensors with Triton's interpreter.

IN.pt holds the list of inputs, or a dict with ``inputs`` and ``constants``; OUT.pt gets the list of results, or what went wrong: a
sentence, or in a dict the ``unknown`` op, which only the program defines.
"""

from __future__ import annotations

import linecache
import os
import re
import sys
from pathlib import Path
from typing import Any


def reduce_by_halves(self: Any, given: Any) -> list[Any]:  # noqa: ANN401  # Triton's interpreter has no types
    """A reduction with a function of the program's own, on whole arrays as a GPU does it, not element by element."""
    import numpy as np

    values, axis = self.unravel(given, self.axis)
    dtypes = [value.dtype for value in values]
    while values[0].handle.data.shape[axis] > 1:  # a power of two, as every side of a block
        halves = [np.split(value.handle.data, 2, axis) for value in values]
        left, right = ([self.to_tensor(parts[k], dtype) for parts, dtype in zip(halves, dtypes, strict=True)] for k in (0, 1))
        made = self.combine_fn.fn(*left, *right)
        values = made if isinstance(made, tuple) else (made,)
    results = []
    for value, dtype in zip(values, dtypes, strict=True):
        data = value.handle.data
        if not self.keep_dims:
            data = np.squeeze(data, axis)
        elif self.axis is None:
            data = data.reshape((1,) * len(given[0].handle.data.shape))
        results.append(self.to_tensor(data.item() if data.ndim == 0 else data, dtype))
    return results


def main(arguments: list[str]) -> int:
    """Runs each triple of paths; the number of wrappers that failed."""
    os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported
    import torch
    from triton.runtime.interpreter import ReduceOps

    from compiler.runtime import interpreted_libdevice
    from compiler.runtime.triton_private import correct_interpreter

    correct_interpreter()
    ReduceOps.generic_reduce = reduce_by_halves
    interpreted_libdevice.install()
    failures = 0
    for wrapper, inputs, outputs in zip(arguments[::3], arguments[1::3], arguments[2::3], strict=True):
        given = torch.load(inputs, weights_only=True)
        namespace: dict[str, object] = {"__name__": "fuselab_wrapper", "__file__": wrapper}
        if isinstance(given, dict):
            namespace["fuselab_constants"] = given.get("constants", {})
            given = given["inputs"]
        text = Path(wrapper).read_text()
        linecache.cache[wrapper] = (len(text), None, text.splitlines(keepends=True), wrapper)
        ops = sorted({match.groups() for match in re.finditer(r"torch\.ops\.(\w+)\.(\w+)", text)})
        unknown = next((f"{space}.{op}" for space, op in ops if not hasattr(getattr(torch.ops, space), op)), "")
        if unknown:
            failures += 1
            torch.save({"unknown": unknown}, outputs)
            continue
        try:
            exec(compile(text, wrapper, "exec"), namespace)
            results = namespace["call"](given)  # type: ignore[operator]  # the wrapper defines it
        except Exception as error:  # generated code may fail in any way; the caller reads how
            failures += 1
            results = f"{type(error).__name__}: {error}"
        torch.save(results, outputs)
    return failures


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

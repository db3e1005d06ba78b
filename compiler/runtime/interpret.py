"""``python -m compiler.runtime.interpret WRAPPER.py IN.pt OUT.pt``: runs a Triton wrapper on CPU tensors with Triton's interpreter.

IN.pt holds the list of inputs, or a dict with ``inputs`` and ``constants``; OUT.pt gets the list of results.
"""

from __future__ import annotations

import linecache
import os
import sys
from pathlib import Path


def main(wrapper: str, inputs: str, outputs: str) -> None:
    os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported
    import torch

    given = torch.load(inputs, weights_only=True)
    namespace = {"__name__": "fuselab_wrapper", "__file__": wrapper}
    if isinstance(given, dict):
        namespace["fuselab_constants"] = given.get("constants", {})
        given = given["inputs"]
    text = Path(wrapper).read_text()
    linecache.cache[wrapper] = (len(text), None, text.splitlines(keepends=True), wrapper)
    exec(compile(text, wrapper, "exec"), namespace)
    results = namespace["call"](given)  # type: ignore[operator]  # the wrapper defines it
    torch.save(results, outputs)


if __name__ == "__main__":
    main(*sys.argv[1:4])

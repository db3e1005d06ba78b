"""Fuselab's compiler for PyTorch: ``torch.compile(model, backend="fuselab")`` compiles with it anywhere; ``python -m compiler`` shows
every stage; ``backend.stats()`` says how much of what this process compiled became loops, and what became calls of libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.fx import GraphModule


def backend(gm: GraphModule, example_inputs: Sequence[Any], *, options: dict[str, Any] | None = None) -> Callable[..., Any]:
    """A torch.compile backend: compiles for the GPU that the inputs are on, else for the CPU.

    ``options`` are those of ``compiler.options.Options`` (``torch.compile(..., backend="fuselab", options={"policy": "max"})``).
    Raises CompileError, which names stage, op and line; OptionsError for an option that does not exist.
    """
    # Imported here because the web process imports compiler.trace, and must not load torch by that.
    import torch

    from compiler.capture import compile_region
    from compiler.capture.present import native_target
    from compiler.options import Options
    from compiler.recorder import Recorder
    from compiler.stats import TALLY
    from compiler.target import find_target

    on_gpu = any(isinstance(value, torch.Tensor) and value.device.type == "cuda" for value in example_inputs)
    target = native_target() if on_gpu else find_target("cpu")
    chosen = Options.parse(options or {})
    return compile_region(gm, example_inputs, options=chosen, target=target, recorder=Recorder(TALLY.count))


def stats() -> dict[str, Any]:
    """Counts over what this process compiled with ``backend``: graphs, native nests, library calls and fallbacks by name, with reasons."""
    from compiler.stats import TALLY

    return TALLY.report()


backend.stats = stats  # type: ignore[attr-defined]  # beside the function that torch.compile knows

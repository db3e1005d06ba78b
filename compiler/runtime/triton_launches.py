"""Launches of a script's own Triton kernels where their GPU is not here: Triton's interpreter runs them on tensors of the CPU.

A launch comes in, its results are in its tensors afterwards; or ``told`` gets a sentence about why they are not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch

RELIES_ON = (
    "triton.runtime.autotuner.Autotuner._bench",
    "triton.runtime.autotuner.Autotuner.run",
    "triton.runtime.autotuner.Heuristics.run",
    "triton.runtime.interpreter.InterpretedFunction.rewrite",
    "triton.runtime.interpreter.InterpreterBuilder.set_grid_idx",
    "triton.runtime.interpreter.InterpreterError",
    "triton.runtime.interpreter._patch_lang",
    "triton.runtime.jit.JITFunction.__call__",
    "triton.runtime.jit.JITFunction.run",
)
SECONDS = 10.0
"""All launches of a run together: the interpreter takes about a millisecond for each program of a grid."""
LEFT_OUT = "The script launches a Triton kernel of its own, which Fuselab takes into no graph; the real Inductor takes it into its graph."
INTERPRETED = (
    "The script's own Triton kernel {name} ran on Triton's interpreter, on the CPU, under its first configuration if it has several."
)
TOO_SLOW = (
    "The script's own Triton kernel {name} was not run to its end: Triton's interpreter, which stands in for the absent GPU, is slow, and "
    f"had used its {SECONDS:.0f} s. What it had not written yet is undefined; smaller tensors are run."
)
NOT_RUN = (
    "The script's own Triton kernel {name} was not run to its end, so that its results are undefined: Triton's interpreter, which stands "
    "in for the absent GPU, says {error}"
)


class _TooSlow(Exception):
    """The interpreter's time is used up."""


@contextmanager
def launches_interpreted(told: Callable[[str], None], without_modes: Callable[[], Any]) -> Iterator[None]:
    """Inside, every launch of a Triton kernel is interpreted, in this process. ``told`` is told once of each kernel and outcome.

    ``without_modes`` opens a context in which no dispatch mode of PyTorch's sees what is called.
    """
    from triton.runtime.autotuner import Autotuner, Heuristics
    from triton.runtime.interpreter import InterpretedFunction, InterpreterBuilder, InterpreterError
    from triton.runtime.jit import JITFunction

    left = SECONDS  # of the whole run
    said: set[str] = set()

    def tell(sentence: str) -> None:
        if sentence not in said:
            said.add(sentence)
            told(sentence)

    def run(self: Any, *args: Any, grid: Any, warmup: bool = False, **given: Any) -> None:  # noqa: ANN401  # as JITFunction.run
        nonlocal left
        if warmup:
            return
        name, start = self.fn.__name__, time.monotonic()
        set_grid_idx = InterpreterBuilder.set_grid_idx

        def clocked(builder: Any, *place: int) -> None:  # noqa: ANN401
            if time.monotonic() - start > left:
                raise _TooSlow
            set_grid_idx(builder, *place)

        try:
            with without_modes(), _language_put_back(), patch.object(InterpreterBuilder, "set_grid_idx", clocked):
                # Only what a grid of programs writes is wanted: options of the compiler, such as num_warps, are dropped by the interpreter.
                InterpretedFunction(self.fn).run(*args, grid=grid, warmup=False, **given)
            tell(INTERPRETED.format(name=name))
        except InterpreterError as error:
            slow = isinstance(error.__cause__, _TooSlow)
            tell(TOO_SLOW.format(name=name) if slow else NOT_RUN.format(name=name, error=str(error)[:1_000]))
        finally:
            left = max(0.0, left - (time.monotonic() - start))

    def called(self: Any, *args: Any, **given: Any) -> Any:  # noqa: ANN401  # a kernel's call of another function
        return InterpretedFunction(self.fn).rewrite()(*args, **given)

    with ExitStack() as stack:
        # A launch outside of a graph is called from code that Dynamo compiles, which ends its graph there.
        stack.enter_context(patch.object(JITFunction, "run", torch.compiler.disable(run, reason=LEFT_OUT)))
        for tuner in (Autotuner, Heuristics):
            stack.enter_context(patch.object(tuner, "run", torch.compiler.disable(tuner.run, reason=LEFT_OUT)))
        stack.enter_context(patch.object(JITFunction, "__call__", called))
        # Without a device all configurations take the same time, and the first is kept.
        stack.enter_context(patch.object(Autotuner, "_bench", lambda *_, **__: [0.0]))
        yield


@contextmanager
def _language_put_back() -> Iterator[None]:
    """The interpreter replaces the functions of ``triton.language``, and a kernel's compilation needs them as they were."""
    import triton.language as tl
    from triton.runtime import interpreter

    scopes: list[Any] = []
    plain = interpreter._patch_lang

    def patched(function: Any) -> Any:  # noqa: ANN401
        scopes.append(plain(function))
        return scopes[-1]

    # A reduction of the library looks its functions up in tl.core, whatever the kernel itself names.
    with patch.object(interpreter, "_patch_lang", patched):
        patched(_names_both(tl))
        try:
            yield
        finally:
            for scope in reversed(scopes):
                scope.restore()


def _names_both(tl: Any) -> Any:  # noqa: ANN401
    """A function whose globals hold both modules of the language."""
    namespace: dict[str, Any] = {"tl": tl, "core": tl.core}
    exec("def function(): ...", namespace)
    return namespace["function"]

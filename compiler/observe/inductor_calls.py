"""The kernel calls of Inductor's loaded output code: while it runs once, each is noted with its arguments, to be run again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch

Run = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Call:
    """A kernel by the name that the output code gives it, and a function that runs it again."""

    kernel: str
    run: Run


class Noting:
    """Stands where a kernel, or a module of library calls, is: notes what is called, and hands it on."""

    def __init__(self, name: str, inner: Any, calls: list[Call]) -> None:  # noqa: ANN401  # any kernel
        self._name, self._inner, self._calls = name, inner, calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        inner = self._inner

        def again() -> object:
            with torch.no_grad():  # as inside of the compiled function
                return inner(*args, **kwargs)

        self._calls.append(Call(self._name, again))
        return inner(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        found = getattr(self._inner, name)
        if not callable(found):
            return found
        return Noting(self._name if name == "run" else f"{self._name}.{name}", found, self._calls)


def noted_calls(module: Any, kernels: Iterable[str], run: Run) -> list[Call]:  # noqa: ANN401  # the loaded output code
    """The calls that ``run`` makes of these kernels, in order. Nothing is noted of what a CUDA graph replays."""
    calls: list[Call] = []
    space = getattr(module, "__dict__", {})
    names = dict.fromkeys(name if name in space else name.partition(".")[0] for name in kernels)
    with ExitStack() as stack:
        stack.enter_context(
            patch.dict(space, {name: Noting(name, space[name], calls) for name in names if name in space and name != "torch"})
        )
        run()
    return calls

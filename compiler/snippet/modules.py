"""Where a script builds its modules: for layers whose own code is PyTorch's, the line that made them is the line they come from."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from compiler.spans import SNIPPET, Span


@contextmanager
def remember_modules(spans: dict[str, Span]) -> Iterator[None]:
    """While it lasts, each module built by the script has the span of the call that built it put into ``spans``, by its id as text."""
    original = torch.nn.Module.__init__

    def remembering(self: torch.nn.Module, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401  # as the original
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != SNIPPET:
            frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
        if frame is not None:
            line, end_line, column, end_column = list(frame.f_code.co_positions())[frame.f_lasti // 2]
            spans[str(id(self))] = Span(line or 0, column or 0, end_line or 0, end_column or 0)
        original(self, *args, **kwargs)

    torch.nn.Module.__init__ = remembering  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.nn.Module.__init__ = original  # type: ignore[method-assign]

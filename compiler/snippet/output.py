"""What a script prints, as bounded events of the trace."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from compiler.trace import Event, Output

MAX_OUTPUT = 200_000
AT_ONCE = 200
"""So many pieces are emitted as they come; a script that prints more has the rest gathered into pieces of ``GATHERED`` characters."""
GATHERED = 8_192


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Warnings say where they come from within their package, not where that is installed; one about our own use of Triton is none."""

    def plain(message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None) -> str:
        place = re.sub(r"^.*/(site-packages|dist-packages|python\d[\d.]*)/", "", filename)
        return f"{place}:{lineno}: {category.__name__}: {message}\n"

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="TRITON_DEFAULT_FP_FUSION")
        before, warnings.formatwarning = warnings.formatwarning, plain
        try:
            yield
        finally:
            warnings.formatwarning = before


class Printed(io.TextIOBase):
    """A text stream that emits whole lines; beyond ``MAX_OUTPUT`` characters it says so once and drops the rest."""

    def __init__(self, stream: Literal["stdout", "stderr"], emit: Callable[[Event], None]) -> None:
        self.name = stream
        self.stream, self.emit = stream, emit
        self.held = ""
        self.left = MAX_OUTPUT
        self.sent = 0

    @property
    def encoding(self) -> str:  # type: ignore[override]  # a plain attribute in the base class
        return "utf-8"

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        kept = text[: max(0, self.left)]
        if self.left > 0 and len(text) > self.left:
            kept += f"\n... {self.stream} cut off after {MAX_OUTPUT:,} characters\n"
        self.left -= len(text)
        self.held += kept.encode("utf-8", "replace").decode()
        if "\n" in self.held and self._due():
            whole, _, self.held = self.held.rpartition("\n")
            self._send(whole + "\n")
        return len(text)

    def flush(self) -> None:
        if self._due():
            self.finish()

    def finish(self) -> None:
        """Emits what is still held."""
        if self.held:
            held, self.held = self.held, ""
            self._send(held)

    def _due(self) -> bool:
        return self.sent < AT_ONCE or len(self.held) > GATHERED

    def _send(self, text: str) -> None:
        self.sent += 1
        self.emit(Output(stream=self.stream, text=text))

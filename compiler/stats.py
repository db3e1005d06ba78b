"""How much of what was compiled became loops, and what became calls of libraries: counted from the events of the trace."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from compiler.trace import Decision, Event, Stage


def is_fallback(decision: Decision) -> bool:
    """Whether it hands an op to PyTorch's own kernel for want of a rule, and not because a tuned library is better."""
    return decision.verdict == "extern" and decision.rule in ("fallback", "unsupported")


@dataclass(slots=True)
class Tally:
    """``native``: loop nests. ``kernels``: what fusion made of them. ``libraries``: calls that a tuned library answers, by library.

    ``fallbacks``: calls for want of a rule, by op, each with its reason.
    """

    graphs: int = 0
    native: int = 0
    kernels: int = 0
    libraries: Counter[str] = field(default_factory=Counter)
    fallbacks: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, event: Event) -> None:
        """Adds what a finished ``loops`` or ``fusion`` stage says; other events say nothing of it."""
        if not isinstance(event, Stage) or event.name not in ("loops", "fusion") or event.status != "ok":
            return
        with self.lock:
            if event.name == "fusion":
                self.kernels += int(event.facts.get("kernels") or 0)
                return
            self.graphs += 1
            self.native += int(event.facts.get("nests") or 0)
            for decision in event.decisions:
                if decision.verdict != "extern":
                    continue
                op, library = str(decision.numbers.get("op")), str(decision.numbers.get("library"))
                if is_fallback(decision):
                    self.fallbacks[op] += 1
                    self.reasons[op] = decision.reason
                else:
                    self.libraries[library] += 1

    def report(self) -> dict[str, Any]:
        """The counts so far, as plain values: graphs, native nests, kernels, library calls, fallbacks, and why each op of these fell
        back.
        """
        with self.lock:
            return {
                "graphs": self.graphs,
                "native": self.native,
                "kernels": self.kernels,
                "libraries": dict(self.libraries),
                "fallbacks": dict(self.fallbacks),
                "reasons": dict(self.reasons),
            }

    def clear(self) -> None:
        with self.lock:
            self.graphs = self.native = self.kernels = 0
            for counts in (self.libraries, self.fallbacks, self.reasons):
                counts.clear()


TALLY = Tally()
"""Of this process, over everything that was compiled through ``torch.compile(..., backend="fuselab")``."""

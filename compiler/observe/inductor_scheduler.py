"""What Inductor's scheduler decided: every pair of nodes that it looked at, with its own words and numbers, read from its calls.

While ``watching_scheduler`` is open, a ``FusionLog`` gets what the scheduler does and what it would log as ``fusion``.
"""

from __future__ import annotations

import dataclasses
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

RELIES_ON = (
    "torch._inductor.scheduler.fusion_log",
    "torch._inductor.scheduler.Scheduler.can_fuse",
    "torch._inductor.scheduler.Scheduler.fuse_nodes",
    "torch._inductor.scheduler.Scheduler.fuse_nodes_once",
    "torch._inductor.scheduler.Scheduler.fuse_two_nodes",
    "torch._inductor.scheduler.Scheduler.get_possible_fusions",
    "torch._inductor.scheduler.Scheduler.score_fusion_key",
    "torch._inductor.scheduler.Scheduler.speedup_by_fusion",
    "torch._inductor.scheduler.Scheduler.will_fusion_create_cycle",
    "torch._inductor.scheduler.WhyNoFuse.__init__",
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
MAX_LINES = 10_000


@dataclass(slots=True)
class Pair:
    """Two nodes that the scheduler looked at in one round.

    ``looks``: how often it asked whether they may be fused. ``why``: what kept a legal pair apart, as far as the scheduler's calls tell.
    """

    round: int
    first: str
    second: str
    legal: bool = False
    reason: str = ""
    score: tuple[tuple[str, float], ...] = ()
    fused: bool = False
    candidate: bool = False
    why: str = ""
    looks: int = 0


@dataclass(slots=True)
class FusionLog:
    """``lines``: what ``TORCH_LOGS=fusion`` would say, without the lists of candidates.

    ``possible``: how many pairs each round could fuse.
    """

    pairs: dict[tuple[int, str, str], Pair] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    round: int = 0
    possible: list[int] = field(default_factory=list)
    refusals: int = 0
    fusions: int = 0
    seconds: float = 0.0
    became: dict[tuple[int, str], str] = field(default_factory=dict)
    reorder_rounds: list[int] = field(default_factory=list)

    def pair(self, first: Any, second: Any) -> Pair:  # noqa: ANN401  # scheduler nodes
        key = (self.round, first.get_name(), second.get_name())
        return self.pairs.setdefault(key, Pair(*key))

    def say(self, text: str) -> None:
        if len(self.lines) < MAX_LINES:
            self.lines.append(_COLOUR.sub("", text))


class Listener:
    """Stands where the scheduler's logger is: hears everything, and hands it on."""

    def __init__(self, logger: Any, log: FusionLog, refusal: type, said: list[str]) -> None:  # noqa: ANN401  # logging.Logger
        self._logger, self._log, self._refusal, self._said = logger, log, refusal, said

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._logger, name)

    def isEnabledFor(self, level: int) -> bool:
        # The candidates of a round are long to print, and are the loops that the trace shows anyway.
        if sys._getframe(1).f_code.co_name == "fuse_nodes_once":
            return bool(self._logger.isEnabledFor(level))
        return True

    def debug(self, message: object, *args: object) -> None:
        self._logger.debug(message, *args)
        if isinstance(message, self._refusal):
            self._said.append(message.reason % message.args)  # type: ignore[attr-defined]
            self._log.refusals += 1
        self._log.say(str(message) % args if args else str(message))

    def info(self, message: object, *args: object) -> None:
        self._logger.info(message, *args)
        self._log.say(str(message) % args if args else str(message))


@contextmanager
def watching_scheduler(log: FusionLog) -> Iterator[None]:
    """Tells ``log`` what the scheduler does inside; every call of the scheduler's goes through unchanged."""
    from torch._inductor import scheduler
    from torch._inductor.scheduler import Scheduler, WhyNoFuse

    said: list[str] = []
    with ExitStack() as stack:
        stack.enter_context(patch.object(scheduler, "fusion_log", Listener(scheduler.fusion_log, log, WhyNoFuse, said)))
        for name, wrap in _WRAPPERS.items():
            stack.enter_context(patch.object(Scheduler, name, wrap(getattr(Scheduler, name), log, said)))
        yield


Own = Callable[..., Any]


def _can_fuse(own: Own, log: FusionLog, said: list[str]) -> Own:
    def can_fuse(self: Any, first: Any, second: Any, *args: Any, **kwargs: Any) -> bool:  # noqa: ANN401
        start = len(said)
        legal: bool = own(self, first, second, *args, **kwargs)
        if first is second:  # both of a pair became the same node: the scheduler refuses that silently
            return legal
        pair = log.pair(first, second)
        pair.looks += 1
        pair.legal, pair.reason = legal, "" if legal else said[-1] if len(said) > start else ""
        return legal

    return can_fuse


def _a_round(own: Own, log: FusionLog, said: list[str]) -> Own:
    def fuse_nodes_once(self: Any, nodes: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        log.round += 1
        if kwargs.get("is_reorder_round") or any(args):
            log.reorder_rounds.append(log.round)
        return own(self, nodes, *args, **kwargs)

    return fuse_nodes_once


def _all_rounds(own: Own, log: FusionLog, said: list[str]) -> Own:
    def fuse_nodes(self: Any, nodes: Any) -> Any:  # noqa: ANN401
        start = time.perf_counter()
        try:
            return own(self, nodes)
        finally:
            log.seconds += time.perf_counter() - start

    return fuse_nodes


def _fused(own: Own, log: FusionLog, said: list[str]) -> Own:
    def fuse_two_nodes(self: Any, first: Any, second: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        pair = log.pair(first, second)
        pair.fused, pair.legal = True, True
        log.fusions += 1
        names = [first.get_name(), second.get_name()]
        made = own(self, first, second, *args, **kwargs)
        for name in names:
            log.became[log.round, name] = made.get_name()
        return made

    return fuse_two_nodes


def _possible(own: Own, log: FusionLog, said: list[str]) -> Own:
    def get_possible_fusions(self: Any, *args: Any, **kwargs: Any) -> Sequence[Any]:  # noqa: ANN401
        found: Sequence[Any] = own(self, *args, **kwargs)
        log.possible.append(len(found))
        for first, second in found:
            log.pair(first, second).candidate = True
        return found

    return get_possible_fusions


def _scored(own: Own, log: FusionLog, said: list[str]) -> Own:
    def score_fusion_key(self: Any, nodes: tuple[Any, Any]) -> Any:  # noqa: ANN401
        result = own(self, nodes)
        log.pair(*nodes).score = score_parts(result)
        return result

    return score_fusion_key


def score_parts(score: Any) -> tuple[tuple[str, float], ...]:  # noqa: ANN401  # Inductor's FusionScore, or a tuple of older versions
    """The parts of a score by name."""
    if dataclasses.is_dataclass(score):
        parts = {item.name: getattr(score, item.name) for item in dataclasses.fields(score)}
    elif hasattr(score, "_asdict"):
        parts = score._asdict()
    else:
        parts = {f"part_{place}": value for place, value in enumerate(score if isinstance(score, tuple) else (score,))}
    return tuple((name, value) for name, value in parts.items() if isinstance(value, int | float))


def _speedup(own: Own, log: FusionLog, said: list[str]) -> Own:
    def speedup_by_fusion(self: Any, first: Any, second: Any) -> Any:  # noqa: ANN401
        result = own(self, first, second)
        pair = log.pair(first, second)
        later = getattr(result, "callable_fn", None)
        if later is None and not getattr(result, "should_fuse", result):
            pair.why = "speedup_by_fusion decided against it"
        if later is not None:
            pair.why = "it waited for a benchmark, which never came or was not faster"
        return result

    return speedup_by_fusion


def _cycle(own: Own, log: FusionLog, said: list[str]) -> Own:
    def will_fusion_create_cycle(self: Any, first: Any, second: Any) -> bool:  # noqa: ANN401
        found: bool = own(self, first, second)
        if found:
            log.pair(first, second).why = "fusing them would make a cycle of dependencies"
        return found

    return will_fusion_create_cycle


_WRAPPERS: dict[str, Callable[[Own, FusionLog, list[str]], Own]] = {
    "can_fuse": _can_fuse,
    "fuse_nodes": _all_rounds,
    "fuse_nodes_once": _a_round,
    "fuse_two_nodes": _fused,
    "get_possible_fusions": _possible,
    "score_fusion_key": _scored,
    "speedup_by_fusion": _speedup,
    "will_fusion_create_cycle": _cycle,
}

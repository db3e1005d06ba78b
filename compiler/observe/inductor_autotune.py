"""Which library calls and templates Inductor chose between, with the times that it measured, if it measured any."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

RELIES_ON = (
    "torch._inductor.select_algorithm.AlgorithmSelectorCache.__call__",
    "torch._inductor.select_algorithm.AlgorithmSelectorCache.do_autotuning",
    "torch._inductor.ir.MultiTemplateBuffer.finalize_as_triton_caller",
)
MEASURED_BY = "torch._inductor.runtime.triton_heuristics.CachingAutotuner"
"""Whose objects ``tuned_kernel`` reads; without it nothing is told of the kernels' configurations."""


@dataclass(slots=True)
class Choice:
    """One way to compute something; ``millis`` is None where nobody measured it, infinite where it failed."""

    name: str
    kind: str
    description: str
    millis: float | None = None
    chosen: bool = False


@dataclass(slots=True)
class Selection:
    """One choice between ways: of which operation, for inputs of which sizes, and giving which buffer."""

    operation: str
    inputs: tuple[str, ...]
    choices: list[Choice] = field(default_factory=list)
    measured: bool = False
    deferred: bool = False
    origins: tuple[str, ...] = ()

    @property
    def chosen(self) -> Choice | None:
        return next((choice for choice in self.choices if choice.chosen), None)


@dataclass(frozen=True, slots=True)
class Configuration:
    """How a Triton kernel may be launched, and how long that took when it was first called, None if nobody measured it."""

    text: str
    warps: int | None = None
    stages: int | None = None
    millis: float | None = None
    chosen: bool = False
    registers: int | None = None
    spills: int | None = None
    shared: int | None = None


def tuned_kernel(kernel: Any) -> list[Configuration]:  # noqa: ANN401  # a CachingAutotuner that has been called
    """The configurations of a kernel with the times that its first call measured; none for what is no Triton kernel of Inductor's."""
    launchers = getattr(kernel, "launchers", None)
    if not launchers:
        return []
    chosen = launchers[0]
    found: dict[str, Configuration] = {}
    measured = getattr(getattr(kernel, "coordesc_tuner", None), "cached_benchmark_results", {})
    for key, millis in measured.items():
        given = dict(key) if isinstance(key, tuple) else {}
        found[_config_text(given)] = Configuration(_config_text(given), given.get("num_warps"), given.get("num_stages"), float(millis))
    config = chosen.config
    given = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    text = _config_text(given)
    millis = found[text].millis if text in found else None
    facts = [getattr(chosen, name, None) for name in ("n_regs", "n_spills", "shared")]
    found[text] = Configuration(text, config.num_warps, config.num_stages, millis, True, *facts)
    return sorted(found.values(), key=lambda one: (not one.chosen, one.millis or 0.0))


def _config_text(given: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(given.items()))


@dataclass(slots=True)
class TuneLog:
    selections: list[Selection] = field(default_factory=list)
    _callers: dict[int, tuple[Any, Choice]] = field(default_factory=dict)

    def begin(self, operation: str, callers: Sequence[Any], inputs: Sequence[Any], origins: tuple[str, ...]) -> Selection:
        made = Selection(operation, tuple(_shown(node) for node in inputs), origins=origins)
        for caller in callers:
            choice = Choice(str(getattr(caller, "name", caller)), _kind(caller), str(getattr(caller, "description", ""))[:1_000])
            self._callers[id(caller)] = (caller, choice)
            made.choices.append(choice)
        self.selections.append(made)
        return made

    def callers_of(self, selection: Selection) -> list[tuple[Any, Choice]]:
        return [known for known in self._callers.values() if any(choice is known[1] for choice in selection.choices)]

    def timed(self, timings: Mapping[Any, float]) -> None:
        for caller, millis in timings.items():
            known = self._callers.get(id(caller))
            if known is not None and isinstance(millis, int | float):
                known[1].millis = float(millis)
                for selection in self.selections:
                    if any(choice is known[1] for choice in selection.choices):
                        selection.measured = True

    def picked(self, caller: Any) -> None:  # noqa: ANN401  # a ChoiceCaller
        known = self._callers.get(id(caller))
        if known is None:
            return
        for selection in self.selections:
            if any(choice is known[1] for choice in selection.choices):
                for choice in selection.choices:
                    choice.chosen = choice is known[1]


@contextmanager
def watching_autotune(log: TuneLog) -> Iterator[None]:
    """Tells ``log`` what Inductor chooses between inside."""
    from torch._inductor import ir
    from torch._inductor.select_algorithm import AlgorithmSelectorCache
    from torch._inductor.virtualized import V

    select, tune = AlgorithmSelectorCache.__call__, AlgorithmSelectorCache.do_autotuning
    finalize = ir.MultiTemplateBuffer.finalize_as_triton_caller

    def selected(self: Any, name: str, choices: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        current = getattr(getattr(V.graph, "current_node", None), "name", "")
        selection = log.begin(str(name), list(choices), inputs, (current,) if current else ())
        result = select(self, name, choices, inputs, *args, **kwargs)
        callers = {choice.name: caller for caller, choice in log.callers_of(selection)}
        if isinstance(result, tuple) and len(result) > 1 and result[1] is not None:
            log.picked(result[1])
        elif len(callers) == 1:
            log.picked(*callers.values())
        elif not isinstance(result, tuple) and selection.measured and "MultiTemplate" not in str(type(getattr(result, "data", result))):
            fastest = min((choice for choice in selection.choices if choice.millis is not None), key=lambda choice: choice.millis or 0.0)
            log.picked(callers[fastest.name])  # older versions give the node only
        else:
            selection.deferred = True
        return result

    def tuned(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        timings = tune(self, *args, **kwargs)
        if isinstance(timings, Mapping):
            log.timed(timings)
        return timings

    def finalized(self: Any, caller: Any) -> Any:  # noqa: ANN401
        log.picked(caller)
        return finalize(self, caller)

    with ExitStack() as stack:
        stack.enter_context(patch.object(AlgorithmSelectorCache, "__call__", selected))
        stack.enter_context(patch.object(AlgorithmSelectorCache, "do_autotuning", tuned))
        stack.enter_context(patch.object(ir.MultiTemplateBuffer, "finalize_as_triton_caller", finalized))
        yield


def failed(choice: Choice) -> bool:
    """The choice was tried and did not work."""
    return choice.millis is not None and not math.isfinite(choice.millis)


def _kind(caller: Any) -> str:  # noqa: ANN401
    name = type(caller).__name__
    return "extern" if "Extern" in name else name.removesuffix("Caller")


def _shown(node: Any) -> str:  # noqa: ANN401  # an ir.Buffer
    try:
        return f"{node.get_name()} {str(node.get_dtype()).removeprefix('torch.')}[{', '.join(map(str, node.get_size()))}]"
    except (AttributeError, NotImplementedError):
        return str(node)[:100]

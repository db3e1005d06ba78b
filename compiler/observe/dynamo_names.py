"""What TorchDynamo does with a frame, as it says it itself: bytecode, resume functions, graph breaks, recompiles, limits, symbols.

``watching_frames`` writes it to a ``FrameLog`` while the block runs and leaves PyTorch as it was.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import torch

from compiler.observe.missing import missing_names
from compiler.observe.torch_names import Break, GuardRow, guard_rows

RELIES_ON = (
    "torch._guards.CompileContext.current_compile_id",
    "torch._guards.TracingContext.extract_stack",
    "torch._dynamo.config.assume_static_by_default",
    "torch._dynamo.config.automatic_dynamic_shapes",
    "torch._dynamo.convert_frame.get_and_maybe_log_recompilation_reasons",
    "torch._dynamo.convert_frame.exceeds_recompile_limit",
    "torch._dynamo.convert_frame.wrap_guarded_code",
    "torch._dynamo.convert_frame.orig_code_map",
    "torch._dynamo.symbolic_convert.InstructionTranslatorBase.log_graph_break",
    "torch._dynamo.exc.collapse_resume_frames",
    "torch._dynamo.exc.get_stack_above_dynamo",
    "torch._dynamo.output_graph.OutputGraph",
    "torch._dynamo.resume_execution.ContinueExecutionCache.lookup",
    "torch.fx.experimental.symbolic_shapes.ShapeEnv",
)
"""Dotted names; what needs a missing one is left out, and said."""
WATCHED = tuple(
    name for name in RELIES_ON if name.startswith(("torch._dynamo.convert_frame", "torch._dynamo.symbolic", "torch._dynamo.res"))
)
_PLACE = re.compile(r"(\S+):(\d+) in \S+")


@dataclass(slots=True)
class FrameLog:
    """What was seen of each compiled frame, by its compile id: ``2/1`` is the second time that the third frame was compiled.

    ``told`` is called with a compile id when the frame is finished, and when it hit a limit.
    """

    reasons: dict[str, tuple[str, ...]] = field(default_factory=dict)
    breaks: dict[str, list[Break]] = field(default_factory=dict)
    resumes: dict[str, list[CodeType]] = field(default_factory=dict)
    codes: dict[str, tuple[CodeType | None, CodeType]] = field(default_factory=dict)
    limits: dict[str, tuple[str, int]] = field(default_factory=dict)
    told: Callable[[str], None] = lambda _: None
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShapeFact:
    """A condition on symbols that Dynamo decided while it traced, and the place in the script where it had to: (file, line)."""

    text: str
    frames: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class SymbolRow:
    """A size or number that Dynamo left open. ``value``: what it was then found to equal, "" if nothing."""

    name: str
    sources: tuple[str, ...]
    hint: str
    range: str
    value: str
    constant: bool
    decided: tuple[tuple[str, int], ...]
    facts: tuple[ShapeFact, ...]


@dataclass(frozen=True, slots=True)
class Tracing:
    """A hold on what Dynamo knows of the graph that is being compiled: more becomes known until the frame is finished."""

    context: Any

    def guards(self) -> tuple[GuardRow, ...]:
        """What must hold for the graph to be used again."""
        return guard_rows(self.context) if self.context is not None else ()

    def symbols(self) -> tuple[SymbolRow, ...]:
        """The sizes and numbers that were left open."""
        env = self._env
        if env is None:
            return ()
        unbacked = [symbol for symbol in env.var_to_range if symbol not in env.var_to_sources and str(symbol).startswith("u")]
        return tuple(_symbol(env, symbol) for symbol in [*env.var_to_sources, *unbacked])

    @property
    def _env(self) -> Any:  # noqa: ANN401  # a ShapeEnv
        return getattr(getattr(self.context, "fake_mode", None), "shape_env", None)


def tracing_now() -> Tracing:
    """Of the graph being compiled right now."""
    return Tracing(torch._guards.TracingContext.try_get())


def compile_id() -> str:
    """Of the frame being compiled right now, "" outside."""
    found = torch._guards.CompileContext.current_compile_id()
    return "" if found is None else str(found)


def frame_now() -> tuple[CodeType, Mapping[str, Any]] | None:
    """The code and the locals of the frame being compiled right now, None outside."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        graph = frame.f_locals.get("self")
        if type(graph).__name__ == "OutputGraph":
            code, local = getattr(getattr(graph, "root_tx", None), "f_code", None), getattr(graph, "local_scope", None)
            return (code, local) if isinstance(code, CodeType) and isinstance(local, Mapping) else None
        frame = frame.f_back
    return None


def sizes_are_constants() -> tuple[bool, bool]:
    """Whether Dynamo takes sizes as constants at first, and whether it leaves one open once it has seen it change."""
    return bool(torch._dynamo.config.assume_static_by_default), bool(torch._dynamo.config.automatic_dynamic_shapes)


@contextmanager
def watching_frames(log: FrameLog) -> Iterator[None]:
    """Fills the log with what Dynamo does inside the block."""
    from torch._dynamo import convert_frame, resume_execution, symbolic_convert

    absent = missing_names(WATCHED)
    log.missing = absent
    watches: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
        (convert_frame, "get_and_maybe_log_recompilation_reasons", _recompiling),
        (convert_frame, "exceeds_recompile_limit", _limit),
        (convert_frame, "wrap_guarded_code", _finished),
        (getattr(symbolic_convert, "InstructionTranslatorBase", None), "log_graph_break", _breaking),
        (getattr(resume_execution, "ContinueExecutionCache", None), "lookup", _resuming),
    )
    with ExitStack() as stack:
        for owner, name, watch in watches:
            if not any(missing.endswith("." + name) for missing in absent):
                original = vars(owner)[name]
                setattr(owner, name, watch(log, original))
                stack.callback(setattr, owner, name, original)
        yield


def _recompiling(log: FrameLog, original: Callable[..., Any]) -> Callable[..., Any]:
    def watched(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  # as PyTorch's
        reasons = original(*args, **kwargs)
        log.reasons[compile_id()] = tuple(str(reason) for reason in reasons)
        return reasons

    return watched


def _limit(log: FrameLog, original: Callable[..., Any]) -> Callable[..., Any]:
    def watched(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  # as PyTorch's
        exceeded, name = original(*args, **kwargs)
        if exceeded:
            log.limits[compile_id()] = (str(name), int(getattr(torch._dynamo.config, name, 0)))
            log.told(compile_id())
        return exceeded, name

    return watched


def _finished(log: FrameLog, original: Callable[..., Any]) -> Callable[..., Any]:
    def watched(guarded: Any) -> Any:  # noqa: ANN401  # as PyTorch's
        from torch._dynamo.convert_frame import orig_code_map

        log.codes[str(guarded.compile_id)] = (orig_code_map.get(guarded.code), guarded.code)
        log.told(str(guarded.compile_id))
        return original(guarded)

    return watched


def _breaking(log: FrameLog, original: Callable[..., Any]) -> Callable[..., Any]:
    def watched(translator: Any, code_options: Any, reason: Any, exc: Any, *rest: Any, **kwargs: Any) -> Any:  # noqa: ANN401  # as PyTorch's
        fresh = not getattr(exc, "logged", False)
        result = original(translator, code_options, reason, exc, *rest, **kwargs)
        if fresh:
            log.breaks.setdefault(compile_id(), []).append(Break(str(reason), _frames(_user_stack(exc))))
        return result

    return watched


def _resuming(log: FrameLog, original: classmethod[Any, Any, Any]) -> classmethod[Any, Any, Any]:
    def watched(cls: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  # as PyTorch's
        code = original.__func__(cls, *args, **kwargs)
        known = log.resumes.setdefault(compile_id(), [])
        if isinstance(code, CodeType) and not any(one is code for one in known):
            known.append(code)
        return code

    return classmethod(watched)


def _user_stack(error: object) -> Sequence[traceback.FrameSummary]:
    """The script's frames from its start to the place of the break."""
    own = list(getattr(error, "real_stack", None) or torch._guards.TracingContext.extract_stack())
    if missing_names(name for name in RELIES_ON if name.startswith("torch._dynamo.exc.")):
        return own
    from torch._dynamo.exc import collapse_resume_frames, get_stack_above_dynamo

    collapsed: Sequence[traceback.FrameSummary] = collapse_resume_frames([*get_stack_above_dynamo(), *own])
    return collapsed


def _frames(stack: Sequence[traceback.FrameSummary]) -> tuple[tuple[str, int], ...]:
    return tuple((frame.filename, frame.lineno or 0) for frame in stack)


def _symbol(env: Any, symbol: Any) -> SymbolRow:  # noqa: ANN401  # a ShapeEnv and one of its symbols
    hints = getattr(env, "backed_var_to_val", None) or getattr(env, "var_to_val", {})
    value = env.replacements.get(symbol)
    decided = getattr(env, "replacements_slocs", {}).get(symbol)
    facts = [ShapeFact(str(guard.expr), _place(guard.sloc)) for guard in env.guards if symbol in guard.expr.free_symbols]
    return SymbolRow(
        name=str(symbol),
        sources=tuple(dict.fromkeys(_source_name(source) for source in env.var_to_sources.get(symbol, ()))),
        hint=_number(hints.get(symbol)),
        range=_range(env.var_to_range.get(symbol)),
        value="" if value is None else str(value),
        constant=bool(value is not None and getattr(value, "is_number", False)),
        decided=_place(decided) if decided is not None else (),
        facts=tuple(dict.fromkeys(facts)),
    )


def _source_name(source: Any) -> str:  # noqa: ANN401  # a Source of Dynamo's: its name was a method once
    return str(source.name() if callable(source.name) else source.name)


def _number(hint: Any) -> str:  # noqa: ANN401  # a number of sympy's
    if hint is None:
        return ""
    if getattr(hint, "is_integer", True) or not getattr(hint, "is_number", False):  # the ragged size of a nested tensor has no number
        return str(hint)
    return str(float(hint))


def _range(found: Any) -> str:  # noqa: ANN401  # a ValueRanges
    if found is None:
        return ""
    ends = [str(end).replace("int_oo", "infinity").replace("oo", "infinity") for end in (found.lower, found.upper)]
    limits = {str(sys.maxsize), str(sys.maxsize - 1)}
    return f"{ends[0]} to {'infinity' if ends[1] in limits else ends[1]}"


def _place(sloc: Any) -> tuple[tuple[str, int], ...]:  # noqa: ANN401  # an SLoc: where the script was
    match = _PLACE.search(str(getattr(sloc, "maybe_user_loc", "") or ""))
    return ((match[1], int(match[2])),) if match else ()

"""PyTorch's configuration by name, checked against the installed version; what differs from the defaults, and what compiling took."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from compiler.trace import Scalar

RELIES_ON = (
    "torch._inductor.config.patch",
    "torch._inductor.config._config",
    "torch._inductor.config.get_config_copy",
    "torch._dynamo.config._config",
    "torch._dynamo.config.get_config_copy",
    "torch._TorchCompileInductorWrapper",
)
TIMES = "torch._dynamo.utils.compilation_time_metrics"
COUNTERS = "torch._dynamo.utils.counters"


class UnknownEntry(ValueError):
    """A name or a value that PyTorch does not take: an entry of its configuration, or a backend. ``hint``: what to write instead."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Entries:
    """Checked entries, by the module that they belong to."""

    inductor: Mapping[str, Any]
    dynamo: Mapping[str, Any]


def _module(name: str) -> Any:  # noqa: ANN401  # a configuration module
    import torch._dynamo.config
    import torch._inductor.config

    return torch._inductor.config if name == "inductor" else torch._dynamo.config


def checked_entries(entries: Sequence[tuple[str, Scalar]]) -> Entries:
    """The entries, if the installed PyTorch has them and their values are of the right type.

    Raises UnknownEntry for the first that it does not have.
    """
    found: dict[str, dict[str, Any]] = {"inductor": {}, "dynamo": {}}
    for full, value in entries:
        kind, _, name = full.partition(".")
        known = _module(kind)._config
        if name not in known:
            raise UnknownEntry(f"PyTorch {torch.__version__} has no entry {full} in its configuration", _nearest(kind, name, list(known)))
        found[kind][name] = _typed(full, value, getattr(_module(kind), name), getattr(known[name], "value_type", None))
    return Entries(found["inductor"], found["dynamo"])


def _nearest(kind: str, name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, 5, 0.6) or [one for one in known if name.rpartition(".")[2] in one][:5]
    other = "dynamo" if kind == "inductor" else "inductor"
    if name in _module(other)._config:
        return f"The entry is {other}.{name}: write that."
    if close:
        return "The nearest names are " + ", ".join(f"{kind}.{one}" for one in close) + "."
    return f"See torch/_{kind}/config.py of this version for the names that exist."


def _typed(full: str, value: Scalar, now: object, declared: object) -> Any:  # noqa: ANN401
    """The value, if it is of the type that the entry has now; an entry that is None takes anything."""
    if now is None and value is not None and _takes_code(declared):
        raise UnknownEntry(f"{full} is a function, not {type(value).__name__}: {value!r}", "Set it in the script itself.")
    if value is None or now is None:
        return value
    if isinstance(now, bool) is isinstance(value, bool) and (
        isinstance(value, type(now)) or (isinstance(now, float) and isinstance(value, int))
    ):
        return value
    if declared is not None and _admits(declared, value):
        return value
    raise UnknownEntry(
        f"{full} is {type(now).__name__}, not {type(value).__name__}: {value!r}", f"Its value here is {now!r}; give one of that type."
    )


def _takes_code(declared: object) -> bool:
    """Whether the entry's annotation asks for a function or one of Inductor's passes, which no number or string can be."""
    return any(name in str(declared) for name in ("Callable[", "custom_graph_pass."))


def _admits(declared: object, value: Scalar) -> bool:
    """A union or a literal that the entry's annotation allows."""
    import typing

    options = typing.get_args(declared)
    return any(option == value if not isinstance(option, type) else type(value) is option for option in options)


@contextmanager
def configuration(entries: Entries) -> Iterator[None]:
    """The entries are in force inside; whatever the script assigns inside is undone afterwards."""
    with ExitStack() as stack:
        for name in ("inductor", "dynamo"):
            stack.callback(_restore, _module(name), _module(name).get_config_copy())
        stack.enter_context(_module("inductor").patch(dict(entries.inductor)))
        stack.enter_context(_module("dynamo").patch(dict(entries.dynamo)))
        yield


def _restore(module: Any, before: Mapping[str, Any]) -> None:  # noqa: ANN401  # a configuration module
    for name, value in module.get_config_copy().items():
        if name in before and not _equal(before[name], value):
            setattr(module, name, before[name])


def config_diff() -> dict[str, tuple[str, str]]:
    """The entries of both configurations that are not at their defaults: default and value in force, by full name."""
    found: dict[str, tuple[str, str]] = {}
    for kind in ("inductor", "dynamo"):
        module = _module(kind)
        known = getattr(module, "_config", {})
        for name, value in getattr(module, "get_config_copy", dict)().items():
            default = _default(known.get(name))
            if name in known and not _equal(default, value):
                found[f"{kind}.{name}"] = (repr(default)[:400], repr(value)[:400])
    return found


def _default(entry: Any) -> Any:  # noqa: ANN401
    """What holds where nobody set anything: an environment variable's value counts as a setting."""
    return getattr(entry, "default", None)


def _equal(first: object, second: object) -> bool:
    try:
        return bool(first == second)
    except (TypeError, ValueError, RuntimeError):  # values that cannot be compared, such as arrays
        return first is second


def settings_of(mode: str | None, options: Mapping[str, Any] | None, dynamic: bool | None) -> dict[str, Any]:
    """The configuration that ``torch.compile`` sets for these arguments.

    Raises UnknownEntry for an option that there is not, RuntimeError for whatever else it does not take.
    """
    known = list(_module("inductor").get_config_copy())
    for name in options or {}:
        if name.replace("-", "_") not in known:
            hint = _nearest("inductor", name, known).replace("inductor.", "")
            raise UnknownEntry(f"torch.compile has no option {name!r}: Inductor's configuration has no such entry", hint)
    settings: dict[str, Any] = dict(torch._TorchCompileInductorWrapper(mode, dict(options) if options else None, dynamic).config)
    return settings


def check_backend(name: str) -> None:
    """Raises UnknownEntry if no backend of ``torch.compile`` has this name."""
    known = torch.compiler.list_backends(exclude_tags=())
    if name not in known:
        close = difflib.get_close_matches(name, known, 3) or torch.compiler.list_backends()
        raise UnknownEntry(f"torch.compile has no backend {name!r}", f"Did you mean {' or '.join(map(repr, close))}?")


def phase_times() -> dict[str, float]:
    """Seconds that Dynamo's and Inductor's phases took so far in this process, by name."""
    from torch._dynamo import utils

    return {name: float(sum(times)) for name, times in dict(getattr(utils, "compilation_time_metrics", {})).items()}


def counters() -> dict[str, int]:
    """What Inductor counted so far in this process."""
    from torch._dynamo import utils

    return dict(getattr(utils, "counters", {}).get("inductor", {}))

"""What a visitor chose about a compilation: frozen, passed by hand, part of every cache key."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from compiler.errors import OptionsError
from compiler.trace import CompilerName, Scalar

Policy = Literal["none", "greedy", "max"]
POLICIES: tuple[Policy, ...] = ("none", "greedy", "max")
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
COMPILERS: tuple[CompilerName, ...] = ("fuselab", "inductor", "eager")
MAX_ENTRIES = 40
_ENTRY = re.compile(r"(inductor|dynamo)\.[A-Za-z_][\w.]{0,100}")
_NAMES_FILES = re.compile(r"(\w*_)?(cxx|dir|dir_root|folder|path|logpath|file_name|output|root|libs|library|cmd|command)")
"""How the last part of an entry ends that names a program to be run, or where something is read or written."""
_FLAGS = ("measure", "check", "fullgraph")
NAMED = ("policy", "measure", "check", "mode", "dynamic", "fullgraph")
KNOWN = ", ".join(sorted(NAMED)) + ", and entries of PyTorch's configuration, inductor.* and dynamo.*"
MAX_VALUE = 400


@dataclass(frozen=True, slots=True)
class Options:
    """``policy``: how eagerly our compiler fuses loops. ``measure``: time eager and compiled code. ``check``: verify the IR between stages.

    ``mode``, ``dynamic``, ``fullgraph``: what torch.compile is given where the script does not say it. ``config``: entries of PyTorch's
    configuration by name, ``inductor.max_fusion_size`` or ``dynamo.cache_size_limit``, sorted; the names are checked where torch is.
    """

    policy: Policy = "greedy"
    measure: bool = True
    check: bool = False
    mode: str = "default"
    dynamic: bool | None = None
    fullgraph: bool = False
    config: tuple[tuple[str, Scalar], ...] = ()

    @staticmethod
    def parse(values: Mapping[str, Scalar]) -> Options:
        """Options from names and JSON values; an entry of the configuration is a name that begins with ``inductor.`` or ``dynamo.``.

        Raises OptionsError that names the option and what it may be.
        """
        fields: dict[str, Any] = {}
        entries: dict[str, Scalar] = {}
        for name, value in values.items():
            if _ENTRY.fullmatch(name):
                entries[name] = _bounded(_harmless(name), value)
            elif name not in NAMED:
                raise OptionsError(f"unknown option {name!r}; options are {KNOWN}")
            else:
                fields[name] = _checked(name, value)
        if len(entries) > MAX_ENTRIES:
            raise OptionsError(f"{len(entries)} entries of the configuration; the limit is {MAX_ENTRIES}")
        return Options(**fields, config=tuple(sorted(entries.items())))

    def as_facts(self) -> dict[str, Scalar]:
        """The same as names and JSON values, as ``parse`` reads them."""
        return {**{name: getattr(self, name) for name in NAMED}, **dict(self.config)}


def _checked(name: str, value: Scalar) -> Scalar:
    if name == "policy" and value not in POLICIES:
        raise OptionsError(f"policy is one of {', '.join(POLICIES)}, not {value!r}")
    if name == "mode" and value not in MODES:
        raise OptionsError(f"mode is one of {', '.join(MODES)}, not {value!r}")
    if name == "dynamic" and not (value is None or isinstance(value, bool)):
        raise OptionsError(f"dynamic is true, false or null (as PyTorch decides), not {value!r}")
    if name in _FLAGS and not isinstance(value, bool):
        raise OptionsError(f"{name} is true or false, not {value!r}")
    return value


def _harmless(name: str) -> str:
    """The name of an entry that decides what is compiled, and not which program runs or where files are."""
    if _NAMES_FILES.fullmatch(name.rpartition(".")[2]):
        raise OptionsError(f"{name} names a program or a place of files, which no run may choose; leave it out")
    return name


def _bounded(name: str, value: Scalar) -> Scalar:
    if (isinstance(value, str) and len(value) > MAX_VALUE) or (isinstance(value, int) and abs(value) >= 1 << 62):
        raise OptionsError(f"{name}: the value is too large; strings have at most {MAX_VALUE} characters")
    if isinstance(value, float) and not math.isfinite(value):
        raise OptionsError(f"{name}: {value} is no finite number")
    return value


def read_entries(text: str) -> dict[str, Scalar]:
    """Entries of the configuration from lines ``inductor.name = value``, as people write them in Python; the module may be spelt out.

    Raises OptionsError that names the line.
    """
    found: dict[str, Scalar] = {}
    for number, line in enumerate(text.splitlines(), 1):
        plain = line.partition("#")[0].strip()
        if not plain:
            continue
        name, equals, given = (piece.strip() for piece in plain.partition("="))
        name = re.sub(r"^(torch\.)?_(inductor|dynamo)\.config\.", r"\2.", name)
        if not equals or not _ENTRY.fullmatch(name):
            raise OptionsError(f"line {number} of the configuration is no entry: write inductor.max_fusion_size = 32, not {plain[:80]!r}")
        try:
            value = ast.literal_eval({"true": "True", "false": "False", "null": "None"}.get(given, given))
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            raise OptionsError(f"line {number} of the configuration: {given[:80]!r} is no number, string, True, False or None") from None
        if not isinstance(value, Scalar):
            raise OptionsError(f"line {number} of the configuration: the value must be a number, a string, True, False or None")
        found[name] = _bounded(_harmless(name), value)
    return found

"""What a visitor chose about a compilation: frozen, passed by hand, part of every cache key."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from compiler.errors import OptionsError
from compiler.trace import Scalar

Policy = Literal["none", "greedy", "max"]
POLICIES: tuple[Policy, ...] = ("none", "greedy", "max")
COMPILERS = ("fuselab",)
"""Those that are offered. ``run_snippet`` also takes "inductor" and "eager", which are observed on the CPU, outside of the sandbox only."""


@dataclass(frozen=True, slots=True)
class Options:
    """``policy``: how eagerly loops are fused. ``measure``: time eager and compiled code. ``check``: verify the IR between stages."""

    policy: Policy = "greedy"
    measure: bool = True
    check: bool = False

    @staticmethod
    def parse(values: Mapping[str, Scalar]) -> Options:
        """Options from names and JSON values.

        Raises OptionsError that names the option and what it may be.
        """
        fields = {field.name for field in dataclasses.fields(Options)}
        for name, value in values.items():
            if name not in fields:
                raise OptionsError(f"unknown option {name!r}; options are {', '.join(sorted(fields))}")
            if name == "policy" and value not in POLICIES:
                raise OptionsError(f"policy is one of {', '.join(POLICIES)}, not {value!r}")
            if name != "policy" and not isinstance(value, bool):
                raise OptionsError(f"{name} is true or false, not {value!r}")
        return Options(**values)  # type: ignore[arg-type]  # checked above, name by name

    def as_facts(self) -> dict[str, Scalar]:
        return dataclasses.asdict(self)

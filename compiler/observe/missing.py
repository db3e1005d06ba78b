"""Which of a list of dotted names the installed PyTorch does not have."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterable
from typing import Any


def missing_names(names: Iterable[str]) -> tuple[str, ...]:
    """Those that do not exist here."""
    return tuple(name for name in names if not _exists(name))


def _exists(name: str) -> bool:
    parts = name.split(".")
    for split in range(len(parts), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:split]))
        except ModuleNotFoundError:
            continue
        try:
            functools.reduce(getattr, parts[split:], value)
        except AttributeError:
            return False
        return True
    return False

"""Where Inductor keeps what it builds for the CPU: headers that trusted code precompiled for all runs, and the rest in a run's own folder.

Inductor fixes some of these places when it is imported, so a forked process must be told its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

RELIES_ON = (
    "torch._inductor.codecache._HEADER_DIR",
    "torch._inductor.codecache._HEADER_LOCK_DIR",
    "torch._inductor.codecache._precompile_header",
    "torch._inductor.cpu_vec_isa.pick_vec_isa",
)

Headers = Mapping[tuple[str, str], str]
"""By header and command line of the compiler: the file to include, next to which its precompiled form lies."""


def precompile(folder: Path, compile_sample: Callable[[], object]) -> Headers:
    """The headers that Inductor precompiles for a sample on the CPU. ``folder`` is filled once, and is complete or absent.

    It also holds what Inductor compiles to find out which of the processor's vector instructions work.
    """
    from torch._inductor import codecache

    original = codecache._precompile_header
    asked: dict[tuple[str, str], dict[str, Any]] = {}

    def noting(header: str, command: str, **given: Any) -> str:  # noqa: ANN401  # Inductor's own
        asked[header, command] = given
        return str(original(header, command, **given))

    codecache._precompile_header = noting
    try:
        if folder.is_dir():
            _prepare(folder, compile_sample)
        else:
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix="building-") as building:
                fresh = Path(building) / "new"
                _prepare(fresh, compile_sample)
                with suppress(OSError):  # another process was faster, with the same result
                    fresh.rename(folder)
            _point_to(folder)
            original.cache_clear()
        return {key: str(original(*key, **given)) for key, given in asked.items()}
    finally:
        codecache._precompile_header = original


def _prepare(folder: Path, compile_sample: Callable[[], object]) -> None:
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    _point_to(folder)
    with patch.dict("os.environ", {"TORCHINDUCTOR_CACHE_DIR": str(folder / "checks")}):
        pick_vec_isa()
    compile_sample()


def _point_to(folder: Path) -> None:
    from torch._inductor import codecache

    codecache._HEADER_DIR, codecache._HEADER_LOCK_DIR = str(folder / "headers"), str(folder / "headers" / "locks")


def keep_apart(folder: Path, headers: Headers) -> None:
    """From now on this process writes to ``folder`` only, and of precompiled headers it has these that it can read, and makes no others."""
    from torch._inductor import codecache

    def prepared(header: str, command: str, **_: object) -> str:
        path = headers.get((header, command), "")
        return path if path and _readable(path) else ""

    _point_to(folder)
    codecache._precompile_header = prepared


def _readable(path: str) -> bool:
    """Whether the header and its precompiled form can be read: a compiler that finds the name but not the file fails."""
    try:
        with open(path, "rb"), open(path + ".gch", "rb"):
            return True
    except OSError:
        return False

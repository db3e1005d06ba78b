"""Runs the compilers and the object-file tools: C++ text in, shared library out. No other module of the compiler starts processes."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from compiler.codegen.cpp_prelude import FLAGS, LIBRARIES
from compiler.errors import CompileError
from compiler.runtime.cache import KernelCache, cache_key, default_cache

SOURCE_NAME = "kernels.cpp"


@dataclass(frozen=True, slots=True)
class Library:
    """A built shared library. ``hit``: it came from the cache."""

    path: Path
    hit: bool
    millis: float


def run_tool(command: Sequence[str | Path], stage: str, *, timeout: float = 120, cwd: str | None = None) -> str:
    """What the command prints.

    Raises CompileError with its last lines when it fails.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout, cwd=cwd, check=False)
    except FileNotFoundError:
        raise CompileError(stage, f"{command[0]} is not installed", hint="install it on the worker") from None
    except subprocess.TimeoutExpired:
        raise CompileError(stage, f"{Path(command[0]).name} took more than {timeout:.0f} s") from None
    if done.returncode:
        tail = "\n".join((done.stderr or done.stdout).strip().splitlines()[-30:])
        raise CompileError(stage, f"{Path(command[0]).name} failed with status {done.returncode}: {tail}"[:3500])
    return done.stdout


@functools.cache
def machine_id() -> str:
    """What ``g++ -march=native`` depends on: the compiler's file and the features of the CPU."""
    compiler = Path(shutil.which("g++") or "g++")
    stat = compiler.resolve().stat() if compiler.exists() else None
    facts = f"{compiler.resolve()} {stat.st_size} {stat.st_mtime_ns}" if stat else "none"
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return facts + "".join(sorted({line for line in lines if line.startswith(("flags", "model name", "Features"))}))


def build_cpp(text: str, cache: KernelCache | None = None) -> Library:
    """The translation unit as a shared library, from the cache where it was built before."""
    cache = default_cache() if cache is None else cache
    start = time.perf_counter()
    key = cache_key(text, " ".join((*FLAGS, *LIBRARIES)), machine_id())
    entry = cache.get(key, ".so", lambda: _compile(text))
    return Library(entry.path, entry.hit, (time.perf_counter() - start) * 1e3)


def _compile(text: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="fuselab-") as folder:
        (Path(folder) / SOURCE_NAME).write_text(text)
        # A relative name, so that the debug information is the same wherever it is built.
        run_tool(["g++", *FLAGS, SOURCE_NAME, "-o", "kernels.so", *LIBRARIES], "code", cwd=folder)
        return (Path(folder) / "kernels.so").read_bytes()

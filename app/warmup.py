"""What a zygote does once before it forks (imports, a trusted forward compilation, checks), and what each child undoes or sets after it."""

from __future__ import annotations

import hashlib
import importlib
import itertools
import linecache
import logging
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from compiler.observe import inductor_caches
from compiler.observe.inductor_caches import Headers
from compiler.options import Options
from compiler.target import find_target
from compiler.trace import End, Event

SAMPLE = """
import torch

def fn(a, b):
    return torch.softmax((a + b) * 2, -1).sum()

inputs = [torch.ones({rows}, 1024), torch.ones({rows}, 1024)]
"""
SAMPLE_TARGETS = ("cpu", "sm_90")
HEADERS = "headers"
_OLD_SECONDS = 3600.0

log = logging.getLogger(__name__)


def prepare_zygote(folder: str) -> None:
    """Before anything is imported: one thread, no GPU, and caches in a folder that children do not see."""
    os.environ.update(
        OMP_NUM_THREADS="1",
        OPENBLAS_NUM_THREADS="1",
        MKL_NUM_THREADS="1",
        TORCHINDUCTOR_COMPILE_THREADS="1",
        TORCHINDUCTOR_CACHE_DIR=f"{folder}/inductor",
        TRITON_CACHE_DIR=f"{folder}/triton",
        FUSELAB_CACHE=f"{folder}/fuselab",
        TMPDIR=folder,
        USER="run",
        CUDA_VISIBLE_DEVICES="",
        PYTORCH_NVML_BASED_CUDA_CHECK="1",
    )
    tempfile.tempdir = None


def warm(entry: Callable[..., int], kept: str, compilers: Sequence[str]) -> Headers:
    """Compile a trusted snippet by the named compilers for each sort of target, forward only: children inherit what a first one sets up.

    A backward would start a thread; asking for CUDA would break every child. Numbering starts afresh, as in a new process.
    Gives the headers that Inductor has precompiled, which lie in the folder ``kept`` for this and later zygotes.
    """
    with suppress(ImportError):  # where it is installed, torch.fx uses it, and its monitor is a thread
        importlib.import_module("tqdm").tqdm.monitor_interval = 0

    def compile_sample(compiler: str, target: str) -> None:
        ends: list[Event] = []
        # Too large for Triton's interpreter, which is a process of its own and leaves nothing to inherit.
        source = SAMPLE.format(rows=8 if target == "cpu" else 1024)
        entry(source, Options(measure=False), find_target(target), compiler, ends.append)
        for end in ends:
            assert not isinstance(end, End) or end.status == "ok", end

    if "fuselab" in compilers:
        with _without_cuda():
            for target in SAMPLE_TARGETS:
                compile_sample("fuselab", target)
    headers = warm_inductor(kept, compile_sample) if "inductor" in compilers else {}
    forget_compilations()
    return headers


def warm_inductor(kept: str, compile_sample: Callable[[str, str], None]) -> Headers:
    """What Inductor sets up at a first compilation for the CPU and for a GPU that is not here, and the headers that it builds in ``kept``.

    Its private names differ between versions of PyTorch: where that fails, its runs are slower, and say what fails there.
    """
    for name in os.listdir(kept):
        if name.startswith("building-") and time.time() - os.stat(f"{kept}/{name}").st_mtime > _OLD_SECONDS:
            shutil.rmtree(f"{kept}/{name}", ignore_errors=True)
    headers: Headers = {}
    try:
        with _without_cuda():
            headers = inductor_caches.precompile(Path(kept, f"{HEADERS}-{machine_name()}"), lambda: compile_sample("inductor", "cpu"))
        if not gpu_names():  # where there is a GPU, a graph for one might open it
            for target in SAMPLE_TARGETS[1:]:
                compile_sample("inductor", target)
    except Exception:  # of any kind, since what it is called with or gives back may have changed
        log.warning("Inductor was not prepared", exc_info=True)
    return headers


def reopen(kept: str) -> None:
    """Give what is kept the modes again with which it was made: others may read it, nobody else may write."""
    os.chmod(kept, 0o755)
    for folder, folders, files in os.walk(kept):
        for name in folders:
            os.chmod(f"{folder}/{name}", 0o755)
        for name in files:
            os.chmod(f"{folder}/{name}", 0o644)


def machine_name() -> str:
    """Short for all that a precompiled header depends on: the processor and its compiler, PyTorch, and where they are."""
    from compiler.runtime.build import machine_id  # which imports torch, too early at the head of this file

    facts = f"{machine_id()} {versions()} {sys.prefix} {sys.base_prefix}"
    return hashlib.sha256(facts.encode()).hexdigest()[:16]


@contextmanager
def _without_cuda() -> Iterator[None]:
    """What runs inside does not ask for a GPU, as fake tensors would."""
    import torch

    ask_for_cuda = torch._C._ensureCUDADeviceGuardSet
    torch._C._ensureCUDADeviceGuardSet = lambda: None
    try:
        yield
    finally:
        torch._C._ensureCUDADeviceGuardSet = ask_for_cuda


def forget_compilations() -> None:
    """Number graphs, frames and counters as in a new process."""
    import torch
    import torch._dynamo.convert_frame as convert_frame
    from torch._dynamo.utils import counters
    from torch._functorch import aot_autograd

    torch._dynamo.reset()
    counters.clear()
    aot_autograd.AOT_COUNTER = itertools.count()
    convert_frame.FRAME_COUNTER = 0
    convert_frame.FRAME_COMPILE_COUNTER.clear()
    linecache.clearcache()


def environment() -> dict[str, Any]:
    """What results depend on, and this machine's devices."""
    return {"python": platform.python_version(), "cpu": cpu_model(), **versions(), **gpus()}


def versions() -> dict[str, str]:
    """The versions that a result depends on."""
    found = {}
    for name in ("torch", "triton", "fuselab"):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def gpus() -> dict[str, str | int]:
    names = gpu_names()
    return {"device": ", ".join(sorted(set(names))), "devices": len(names)} if names else {}


def gpu_names() -> list[str]:
    """The models of this machine's NVIDIA GPUs, asked without opening one."""
    names = []
    for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        names += [line.split(":", 1)[1].strip() for line in path.read_text().splitlines() if line.startswith("Model:")]
    return names


def cpu_model() -> str:
    """The processor's name and how many of its cores this process may use."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return f"{model} × {len(os.sched_getaffinity(0))}"


def assert_forkable(patience: float = 10.0) -> None:
    """One thread, and no device of a GPU open: otherwise children would hang or find no GPU.

    A thread that was joined may still be on its way out of the kernel for a moment, or longer on a busy machine: ``patience`` seconds.
    """
    until = time.monotonic() + patience
    while len(threads := os.listdir("/proc/self/task")) > 1 and time.monotonic() < until:
        time.sleep(0.01)
    assert len(threads) == 1, f"the zygote has {len(threads)} threads"
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            assert "nvidia" not in os.readlink(f"/proc/self/fd/{name}"), "CUDA was touched in the zygote"


def prepare_child(work: str, packages: str, gpus: bool, headers: Headers) -> None:
    """In the child, before its sandbox closes: an environment and caches of its own, and CUDA, which cannot be opened later."""
    os.environ.clear()
    path = f"{sys.prefix}/bin:/usr/local/bin:/usr/bin:/bin"
    folders = {
        "HOME": work,
        "TMPDIR": work,
        "TORCHINDUCTOR_CACHE_DIR": f"{work}/inductor",
        "TRITON_CACHE_DIR": f"{work}/triton",
        "FUSELAB_CACHE": f"{work}/fuselab",
        "PYTHONPATH": packages,
    }
    os.environ.update(PATH=path, LANG="C.UTF-8", USER="run", TORCHINDUCTOR_COMPILE_THREADS="1", **folders)
    tempfile.tempdir = None
    os.chdir(work)
    if "torch._inductor.codecache" in sys.modules:
        inductor_caches.keep_apart(Path(work, "inductor"), headers)
    if "torch" in sys.modules:
        if gpus:
            _open_cuda()
        sys.modules["torch"].set_num_threads(len(os.sched_getaffinity(0)))


def _open_cuda() -> None:
    """Initialise CUDA as trusted code: a small product, and pinned memory."""
    import torch
    import torch.utils._triton as asked

    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    torch.cuda._cached_device_count = None
    for name in dir(asked):
        if hasattr(getattr(asked, name), "cache_clear"):
            getattr(asked, name).cache_clear()
    ones = torch.ones(256, 256, device="cuda")
    (ones @ ones).sum().item()
    torch.empty(1 << 20).pin_memory()

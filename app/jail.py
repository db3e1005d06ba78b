"""The file tree that children see: a root directory in memory that shows, read-only, what a compiler needs, and little else."""

from __future__ import annotations

import os
import shutil
import site
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from app.landlock import DEVICE, OWN, READ, RUN, Rule
from app.linux import (
    CLONE_NEWIPC,
    CLONE_NEWNS,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    MS_REMOUNT,
    become_root_of,
    bind,
    libc,
    mount,
    unmount,
    unshare,
)
from app.sandbox import Limits

WORK = "/work-of-run"
TRUSTED = "/trusted"
PACKAGES = "/packages"
KEPT = "/kept"
_NEW_ROOT = "/mnt"
_DEVICES = ("null", "zero", "full", "random", "urandom")
_QUIET = MS_NOSUID | MS_NODEV


def gpu_files() -> list[str]:
    """The device files of NVIDIA's driver."""
    return [f"/dev/{name}" for name in sorted(os.listdir("/dev")) if name.startswith("nvidia") and not os.path.isdir(f"/dev/{name}")]


def programs(packages: Iterable[Path]) -> list[str]:
    """Folders with what a run may execute or import: the system's programs, this Python, its packages, and the compiler."""
    python = [sys.prefix, sys.base_prefix, *site.getsitepackages(), os.path.dirname(os.path.realpath(sys.executable))]
    found: list[str] = []
    for path in ["/usr", *sorted({*map(os.path.abspath, python), *map(str, packages)}, key=len)]:
        if os.path.exists(path) and not any(path == seen or path.startswith(seen + "/") for seen in found):
            found.append(path)
    return found


def build(packages: Iterable[Path], kept: str, users: Iterable[int]) -> bool:
    """Make a new root and enter it; this process must be in new namespaces. Says whether /proc shows only this namespace's processes.

    ``kept`` can be written to, until ``enter_private`` closes it for a child.
    """
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    mount("tmpfs", _NEW_ROOT, "tmpfs", _QUIET, "size=4m,mode=755")
    for path in programs(packages):
        os.makedirs(_NEW_ROOT + path, exist_ok=True)
        bind(path, _NEW_ROOT + path, MS_RDONLY | _QUIET)
    for name in ("bin", "sbin", "lib", "lib64", "lib32"):
        if os.path.islink(f"/{name}"):
            os.symlink(os.readlink(f"/{name}"), f"{_NEW_ROOT}/{name}")
        elif os.path.isdir(f"/{name}"):
            os.makedirs(f"{_NEW_ROOT}/{name}", exist_ok=True)
            bind(f"/{name}", f"{_NEW_ROOT}/{name}", MS_RDONLY | _QUIET)
    _settings_files(users)
    _device_files()
    fresh = _process_files()
    for folder in (WORK, TRUSTED, KEPT):
        os.makedirs(_NEW_ROOT + folder)
    bind(kept, _NEW_ROOT + KEPT, _QUIET)
    link_packages(_NEW_ROOT + PACKAGES, packages)
    mount("tmpfs", _NEW_ROOT + TRUSTED, "tmpfs", _QUIET, "size=512m,mode=700")
    become_root_of(_NEW_ROOT)
    libc.sethostname(b"sandbox", 7)
    mount(None, "/", None, MS_REMOUNT | MS_RDONLY | _QUIET, "size=4m,mode=755")
    return fresh


def _settings_files(users: Iterable[int]) -> None:
    os.makedirs(f"{_NEW_ROOT}/etc/alternatives")
    for name in ("ld.so.cache", "localtime"):
        if os.path.exists(f"/etc/{name}"):
            shutil.copy(f"/etc/{name}", f"{_NEW_ROOT}/etc/{name}")
    with suppress(FileNotFoundError):  # only Debian and its kin choose programs by links there
        for link in os.scandir("/etc/alternatives"):
            if link.is_symlink():
                os.symlink(os.readlink(link.path), f"{_NEW_ROOT}/etc/alternatives/{link.name}")
    lines = [f"run{user}:x:{user}:{user}::{WORK}:/bin/false\n" for user in users]
    Path(f"{_NEW_ROOT}/etc/passwd").write_text("".join(lines))


def _device_files() -> None:
    os.makedirs(f"{_NEW_ROOT}/dev")
    for path in [f"/dev/{name}" for name in _DEVICES] + gpu_files():
        Path(_NEW_ROOT + path).touch()
        mount(path, _NEW_ROOT + path, None, MS_BIND)


def _process_files() -> bool:
    os.makedirs(f"{_NEW_ROOT}/proc")
    fresh = True
    try:
        mount("proc", f"{_NEW_ROOT}/proc", "proc", _QUIET | MS_NOEXEC)
    except PermissionError:  # a container that masks parts of /proc allows no new one; Landlock narrows the old one
        fresh = False
        bind("/proc", f"{_NEW_ROOT}/proc")
    for path in (
        "/sys/devices/system/cpu",
        "/sys/devices/system/node",
        "/sys/module/nvidia",
        "/sys/module/nvidia_uvm",
        "/sys/bus/pci/devices",
    ):
        if os.path.isdir(path):
            os.makedirs(_NEW_ROOT + path)
            bind(path, _NEW_ROOT + path, MS_RDONLY | _QUIET | MS_NOEXEC)
    return fresh


def enter_private(limits: Limits, user: int, fresh_proc: bool) -> str:
    """In the child: an own mount table, a limited empty work folder, an own /proc; the zygote's folder gone, what is kept read-only."""
    unshare(CLONE_NEWNS | CLONE_NEWIPC)
    mount("tmpfs", WORK, "tmpfs", _QUIET, f"size={limits.disk},nr_inodes={limits.inodes},mode=700,uid={user},gid={user}")
    if fresh_proc:
        mount("proc", "/proc", "proc", _QUIET | MS_NOEXEC)
    unmount(TRUSTED)
    mount(None, KEPT, None, MS_BIND | MS_REMOUNT | MS_RDONLY | _QUIET)
    return WORK


def link_packages(folder: str, packages: Iterable[Path]) -> None:
    """A folder from which another Python imports our packages: the repository's own folder holds more than a run may list."""
    os.makedirs(folder, mode=0o755, exist_ok=True)
    for package in packages:
        with suppress(FileExistsError):
            os.symlink(package, f"{folder}/{package.name}")


def rules(work: str, readable: Iterable[str], packages: Iterable[Path], whole_proc: bool) -> list[Rule]:
    """What Landlock lets a run touch: programs to execute, a few facts to read, devices, and its own folder."""
    facts = [*readable, "/etc/ld.so.cache", "/etc/localtime", "/etc/alternatives", "/sys/devices/system", "/proc/self"]
    facts += ["/proc"] if whole_proc else ["/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/sys/vm/overcommit_memory"]
    devices = [f"/dev/{name}" for name in _DEVICES] + gpu_files()
    return [
        *(Rule(path, RUN) for path in [*programs(packages), "/bin", "/lib", "/lib64"]),
        *(Rule(path, READ) for path in facts),
        *(Rule(path, DEVICE) for path in devices),
        Rule(work, OWN),
    ]

"""What the kernel's limits do not see: the memory of all processes of a run, its disk where no file system bounds it, and what stays."""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from app.sandbox import Limits

_DISK_PERIOD = 0.2
_END_SECONDS = 5.0


class Process(NamedTuple):
    pid: int
    parent: int
    session: int
    state: str


def processes() -> dict[int, Process]:
    """All processes that /proc shows."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                state, parent, _, session, *_ = file.read().rpartition(b")")[2].split()
                found[int(name)] = Process(int(name), int(parent), int(session), state.decode())
    return found


def memory_of(pid: int | str) -> int:
    """Bytes that a process holds and no file backs: private and shared; 0 when it is gone."""
    total = 0
    with suppress(OSError), open(f"/proc/{pid}/status", "rb") as file:
        for line in file:
            if line.startswith((b"RssAnon:", b"RssShmem:", b"VmSwap:")):
                total += int(line.split()[1]) << 10
    return total


def family(pid: int, known: dict[int, Process]) -> list[int]:
    """The process and all that descend from it or share its session, however they were orphaned."""
    found = [pid] + [each.pid for each in known.values() if each.session == pid and each.pid != pid]
    seen = set(found)
    children: dict[int, list[int]] = {}
    for each in known.values():
        children.setdefault(each.parent, []).append(each.pid)
    for parent in found:
        new = [kid for kid in children.get(parent, ()) if kid not in seen]
        seen.update(new)
        found.extend(new)
    return found


@dataclass(slots=True)
class Watchdog:
    """Looks at all running children at once."""

    limits: Limits
    scan_disk: bool
    looked_at_disk: float = 0.0

    def look(self, running: dict[int, str], held: int) -> dict[int, tuple[str, int]]:
        """For each child and its folder: the limit that it is over, if any, and its memory. ``held`` bytes a process are the zygote's."""
        known = processes()
        disk = self.scan_disk and time.monotonic() - self.looked_at_disk > _DISK_PERIOD
        if disk:
            self.looked_at_disk = time.monotonic()
        found = {}
        for pid, folder in running.items():
            memory = sum(max(0, memory_of(member) - held) for member in family(pid, known))
            limit = "memory" if memory > self.limits.memory else ""
            if disk and not limit and not within(folder, self.limits):
                limit = "disk"
            found[pid] = (limit, memory)
        return found


def within(folder: str, limits: Limits) -> bool:
    """Whether the files below the folder are few and small enough. Never follows a link; stops at the first excess."""
    size = count = 0
    for _, folders, files, descriptor in os.fwalk(folder, onerror=lambda error: None, follow_symlinks=False):
        count += len(folders) + len(files)
        for name in files:
            with suppress(OSError):
                size += os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_blocks * 512
        if size > limits.disk or count > limits.inodes:
            return False
    return True


def end_session(leader: int) -> None:
    """Kill whatever is left of the session: a snippet can leave neither it nor its process group, so nothing escapes this."""
    deadline = time.monotonic() + _END_SECONDS
    while time.monotonic() < deadline:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)
        rest = [each for each in processes().values() if each.session == leader and each.pid != leader]
        for each in rest:
            with suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(each.pid, os.WNOHANG)
        if not rest:
            return
        time.sleep(0.005)


def clear_folder(folder: str) -> None:
    """Empty the folder, whatever modes and links were left in it. It stays, since it may be a mount point."""
    if not _emptied(folder):
        _make_enterable(folder)
        _emptied(folder)


def _emptied(folder: str) -> bool:
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            with suppress(OSError):
                os.unlink(entry.path)
    return not os.listdir(folder)


def _make_enterable(folder: str) -> None:
    """Undo the modes of all folders below this one, without following a link."""
    for _, folders, _, descriptor in os.fwalk(folder, onerror=lambda error: None, follow_symlinks=False):
        for name in folders:
            with suppress(OSError):
                inner = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
                os.chmod(f"/proc/self/fd/{inner}", 0o700)
                os.close(inner)

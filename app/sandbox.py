"""Which isolation layers this machine allows, found by trying each in a throw-away process, and what level and what gaps they add up to.

The levels are A (gVisor around B or C), B (namespaces and all of C), C (a container: Landlock, seccomp, rlimits, own users) and D (less).
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from app import landlock, seccomp
from app.linux import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUTS,
    MS_PRIVATE,
    MS_REC,
    drop_capabilities,
    enter_user_namespace,
    libc,
    mount,
    prctl,
    unshare,
)

Level = Literal["A", "B", "C", "D"]
NAMESPACES = CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWPID
SIGNALS_SCOPED_SINCE = 6
_SYSLOG_READ_ALL = 3


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may use. ``memory``, ``disk``, ``file`` and ``output`` are in bytes, ``turn`` in seconds."""

    seconds: float = 60.0
    memory: int = 4 << 30
    processes: int = 48
    disk: int = 256 << 20
    file: int = 64 << 20
    output: int = 64 << 20
    inodes: int = 20_000
    turn: float = 20.0


@dataclass(frozen=True, slots=True)
class Layers:
    """What can stand between a snippet and this machine. ``namespaces``: by whose right, root's or a user namespace's."""

    namespaces: Literal["root", "user", "none"] = "none"
    users: bool = False
    landlock: int = 0
    seccomp: bool = False
    gvisor: bool = False

    @property
    def level(self) -> Level:
        """The level by the table in the reference: without own users, a container needs a Landlock that refuses signals."""
        if not (self.seccomp and self.landlock):
            return "D"
        if self.namespaces != "none":
            return "A" if self.gvisor else "B"
        if self.users or self.landlock >= SIGNALS_SCOPED_SINCE:
            return "A" if self.gvisor else "C"
        return "D"

    def missing(self) -> list[str]:
        """Each layer that is not there, what that leaves open, and how to get it; one sentence or two each."""
        sentences = []
        if not self.seccomp:
            sentences.append(
                "seccomp: snippets may make every system call, sockets included. Run a kernel with CONFIG_SECCOMP_FILTER and do not "
                "forbid the seccomp call."
            )
        if not self.landlock:
            sentences.append(
                "Landlock: snippets may read every file that the worker's user may read. Run Linux 5.13 or later with landlock in "
                "the lsm= list, and a container profile that allows the landlock calls."
            )
        elif self.landlock < SIGNALS_SCOPED_SINCE and not self.users and self.namespaces == "none":
            sentences.append(
                f"signals: Landlock ABI {self.landlock} does not stop a snippet from killing the worker. Run Linux 6.12 or later, or "
                "start the worker as root with the capabilities SETUID, SETGID, KILL, CHOWN, DAC_OVERRIDE and FOWNER."
            )
        if self.namespaces == "none":
            sentences.append(
                "namespaces: snippets share the process list, network and file tree with the worker, behind Landlock and seccomp. Allow "
                "user namespaces, or give the worker's container CAP_SYS_ADMIN and a profile that allows unshare, mount and pivot_root."
            )
        if not self.users:
            sentences.append(
                "own users: snippets run as the worker's user. Start the worker as root, with the capabilities SETUID, SETGID and KILL."
            )
        if not self.gvisor:
            sentences.append(
                "a second kernel: a bug in this machine's kernel or GPU driver is within reach. Run the worker under gVisor (runsc)."
            )
        return sentences


def refusal(layers: Layers) -> str:
    """Why a public server must not start with these layers, or nothing when it may."""
    if layers.level != "D":
        return ""
    return "A public server needs isolation level C, and this machine offers D. Missing:\n" + "\n".join(
        f"- {item}" for item in layers.missing()
    )


def probe(user: int) -> Layers:
    """What this process could use now; ``user`` is a user id to try to become."""
    namespaces: Literal["root", "user", "none"] = "none"
    if _succeeds(_try_namespaces):
        namespaces = "root"
    elif _succeeds(_try_user_namespace):
        namespaces = "user"
    return Layers(
        namespaces=namespaces,
        users=_succeeds(lambda: become_user(user)),
        landlock=landlock.version() if _succeeds(_try_landlock) else 0,
        seccomp=_succeeds(lambda: seccomp.load(seccomp.ALLOW_ALL)),
        gvisor=_under_gvisor(),
    )


def _succeeds(attempt: Callable[[], object]) -> bool:
    """Whether the attempt works, in a forked process that takes its effect with it."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            attempt()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _try_namespaces() -> None:
    unshare(NAMESPACES)
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    mount("tmpfs", "/mnt", "tmpfs", 0, "size=1m")


def _try_user_namespace() -> None:
    enter_user_namespace()
    _try_namespaces()


def _try_landlock() -> None:
    landlock.restrict([landlock.Rule("/usr", landlock.RUN)], landlock.version())


def _under_gvisor() -> bool:
    """gVisor says so in its kernel log, which it lets anyone read."""
    import ctypes

    text = ctypes.create_string_buffer(4096)
    read = libc.klogctl(_SYSLOG_READ_ALL, text, len(text))
    return read > 0 and b"gVisor" in text.raw[:read]


def become_user(user: int) -> None:
    """Be this user and group, and no other, for good."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def set_limits(limits: Limits, held: int) -> None:
    """The limits that the kernel itself keeps; ``held`` bytes of memory are inherited and not the run's own.

    No limit on address space: CUDA reserves more than any sensible one. Shared mappings count in none of these; the watchdog sees them.
    """
    seconds = int(limits.seconds * 4) + 10
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_FSIZE: limits.file,
        resource.RLIMIT_NOFILE: 256,
        resource.RLIMIT_NPROC: limits.processes,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_MEMLOCK: 64 << 20,
        resource.RLIMIT_STACK: 8 << 20,
        resource.RLIMIT_DATA: limits.memory + held,
    }
    for kind, value in wanted.items():
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def close_in(layers: Layers, rules: list[landlock.Rule], program: bytes, user: int | None) -> None:
    """The last steps, in the only order that works: user, capabilities, the death signal (which a new user clears), Landlock, seccomp."""
    if user is not None:
        become_user(user)
    drop_capabilities()
    prctl(1, signal.SIGKILL)
    os.umask(0o077)
    # Own files in /proc are readable again (NumPy and PyTorch look there); others are kept out by namespace, user or Landlock.
    prctl(4, 1)
    if layers.landlock:
        landlock.restrict(rules, layers.landlock)
    if layers.seccomp:
        seccomp.load(program)

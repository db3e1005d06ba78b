"""A process that has imported and warmed the compiler, and forks one sandboxed child for each run; `python -m app.zygote CONFIG`.

It reads orders from a socket on standard input and answers there. It runs no snippet and reads no request and no output of a child:
the worker's descriptors go straight to the child. It is single-threaded and never touches a GPU, since either would break its children.
"""

from __future__ import annotations

import dataclasses
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from app import child, jail, sandbox, seccomp, warmup
from app.linux import CLONE_NEWPID, PR_SET_CHILD_SUBREAPER, PR_SET_DUMPABLE, die_with_parent, enter_user_namespace, prctl, setns, unshare
from app.sandbox import Layers, Limits
from app.watchdog import Watchdog, clear_folder, end_session, memory_of
from compiler.observe.inductor_caches import Headers

ORDERS = 0
ROOT = Path(__file__).resolve().parent.parent
_TICK = 0.04
_CONTROL = 5


@dataclass(frozen=True, slots=True)
class Config:
    """What a zygote is told at its start. ``entry`` runs a snippet; ``folder`` holds the work folders where no namespace does.

    ``kept`` is a folder for what trusted code builds and later zygotes use again; runs may read it.
    ``warm``: the compilers that it prepares.
    """

    layers: Layers
    limits: Limits
    slots: int
    folder: str
    first_user: int
    kept: str
    entry: str = "compiler.snippet:run_snippet"
    warm: tuple[str, ...] = ("fuselab", "inductor")
    gpus: bool = False

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def from_json(text: str) -> Config:
        fields = json.loads(text)
        return Config(**fields | {"layers": Layers(**fields["layers"]), "limits": Limits(**fields["limits"])})

    @property
    def packages(self) -> list[Path]:
        """Folders of the repository that a child may import from."""
        return [ROOT / name for name in sorted({"compiler", "app", self.entry.split(".", 1)[0]})]


@dataclass(slots=True)
class Child:
    """A forked process: waiting for its run while ``run`` is None."""

    slot: int
    pid: int
    handle: int
    control: socket.socket
    run: int | None = None
    limit: str = ""
    peak: int = 0


class Zygote:
    """Forks, watches and ends children."""

    def __init__(self, config: Config, fresh_proc: bool | None) -> None:
        self.config, self.fresh_proc = config, fresh_proc
        self.orders = socket.socket(fileno=os.dup(ORDERS))
        self.program = seccomp.build() if config.layers.seccomp else b""
        module, _, function = config.entry.partition(":")
        self.entry: child.Entry = getattr(importlib.import_module(module), function)
        self.children: dict[int, Child] = {}
        self.selector = selectors.DefaultSelector()
        self.pid_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC) if self.jailed else -1
        self.held = 0
        self.headers: Headers = {}
        self.watchdog = Watchdog(config.limits, scan_disk=not self.jailed)

    @property
    def jailed(self) -> bool:
        return self.fresh_proc is not None

    @property
    def packages(self) -> str:
        return jail.PACKAGES if self.jailed else f"{self.config.folder}/packages"

    @property
    def kept(self) -> str:
        return jail.KEPT if self.jailed else self.config.kept

    def user(self, slot: int) -> int | None:
        return self.config.first_user + slot if self.config.layers.users else None

    def tell(self, **message: Any) -> None:  # noqa: ANN401  # JSON
        self.orders.send(json.dumps(message).encode())

    def prepare(self) -> None:
        """Warm up, settle what was imported, and have a child wait in each slot."""
        if self.config.warm:
            self.headers = warmup.warm(self.entry, self.kept, self.config.warm)
        warmup.assert_forkable()
        gc.collect()
        gc.freeze()
        self.held = memory_of("self")
        self.selector.register(self.orders, selectors.EVENT_READ)
        for slot in range(self.config.slots):
            self.fork(slot)

    def serve(self) -> None:
        """Until the worker goes away: fork, watch, answer."""
        while True:
            busy = any(each.run is not None for each in self.children.values())
            for key, _ in self.selector.select(_TICK if busy else None):
                if key.fileobj is self.orders:
                    if not self.obey():
                        return
                elif key.data.slot in self.children:
                    self.bury(key.data)
            self.watch()

    def obey(self) -> bool:
        """Carry out one order; False when the worker is gone."""
        message, descriptors, _, _ = socket.recv_fds(self.orders, 4096, 4)
        if not message:
            return False
        order = json.loads(message)
        if order["do"] == "start":
            self.start(order["run"], order["slot"], descriptors)
        else:
            for each in self.children.values():
                if each.run == order["run"]:
                    self.kill(each, order["why"])
        for descriptor in descriptors:
            os.close(descriptor)
        return True

    def start(self, run: int, slot: int, descriptors: list[int]) -> None:
        """Give the run's descriptors to the child that waits in the slot, or to a new one."""
        waiting = self.children.get(slot) or self.fork(slot)
        waiting.run = run
        try:
            socket.send_fds(waiting.control, [b"go"], descriptors)
        except OSError:  # it has died while waiting: its burial will say so
            return
        waiting.control.close()

    def fork(self, slot: int) -> Child:
        """A new child, which enters its sandbox and then waits."""
        if not self.jailed and self.user(slot) is None:  # a run had our own user, and so the right to change modes
            warmup.reopen(self.kept)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if self.jailed:
            unshare(CLONE_NEWPID)
        pid = os.fork()
        if pid == 0:
            self.become_child(slot, theirs)
        if self.jailed:
            setns(self.pid_namespace, CLONE_NEWPID)
        theirs.close()
        born = Child(slot, pid, os.pidfd_open(pid), ours)
        self.children[slot] = born
        self.selector.register(born.handle, selectors.EVENT_READ, born)
        return born

    def become_child(self, slot: int, control: socket.socket) -> NoReturn:
        """In the forked process: close everything, put the layers on from the outside in, then wait for a run."""
        code = child.SETUP_FAILED
        try:
            die_with_parent(signal.SIGKILL)
            os.setsid()
            control = _only(control)
            work = (
                jail.enter_private(self.config.limits, self.user(slot) or os.geteuid(), bool(self.fresh_proc))
                if self.jailed
                else f"{self.config.folder}/s{slot}"
            )
            warmup.prepare_child(work, self.packages, self.config.gpus, self.headers)
            sandbox.set_limits(self.config.limits, self.held)
            rules = jail.rules(work, [self.packages, self.kept], self.config.packages, whole_proc=bool(self.fresh_proc))
            sandbox.close_in(self.config.layers, rules, self.program, self.user(slot))
            child.serve_one(control, self.entry, self.config.limits.seconds)
        except BaseException:  # whatever it is, this process must not go on as a second zygote
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)

    def watch(self) -> None:
        """Kill the children that use more than they may."""
        running = {each.pid: each for each in self.children.values() if each.run is not None}
        if not running:
            return
        for pid, (limit, peak) in self.watchdog.look(
            {p: f"{self.config.folder}/s{each.slot}" for p, each in running.items()}, self.held
        ).items():
            running[pid].peak = max(running[pid].peak, peak)
            if limit:
                self.kill(running[pid], limit)

    def close(self) -> None:
        """End all children and what they left; with namespaces, the end of this process does that."""
        for each in list(self.children.values()):
            self.kill(each, "")
            each.run = None
            self.bury(each)

    def kill(self, each: Child, why: str) -> None:
        each.limit = each.limit or why
        signal.pidfd_send_signal(each.handle, signal.SIGKILL)

    def bury(self, dead: Child) -> None:
        """Reap the child and all that it left behind, tell the worker, and have another wait in its place."""
        self.selector.unregister(dead.handle)
        os.close(dead.handle)
        dead.control.close()
        if not self.jailed:
            end_session(dead.pid)
        code = os.waitstatus_to_exitcode(os.waitpid(dead.pid, 0)[1])
        del self.children[dead.slot]
        if not self.jailed:
            clear_folder(f"{self.config.folder}/s{dead.slot}")
        if dead.run is None:
            return
        self.tell(told="ended", run=dead.run, slot=dead.slot, code=code, limit=dead.limit, peak=dead.peak)
        self.fork(dead.slot)


def _only(control: socket.socket) -> socket.socket:
    """Close every descriptor but this one and standard error, which tells of a failure until the run's own output replaces it."""
    high = os.dup(control.fileno()) if control.fileno() <= _CONTROL else control.detach()
    nothing = os.open("/dev/null", os.O_RDWR)
    for place in (0, 1, 3, 4):
        os.dup2(nothing, place)
    os.dup2(high, _CONTROL)
    os.closerange(_CONTROL + 1, 1 << 16)
    return socket.socket(fileno=_CONTROL)


def enter_jail(config: Config) -> bool | None:
    """With namespaces: go on as process 1 of new ones with a new root, in which everything dies with it. Says whether /proc is new."""
    if config.layers.namespaces == "none":
        return None
    if config.layers.namespaces == "user":
        enter_user_namespace()
    unshare(sandbox.NAMESPACES)
    pid = os.fork()
    if pid:
        os.close(ORDERS)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 0xFF)
    die_with_parent(signal.SIGKILL)
    users = range(config.first_user, config.first_user + config.slots) if config.layers.users else [os.geteuid()]
    return jail.build(config.packages, config.kept, users)


def prepare_folders(config: Config) -> None:
    """Without namespaces: one empty folder for each slot, which only its user can enter."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    jail.link_packages(f"{config.folder}/packages", config.packages)
    for slot in range(config.slots):
        folder = f"{config.folder}/s{slot}"
        os.makedirs(folder, mode=0o700, exist_ok=True)
        clear_folder(folder)
        if config.layers.users:
            os.chown(folder, config.first_user + slot, config.first_user + slot)


def main() -> None:
    started = time.perf_counter()
    config = Config.from_json(sys.argv[1])
    fresh_proc = enter_jail(config)
    if fresh_proc is None:
        prepare_folders(config)
    prctl(PR_SET_DUMPABLE, 0)
    trusted = jail.TRUSTED if fresh_proc is not None else f"{config.folder}/trusted"
    os.makedirs(trusted, mode=0o700, exist_ok=True)
    warmup.prepare_zygote(trusted)
    zygote = Zygote(config, fresh_proc)
    zygote.prepare()
    zygote.tell(told="ready", environment=warmup.environment(), seconds=round(time.perf_counter() - started, 3))
    zygote.serve()
    zygote.close()
    os._exit(0)  # without the farewells of extension modules


if __name__ == "__main__":
    os.umask(0o022)
    main()

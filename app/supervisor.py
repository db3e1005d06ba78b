"""The worker's side of a zygote: starts it with an empty environment, hands it runs, and hears how they ended."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from app.linux import PR_SET_CHILD_SUBREAPER, prctl
from app.settings import ROOT
from app.watchdog import processes
from app.zygote import Config

READY_SECONDS = 300.0


class ZygoteFailed(Exception):
    """The zygote did not start; the message says what it said."""


@dataclass(frozen=True, slots=True)
class Pipes:
    """What the worker keeps of a run: where its events and its raw output come out, and where it asks for its turn to measure."""

    events: int
    words: int
    turns: socket.socket

    def close(self) -> None:
        os.close(self.events)
        os.close(self.words)
        self.turns.close()


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended: exit code, or minus a signal; the limit it was killed for; its peak of memory in bytes."""

    run: int
    slot: int
    code: int
    limit: str
    peak: int


class Supervisor:
    """One zygote at a time."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.environment: dict[str, Any] = {}
        self.ready_seconds = 0.0
        self.process: subprocess.Popen[bytes] | None = None
        self.socket: socket.socket | None = None
        prctl(PR_SET_CHILD_SUBREAPER, 1)

    def start(self) -> None:
        """Start a zygote and wait until it is warm. Raises ZygoteFailed."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "app.zygote", self.config.to_json()]
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/", "PYTHONDONTWRITEBYTECODE": "1"}
        self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=theirs.fileno(), stdout=subprocess.DEVNULL)
        theirs.close()
        self.socket = ours
        readable, _, _ = select.select([ours], [], [], READY_SECONDS)
        answer = ours.recv(1 << 16) if readable else b""
        if not answer:
            self.stop()
            raise ZygoteFailed(f"the zygote ended before it was ready (exit code {self.process.returncode})")
        told = json.loads(answer)
        self.environment, self.ready_seconds = told["environment"], told["seconds"]

    def stop(self) -> None:
        """End the zygote and everything that descends from it."""
        if self.process is None:
            return
        if self.socket is not None:
            self.socket.close()
            self.socket = None
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(2)
        self.process.kill()
        self.process.wait()
        end_orphans()

    def begin(self, run: int, slot: int, request: dict[str, Any]) -> Pipes:
        """Have the slot's child do this run. The request is a file in memory that only this child reads; the zygote passes it on."""
        assert self.socket is not None, "the zygote is not running"
        asked = os.memfd_create("request", os.MFD_CLOEXEC)
        os.write(asked, json.dumps(request).encode())
        events, events_in = os.pipe()
        words, words_in = os.pipe()
        turns, turns_in = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        passed = [asked, events_in, words_in, turns_in.fileno()]
        try:
            socket.send_fds(self.socket, [json.dumps({"do": "start", "run": run, "slot": slot}).encode()], passed)
        finally:
            for descriptor in (asked, events_in, words_in):
                os.close(descriptor)
            turns_in.close()
        for descriptor in (events, words):
            os.set_blocking(descriptor, False)
        turns.setblocking(False)
        return Pipes(events, words, turns)

    def kill(self, run: int, why: str) -> None:
        """End a run's child and all that it started."""
        if self.socket is not None:
            with suppress(OSError):  # a dead zygote has taken its children with it
                self.socket.send(json.dumps({"do": "stop", "run": run, "why": why}).encode())

    def hear(self) -> Ended | None:
        """The next answer, after the socket became readable; None when the zygote has died."""
        assert self.socket is not None
        try:
            told = self.socket.recv(1 << 16)
        except ConnectionError:
            return None
        if not told:
            return None
        fields = json.loads(told)
        return Ended(*(fields[name] for name in ("run", "slot", "code", "limit", "peak")))


def end_orphans() -> None:
    """Kill the processes that a dead zygote left to this one, until none is left. Only where no namespace did so already."""
    for _ in range(1000):
        orphans = [each.pid for each in processes().values() if each.parent == os.getpid()]
        if not orphans:
            return
        for pid in orphans:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.005)

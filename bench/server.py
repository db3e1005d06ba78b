"""A real server with its worker, on a free port and a database of its own: for benchmarks, pictures and browser tests."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Server:
    """``python -m app.main`` in ``folder``; ends with the with-block. ``restart`` keeps the database and the port.

    ``settings``: those of ``app.settings`` that differ from their defaults.
    """

    def __init__(self, folder: Path, worker: bool = True, **settings: object) -> None:
        self.folder, self.worker, self.settings, self.port = folder, worker, settings, free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def database(self) -> str:
        return f"sqlite:///{self.folder}/fuselab.db"

    def start(self) -> None:
        given = {"FUSELAB_DATABASE_URL": self.database, "FUSELAB_PORT": str(self.port), "FUSELAB_EMBEDDED_WORKER": str(self.worker)}
        given |= {f"FUSELAB_{name.upper()}": str(value) for name, value in self.settings.items()}
        log = (self.folder / "server.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "app.main"],
            cwd=ROOT,
            env=os.environ | given,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.wait(lambda health: True, 30)

    def wait_for_worker(self, seconds: float = 120) -> None:
        self.wait(lambda health: health["workers"] > 0, seconds)

    def wait(self, ready: Any, seconds: float) -> None:  # noqa: ANN401  # a predicate on the health report
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(self.url + "/healthz", timeout=5) as answer:
                    if ready(json.load(answer)):
                        return
            except OSError:
                assert self.process is not None
                if self.process.poll() is not None:
                    break
            time.sleep(0.05)
        raise RuntimeError(f"the server is not ready:\n{(self.folder / 'server.log').read_text()[-4000:]}")

    def stop(self, how: int = signal.SIGTERM) -> None:
        if self.process is None:
            return
        self.process.send_signal(how)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def restart(self, worker: bool | None = None) -> None:
        self.stop()
        self.worker = self.worker if worker is None else worker
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

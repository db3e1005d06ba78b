"""Starts real workers in processes of their own, under each kind of isolation that this machine can offer, and runs snippets through the store."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from app import store
from app.settings import Settings
from app.watchdog import processes
from compiler.trace import Trace

ROOT = Path(__file__).resolve().parents[2]
USER = 61001
AROUND = {
    "namespaces": [],
    "user namespace": ["--user", str(USER)],
    "container": ["--docker"],
    "container, not root": ["--docker", "--user", str(USER)],
}
"""What stands around the worker at each kind."""

_numbers = itertools.count()


def kept(by_user: bool) -> str:
    """A folder in which the workers of these tests keep what takes long to build; a user's begins with what root's workers have built."""
    path = ROOT / "data" / "kept"
    path.mkdir(parents=True, exist_ok=True)
    if not by_user:
        return str(path)
    own = path.with_name("kept-by-user")
    own.mkdir(exist_ok=True)
    for built in path.glob("headers-*"):
        if not (own / built.name).exists():
            shutil.copytree(built, own / built.name)
    for each in (own, *own.rglob("*")):
        os.chown(each, USER, USER)
    return str(own)


@dataclass
class RunningWorker:
    """A worker process and the database that it shares with the test. ``keeps``: what it builds stays for other workers of these tests."""

    kind: str = "namespaces"
    module: str = "tests.app.attacked_worker"
    settings: dict = field(default_factory=dict)
    around: list | None = None
    keeps: bool = True
    process: subprocess.Popen | None = None

    def __post_init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fuselab-test-", dir="/var/tmp"))
        self.around = AROUND[self.kind] if self.around is None else self.around
        given = {
            "database_url": f"sqlite:///{self.folder}/runs.db",
            "work_folder": f"{self.folder}/work",
            "kept_folder": kept("--user" in self.around) if self.keeps else f"{self.folder}/kept",
            "stale_job_seconds": 3.0,
        } | self.settings
        self.chosen = Settings(**given)
        (self.folder / "work").mkdir()
        self.sessions = store.session_factory(self.chosen)
        store.migrate(self.sessions.kw["bind"])
        self.folder.chmod(0o755)
        if "--user" in self.around:
            for path in (self.folder, *self.folder.rglob("*")):
                os.chown(path, USER, USER)
        self.start()

    @property
    def namespaced(self) -> bool:
        return "namespace" in self.kind

    def start(self) -> None:
        values = {f"FUSELAB_{name.upper()}": str(value) for name, value in self.chosen.model_dump().items()}
        command = [sys.executable, "-m", self.module]
        if self.around:
            command = [sys.executable, "-m", "tests.app.container", *self.around, *command]
        environment = {"PATH": os.environ["PATH"], "SECRET_OF_THE_WORKER": "hunter2", **values}
        known = {worker.id for worker in self.workers()}
        self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stderr=self.log.open("ab"))
        self.until(lambda: {worker.id for worker in self.workers()} - known or self.process.poll() is not None, 300, "no worker registered")
        assert self.process.poll() is None, f"the worker ended with {self.process.returncode}: {self.log.read_text()}"

    @property
    def user(self) -> int:
        """The user of the worker itself."""
        return USER if "--user" in self.around else os.geteuid()

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def workers(self) -> list[store.WorkerRow]:
        with self.sessions() as session:
            return store.workers(session, 1e9)

    @property
    def level(self) -> str:
        return self.workers()[0].level

    def submit(self, source: str, compiler: str = "fuselab", target: str = "cpu", options: dict | None = None) -> str:
        source += f"\n# {next(_numbers)} {os.getpid()}"
        with self.sessions() as session:
            run, _ = store.submit(session, source, compiler, target, options or {})
        return run.id

    def wait(self, run_id: str, seconds: float = 40) -> Trace:
        self.until(lambda: self.progress(run_id)[1], seconds, f"run {run_id} has not finished")
        with self.sessions() as session:
            return store.trace(session, run_id)

    def progress(self, run_id: str) -> tuple[int, bool]:
        with self.sessions() as session:
            return store.progress(session, run_id)

    def run(self, source: str, seconds: float = 40, **how) -> Trace:
        return self.wait(self.submit(source, **how), seconds)

    def notes(self, source: str) -> dict[str, str]:
        """What each ``attempt`` of the source came to."""
        trace = self.run(source)
        assert trace.status == "ok", trace.problem
        return json.loads(trace.output.splitlines()[-1])

    @staticmethod
    def until(condition, seconds: float, message: str) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, message
            time.sleep(0.01)

    def descendants(self) -> list[int]:
        known, found = processes(), [self.process.pid]
        for parent in found:
            found += [each.pid for each in known.values() if each.parent == parent and each.state != "Z"]
        return found

    def children(self) -> list[int]:
        """The processes that wait for a run or do one."""
        known = processes()
        return [pid for pid in self.descendants() if known[pid].parent == self.zygote()]

    def zygote(self) -> int:
        """The process that forks: the child of the worker, or the child of that, which is process 1 of its own namespace."""
        known = processes()
        family = self.descendants()
        named = [pid for pid in family if b"app.zygote" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        outer = next(pid for pid in named if known[pid].parent not in named)
        return next(pid for pid in named if known[pid].parent == outer) if self.namespaced else outer

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdin.close()
        self.sessions.kw["bind"].dispose()
        shutil.rmtree(self.folder, ignore_errors=True)

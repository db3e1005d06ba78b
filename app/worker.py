"""The worker, `python -m app.worker`: takes jobs from the store, has its zygote's children do them, and stores what they say at once.

One thread, one loop. Nothing that a child sends is trusted: the intake checks it, clocks and counters bound it, the verdict closes it.
"""

from __future__ import annotations

import logging
import os
import secrets
import selectors
import signal
import socket
import stat
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from app import intake, sandbox, store
from app.sandbox import Layers, Limits
from app.settings import Settings
from app.settings import settings as read_settings
from app.supervisor import Ended, Pipes, Supervisor, ZygoteFailed
from app.verdict import closing_event
from app.warmup import gpu_names
from app.zygote import Config
from compiler.trace import Event, Output, Problem

log = logging.getLogger(__name__)
_CHUNK = 1 << 16
_WORDS_KEPT = 64 << 10
_DRAIN_CHUNKS = 2048
_LONGEST_WAIT_FOR_TURNS = 4.0


@dataclass(slots=True)
class Run:
    """One job while a child does it."""

    job: store.ClaimedJob
    number: int
    slot: int
    pipes: Pipes
    intake: intake.Intake
    started: float
    beat: float
    words: bytearray = field(default_factory=bytearray)
    waited: float = 0.0
    waiting_since: float | None = None
    measuring_since: float | None = None
    problem: Problem | None = None
    lost: bool = False

    def used(self, now: float) -> float:
        """The seconds that count against its limit: not those in which it waited for its turn, up to a bound."""
        waiting = now - self.waiting_since if self.waiting_since is not None else 0.0
        return now - self.started - min(self.waited + waiting, _LONGEST_WAIT_FOR_TURNS * max(1.0, now - self.started - self.waited))


class Worker:
    """The loop and what it holds."""

    def __init__(self, settings: Settings, config: Config) -> None:
        self.settings, self.limits = settings, config.limits
        self.id = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self.sessions = store.session_factory(settings)
        self.supervisor = Supervisor(config)
        self.selector = selectors.DefaultSelector()
        self.runs: dict[int, Run] = {}
        self.free = list(range(config.slots))
        self.turns: deque[Run] = deque()
        self.count = 0
        self.asked = self.seen = 0.0
        self.stopping = False

    def serve(self) -> None:
        """Until told to stop, or until the web process that started this one is gone."""
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        if _is_pipe(sys.stdin.fileno()):
            self.selector.register(sys.stdin, selectors.EVENT_READ, "parent")
        self._start_zygote()
        try:
            while not self.stopping:
                self.step()
        finally:
            self.supervisor.stop()
            with self.sessions() as session:
                store.leave(session, self.id)

    def _stop(self, *_: object) -> None:
        self.stopping = True

    def _start_zygote(self) -> None:
        self.supervisor.start()
        self.selector.register(self.supervisor.socket, selectors.EVENT_READ, "zygote")  # type: ignore[arg-type]  # it was just opened
        layers = self.supervisor.config.layers
        environment = self.supervisor.environment | {"missing isolation": " ".join(layers.missing())}
        with self.sessions() as session:
            store.register_worker(session, self.id, environment, layers.level)
        log.info("ready in %.2f s, isolation level %s", self.supervisor.ready_seconds, layers.level)

    def step(self) -> None:
        """One turn of the loop."""
        self._claim()
        for key, _ in self.selector.select(self.settings.poll_seconds):
            match key.data:
                case "parent":
                    self.stopping = self.stopping or not os.read(sys.stdin.fileno(), 1)
                case "zygote":
                    self._hear()
                case (Run() as run, kind) if run.number in self.runs:
                    self._read(run, kind)
        self._look_at_clocks()

    def _claim(self) -> None:
        now = time.monotonic()
        if not self.free or now - self.asked < self.settings.poll_seconds / 2:
            return
        self.asked = now
        with self.sessions() as session:
            while self.free and (job := store.claim_job(session, self.id)):
                self._begin(job)
            if not self.runs and now - self.seen > self.settings.worker_seen_seconds / 4:
                store.seen(session, self.id)
                self.seen = now

    def _begin(self, job: store.ClaimedJob) -> None:
        self.count += 1
        slot = self.free.pop()
        request = {"source": job.source, "options": job.options, "target": job.target, "compiler": job.compiler}
        header = intake.header(job.compiler, job.target, job.options, self.supervisor.environment)
        try:
            pipes = self.supervisor.begin(self.count, slot, request)
        except OSError:  # the zygote has just died, which its socket will say
            self.free.append(slot)
            self._give_up([job])
            return
        now = time.monotonic()
        accepted = intake.Intake(header, job.source.count("\n") + 1, self.limits.output)
        run = self.runs[self.count] = Run(job, self.count, slot, pipes, accepted, now, now)
        for source, kind in ((pipes.events, "events"), (pipes.words, "words"), (pipes.turns, "turns")):
            self.selector.register(source, selectors.EVENT_READ, (run, kind))

    def _read(self, run: Run, kind: str) -> bool:
        """Take in what there is on one of the run's descriptors; False at its end."""
        source = {"events": run.pipes.events, "words": run.pipes.words, "turns": run.pipes.turns.fileno()}[kind]
        try:
            data = os.read(source, _CHUNK)
        except BlockingIOError:
            return False
        except ConnectionError:
            data = b""
        if not data:
            self._forget(source)
        elif kind == "turns":
            self._answer_turns(run, data)
        else:
            self._take_in(run, kind, data)
        return bool(data)

    def _take_in(self, run: Run, kind: str, data: bytes) -> None:
        if run.problem is not None or run.lost:
            return
        events: list[Event] = []
        try:
            if kind == "words":
                run.words += data[: max(0, _WORDS_KEPT - len(run.words))]
                run.intake.spend(len(data))
            else:
                for event in run.intake.feed(data):
                    events.append(event)
        except intake.Refused as refused:
            run.problem = refused.problem
            self.supervisor.kill(run.number, "")
        self._store(run, events)

    def _store(self, run: Run, events: Sequence[Event]) -> None:
        if not events or run.lost:
            return
        with self.sessions() as session:
            kept = store.append_events(session, run.job.run_id, events, run.job.attempt)
        if not kept:  # another worker has it, or it is closed
            run.lost = True
            self.supervisor.kill(run.number, "")

    def _answer_turns(self, run: Run, data: bytes) -> None:
        """``?`` asks for the turn to measure, anything else gives it back; turns are given in the order of asking."""
        for sign in data[-2:]:
            if sign == ord("?") and run not in self.turns:
                self.turns.append(run)
                run.waiting_since = time.monotonic()
            elif sign != ord("?"):
                self._leave_turns(run)
        self._give_turn()

    def _leave_turns(self, run: Run) -> None:
        if run in self.turns:
            self.turns.remove(run)
        if run.waiting_since is not None:
            run.waited += time.monotonic() - run.waiting_since
        run.waiting_since = run.measuring_since = None

    def _give_turn(self) -> None:
        while self.turns and self.turns[0].measuring_since is None:
            first = self.turns[0]
            self._leave_turns(first)
            try:
                first.pipes.turns.send(b"!")
            except OSError:  # it has closed the channel, so it gets no turn
                continue
            first.measuring_since = time.monotonic()
            self.turns.appendleft(first)

    def _look_at_clocks(self) -> None:
        now = time.monotonic()
        for run in list(self.runs.values()):
            if run.used(now) > self.limits.seconds:
                self.supervisor.kill(run.number, "time")
            elif run.measuring_since is not None and len(self.turns) > 1 and now - run.measuring_since > self.limits.turn:
                self.supervisor.kill(run.number, "turn")
            if now - run.beat > self.settings.stale_job_seconds / 5:
                run.beat = now
                with self.sessions() as session:
                    if not store.heartbeat(session, run.job.job_id, self.id):
                        run.lost = True
                        self.supervisor.kill(run.number, "")

    def _hear(self) -> None:
        """A child has ended, or the zygote has."""
        ended = self.supervisor.hear()
        if ended is None:
            self._replace_zygote()
        elif ended.run in self.runs:
            self._finish(self.runs[ended.run], ended)

    def _finish(self, run: Run, ended: Ended) -> None:
        """Read what is left in the pipes (all writers are dead), and close the run."""
        for kind in ("events", "words"):
            for _ in range(_DRAIN_CHUNKS):
                if not self._read(run, kind):
                    break
        self._release(run)
        if run.lost:
            return
        words = run.words.decode("utf-8", "replace")
        if words.strip():
            self._store(run, [Output(stream="stderr", text=words)])
        self._store(run, [closing_event(run.intake.end, ended.code, ended.limit, self.limits, words, run.problem, run.intake.last)])
        with self.sessions() as session:
            store.finish_job(session, run.job.job_id)

    def _release(self, run: Run) -> None:
        self._leave_turns(run)
        for source in (run.pipes.events, run.pipes.words, run.pipes.turns.fileno()):
            self._forget(source)
        run.pipes.close()
        del self.runs[run.number]
        self.free.append(run.slot)
        self._give_turn()

    def _forget(self, source: int) -> None:
        if source in self.selector.get_map():
            self.selector.unregister(source)

    def _replace_zygote(self) -> None:
        """Start another zygote, and give the runs that died with it to whoever takes them next."""
        log.warning("the zygote died; starting another")
        interrupted = list(self.runs.values())
        self.selector.unregister(self.supervisor.socket)  # type: ignore[arg-type]  # it was registered
        for run in interrupted:
            self._release(run)
        self.supervisor.stop()
        self._give_up([run.job for run in interrupted])
        self._start_zygote()

    def _give_up(self, jobs: Sequence[store.ClaimedJob]) -> None:
        with self.sessions() as session:
            for job in jobs:
                store.give_up_job(session, job.job_id, self.id)
            store.requeue_stale(session, self.settings.stale_job_seconds)


def _is_pipe(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def limits_of(settings: Settings) -> Limits:
    return Limits(
        seconds=settings.run_seconds,
        memory=settings.run_memory_bytes,
        processes=settings.run_processes,
        disk=settings.run_disk_bytes,
        output=settings.run_output_bytes,
        turn=settings.run_turn_seconds,
    )


def configure(settings: Settings, layers: Layers) -> Config:
    """What the zygote is told, from the settings and the layers that this machine offers."""
    folder = settings.work_folder or tempfile.mkdtemp(prefix="fuselab-")
    os.chmod(folder, 0o711)
    gpus = settings.run_gpus and bool(gpu_names())
    kept = kept_folder(settings.kept_folder, folder)
    warm = tuple(settings.warm_compilers.split(","))
    return Config(layers, limits_of(settings), settings.worker_slots, folder, settings.run_user, kept, warm=warm, gpus=gpus)


def kept_folder(wanted: str, folder: str) -> str:
    """The folder in which trusted code keeps what it builds: the wanted one if it is the worker's, or one that ends with the worker."""
    path = os.path.abspath(wanted)
    with suppress(OSError):
        os.makedirs(path, mode=0o755, exist_ok=True)
        status = os.stat(path)
        if status.st_uid == os.geteuid() and not status.st_mode & 0o022 and os.access(path, os.W_OK):
            return path
    path = f"{folder}/kept"
    os.makedirs(path, mode=0o755, exist_ok=True)
    return path


def main() -> int:
    """Exit code 3 when a public server may not run here, 1 when the zygote does not start."""
    logging.basicConfig(level=logging.INFO, format="worker: %(message)s")
    settings = read_settings()
    layers = sandbox.probe(settings.run_user)
    if settings.mode == "public" and (reason := sandbox.refusal(layers)):
        log.error("%s", reason)
        return 3
    try:
        Worker(settings, configure(settings, layers)).serve()
    except ZygoteFailed as error:
        log.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

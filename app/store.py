"""All SQL: runs, their events, the job queue and the workers. A function that writes is one transaction, committed when it returns."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from alembic import command
from alembic.config import Config
from sqlalchemy import CursorResult, Engine, create_engine, delete, event, func, insert, select, update
from sqlalchemy.engine import make_url
from sqlalchemy.exc import IntegrityError
from sqlalchemy.exc import SQLAlchemyError as StoreFailure
from sqlalchemy.orm import Session, sessionmaker

from app.models import Job, Run, StoredEvent, Worker
from app.settings import Settings
from compiler.trace import End, Event, Problem, Scalar, Stage, Trace, event_line, parse_event

__all__ = ["Session", "SessionFactory", "StoreFailure"]  # what callers name of SQLAlchemy they name from here

SessionFactory = sessionmaker[Session]
MAX_ATTEMPTS = 2
_ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_OPEN = ("queued", "running")


@dataclass(frozen=True, slots=True)
class ClaimedJob:
    """A job that a worker has taken, with all that it needs to do it."""

    job_id: int
    run_id: str
    source: str
    compiler: str
    target: str
    options: dict[str, Scalar]
    attempt: int


@dataclass(frozen=True, slots=True)
class RunRow:
    """What is known of a run without its events."""

    id: str
    source: str
    compiler: str
    target: str
    options: dict[str, Scalar]
    status: str
    last_seq: int
    created_at: float
    finished_at: float | None

    @property
    def finished(self) -> bool:
        return self.status not in _OPEN


@dataclass(frozen=True, slots=True)
class EventRow:
    """One stored event: its number within the run and its JSON."""

    seq: int
    kind: str
    stage: str | None
    json: str

    def event(self) -> Event:
        return parse_event(self.json)


@dataclass(frozen=True, slots=True)
class StageRow:
    """The state of one stage of a run, for a tab."""

    seq: int
    region: int
    name: str
    part: str
    status: str
    millis: float


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A registered worker and how long ago it was heard of."""

    id: str
    environment: dict[str, Any]
    level: str
    silent_seconds: float


class QueueFull(Exception):
    """So many runs wait already that another would only wait too."""


def migrate(engine: Engine) -> None:
    """Bring the database's tables up to date."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def open_engine(settings: Settings) -> Engine:
    """The database of these settings; SQLite in WAL mode: readers never wait, and a killed process loses nothing that it committed."""
    url = make_url(settings.database_url)
    if url.get_backend_name() != "sqlite":
        return create_engine(url, pool_pre_ping=True)
    if url.database and url.database != ":memory:":
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, connect_args={"timeout": 20, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: object) -> None:  # noqa: ANN401  # the driver's own connection type
        cursor = connection.cursor()
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "busy_timeout=20000", "foreign_keys=ON"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    return engine


def session_factory(settings: Settings) -> SessionFactory:
    """Sessions on the database of these settings."""
    return sessionmaker(open_engine(settings), expire_on_commit=False)


def canonical(value: object) -> str:
    """JSON in which equal values are equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def content_key(source: str, compiler: str, target: str, options: Mapping[str, Scalar], environment: str) -> str:
    """Two submissions with the same key have the same result."""
    return hashlib.sha256(canonical([source, compiler, target, dict(options), environment]).encode("utf-8", "surrogatepass")).hexdigest()


# What a page or the API asks for


def submit(
    session: Session, source: str, compiler: str, target: str, options: Mapping[str, Scalar], max_queued: int = 1 << 30
) -> tuple[RunRow, bool]:
    """The run of this content and whether it is new; a new one is queued. Of two simultaneous submissions one wins and both get its run.

    Raises QueueFull when ``max_queued`` runs wait already.
    """
    key = content_key(source, compiler, target, options, current_environment(session))
    known = select(Run).where(Run.content_key == key)
    if run := session.scalar(known):
        return _run_row(run), False
    if (session.scalar(select(func.count()).select_from(Job).where(Job.state == "queued")) or 0) >= max_queued:
        raise QueueFull
    run_id = "".join(secrets.choice(_ALPHABET) for _ in range(12))
    values = {"source": source, "compiler": compiler, "target": target, "options": canonical(dict(options))}
    try:
        session.execute(insert(Run).values(id=run_id, content_key=key, status="queued", created_at=time.time(), **values))
        session.execute(insert(Job).values(run_id=run_id, state="queued"))
        session.commit()
    except IntegrityError:
        session.rollback()
        return _run_row(session.scalars(known).one()), False
    return _run_row(session.scalars(select(Run).where(Run.id == run_id)).one()), True


def find_run(session: Session, run_id: str) -> RunRow | None:
    run = session.scalar(select(Run).where(Run.id == run_id).execution_options(populate_existing=True))
    return _run_row(run) if run else None


def find_runs(session: Session, run_ids: Sequence[str]) -> dict[str, RunRow]:
    """Those of these runs that there are, by id."""
    found = session.scalars(select(Run).where(Run.id.in_(set(run_ids))).execution_options(populate_existing=True))
    return {run.id: _run_row(run) for run in found}


def progress(session: Session, run_id: str) -> tuple[int, bool]:
    """The number of the run's last event, and whether it has finished."""
    row = session.execute(select(Run.last_seq, Run.status).where(Run.id == run_id)).one_or_none()
    return (row.last_seq, row.status not in _OPEN) if row else (0, True)


def events_after(session: Session, run_id: str, seq: int = 0, limit: int = 200) -> list[EventRow]:
    """The run's events with a number above ``seq``, in order, at most ``limit``."""
    wanted = select(StoredEvent.seq, StoredEvent.kind, StoredEvent.stage, StoredEvent.json).where(
        StoredEvent.run_id == run_id, StoredEvent.seq > seq
    )
    return [EventRow(*row) for row in session.execute(wanted.order_by(StoredEvent.seq).limit(limit))]


def stage_rows(session: Session, run_id: str) -> list[StageRow]:
    """The state of each stage that the run has so far; the last word on a stage stands."""
    columns = (StoredEvent.seq, StoredEvent.region, StoredEvent.stage, StoredEvent.part, StoredEvent.status, StoredEvent.millis)
    rows = session.execute(select(*columns).where(StoredEvent.run_id == run_id, StoredEvent.kind == "stage").order_by(StoredEvent.seq))
    latest = {(row.region, row.stage, row.part): row for row in rows}
    return [
        StageRow(row.seq, row.region or 0, row.stage or "", row.part or "", row.status or "", row.millis or 0.0) for row in latest.values()
    ]


def stages(session: Session, run_id: str, name: str, region: int | None = None, part: str | None = None) -> list[Stage]:
    """The stages of that name, narrowed to a region and a part if given."""
    wanted = select(StoredEvent.json).where(StoredEvent.run_id == run_id, StoredEvent.kind == "stage", StoredEvent.stage == name)
    if region is not None:
        wanted = wanted.where(StoredEvent.region == region)
    if part is not None:
        wanted = wanted.where(StoredEvent.part == part)
    found: dict[tuple[int, str], Stage] = {}
    for text in session.scalars(wanted.order_by(StoredEvent.seq)):
        stage = cast(Stage, parse_event(text))
        found[stage.region, stage.part] = stage
    ranks = {"": 0, "forward": 1, "backward": 2}
    return [found[key] for key in sorted(found, key=lambda key: (key[0], ranks[key[1]]))]


def outline(session: Session, run_id: str) -> Trace:
    """The run's trace without its stages: what a page's head needs."""
    wanted = select(StoredEvent.json).where(StoredEvent.run_id == run_id, StoredEvent.kind != "stage").order_by(StoredEvent.seq)
    return Trace.fold(parse_event(text) for text in session.scalars(wanted))


def trace(session: Session, run_id: str) -> Trace:
    """Everything the run has produced so far."""
    wanted = select(StoredEvent.json).where(StoredEvent.run_id == run_id).order_by(StoredEvent.seq)
    return Trace.fold(parse_event(text) for text in session.scalars(wanted))


# What a worker calls


def register_worker(session: Session, worker_id: str, environment: Mapping[str, Any], level: str) -> None:
    """Make a worker known, or renew what is known of it."""
    values = {"environment": canonical(dict(environment)), "level": level, "last_seen": time.time()}
    for _ in range(2):
        if _changed(session, update(Worker).where(Worker.id == worker_id).values(**values)):
            session.commit()
            return
        try:
            session.execute(insert(Worker).values(id=worker_id, **values))
            session.commit()
            return
        except IntegrityError:  # registered by another connection in between: renew it
            session.rollback()


def seen(session: Session, worker_id: str) -> None:
    """An idle worker says that it is there."""
    session.execute(update(Worker).where(Worker.id == worker_id).values(last_seen=time.time()))
    session.commit()


def leave(session: Session, worker_id: str) -> None:
    """A worker that ends says so; it stays known, since its environment is part of the keys of what it did."""
    session.execute(update(Worker).where(Worker.id == worker_id).values(last_seen=Worker.last_seen - 86_400))
    session.commit()


def claim_job(session: Session, worker_id: str) -> ClaimedJob | None:
    """The oldest queued job, now this worker's; None when nothing waits. No two workers get the same."""
    oldest = select(Job.id).where(Job.state == "queued").order_by(Job.id).limit(1)
    if session.scalar(oldest) is None:
        session.rollback()
        return None
    taken = (
        update(Job)
        .where(Job.id == oldest.with_for_update(skip_locked=True).scalar_subquery(), Job.state == "queued")
        .values(state="running", worker=worker_id, attempts=Job.attempts + 1, heartbeat=time.time())
        .returning(Job.id, Job.run_id, Job.attempts)
        .execution_options(synchronize_session=False)
    )
    job = session.execute(taken).one_or_none()
    if job is None:
        session.rollback()
        return None
    opened = update(Run).where(Run.id == job.run_id, Run.status.in_(_OPEN)).values(status="running", attempt=job.attempts)
    if not _changed(session, opened):
        session.execute(update(Job).where(Job.id == job.id).values(state="done"))
        session.commit()
        return None
    run = session.execute(select(Run.source, Run.compiler, Run.target, Run.options).where(Run.id == job.run_id)).one()
    session.commit()
    return ClaimedJob(job.id, job.run_id, run.source, run.compiler, run.target, json.loads(run.options), job.attempts)


def heartbeat(session: Session, job_id: int, worker_id: str) -> bool:
    """Say that the job is being worked on; False when it is not this worker's any more, who then stops."""
    now = time.time()
    mine = _changed(session, update(Job).where(Job.id == job_id, Job.worker == worker_id, Job.state == "running").values(heartbeat=now))
    session.execute(update(Worker).where(Worker.id == worker_id).values(last_seen=now))
    session.commit()
    return mine


def give_up_job(session: Session, job_id: int, worker_id: str) -> None:
    """This worker cannot go on with the job, through no fault of the run: it counts as stale from now on."""
    mine = (Job.id == job_id, Job.worker == worker_id, Job.state == "running")
    session.execute(update(Job).where(*mine).values(heartbeat=0.0))
    session.commit()


def append_events(session: Session, run_id: str, events: Sequence[Event], attempt: int | None = None) -> bool:
    """Store events after those that the run has; an End closes the run and its job, and what follows it is dropped.

    Nothing is stored, and False returned, when the run has finished, or when ``attempt`` is given and the run is at another one.
    """
    last = next((index for index, item in enumerate(events) if isinstance(item, End)), len(events) - 1)
    events = events[: last + 1]
    if not events:
        return True
    # One statement both checks that the run is open and reserves the numbers, so two writers cannot interleave.
    reserve = update(Run).where(Run.id == run_id, Run.status.in_(_OPEN))
    if attempt is not None:
        reserve = reserve.where(Run.attempt == attempt)
    reserve = reserve.values(last_seq=Run.last_seq + len(events))
    seq = session.scalar(reserve.returning(Run.last_seq).execution_options(synchronize_session=False))
    if seq is None:
        session.rollback()
        return False
    first = seq - len(events) + 1
    session.execute(insert(StoredEvent), [_event_values(run_id, first + index, item) for index, item in enumerate(events)])
    if isinstance(events[-1], End):
        _close(session, run_id, events[-1])
    session.commit()
    return True


def fail_run(session: Session, run_id: str, problem: Problem, attempt: int | None = None) -> bool:
    """End a run as an error, for this reason; False when it had finished already."""
    return append_events(session, run_id, [End(status="error", problem=problem)], attempt)


def finish_job(session: Session, job_id: int) -> None:
    """The worker is through with this job; a run left open by it ends as an error, so that nobody waits for ever."""
    run_id = session.scalar(select(Job.run_id).where(Job.id == job_id))
    if run_id is None:
        return
    fail_run(session, run_id, Problem(kind="worker", message="The run stopped without an end.", hint="Run it again."))
    session.execute(update(Job).where(Job.id == job_id).values(state="done"))
    session.commit()


def requeue_stale(session: Session, older_than_seconds: float) -> int:
    """Jobs whose worker has died are done again once, from the start; then their run ends as an error. Returns how many there were."""
    stale = (Job.state == "running") & (func.coalesce(Job.heartbeat, 0.0) < time.time() - older_than_seconds)
    again = update(Job).where(stale, Job.attempts < MAX_ATTEMPTS).values(state="queued", worker=None, heartbeat=None).returning(Job.run_id)
    requeued = list(session.scalars(again.execution_options(synchronize_session=False)))
    if requeued:
        session.execute(delete(StoredEvent).where(StoredEvent.run_id.in_(requeued)))
        session.execute(update(Run).where(Run.id.in_(requeued)).values(status="queued", attempt=0))
    session.commit()
    lost = list(session.scalars(select(Job.run_id).where(stale, Job.attempts >= MAX_ATTEMPTS)))
    message = f"The worker died {MAX_ATTEMPTS} times while it worked on this run."
    for run_id in lost:
        fail_run(
            session,
            run_id,
            Problem(kind="worker", message=message, hint="Run it again; if it happens again, the snippet may be the cause."),
        )
    return len(requeued) + len(lost)


# Workers


def workers(session: Session, within_seconds: float) -> list[WorkerRow]:
    """The workers heard of within that time, the latest first."""
    now = time.time()
    known = select(Worker).where(Worker.last_seen >= now - within_seconds).order_by(Worker.last_seen.desc())
    rows = session.scalars(known.execution_options(populate_existing=True))
    return [WorkerRow(row.id, json.loads(row.environment), row.level, now - row.last_seen) for row in rows]


def current_environment(session: Session) -> str:
    """The versions and devices of the worker last heard of, as canonical JSON; empty before the first has registered."""
    return session.scalar(select(Worker.environment).order_by(Worker.last_seen.desc()).limit(1)) or ""


def _run_row(run: Run) -> RunRow:
    options = json.loads(run.options)
    return RunRow(run.id, run.source, run.compiler, run.target, options, run.status, run.last_seq, run.created_at, run.finished_at)


def _event_values(run_id: str, seq: int, item: Event) -> dict[str, Any]:
    values: dict[str, Any] = {"run_id": run_id, "seq": seq, "kind": item.event, "json": event_line(item)}
    stage = item if isinstance(item, Stage) else None
    for column, attribute in (("region", "region"), ("stage", "name"), ("part", "part"), ("status", "status"), ("millis", "millis")):
        values[column] = getattr(stage, attribute) if stage else None
    return values


def _close(session: Session, run_id: str, end: End) -> None:
    values: dict[str, Any] = {"status": end.status, "finished_at": time.time()}
    if end.problem is not None and end.problem.kind in ("worker", "limit", "internal", "process"):
        values["content_key"] = None  # the machine or we may be the cause, by a fault or by load: who asks again gets a new run
    session.execute(update(Run).where(Run.id == run_id).values(**values))
    session.execute(update(Job).where(Job.run_id == run_id).values(state="done"))


def _changed(session: Session, statement: Any) -> bool:  # noqa: ANN401  # any update of any table
    result = session.execute(statement.execution_options(synchronize_session=False))
    return cast("CursorResult[Any]", result).rowcount > 0

"""The tables: runs and their events, jobs that wait for a worker or are with one, and the workers that have registered."""

from __future__ import annotations

from sqlalchemy import BigInteger, Float, ForeignKey, Index, Integer, String, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Table(DeclarativeBase):
    """The metadata of all tables."""


class Run(Table):
    """One snippet under one set of options. ``content_key`` is empty once it may not be shared any more: its machine or we failed it."""

    __tablename__ = "runs"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    content_key: Mapped[str | None] = mapped_column(String(64), unique=True)
    source: Mapped[str] = mapped_column(Text)
    compiler: Mapped[str] = mapped_column(String(40))
    target: Mapped[str] = mapped_column(String(40))
    options: Mapped[str] = mapped_column(Text)
    status: Mapped[str] = mapped_column(String(16), default="queued")
    attempt: Mapped[int] = mapped_column(Integer, default=0)
    last_seq: Mapped[int] = mapped_column(Integer, default=0)
    created_at: Mapped[float] = mapped_column(Float)
    finished_at: Mapped[float | None] = mapped_column(Float)


class StoredEvent(Table):
    """One event of a run as JSON, with the columns by which a page finds it. ``seq`` only ever grows within a run."""

    __tablename__ = "events"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    seq: Mapped[int] = mapped_column(Integer, primary_key=True)
    kind: Mapped[str] = mapped_column(String(16))
    region: Mapped[int | None] = mapped_column(BigInteger)
    stage: Mapped[str | None] = mapped_column(String(40))
    part: Mapped[str | None] = mapped_column(String(16))
    status: Mapped[str | None] = mapped_column(String(16))
    millis: Mapped[float | None] = mapped_column(Float)
    json: Mapped[str] = mapped_column(Text)

    __table_args__ = (Index("events_by_stage", "run_id", "stage", "region", "part"),)


class Job(Table):
    """The work of one run: queued, running (with which worker, last heard of when), or done."""

    __tablename__ = "jobs"

    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), unique=True)
    state: Mapped[str] = mapped_column(String(16), default="queued", index=True)
    worker: Mapped[str | None] = mapped_column(String(200))
    attempts: Mapped[int] = mapped_column(Integer, default=0)
    heartbeat: Mapped[float | None] = mapped_column(Float)


class Worker(Table):
    """A worker that has registered: its versions and devices as canonical JSON, its isolation level, and when it was last heard of."""

    __tablename__ = "workers"

    id: Mapped[str] = mapped_column(String(200), primary_key=True)
    environment: Mapped[str] = mapped_column(Text)
    level: Mapped[str] = mapped_column(String(40))
    last_seen: Mapped[float] = mapped_column(Float)

"""The store: what is stored stays, nothing finished changes, and jobs of dead workers are done again once."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator

import pytest
from sqlalchemy.orm import Session, sessionmaker

from app import store
from app.models import Table
from app.settings import Settings
from app.store import QueueFull
from compiler.trace import Begin, End, Output, Problem
from tests.app.samples import good_run, stage

OPTIONS = {"policy": "greedy", "measure": True, "check": False}


@pytest.fixture(params=["sqlite", "postgresql"])
def sessions(request: pytest.FixtureRequest, web_settings: Settings) -> Iterator[sessionmaker[Session]]:
    chosen = web_settings
    if request.param == "postgresql":
        chosen = web_settings.model_copy(update={"database_url": request.getfixturevalue("postgresql_url")})
    made = store.session_factory(chosen)
    engine = made.kw["bind"]
    store.migrate(engine)
    with engine.begin() as connection:
        for table in reversed(Table.metadata.sorted_tables):
            connection.execute(table.delete())
    yield made
    engine.dispose()


def submit(sessions: sessionmaker[Session], source: str = "x = 1") -> str:
    with sessions() as session:
        return store.submit(session, source, "fuselab", "cpu", OPTIONS)[0].id


def claim(sessions: sessionmaker[Session], worker: str = "w") -> store.ClaimedJob:
    with sessions() as session:
        job = store.claim_job(session, worker)
    assert job is not None
    return job


def test_ids_are_short_unguessable_base58(sessions):
    ids = {submit(sessions, f"x = {number}") for number in range(50)}
    assert len(ids) == 50
    assert all(re.fullmatch("[1-9A-HJ-NP-Za-km-z]{12}", run_id) for run_id in ids)


def test_migrating_twice_changes_nothing(sessions):
    run_id = submit(sessions)
    store.migrate(sessions.kw["bind"])
    with sessions() as session:
        assert store.find_run(session, run_id) is not None


def test_sqlite_keeps_a_write_ahead_log(sessions):
    if sessions.kw["bind"].dialect.name != "sqlite":
        pytest.skip("says something of SQLite only")
    with sessions() as session:
        assert session.connection().exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"


def test_a_job_is_claimed_once_and_in_order(sessions):
    first, second = submit(sessions, "a"), submit(sessions, "b")
    jobs = [claim(sessions), claim(sessions)]
    assert [(job.run_id, job.source, job.attempt, job.options) for job in jobs] == [(first, "a", 1, OPTIONS), (second, "b", 1, OPTIONS)]
    with sessions() as session:
        assert store.claim_job(session, "w") is None


def test_many_workers_never_share_a_job(sessions):
    for number in range(20):
        submit(sessions, f"x = {number}")
    taken: list[int] = []

    def work(worker: str) -> None:
        with sessions() as session:
            while job := store.claim_job(session, worker):
                taken.append(job.job_id)

    threads = [threading.Thread(target=work, args=(f"w{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == sorted(set(taken))
    assert len(taken) == 20


def test_simultaneous_submissions_share_one_run(sessions):
    barrier = threading.Barrier(8)
    ids: list[str] = []

    def post() -> None:
        barrier.wait()
        ids.append(submit(sessions, "same"))

    threads = [threading.Thread(target=post) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 8
    assert len(set(ids)) == 1
    claim(sessions)
    with sessions() as session:
        assert store.claim_job(session, "w") is None


def test_a_finished_run_never_changes(sessions):
    run_id = submit(sessions)
    job = claim(sessions)
    with sessions() as session:
        assert store.append_events(session, run_id, [*good_run(), Output(stream="stdout", text="after the end")])
        before = store.trace(session, run_id)
        assert before.status == "ok"
        assert "after the end" not in before.output
        assert not store.append_events(session, run_id, [Output(stream="stdout", text="late")])
        assert not store.fail_run(session, run_id, Problem(kind="worker", message="late"))
        store.finish_job(session, job.job_id)
        assert store.requeue_stale(session, -1) == 0
        assert store.trace(session, run_id) == before


def test_events_are_numbered_without_gaps(sessions):
    run_id = submit(sessions)
    events = good_run()
    with sessions() as session:
        for event in events[:5]:
            store.append_events(session, run_id, [event])
        store.append_events(session, run_id, events[5:])
        rows = store.events_after(session, run_id)
    assert [row.seq for row in rows] == list(range(1, len(events) + 1))
    assert [row.event() for row in rows] == events


def test_finish_job_closes_a_run_that_has_no_end(sessions):
    run_id = submit(sessions)
    job = claim(sessions)
    with sessions() as session:
        store.finish_job(session, job.job_id)
        run = store.find_run(session, run_id)
        problem = store.outline(session, run_id).problem
    assert run is not None
    assert run.status == "error"
    assert problem is not None
    assert problem.kind == "worker"


def test_a_dead_workers_run_is_done_again_once(sessions):
    run_id = submit(sessions)
    first = claim(sessions, "dies")
    with sessions() as session:
        store.append_events(session, run_id, [Begin(compiler="fuselab", target="cpu"), stage("code")], first.attempt)
        assert store.requeue_stale(session, 60) == 0
        assert store.requeue_stale(session, -1) == 1
        assert store.events_after(session, run_id) == []
        assert not store.heartbeat(session, first.job_id, "dies")
    second = claim(sessions, "lives")
    assert (second.run_id, second.attempt) == (run_id, 2)
    with sessions() as session:
        assert not store.append_events(session, run_id, [stage("ptx")], first.attempt), "the first worker is not heard any more"
        assert store.append_events(session, run_id, [Begin(compiler="fuselab", target="cpu")], second.attempt)
        assert [row.seq for row in store.events_after(session, run_id, 2)] == [3], "numbers go on, so that listeners notice"
        assert store.heartbeat(session, second.job_id, "lives")
        assert store.requeue_stale(session, -1) == 1
        assert store.outline(session, run_id).problem.kind == "worker"
        assert store.claim_job(session, "w") is None


@pytest.mark.parametrize(
    ("kind", "reused"), [("snippet", True), ("limit", False), ("stage", True), ("worker", False), ("internal", False), ("process", False)]
)
def test_only_the_snippets_own_failures_are_reused(sessions, kind, reused):
    run_id = submit(sessions)
    claim(sessions)
    with sessions() as session:
        store.append_events(session, run_id, [End(status="error", problem=Problem(kind=kind, message="no"))])
    again = submit(sessions)
    assert (again == run_id) is reused
    with sessions() as session:
        assert store.find_run(session, run_id).status == "error", "the old link stays"
        assert store.find_run(session, again).status == ("error" if reused else "queued")


def test_another_environment_is_another_run(sessions):
    with sessions() as session:
        store.register_worker(session, "w", {"torch": "2.13.0"}, "B")
    first = submit(sessions)
    assert submit(sessions) == first
    with sessions() as session:
        store.register_worker(session, "w", {"torch": "2.14.0"}, "B")
    assert submit(sessions) != first


def test_a_full_queue_is_refused_but_known_content_is_not(sessions):
    run_id = submit(sessions, "a")
    with sessions() as session:
        with pytest.raises(QueueFull):
            store.submit(session, "b", "fuselab", "cpu", OPTIONS, max_queued=1)
        assert store.submit(session, "a", "fuselab", "cpu", OPTIONS, max_queued=1)[0].id == run_id


def test_workers_are_there_while_they_are_heard_of(sessions):
    with sessions() as session:
        assert store.workers(session, 10) == []
        store.register_worker(session, "w", {"torch": "2.13.0"}, "C")
        store.seen(session, "w")
        [row] = store.workers(session, 10)
        assert (row.id, row.level, row.environment) == ("w", "C", {"torch": "2.13.0"})
        assert store.workers(session, -1) == []
        store.leave(session, "w")
        assert store.workers(session, 10) == []
        assert "2.13.0" in store.current_environment(session)

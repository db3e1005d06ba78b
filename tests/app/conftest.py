"""A server on a SQLite file of its own, with no worker: events are put through the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from sqlalchemy.orm import Session, sessionmaker
from starlette.testclient import TestClient

from app import store
from app.main import create_app
from app.settings import Settings
from compiler.trace import Event


@pytest.fixture
def web_settings(tmp_path: Path) -> Settings:
    return Settings(database_url=f"sqlite:///{tmp_path}/fuselab.db", embedded_worker=False)


@pytest.fixture
def client(web_settings: Settings) -> Iterator[TestClient]:
    with TestClient(create_app(web_settings)) as client:
        yield client


@pytest.fixture
def sessions(client: TestClient) -> sessionmaker[Session]:
    return client.app.state.sessions  # type: ignore[attr-defined]


Finish = Callable[..., str]


@pytest.fixture
def finish(client: TestClient, sessions: sessionmaker[Session]) -> Finish:
    """Submits a source and stores these events for it; the id of its run."""

    def run(source: str, events: Sequence[Event]) -> str:
        run_id = client.post("/api/runs", json={"source": source}).json()["id"]
        with sessions() as session:
            job = store.claim_job(session, "stand-in")
            assert job is not None
            assert job.run_id == run_id
            assert store.append_events(session, run_id, events, job.attempt)
        return run_id

    return run

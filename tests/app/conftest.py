"""A server on a SQLite file of its own, with no worker: events are put through the store."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from sqlalchemy.orm import Session, sessionmaker
from starlette.testclient import TestClient

from app import store
from app.main import create_app
from app.settings import Settings
from bench.server import free_port
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
    """Submits a source, with the rest of a submission by name, and stores these events for it; the id of its run."""

    def run(source: str, events: Sequence[Event], **asked: object) -> str:
        run_id = client.post("/api/runs", json={"source": source} | asked).json()["id"]
        with sessions() as session:
            job = store.claim_job(session, "stand-in")
            assert job is not None
            assert job.run_id == run_id
            assert store.append_events(session, run_id, events, job.attempt)
        return run_id

    return run


@pytest.fixture(scope="session")
def postgresql_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A PostgreSQL server of its own, where Debian's package is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not found or shutil.which("runuser") is None:
        pytest.skip("PostgreSQL is not installed")
    folder = Path(tempfile.mkdtemp(prefix="fuselab-postgresql-"))
    shutil.chown(folder, "postgres")
    port = free_port()

    def run(*command: str) -> None:
        subprocess.run(["runuser", "-u", "postgres", "--", *command], check=True, cwd="/", stdout=subprocess.DEVNULL, timeout=60)

    run(f"{found[-1]}/initdb", "-D", f"{folder}/data", "-A", "trust", "--no-sync")
    start = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1"
    run(f"{found[-1]}/pg_ctl", "-D", f"{folder}/data", "-w", "-l", f"{folder}/log", "-o", start, "start")
    yield f"postgresql+psycopg://postgres@127.0.0.1:{port}/postgres"
    run(f"{found[-1]}/pg_ctl", "-D", f"{folder}/data", "-m", "immediate", "stop")
    shutil.rmtree(folder)

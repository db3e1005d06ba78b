"""Keeps the queue moving: starts the embedded worker as its own process and again when it dies, and requeues dead workers' jobs."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from contextlib import suppress

from anyio import to_thread

from app import store
from app.settings import ROOT, Settings
from app.store import SessionFactory, StoreFailure

log = logging.getLogger(__name__)
_FIRST_PAUSE, _LONGEST_PAUSE, _SETTLED = 0.5, 30.0, 20.0
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ", "HOME", "VIRTUAL_ENV")


def worker_environment(settings: Settings) -> dict[str, str]:
    """What the worker may know: where programs are and how the operator set Fuselab up, and nothing else of this process's environment."""
    kept = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    given = {f"FUSELAB_{name.upper()}": str(value) for name, value in settings.model_dump().items()}
    return kept | given | {"PYTHONUNBUFFERED": "1"}


async def keep_worker(settings: Settings) -> None:
    """Run the embedded worker until cancelled; a worker that dies is started again, after a pause that grows while it keeps dying."""
    pause = _FIRST_PAUSE
    clock = asyncio.get_running_loop().time
    while True:
        started = clock()
        # Its standard input is a pipe that closes when this process dies, however it dies: the worker ends with it.
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "app.worker", cwd=ROOT, env=worker_environment(settings), stdin=asyncio.subprocess.PIPE
        )
        try:
            code = await worker.wait()
        except asyncio.CancelledError:
            await _end(worker)
            raise
        pause = _FIRST_PAUSE if clock() - started > _SETTLED else min(pause * 2, _LONGEST_PAUSE)
        log.warning("the embedded worker ended with code %s; starting it again in %.1f s", code, pause)
        await asyncio.sleep(pause)


async def _end(worker: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        worker.terminate()
    try:
        await asyncio.wait_for(worker.wait(), 5)
    except TimeoutError:
        with suppress(ProcessLookupError):
            worker.kill()
        await worker.wait()


async def keep_queue(sessions: SessionFactory, settings: Settings) -> None:
    """Until cancelled, look now and then for jobs whose worker has died."""

    def requeue() -> int:
        with sessions() as session:
            return store.requeue_stale(session, settings.stale_job_seconds)

    while True:
        await asyncio.sleep(min(5.0, settings.stale_job_seconds / 2))
        try:
            if count := await to_thread.run_sync(requeue):
                log.warning("%d jobs of dead workers requeued or given up", count)
        except StoreFailure:  # the database may come back; the next round tries again
            log.exception("the queue could not be looked through")

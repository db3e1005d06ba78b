"""Tells listeners when a run has new events: one poller of the store for each run that somebody follows. A message bus can replace it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from anyio import to_thread

from app import store
from app.store import EventRow, SessionFactory

_BATCH = 100


@dataclass(slots=True)
class _Watch:
    """What the poller of one run has seen last, and who waits for it."""

    seq: int = -1
    finished: bool = False
    listeners: int = 0
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    poller: asyncio.Task[None] | None = None


class Announcer:
    """Follows runs for any number of listeners."""

    def __init__(self, sessions: SessionFactory, poll_seconds: float) -> None:
        self._sessions = sessions
        self._poll_seconds = poll_seconds
        self._watches: dict[str, _Watch] = {}

    async def follow(self, run_id: str, after: int = 0) -> AsyncIterator[list[EventRow]]:
        """Batches of the run's events above ``after``, those stored already and then each as it appears; ends with the run."""
        watch = self._watches.setdefault(run_id, _Watch())
        watch.listeners += 1
        try:
            while True:
                seen = watch.seq
                rows = await to_thread.run_sync(self._read, run_id, after)
                if rows:
                    yield rows
                    after = rows[-1].seq
                    if rows[-1].kind == "end":
                        return
                elif watch.finished:
                    return
                else:
                    await self._change(run_id, watch, seen)
        finally:
            watch.listeners -= 1
            if not watch.listeners:
                self._watches.pop(run_id, None)
                if watch.poller is not None:
                    watch.poller.cancel()

    async def _change(self, run_id: str, watch: _Watch, seen: int) -> None:
        if watch.poller is None:
            watch.poller = asyncio.create_task(self._poll(run_id, watch))
        async with watch.changed:
            await watch.changed.wait_for(lambda: watch.seq != seen or watch.finished)

    async def _poll(self, run_id: str, watch: _Watch) -> None:
        while not watch.finished:
            seq, finished = await to_thread.run_sync(self._progress, run_id)
            if (seq, finished) != (watch.seq, watch.finished):
                async with watch.changed:
                    watch.seq, watch.finished = seq, finished
                    watch.changed.notify_all()
            await asyncio.sleep(self._poll_seconds)

    def _read(self, run_id: str, after: int) -> list[EventRow]:
        with self._sessions() as session:
            return store.events_after(session, run_id, after, _BATCH)

    def _progress(self, run_id: str) -> tuple[int, bool]:
        with self._sessions() as session:
            return store.progress(session, run_id)

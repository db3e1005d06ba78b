"""The comparison page: several runs side by side, filled in as they go on; and the forms that open it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Depends, Form, HTTPException, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from sse_starlette import EventSourceResponse, ServerSentEvent

from app import store
from app.compare.figures import figures
from app.compare.page import MAX_RUNS, Place, chosen_difference, heads, panel, snippets, stage_state, told
from app.events import Announcer
from app.pages.api import Found
from app.pages.context import Announced, Configured, Sessions, base, fragment, render
from app.pages.playground import rejection
from app.pages.submission import Asked, Rejected, accept
from app.stages import DEFAULT, STAGES, find_view
from app.store import EventRow, RunRow, Session

router = APIRouter(include_in_schema=False)
Number = Annotated[int, Query(ge=0, lt=2_000)]


def asked_place(
    runs: str = "",
    tab: str = DEFAULT,
    view: str = "",
    region: Annotated[int | None, Query(ge=0)] = None,
    part: str = "",
    left: Number = 0,
    right: Number = 1,
    left_text: Number = 0,
    right_text: Annotated[int | None, Query(ge=0, lt=2_000)] = None,
) -> Place:
    """What the address asks for.

    Raises a 422 when it names no run, or too many.
    """
    ids = tuple(filter(None, (piece.strip() for piece in runs.split(","))))
    if not ids:
        raise HTTPException(422, "name the runs to be compared: /compare?runs=one,another")
    if len(ids) > MAX_RUNS:
        raise HTTPException(422, f"{len(ids)} runs; at most {MAX_RUNS} can be compared at once")
    return Place(ids, find_view(tab).name, "diff" if view == "diff" else "", region, part, left, right, left_text, right_text)


AskedPlace = Annotated[Place, Depends(asked_place)]


def existing(session: Session, place: Place) -> list[RunRow]:
    """The runs of the address, in its order.

    Raises a 404 that names those that there are not.
    """
    known = {run_id for run_id in place.runs if run_id.isascii() and run_id.isalnum() and len(run_id) <= 32}
    found = store.find_runs(session, sorted(known))
    if missing := [run_id[:40] for run_id in place.runs if run_id not in found]:
        raise HTTPException(404, f"no such run: {', '.join(dict.fromkeys(missing))}")
    return [found[run_id] for run_id in place.runs]


def head_context(session: Session, place: Place) -> dict[str, Any]:
    """What stands above the tabs, and the states of the tabs."""
    runs = existing(session, place)
    chosen = heads(session, runs)
    rows = [store.stage_rows(session, run.id) for run in runs]
    states = {view.name: [stage_state(own, run, view.stage) for own, run in zip(rows, runs, strict=True)] for view in STAGES}
    return {"heads": chosen, "snippets": snippets(chosen), "figures": figures(told(session, chosen)), "states": states, "place": place}


def panel_context(session: Session, place: Place) -> dict[str, Any]:
    """What one stage shows of all runs."""
    chosen = heads(session, existing(session, place))
    view = find_view(place.tab)
    shown = panel(session, chosen, place, view.stage)
    choice = chosen_difference(shown, place) if place.view == "diff" else None
    return {"heads": chosen, "place": place, "view": view, "panel": shown, "choice": choice}


@router.get("/compare", response_class=HTMLResponse)
def compare(request: Request, place: AskedPlace, session: Sessions, settings: Configured) -> Response:
    """Runs side by side."""
    context = base(session, settings) | head_context(session, place) | panel_context(session, place)
    return render(request, "compare.html", context)


@router.get("/compare/panel", response_class=HTMLResponse)
def compare_panel(request: Request, place: AskedPlace, session: Sessions) -> Response:
    """One stage of the runs, to be renewed while they go on."""
    return render(request, "compare/panel.html", panel_context(session, place))


@router.get("/compare/stream")
async def stream(request: Request, place: AskedPlace, session: Sessions, announcer: Announced) -> EventSourceResponse:
    """While a run goes on: what stands above the tabs as fragments, and a message for each stage that has come."""
    going = [run.id for run in existing(session, place) if not run.finished]
    sessions = request.app.state.sessions

    def states() -> str:
        with sessions() as own:
            return fragment("compare/states.html", head_context(own, place))

    async def messages() -> AsyncIterator[ServerSentEvent]:
        async for rows in together(announcer, going):
            yield ServerSentEvent(data=await to_thread.run_sync(states), event="states")
            names = sorted({f"stage-{row.stage}" for row in rows if row.stage})
            if {row.kind for row in rows} & {"begin", "region", "end"}:
                names = ["stage-any"]
            for name in names:
                yield ServerSentEvent(data=name, event=name)
        yield ServerSentEvent(data="", event="end")

    return EventSourceResponse(messages(), ping=15)


async def together(announcer: Announcer, run_ids: list[str]) -> AsyncIterator[list[EventRow]]:
    """The events of several runs as they come; what came while the listener was busy comes at once. Ends with the last run."""
    queue: asyncio.Queue[list[EventRow] | None] = asyncio.Queue()

    async def listen(run_id: str) -> None:
        try:
            async for rows in announcer.follow(run_id):
                queue.put_nowait(rows)
        finally:
            queue.put_nowait(None)

    listeners = [asyncio.create_task(listen(run_id)) for run_id in dict.fromkeys(run_ids)]
    try:
        going = len(listeners)
        while going:
            arrived = [await queue.get()]
            while not queue.empty():
                arrived.append(queue.get_nowait())
            going -= arrived.count(None)
            yield [row for rows in arrived if rows for row in rows]
    finally:
        for listener in listeners:
            listener.cancel()


@router.post("/compare")
def submit_comparison(request: Request, session: Sessions, settings: Configured, asked: Annotated[Asked, Form()]) -> Response:
    """Submit what the form holds twice, to the chosen compiler (ours, if that is torch.compile) and to torch.compile, and open both."""
    first = "fuselab" if asked.compiler == "inductor" else asked.compiler
    try:
        options = asked.options()
        runs = [accept(session, settings, asked.source, compiler, asked.target, options) for compiler in (first, "inductor")]
    except Rejected as rejected:
        return rejection(request, session, settings, rejected, asked.tab)
    address = Place(tuple(run.id for run in runs), find_view(asked.tab or DEFAULT).name).to()
    if "HX-Request" in request.headers:
        return Response(headers={"HX-Redirect": address})
    return RedirectResponse(address, 303)


@router.post("/runs/{run_id}/compare")
def compare_with(
    run: Found,
    session: Sessions,
    settings: Configured,
    compiler: Annotated[str, Form()] = "",
    target: Annotated[str, Form()] = "",
    tab: Annotated[str, Form()] = DEFAULT,
) -> Response:
    """Submit a run's snippet and options again, to another compiler or for another target, and open both."""
    try:
        other = accept(session, settings, run.source, compiler or run.compiler, target or run.target, run.options)
    except Rejected as rejected:
        raise HTTPException(rejected.status, rejected.message) from None
    return RedirectResponse(Place((run.id, other.id), find_view(tab).name).to(), 303)

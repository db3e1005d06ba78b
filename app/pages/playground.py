"""The playground and the permalink, and what htmx asks for: a submitted run, one stage's panel, the stream of tab states."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Form, HTTPException, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from sse_starlette import EventSourceResponse, ServerSentEvent

from app import store
from app.pages.api import Found
from app.pages.context import EXAMPLES, Announced, Configured, Sessions, base, fragment, live_workers, render
from app.pages.submission import Asked, Rejected, accept, entries_text
from app.settings import Settings
from app.stages import DEFAULT, STAGES, Shown, find_view, shown
from app.stages.view import source_lines
from app.store import RunRow, Session, StageRow
from compiler.options import Options
from compiler.trace import Problem, Scalar, Stage

router = APIRouter(include_in_schema=False)
AMENDS = {"source": "Write a function of tensors, choose an example, or cut the snippet down to the part that you want to see."}


@dataclass(frozen=True, slots=True)
class TabState:
    """What a tab says of its stage: waiting, running, ok, error or skipped, and how long it took in all regions and parts."""

    name: str
    state: str
    millis: float | None


def tab_states(rows: list[StageRow], status: str) -> list[TabState]:
    """The states of all tabs, in their order; of several regions the gravest shows. The stage after the last is running."""
    by_name: dict[str, list[StageRow]] = {}
    for row in rows:
        by_name.setdefault(row.name, []).append(row)
    last = max((index for index, view in enumerate(STAGES) if view.stage in by_name), default=-1)
    absent = {"queued": "waiting", "running": "waiting"}.get(status, "missing")
    states = []
    for index, view in enumerate(STAGES):
        own = by_name.get(view.stage, [])
        if own:
            kinds = {row.status for row in own}
            state: str = next(kind for kind in ("error", "ok", "skipped") if kind in kinds)
        else:
            state = "running" if status == "running" and index == last + 1 else absent
        states.append(TabState(view.name, state, sum(row.millis for row in own) if own else None))
    return states


def graph_breaks(stages: list[Stage]) -> list[tuple[int, str]]:
    """Where Dynamo broke the graph and why, to be marked in the editor."""
    found = {}
    for stage in stages:
        for item in stage.decisions:
            if item.rule == "graph_break" and (lines := source_lines(item.origins, stage.origins)):
                found[lines[0]] = f"Graph break: {item.reason}"
    return sorted(found.items())


def run_context(session: Session, settings: Settings, run: RunRow) -> dict[str, Any]:
    """What the head of a run and its tabs show."""
    outline = store.outline(session, run.id)
    rows = store.stage_rows(session, run.id)
    return {
        "run": run,
        "outline": outline,
        "problem": outline.problem,
        "breaks": graph_breaks(store.stages(session, run.id, "dynamo")),
        "tabs": tab_states(rows, run.status),
        "workers": live_workers(session, settings),
    }


def form_values(source: str, compiler: str, target: str, options: Mapping[str, Scalar]) -> dict[str, Any]:
    """What the form shows; a run from before an option was there has its default."""
    known = Options().as_facts() | dict(options)
    changed = sum(value != Options().as_facts().get(name) for name, value in known.items())
    return {
        "source": source, "compiler": compiler, "target": target, "options": known, "config": entries_text(known), "changed": changed,
    }  # fmt: skip


def waiting() -> list[TabState]:
    return [TabState(view.name, "waiting", None) for view in STAGES]


def failed_stage(session: Session, run: RunRow) -> str:
    """The stage that a failed run ended at, which is what its reader wants to see first."""
    problem = store.outline(session, run.id).problem if run.status == "error" else None
    return problem.stage if problem else ""


def panel_context(session: Session, run: RunRow, tab: str, region: int | None, part: str) -> dict[str, Any]:
    """What one stage's panel shows."""
    failed = failed_stage(session, run)
    view = find_view(tab or failed or DEFAULT)
    stages = store.stages(session, run.id, view.stage)
    regions = store.outline(session, run.id).regions
    choice: Shown = shown(view, stages, regions, region, part)
    lines = run.source.count("\n") + 1
    return {"run": run, "view": view, "tab": view.name, "failed": failed, "shown": choice, "regions": regions, "source_lines": lines}


@router.get("/", response_class=HTMLResponse)
def playground(request: Request, session: Sessions, settings: Configured, example: str = "") -> Response:
    """The editor with an example, and empty tabs."""
    chosen = next((item for item in EXAMPLES if item.name == example), EXAMPLES[0])
    asked = form_values(chosen.source, "fuselab", "cpu", Options().as_facts())
    context = base(session, settings) | {
        "run": None,
        "asked": asked,
        "tabs": waiting(),
        "tab": DEFAULT,
        "problem": None,
        "chosen": chosen.name,
    }
    return render(request, "playground.html", context)


@router.get("/runs/{run_id}", response_class=HTMLResponse)
def permalink(
    request: Request,
    run: Found,
    session: Sessions,
    settings: Configured,
    tab: str = "",
    region: Annotated[int | None, Query(ge=0)] = None,
    part: str = "",
) -> Response:
    """A run as it was stored, with the editor holding its source."""
    asked = form_values(run.source, run.compiler, run.target, run.options)
    context = base(session, settings) | run_context(session, settings, run) | panel_context(session, run, tab, region, part)
    return render(request, "playground.html", context | {"asked": asked, "chosen": ""})


@router.post("/runs", response_class=HTMLResponse)
def submit_form(request: Request, session: Sessions, settings: Configured, asked: Annotated[Asked, Form()]) -> Response:
    """Submit from the page: the fragment of the run for htmx, or a redirect to it for a browser without scripts."""
    try:
        run = accept(session, settings, asked.source, asked.compiler, asked.target, asked.options())
    except Rejected as rejected:
        return rejection(request, session, settings, rejected, asked.tab)
    if "HX-Request" not in request.headers:
        return RedirectResponse(f"/runs/{run.id}", 303)
    context = run_context(session, settings, run) | panel_context(session, run, asked.tab, None, "")
    address = f"/runs/{run.id}" + (f"?tab={context['tab']}" if context["tab"] != DEFAULT else "")
    return render(request, "submitted.html", context, headers={"HX-Push-Url": address})


def rejection(request: Request, session: Session, settings: Settings, rejected: Rejected, tab: str) -> Response:
    """What the page shows for a form that was not accepted, at the head and at the field at fault."""
    if "HX-Request" not in request.headers:
        raise HTTPException(rejected.status, rejected.message)
    message = f"{rejected.message[:1].upper()}{rejected.message[1:]}".removesuffix(".") + "."
    problem = Problem(kind="limit", message=message[:4_000], hint=AMENDS.get(rejected.field, ""))
    context = {
        "run": None, "tabs": waiting(), "tab": find_view(tab or DEFAULT).name, "problem": problem,
        "workers": live_workers(session, settings), "faults": {rejected.field: message},
    }  # fmt: skip
    return render(request, "submitted.html", context, status_code=rejected.status)


@router.get("/machine", response_class=HTMLResponse)
def machine(request: Request, session: Sessions, settings: Configured) -> Response:
    """Whether a worker is there, for a page that waits for one."""
    return render(request, "machine.html", base(session, settings))


@router.get("/runs/{run_id}/panel", response_class=HTMLResponse)
def panel(
    request: Request, run: Found, session: Sessions, tab: str = "", region: Annotated[int | None, Query(ge=0)] = None, part: str = ""
) -> Response:
    """One stage of a run."""
    return render(request, "panel.html", panel_context(session, run, tab, region, part))


@router.get("/runs/{run_id}/stream")
async def stream(request: Request, run: Found, announcer: Announced, settings: Configured) -> EventSourceResponse:
    """While a run goes on: its tabs' states as fragments, and a message for each stage that has come, to renew a shown panel."""
    sessions = request.app.state.sessions

    def states() -> str:
        with sessions() as session:
            current = store.find_run(session, run.id)
            return fragment("states.html", run_context(session, settings, current or run))

    async def messages() -> AsyncIterator[ServerSentEvent]:
        async for rows in announcer.follow(run.id):
            yield ServerSentEvent(data=await to_thread.run_sync(states), event="states")
            for name in sorted({row.stage for row in rows if row.stage}):
                yield ServerSentEvent(data=name, event="stage")
            kinds = {row.kind for row in rows}
            if kinds & {"begin", "region", "end"}:
                yield ServerSentEvent(data="*", event="stage")
            if "end" in kinds:
                yield ServerSentEvent(data="", event="end")

    return EventSourceResponse(messages(), ping=15)

"""The JSON API: submit a snippet, read its run, its stages and its whole trace, and follow its events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, HTTPException, Query, Response
from pydantic import BaseModel, ConfigDict, Field
from sse_starlette import EventSourceResponse, ServerSentEvent

from app import store
from app.pages.context import EXAMPLES, Announced, Configured, Sessions
from app.pages.submission import MAX_OPTIONS, Rejected, accept
from app.store import RunRow
from compiler.options import COMPILERS, MAX_ENTRIES, MODES, POLICIES
from compiler.target import TARGETS
from compiler.trace import Part, Scalar, Stage, StageName, Trace

router = APIRouter(prefix="/api", tags=["api"])
Responses = dict[int | str, dict[str, Any]]


class Complaint(BaseModel):
    """Why a request was refused, and which of its fields is to be changed."""

    error: str
    field: str = ""


OPTIONS = (
    f"policy ({', '.join(POLICIES)}; how eagerly fuselab fuses), measure, check; what torch.compile is given where the script does not "
    f"say it: mode ({', '.join(MODES)}), dynamic (true, false or null: as PyTorch decides), fullgraph; and at most {MAX_ENTRIES} "
    "entries of PyTorch's configuration by name, such as inductor.max_fusion_size or dynamo.cache_size_limit"
)


class Submission(BaseModel):
    """A snippet to be compiled."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"source": EXAMPLES[0].source if EXAMPLES else "1", "target": "cpu"}]}
    )

    source: str = Field(description="Python source; at most 64 KiB of UTF-8")
    compiler: str = Field(default="fuselab", description=f"one of {', '.join(COMPILERS)}: ours, the real torch.compile observed, or none")
    target: str = Field(default="cpu", description=f"one of {', '.join(TARGETS)}")
    options: dict[str, Scalar] = Field(default={}, max_length=MAX_OPTIONS, description=OPTIONS)


class RunLink(BaseModel):
    """Where the run of a submission is."""

    id: str
    url: str
    status: Literal["queued", "running", "ok", "error"]


class StageState(BaseModel):
    region: int
    name: str
    part: str
    status: str
    millis: float


class RunState(RunLink):
    """A run without its texts."""

    source: str
    compiler: str
    target: str
    options: dict[str, Scalar]
    created_at: float
    finished_at: float | None
    stages: list[StageState]
    problem: dict[str, Any] | None


class StageList(BaseModel):
    stages: list[Stage]


class TargetFacts(BaseModel):
    name: str
    kind: str
    example: str


class ExampleSource(BaseModel):
    name: str
    title: str
    source: str


def complaints(*codes: int) -> Responses:
    """The documented refusals of an operation."""
    reasons = {
        400: "Not readable",
        403: "From another site",
        404: "No such run",
        413: "Too long",
        422: "Not understood",
        429: "The queue is full",
    }
    return {code: {"model": Complaint, "description": reasons[code]} for code in codes}


def existing_run(run_id: str, session: Sessions) -> RunRow:
    """The run of the path.

    Raises a 404 when there is none.
    """
    run = store.find_run(session, run_id) if run_id.isascii() and run_id.isalnum() else None
    if run is None:
        raise HTTPException(404, "no such run")
    return run


Found = Annotated[RunRow, Depends(existing_run)]


FINISHED: Responses = {200: {"model": RunLink, "description": "Already finished"}}
MESSAGE = {"type": "object", "required": ["data"], "properties": {name: {"type": "string"} for name in ("id", "event", "data")}}
STREAMED: Responses = {200: {"content": {"text/event-stream": {"schema": MESSAGE}}, "description": "One event of the trace a message"}}


def link(run: RunRow) -> dict[str, Any]:
    return {"id": run.id, "url": f"/runs/{run.id}", "status": run.status}


@router.post(
    "/runs",
    status_code=202,
    response_model=RunLink,
    responses=FINISHED | complaints(400, 403, 413, 422, 429),
)
def submit_run(submission: Submission, response: Response, session: Sessions, settings: Configured) -> dict[str, Any]:
    """Submit a snippet. 202 with a new or unfinished run; 200 with the finished run of the same content."""
    try:
        run = accept(session, settings, submission.source, submission.compiler, submission.target, submission.options)
    except Rejected as rejected:
        raise HTTPException(rejected.status, {"error": rejected.message, "field": rejected.field}) from None
    response.status_code = 200 if run.finished else 202
    response.headers["Location"] = f"/api/runs/{run.id}"
    return link(run)


@router.get("/runs/{run_id}", response_model=RunState, responses=complaints(404, 422))
def read_run(run: Found, session: Sessions) -> dict[str, Any]:
    """A run: what was asked, how it stands, which stages it has."""
    problem = store.outline(session, run.id).problem
    rows = [
        {"region": row.region, "name": row.name, "part": row.part, "status": row.status, "millis": row.millis}
        for row in store.stage_rows(session, run.id)
    ]
    asked = {"source": run.source, "compiler": run.compiler, "target": run.target, "options": run.options}
    times = {"created_at": run.created_at, "finished_at": run.finished_at}
    return link(run) | asked | times | {"stages": rows, "problem": problem.model_dump() if problem else None}


@router.get("/runs/{run_id}/stages/{name}", response_model=StageList, responses=complaints(404, 422))
def read_stage(
    run: Found, name: StageName, session: Sessions, region: Annotated[int | None, Query(ge=0, le=1 << 62)] = None, part: Part | None = None
) -> Response:
    """The stages of that name: of every region and part, or of the one asked for. Empty while there is none."""
    found = StageList(stages=store.stages(session, run.id, name, region, part))
    return Response(found.model_dump_json(), media_type="application/json")


@router.get("/runs/{run_id}/trace", response_model=Trace, responses=complaints(404, 422))
def read_trace(run: Found, session: Sessions) -> Response:
    """Everything that the run has produced so far, as one trace."""
    name = f'attachment; filename="fuselab-{run.id}.json"'
    return Response(store.trace(session, run.id).to_json(), media_type="application/json", headers={"Content-Disposition": name})


@router.get(
    "/runs/{run_id}/events",
    response_class=EventSourceResponse,
    responses=STREAMED | complaints(404, 422),
)
async def follow_run(
    run: Found, announcer: Announced, last_event_id: Annotated[int, Header(ge=0, le=(1 << 31) - 1)] = 0
) -> EventSourceResponse:
    """Server-sent events: each event of the run as JSON, its number as id, up to the end event. Last-Event-ID resumes.

    A second ``begin`` means that the run was started afresh: what came before it is void.
    """

    async def messages() -> AsyncIterator[ServerSentEvent]:
        async for rows in announcer.follow(run.id, last_event_id):
            for row in rows:
                yield ServerSentEvent(data=row.json, id=str(row.seq))

    return EventSourceResponse(messages(), ping=15)


@router.get("/targets", response_model=list[TargetFacts])
def list_targets() -> list[dict[str, str]]:
    """What code can be generated for."""
    return [{"name": target.name, "kind": target.kind, "example": target.example} for target in TARGETS.values()]


@router.get("/examples", response_model=list[ExampleSource])
def list_examples() -> list[dict[str, str]]:
    """The snippets that the playground offers."""
    return [{"name": example.name, "title": example.title, "source": example.source} for example in EXAMPLES]

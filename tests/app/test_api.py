"""The JSON API as a program meets it."""

from __future__ import annotations

import json

import pytest
from starlette.testclient import TestClient

from app import store
from app.main import create_app
from compiler.options import Options
from compiler.target import TARGETS
from compiler.trace import STAGE_NAMES, Begin, Trace, parse_event
from tests.app.samples import SOURCE, failed_run, good_run, training_run


def test_health(client):
    assert client.get("/healthz").json() == {"status": "ok", "mode": "private", "workers": 0}


def test_a_new_submission_is_accepted_and_waits(client):
    answer = client.post("/api/runs", json={"source": SOURCE})
    assert answer.status_code == 202
    body = answer.json()
    assert body["url"] == f"/runs/{body['id']}"
    run = client.get(f"/api/runs/{body['id']}").json()
    assert (run["status"], run["source"], run["target"], run["stages"]) == ("queued", SOURCE, "cpu", [])
    assert run["options"] == Options().as_facts()


def test_a_finished_run_of_the_same_content_comes_at_once(client, finish):
    run_id = finish(SOURCE, good_run())
    again = client.post("/api/runs", json={"source": SOURCE, "options": {"policy": "greedy"}})
    assert (again.status_code, again.json()["id"], again.json()["status"]) == (200, run_id, "ok")
    other = client.post("/api/runs", json={"source": SOURCE, "options": {"policy": "none"}})
    assert other.status_code == 202
    assert other.json()["id"] != run_id


def test_the_trace_is_what_the_events_tell(client, finish):
    run_id = finish(SOURCE, training_run())
    answer = client.get(f"/api/runs/{run_id}/trace")
    assert Trace.from_json(answer.content) == Trace.fold(training_run())


def test_stages_by_region_and_part(client, finish):
    run_id = finish(SOURCE, training_run())
    get = lambda query="": client.get(f"/api/runs/{run_id}/stages/code{query}").json()["stages"]  # noqa: E731
    keys = lambda stages: [(stage["region"], stage["part"]) for stage in stages]  # noqa: E731
    assert keys(get()) == [(0, "forward"), (0, "backward"), (1, "forward"), (1, "backward")]
    assert keys(get("?region=1")) == [(1, "forward"), (1, "backward")]
    assert keys(get("?region=1&part=backward")) == [(1, "backward")]
    assert get("?region=7") == []


def test_a_failed_run_says_why(client, finish):
    run_id = finish("bad", failed_run())
    run = client.get(f"/api/runs/{run_id}").json()
    assert run["status"] == "error"
    assert (run["problem"]["line"], run["problem"]["stage"], run["problem"]["hint"]) == (6, "dynamo", "Define it.")


def test_all_options_are_kept(client):
    options = {"mode": "max-autotune", "dynamic": True, "fullgraph": True, **{f"inductor.x{number}": number for number in range(40)}}
    answer = client.post("/api/runs", json={"source": SOURCE, "compiler": "inductor", "options": options})
    assert answer.status_code == 202
    run = client.get(f"/api/runs/{answer.json()['id']}").json()
    assert (run["compiler"], run["options"]) == ("inductor", Options().as_facts() | options)


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 422, "source"),
        ({"source": ""}, 422, "source"),
        ({"source": "x" * 65537}, 413, "source"),
        ({"source": "é" * 32769}, 413, "source"),
        ({"source": "x\0"}, 422, "source"),
        ({"source": "x", "target": "sm_1"}, 422, "target"),
        ({"source": "x", "compiler": "gcc"}, 422, "compiler"),
        ({"source": "x", "options": {"policy": "best"}}, 422, "options"),
        ({"source": "x", "options": {"\ud800": 1}}, 422, "options"),
        ({"source": "x", "options": {"mode": "fastest"}}, 422, "options"),
        ({"source": "x", "options": {"dynamic": "yes"}}, 422, "options"),
        ({"source": "x", "options": {"inductor.x": "y" * 500}}, 422, "options"),
        ({"source": "x", "options": {f"inductor.x{number}": 1 for number in range(41)}}, 422, "options"),
        ({"source": "x", "extra": 1}, 422, "extra"),
    ],
)
def test_refusals_name_the_field(client, body, status, field):
    answer = client.post("/api/runs", content=json.dumps(body), headers={"content-type": "application/json"})
    assert answer.status_code == status
    assert answer.json()["field"].split(".")[0] == field
    assert answer.json()["error"]


def test_half_a_surrogate_pair_is_refused(client):
    answer = client.post("/api/runs", content=b'{"source": "x \\ud800"}', headers={"content-type": "application/json"})
    assert answer.status_code == 422


def test_the_largest_source_is_accepted(client):
    assert client.post("/api/runs", json={"source": "#" * 65536}).status_code == 202


def test_a_full_queue_is_429(web_settings):
    with TestClient(create_app(web_settings.model_copy(update={"max_queued_runs": 1}))) as client:
        assert client.post("/api/runs", json={"source": "a"}).status_code == 202
        answer = client.post("/api/runs", json={"source": "b"})
        assert answer.status_code == 429


@pytest.mark.parametrize("path", ["", "/trace", "/events", "/stages/code"])
@pytest.mark.parametrize("run_id", ["nothere12345", "%00", "..%2f..", "é"])
def test_a_run_that_is_not_there_is_404(client, run_id, path):
    answer = client.get(f"/api/runs/{run_id}{path}")
    assert answer.status_code == 404
    assert answer.json()["error"]


def messages(text: str) -> list[tuple[int, str]]:
    blocks = [block for block in text.replace("\r\n", "\n").split("\n\n") if "data:" in block]
    fields = [dict(line.split(": ", 1) for line in block.split("\n")) for block in blocks]
    return [(int(field["id"]), field["data"]) for field in fields]


def test_events_stream_from_the_start_and_resume(client, finish):
    run_id = finish(SOURCE, good_run())
    whole = messages(client.get(f"/api/runs/{run_id}/events").text)
    assert [number for number, _ in whole] == list(range(1, len(good_run()) + 1))
    assert [parse_event(data) for _, data in whole] == good_run()
    rest = messages(client.get(f"/api/runs/{run_id}/events", headers={"Last-Event-ID": "5"}).text)
    assert rest == whole[5:]
    assert client.get(f"/api/runs/{run_id}/events", headers={"Last-Event-ID": str(len(whole))}).text.strip() == ""


def test_targets_and_examples(client):
    assert [target["name"] for target in client.get("/api/targets").json()] == list(TARGETS)
    examples = client.get("/api/examples").json()
    assert len(examples) >= 9
    assert "x = a + b\n    y = x * 2" in examples[0]["source"]
    for example in examples:
        compile(example["source"], example["name"], "exec")


def test_another_sites_page_may_not_submit(client):
    evil = client.post("/api/runs", json={"source": "x"}, headers={"Origin": "https://evil.example"})
    assert evil.status_code == 403
    own = client.post("/api/runs", json={"source": "x"}, headers={"Origin": "http://testserver"})
    assert own.status_code == 202


def test_a_private_server_answers_only_to_its_own_names(client):
    assert client.get("/healthz", headers={"Host": "rebound.example"}).status_code == 400


def test_a_listener_hears_what_comes_later(client, sessions):
    """The stream stays open until the end event, whatever comes in between."""
    import threading
    import time

    run_id = client.post("/api/runs", json={"source": SOURCE}).json()["id"]

    def work() -> None:
        with sessions() as session:
            for event in good_run():
                time.sleep(0.02)
                store.append_events(session, run_id, [event])

    thread = threading.Thread(target=work)
    thread.start()
    heard = messages(client.get(f"/api/runs/{run_id}/events").text)
    thread.join()
    assert [parse_event(data) for _, data in heard] == good_run()
    assert isinstance(parse_event(heard[0][1]), Begin)
    assert {parse_event(data).name for _, data in heard if '"stage"' in data[:20]} == set(STAGE_NAMES)  # type: ignore[union-attr]

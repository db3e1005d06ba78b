"""The pages: what a visitor's browser is sent, by a server that has no worker and did not see the run being made."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from starlette.testclient import TestClient

from app.main import create_app
from app.stages import STAGES, shown
from compiler.trace import STAGE_NAMES, Decision, Region, Section, Stage
from tests.app.samples import HOSTILE, SOURCE, failed_run, full_stage, good_run, stage, training_run


class Elements(HTMLParser):
    """All tags of a page with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def scripts(text: str) -> list[str | None]:
    return [attributes.get("src") for attributes in Elements(text).all("script")]


def test_there_is_a_view_for_every_stage_in_tab_order():
    assert tuple(view.name for view in STAGES) == STAGE_NAMES


def test_the_playground_holds_the_articles_example(client):
    page = client.get("/").text
    assert "x = a + b\n    y = x * 2" in page
    tabs = [tag for tag in Elements(page).all("button") if tag.get("role") == "tab"]
    assert [tab["data-name"] for tab in tabs] == list(STAGE_NAMES)
    assert [tab["tabindex"] for tab in tabs].count("0") == 1


def test_without_a_worker_the_page_says_so(client):
    assert "no worker: runs wait" in client.get("/").text
    run_id = client.post("/api/runs", json={"source": SOURCE}).json()["id"]
    assert "waiting: no worker is running" in client.get(f"/runs/{run_id}").text


@pytest.mark.parametrize("name", STAGE_NAMES)
def test_each_view_shows_everything_that_a_stage_holds(client, finish, name):
    full = full_stage(name, "MARK")
    run_id = finish(SOURCE, [*good_run()[:3], full, good_run()[-1]])
    page = client.get(f"/runs/{run_id}/panel?tab={name}").text
    assert "line one" in page
    for decision in full.decisions:
        assert decision.reason in page
    assert "registers" in page or name not in ("code", "fusion", "ptx", "sass", "loops", "aten", "dynamo")
    assert ("2 nodes" in page) is (name in ("dynamo", "joint", "passes", "aten", "fusion"))
    assert ("2.00× faster" in page) is (name == "timing")
    assert "120.6 KiB" in page or "121 KiB" in page


@pytest.mark.parametrize("name", STAGE_NAMES)
@pytest.mark.parametrize("status", ["ok", "error", "skipped"])
def test_each_view_renders_an_empty_stage(client, finish, name, status):
    empty = Stage(region=0, name=name, part="", status=status, reason="the reason" if status != "ok" else "")
    run_id = finish(SOURCE, [*good_run()[:3], empty, good_run()[-1]])
    answer = client.get(f"/runs/{run_id}/panel?tab={name}")
    assert answer.status_code == 200
    assert ("the reason" in answer.text) is (status != "ok")


@pytest.mark.parametrize("name", STAGE_NAMES)
def test_hostile_text_stays_text(client, finish, name):
    run_id = finish(f"# {HOSTILE.replace(chr(27), '')}\n", good_run(HOSTILE))
    page = client.get(f"/runs/{run_id}?tab={name}").text
    assert all(source and source.startswith("/static/") for source in scripts(page))
    assert "<script>alert" not in page
    assert "49" not in re.findall(r"\{\{ 7\*7 \}\}|(?<=&amp;)49", page)
    assert not [name for _, attributes in Elements(page).tags for name in attributes if name.startswith("on") or name == "style"]


def test_the_content_policy_forbids_inline_scripts(client):
    policy = client.get("/").headers["content-security-policy"]
    assert "script-src 'self' 'wasm-unsafe-eval';" in policy
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy


def test_a_permalink_renders_the_same_after_a_restart(client, finish, web_settings):
    run_id = finish(SOURCE, training_run())
    strip = lambda text: re.sub(r'content="[\w-]{22}"', "", text)  # noqa: E731  # the nonce differs
    pages = [strip(client.get(f"/runs/{run_id}?tab={name}&region=1&part=backward").text) for name in STAGE_NAMES]
    with TestClient(create_app(web_settings)) as restarted:
        again = [strip(restarted.get(f"/runs/{run_id}?tab={name}&region=1&part=backward").text) for name in STAGE_NAMES]
        assert restarted.post("/api/runs", json={"source": SOURCE}).json()["id"] == run_id
    assert again == pages


def test_a_failed_run_opens_at_the_stage_that_failed(client, finish):
    run_id = finish("bad", failed_run())
    page = client.get(f"/runs/{run_id}").text
    problem = next(tag for tag in Elements(page).all("div") if tag.get("id") == "problem")
    assert (problem["data-line"], problem["data-column"]) == ("6", "8")
    assert 'data-tab="dynamo"' in page
    assert 'data-tab="code"' in client.get(f"/runs/{run_id}?tab=code").text


def test_a_run_that_ended_in_a_stage_is_not_said_to_have_ended_before_it(client, finish):
    begin, _, end = failed_run()
    run_id = finish("untraceable", [begin, end])
    assert "ended in this stage" in client.get(f"/runs/{run_id}").text
    assert "ended before it" in client.get(f"/runs/{run_id}?tab=code").text


def test_the_form_gives_a_run_and_its_address(client):
    answer = client.post(
        "/runs", data={"source": SOURCE, "target": "sm_90", "policy": "none", "tab": "ptx"}, headers={"HX-Request": "true"}
    )
    assert answer.status_code == 200
    address = answer.headers["HX-Push-Url"]
    assert address.endswith("?tab=ptx")
    run = client.get("/api" + address.split("?")[0]).json()
    assert (run["target"], run["options"]["policy"], run["options"]["measure"]) == ("sm_90", "none", False)
    assert "sse-connect" in answer.text


def test_the_form_works_without_scripts(client):
    answer = client.post("/runs", data={"source": SOURCE}, follow_redirects=False)
    assert answer.status_code == 303
    assert SOURCE.splitlines()[5] in client.get(answer.headers["location"]).text


def test_the_form_says_what_is_wrong(client):
    answer = client.post("/runs", data={"source": "x" * 70_000}, headers={"HX-Request": "true"})
    assert answer.status_code == 413
    assert "the limit is 65,536" in answer.text


FORM = {
    "source": SOURCE, "compiler": "inductor", "policy": "max", "mode": "max-autotune", "dynamic": "true", "fullgraph": "on",
    "config": "torch._inductor.config.max_fusion_size = 32\ndynamo.cache_size_limit = 4  # few",
}  # fmt: skip


def test_a_permalink_keeps_the_compiler_and_all_options(client):
    page = client.get(client.post("/runs", data=FORM, follow_redirects=False).headers["location"]).text
    controls = Elements(page[page.index('<form id="controls"') : page.index("</form>")])
    chosen = [option.get("value", "") for option in controls.all("option") if "selected" in option]
    assert "inductor" in chosen
    assert "true" in chosen
    for name in ("max", "max-autotune"):
        assert f"<option selected>{name}</option>" in page
    boxes = {box["name"]: "checked" in box for box in controls.all("input") if box.get("type") == "checkbox"}
    assert boxes == {"fullgraph": True, "measure": False}
    assert "dynamo.cache_size_limit = 4\ninductor.max_fusion_size = 32" in page
    assert "torch.compile (Inductor)" in page


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("config", "inductor.max_fusion_size", "line 1 of the configuration is no entry"),
        ("config", "\ninductor.x = os.system", "line 2 of the configuration"),
        ("config", "inductor.x = " + "9" * 30, "too large"),
        ("mode", "fastest", "mode is one of"),
        ("policy", "best", "policy is one of"),
        ("dynamic", "maybe", "dynamic is true, false or"),
        ("target", "sm_1", "sm_1"),
        ("compiler", "gcc", "gcc"),
    ],
)
def test_a_refusal_stands_at_its_field(client, field, value, said):
    answer = client.post("/runs", data=FORM | {field: value}, headers={"HX-Request": "true"})
    assert answer.status_code == 422
    faults = {tag["id"]: "hidden" not in tag for tag in Elements(answer.text).all("p") if tag.get("class") == "fault"}
    assert [name for name, shown in faults.items() if shown] == [f"fault-{field}"]
    assert said.lower() in re.search(rf'id="fault-{field}"[^>]*>(.*?)</p>', answer.text)[1].lower()  # type: ignore[index]
    assert f'aria-describedby="fault-{field}"' in client.get("/").text
    assert client.post("/runs", data=FORM | {field: value}).status_code == 422


def test_differences_and_choices_are_shown_by_name(client, finish):
    diff = Section(title="fuse_attention", language="diff", text="--- a\n+++ b\n@@ -1 +1,2 @@\n-x = y\n+x = z\n+w = x\n")
    said = Decision(subject="fuse_attention", verdict="noted", rule="pass", reason="It matched once.", numbers={"matches": 1})
    tried = [
        Decision(
            subject=f"config {size}",
            verdict="chosen" if size == 64 else "lost",
            rule="fastest",
            reason="Measured.",
            round=1,
            numbers={"time_us": size},
        )
        for size in (32, 64)
    ]
    saved = Decision(subject="relu", verdict="kept", rule="saved", reason="Kept for backward.", numbers={"bytes": 4096}, origins=(0,))
    stages = [
        stage("passes", sections=(diff,), decisions=(said,)), stage("autotune", decisions=tuple(tried)), stage("joint", "", decisions=(saved,)),
    ]  # fmt: skip
    tried.append(Decision(subject="mm", verdict="chosen", rule="only_choice", reason="Nothing else may be.", round=2))
    stages[1] = stage("autotune", decisions=tuple(tried))
    run_id = finish(SOURCE, [*good_run()[:3], *stages, good_run()[-1]])
    panels = {name: client.get(f"/runs/{run_id}/panel?tab={name}").text for name in ("passes", "autotune", "joint")}
    assert "−1" in panels["passes"]
    assert "+2" in panels["passes"]
    assert 'data-language="diff"' in panels["passes"]
    assert "It matched once." in panels["passes"]
    assert "Choice 1" in panels["autotune"]
    assert "Choice 2" not in panels["autotune"]
    assert "Nothing else may be." in panels["autotune"]
    assert '<th class="right">time us</th>' in panels["autotune"]
    assert "4.0 KiB" in panels["joint"]


@pytest.mark.parametrize("source", ["", " \n"])
def test_an_empty_snippet_leaves_a_page_that_can_run_again(client, source):
    answer = client.post("/runs", data={"source": source}, headers={"HX-Request": "true"})
    assert answer.status_code == 422
    assert 'id="run"' in answer.text
    assert "The source is empty." in answer.text


def test_a_byte_order_mark_is_no_part_of_a_snippet(client):
    answer = client.post("/runs", data={"source": "\ufeff" + SOURCE}, headers={"HX-Request": "true"})
    assert client.get("/api" + answer.headers["HX-Push-Url"].split("?")[0]).json()["source"].startswith(SOURCE[:10])


def test_the_stream_sends_states_and_stages(client, finish):
    run_id = finish(SOURCE, good_run())
    text = client.get(f"/runs/{run_id}/stream").text
    assert "event: states" in text
    assert 'id="state-sass" data-state="ok" hx-swap-oob="true"' in text
    assert [line for line in text.splitlines() if line == "data: code"] == ["data: code"]
    assert text.rstrip().splitlines()[-2:][0].startswith("event: end") or "event: end" in text


def test_pages_that_are_not_there(client):
    answer = client.get("/runs/nothere12345", headers={"accept": "text/html"})
    assert answer.status_code == 404
    assert "no such run" in answer.text
    assert client.get("/nowhere").status_code == 404


def test_about_says_what_isolation_there_is(client, sessions):
    from app import store

    with sessions() as session:
        store.register_worker(session, "w", {"torch": "2.13.0", "missing isolation": "user namespaces"}, "D")
    page = client.get("/about").text
    assert "isolation level D" in page
    assert "user namespaces" in page
    playground = client.get("/").text
    assert "isolation level D" in playground, "a private server says on the playground itself that little isolates"
    assert "user namespaces" in playground


def test_the_region_and_part_shown_fall_back_to_what_is_there():
    stages = [full_stage("code", part=part, region=region) for region in (2, 5) for part in ("forward", "backward")]
    regions = [Region(id=2, title="a"), Region(id=5, title="b")]
    assert shown(STAGES[0], stages, regions, 5, "backward").pages[0].stage.region == 5
    assert [page.stage.part for page in shown(STAGES[0], stages, regions, 5, "backward").pages] == ["backward"]
    assert len(shown(STAGES[0], stages, regions, None, "").pages) == 2
    assert shown(STAGES[0], stages, regions, 9, "nonsense").region == 2
    assert shown(STAGES[0], [], [], None, "").pages == ()

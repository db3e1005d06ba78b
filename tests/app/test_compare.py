"""The comparison page and the forms that open it, on stored runs."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlsplit

import pytest
from starlette.testclient import TestClient

from app import store
from app.main import create_app
from compiler.trace import STAGE_NAMES, Begin, End
from tests.app.samples import HOSTILE, KERNEL, SOURCE, failed_run, good_run, timed_run, training_run
from tests.app.test_pages import Elements, scripts

HTML = {"accept": "text/html"}


@pytest.fixture
def pair(finish) -> list[str]:
    """Ours and Inductor's run of one snippet: 5 µs against 8 µs, one kernel against two."""
    text = KERNEL.replace("fused_add_mul", "triton_poi_fused_0")
    return [
        finish(SOURCE, timed_run("fuselab", 5, 0.5)),
        finish(SOURCE, timed_run("inductor", 8, 0.5, kernels=2, text=text), compiler="inductor"),
    ]


def cells(page: str, name: str) -> list[str]:
    """The cells of one line of the table of figures, without their tags."""
    row = re.search(rf'<th scope="row"[^>]*>{name}</th>(.*?)</tr>', page, re.DOTALL)
    assert row, f"no line {name}"
    return [re.sub(r"<[^>]+>", "", cell).strip() for cell in re.findall(r"<td[^>]*>(.*?)</td>", row[1], re.DOTALL)]


def compare(client: TestClient, *runs: str, **query: str) -> str:
    answer = client.get("/compare", params={"runs": ",".join(runs)} | query, headers=HTML)
    assert answer.status_code == 200, answer.text
    return answer.text


def test_the_figures_of_both_runs(client, pair):
    page = compare(client, *pair)
    assert cells(page, "generated kernels") == ["1", "2"]
    assert cells(page, "launches") == ["1", "2"]
    assert cells(page, "extern calls") == ["0", "0"]
    assert cells(page, "bytes moved") == ["1.0 KiB", "2.0 KiB"]
    assert cells(page, "graph breaks") == ["0", "0"]
    first, second = cells(page, "time forward")
    assert first.startswith("5.0 µs")
    assert "8.0 µs" in second
    assert "1.60× slower than A" in second


def test_noise_larger_than_the_difference_is_said(client, finish):
    runs = [finish(SOURCE, timed_run("fuselab", 5, 4)), finish(SOURCE, timed_run("inductor", 8, 0.5), compiler="inductor")]
    assert "within noise" in cells(compare(client, *runs), "time forward")[1]


def test_what_was_not_measured_is_said(client, finish, pair):
    unmeasured = finish(SOURCE, [*good_run()[:3], good_run()[-1]], target="sm_90")
    page = compare(client, pair[0], unmeasured)
    assert cells(page, "time forward")[1] == "not measured"
    assert cells(page, "generated kernels")[1] == "unknown"


def test_eager_counts_its_ops(client, finish, pair):
    eager = finish(SOURCE, [*timed_run("eager", 10, 1)[:3], End(status="ok")], compiler="eager")
    page = compare(client, pair[0], eager)
    assert cells(page, "launches") == ["1", "2"]
    assert cells(page, "bytes moved") == ["1.0 KiB", "3.9 KiB"]


def test_heads_show_what_differs_and_only_that(client, finish):
    first = finish(SOURCE, timed_run("fuselab", 5, 1), options={"policy": "none", "mode": "default"})
    second = finish(SOURCE, timed_run("fuselab", 5, 1, kernels=2), options={"policy": "max", "inductor.max_fusion_size": 32})
    heads = compare(client, first, second).split('id="figures"')[0]
    told = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", heads)
    assert told == [
        ("policy", "none"), ("inductor.max fusion size", "not set"), ("clock mhz", "2,001"),
        ("policy", "max"), ("inductor.max fusion size", "32"), ("clock mhz", "2,002"),
    ]  # fmt: skip


@pytest.mark.parametrize("tab", STAGE_NAMES)
@pytest.mark.parametrize("view", ["", "diff"])
def test_every_stage_of_whatever_runs(client, finish, pair, tab, view):
    others = [
        finish("other", training_run()),
        finish("bad", failed_run()),
        client.post("/api/runs", json={"source": "queued"}).json()["id"],
    ]
    page = compare(client, *pair, *others, tab=tab, view=view)
    assert "different snippets" in page
    assert page.count('class="column-head"') == 5
    assert "Waiting for a worker." in page or view == "diff"
    assert "NameError: name &#39;undefined&#39; is not defined" in page


def test_lines_of_one_origin_share_a_row(client, pair):
    rows = re.findall(r'<div class="row"><span class="anchor">(\d*)</span>(.*?)</div>\n', compare(client, *pair), re.DOTALL)
    by_anchor = {anchor: cell.count('data-l="0:6') for anchor, cell in rows if anchor}
    assert by_anchor["6"] == 4, "two lines from line 6 in each of two columns"


def test_the_difference_of_two_texts(client, pair):
    page = compare(client, *pair, view="diff")
    gone, come = (re.search(rf'<tr class="{kind}">(.*?)</tr>', page, re.DOTALL) for kind in ("gone", "come"))
    assert gone
    assert come
    assert "<mark>fused_add_mul</mark>" in gone[1] or "<mark>" in gone[1]
    assert "−1" in page
    swapped = compare(client, *pair, view="diff", left="1", right="0")
    assert "triton_poi" in re.search(r'<tr class="gone">(.*?)</tr>', swapped, re.DOTALL)[1]  # type: ignore[index]
    assert "The two texts are equal." in compare(client, *pair, view="diff", tab="dynamo")
    assert "not two texts" in compare(client, *pair, view="diff", tab="ptx")


def test_hostile_text_stays_text(client, finish):
    runs = [finish(f"# {number}", good_run(HOSTILE)) for number in range(2)]
    for tab in STAGE_NAMES:
        for view in ("", "diff"):
            page = compare(client, *runs, tab=tab, view=view)
            assert all(source and source.startswith("/static/") for source in scripts(page))
            assert "<script>alert" not in page
            assert not [name for _, attributes in Elements(page).tags for name in attributes if name.startswith("on") or name == "style"]


def test_a_run_that_is_not_there_is_named(client, pair):
    answer = client.get(f"/compare?runs={pair[0]},nothere12345", headers=HTML)
    assert answer.status_code == 404
    assert "no such run: nothere12345" in answer.text
    assert pair[0] not in answer.text


@pytest.mark.parametrize("runs", ["", ",", "a,b,c,d,e,f,g"])
def test_no_run_or_too_many_are_refused(client, runs):
    assert client.get(f"/compare?runs={runs}", headers=HTML).status_code == 422


@pytest.mark.parametrize("run_id", ["%00", "é", "..%2f..", "x" * 5000])
def test_odd_ids_are_404(client, run_id):
    assert client.get(f"/compare?runs={run_id}").status_code == 404


def test_one_run_and_the_same_run_twice(client, pair):
    assert "nothing to compare it with yet" in compare(client, pair[0])
    page = compare(client, pair[0], pair[0])
    assert "stands here twice" in page
    assert "The texts are equal." in page


def test_a_page_of_finished_runs_does_not_wait(client, pair):
    assert "sse-connect" not in compare(client, *pair)


def test_the_stream_tells_until_the_last_run_ends(client, sessions, pair):
    import threading
    import time

    open_run = client.post("/api/runs", json={"source": SOURCE, "target": "sm_90"}).json()["id"]
    assert "sse-connect" in compare(client, pair[0], open_run)

    def work() -> None:
        with sessions() as session:
            for event in good_run():
                time.sleep(0.02)
                store.append_events(session, open_run, [event])

    thread = threading.Thread(target=work)
    thread.start()
    text = client.get(f"/compare/stream?runs={pair[0]},{open_run}").text
    thread.join()
    assert "event: stage-code" in text
    assert 'id="state-sass"' in text
    assert text.rstrip().replace("\r", "").split("\n\n")[-1].startswith("event: end")


def test_one_click_submits_both_and_opens_them(client):
    form = {"source": SOURCE, "target": "sm_90", "config": "inductor.max_fusion_size = 32", "mode": "max-autotune", "tab": "aten"}
    answer = client.post("/compare", data=form, follow_redirects=False)
    assert answer.status_code == 303
    query = parse_qs(urlsplit(answer.headers["location"]).query)
    assert query["tab"] == ["aten"]
    runs = [client.get(f"/api/runs/{run_id}").json() for run_id in query["runs"][0].split(",")]
    assert [run["compiler"] for run in runs] == ["fuselab", "inductor"]
    assert {run["target"] for run in runs} == {"sm_90"}
    assert all(run["options"]["inductor.max_fusion_size"] == 32 and run["options"]["mode"] == "max-autotune" for run in runs)
    again = client.post("/compare", data=form | {"compiler": "inductor"}, headers={"HX-Request": "true"})
    assert again.headers["HX-Redirect"] == answer.headers["location"]
    eager = client.post("/compare", data=form | {"compiler": "eager"}, headers={"HX-Request": "true"})
    assert eager.headers["HX-Redirect"] != answer.headers["location"]


def test_a_comparison_that_cannot_be_asked_for_says_why(client):
    answer = client.post("/compare", data={"source": " "}, headers={"HX-Request": "true"})
    assert answer.status_code == 422
    assert "The source is empty." in answer.text


def test_a_run_is_compared_with_another_compiler_or_target(client, pair):
    page = client.get(f"/runs/{pair[0]}").text
    assert f'action="/runs/{pair[0]}/compare"' in page
    with_inductor = client.post(f"/runs/{pair[0]}/compare", data={"compiler": "inductor"}, follow_redirects=False)
    assert with_inductor.headers["location"] == f"/compare?runs={pair[0]},{pair[1]}"
    with_h100 = client.post(f"/runs/{pair[0]}/compare", data={"target": "sm_90"}, follow_redirects=False)
    other = client.get("/api/runs/" + with_h100.headers["location"].split(",")[1]).json()
    assert (other["source"], other["target"], other["compiler"]) == (SOURCE, "sm_90", "fuselab")


def test_a_comparison_reads_the_same_after_a_restart(client, pair, web_settings):
    strip = lambda text: re.sub(r'content="[\w-]{22}"', "", text)  # noqa: E731  # the nonce differs
    before = strip(compare(client, *pair))
    with TestClient(create_app(web_settings)) as restarted:
        assert strip(compare(restarted, *pair)) == before


def test_two_megabytes_of_one_line_are_answered(client, finish):
    from compiler.trace import Section
    from tests.app.samples import stage

    runs = []
    for sign in "ab":
        long = stage("code", sections=(Section(title="k", text=(sign * 99 + "\n") * 20_000),))
        runs.append(finish(sign, [Begin(compiler="fuselab", target="cpu"), long, End(status="ok")]))
    assert "own page</a> has all of it" in compare(client, *runs)
    assert "Only the first" in compare(client, *runs, view="diff")


@pytest.mark.slow
def test_six_runs_of_the_largest_stages_are_answered_in_time(client, finish):
    import time

    from compiler.trace import MAX_TEXT, Section
    from tests.app.samples import stage

    sections = tuple(Section(title=f"k{number}", text="\n" * (MAX_TEXT // 1_000), marks=((0, 1),) * 2_000) for number in range(500))
    runs = [
        finish(str(number), [Begin(compiler="fuselab", target="cpu"), stage("code", sections=sections), End(status="ok")])
        for number in range(6)
    ]
    for view in ("", "diff"):
        began = time.process_time()
        page = compare(client, *runs, view=view)
        assert time.process_time() - began < 20
        assert len(page) < 30_000_000

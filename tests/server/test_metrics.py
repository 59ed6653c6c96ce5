"""`GET /metrics` and `GET /healthz`: figures that follow what happens, and whether the server can work."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tests.server.serving import make_app, served
from tests.server.shop import look, pay
from tests.server.sse import Heard, watching

import holdfast
from holdfast import Agent
from holdfast.models.script import say
from holdfast.models.scripted import Scripted
from holdfast.runtime import Runtime
from holdfast.server import events, health, metrics
from holdfast.server._prometheus import MAX_SERIES, Counts, Histogram, Text
from holdfast.server.health import Health


@pytest.fixture
async def hf(tmp_path: Path) -> AsyncIterator[Runtime]:
    url = f"sqlite:///{tmp_path}/journal.db"
    async with holdfast.open(url, config={}, capabilities=[pay, look]) as found:
        yield found


async def broken(request: Request) -> Response:
    """Show what is counted when a handler fails."""
    raise RuntimeError(request.url.path)


@pytest.fixture
async def http(hf: Runtime) -> AsyncIterator[httpx.AsyncClient]:
    routes = [*metrics.routes(), *health.routes(), *events.routes(), Route("/broken/{x}", broken)]
    app = make_app(hf, routes, Middleware(metrics.Counting))
    app.state.health = Health(hf, every=0)
    async with served(app) as port, httpx.AsyncClient(timeout=20) as client:
        client.base_url = f"http://127.0.0.1:{port}"
        yield client


_LINE = re.compile(r"([a-z_]+)(?:\{(.*)\})? (\S+)")


async def figures(http: httpx.AsyncClient) -> dict[str, float]:
    answer = await http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found: dict[str, float] = {}
    for line in answer.text.splitlines():
        if not line.startswith("#"):
            assert _LINE.fullmatch(line), line
            name, _, value = line.rpartition(" ")
            assert name not in found
            found[name] = float(value)
    return found


async def test_figures_follow_what_happens(hf: Runtime, http: httpx.AsyncClient):
    before = await figures(http)
    assert before["holdfast_approvals_pending"] == 0
    await hf.shell.run("look('x')", session="a")
    await hf.shell.run("1 / 0", session="b")
    parked = await hf.shell.run("pay('amy')", session="c")
    agent = Agent(Scripted([say("Hello there.")]), name="clerk")
    await agent.run("Hi.", session="d", runtime=hf)
    found = await figures(http)
    assert found['holdfast_runs_ended_total{kind="code",status="completed"}'] == 1
    assert found['holdfast_runs_ended_total{kind="code",status="failed"}'] == 1
    assert found['holdfast_runs_ended_total{kind="agent",status="completed"}'] == 1
    assert found['holdfast_runs{status="waiting_for_approval"}'] == 1
    assert found['holdfast_effects_total{kind="tool_execution",status="completed"}'] == 1
    assert found['holdfast_effects_total{kind="provider_request",status="completed"}'] == 1
    assert found["holdfast_effects_in_doubt"] == 0
    assert found["holdfast_approvals_pending"] == 1
    assert found["holdfast_approvals_oldest_seconds"] >= 0
    assert found["holdfast_sessions_live"] == 4
    assert found['holdfast_workers{language="python"}'] >= 1
    assert found["holdfast_journal_seq"] == await hf.journal.last_seq()
    assert found["holdfast_journal_writable"] == 1
    assert found["holdfast_journal_write_seconds"] > 0
    assert found["holdfast_metrics_behind_records"] == 0
    [tokens] = [
        value
        for name, value in found.items()
        if name.startswith("holdfast_model_tokens_total{") and 'direction="output"' in name
    ]
    assert tokens > 0
    await hf.approvals.decide(str(parked.approval_id), "denied", actor="me")
    await hf.runs.resume_any(str(parked.run_id))
    found = await figures(http)
    assert found["holdfast_approvals_pending"] == 0
    assert found['holdfast_approvals_total{status="denied"}'] == 1
    assert 'holdfast_runs{status="waiting_for_approval"}' not in found


async def test_effects_in_doubt_are_counted(hf: Runtime, http: httpx.AsyncClient):
    from holdfast.contracts import Draft

    intent: dict[str, Any] = {
        "effect_id": "eff_1",
        "kind": "tool_execution",
        "name": "pay",
        "redacted_summary": "pay",
    }
    result: dict[str, Any] = {
        "effect_id": "eff_1",
        "terminal_status": "unknown",
        "reconciliation_ref": "ask",
        "redacted_summary": "pay",
    }
    await hf.journal.append(
        "s",
        [
            Draft(kind="effect_intent", payload=intent, effect_id="eff_1"),
            Draft(kind="effect_result", payload=result, effect_id="eff_1"),
        ],
    )
    found = await figures(http)
    assert found["holdfast_effects_in_doubt"] == 1
    assert found["holdfast_effects_open"] == 1
    assert found['holdfast_effects_total{kind="tool_execution",status="unknown"}'] == 1


async def test_requests_are_counted_by_route_never_by_what_is_in_it(http: httpx.AsyncClient):
    for name in ("a", "b"):
        with pytest.raises(httpx.HTTPError):
            (await http.get(f"/broken/{name}")).raise_for_status()
    await http.get("/nothing/at/all")
    await http.get("/v1/events", params={"after": "x"})
    found = await figures(http)
    assert found['holdfast_http_requests_total{method="GET",route="/broken/{x}",status="500"}'] == 2
    assert found['holdfast_http_requests_total{method="GET",route="none",status="404"}'] == 1
    assert found['holdfast_http_requests_total{method="GET",route="/v1/events",status="400"}'] == 1
    assert found['holdfast_http_request_seconds_count{route="/v1/events"}'] == 1
    assert found["holdfast_http_requests_open"] == 1


async def test_clients_that_watch_are_counted(http: httpx.AsyncClient):
    url = str(http.base_url.join("/v1/events"))
    async with watching(http, url, Heard()) as parts:
        await anext(parts)
        assert (await figures(http))["holdfast_sse_clients"] == 1


@pytest.mark.parametrize("caller", ["runner", "approver", "tenant"])
async def test_figures_are_for_who_may_read_all(http: httpx.AsyncClient, caller: str):
    found = await http.get("/metrics", headers={"X-Caller": caller})
    assert (found.status_code, found.json()["code"]) == (403, "FORBIDDEN")


# -- health -------------------------------------------------------------------------------------------


async def test_health_tells_details_to_who_may_read_all(hf: Runtime, http: httpx.AsyncClient):
    for caller in ("nobody", "runner", "tenant"):
        found = await http.get("/healthz", headers={"X-Caller": caller})
        assert (found.status_code, found.json()) == (200, {"status": "ok"})
    found = await http.get("/healthz", headers={"X-Caller": "reader"})
    checks = found.json()["checks"]
    assert {name: one["status"] for name, one in checks.items()} == {
        "journal": "ok",
        "workers": "ok",
        "surfaces": "ok",
    }
    assert (await hf.journal.verify()).ok
    assert await hf.journal.last_seq() == 0, "looking must not be on record"


async def test_health_is_503_when_the_journal_can_not_be_written(
    hf: Runtime, http: httpx.AsyncClient
):
    await hf.journal.close()
    found = await http.get("/healthz")
    assert found.status_code == 503
    assert found.json()["status"] == "failing"
    assert found.json()["checks"]["journal"]["status"] == "failing"


async def test_health_is_503_when_the_server_is_about_to_stop(hf: Runtime):
    app = make_app(hf, health.routes())
    app.state.work = type("Work", (), {"closing": True})()
    async with served(app) as port, httpx.AsyncClient() as client:
        found = await client.get(f"http://127.0.0.1:{port}/healthz")
    assert (found.status_code, found.json()["status"]) == (503, "stopping")


async def test_a_surface_that_is_not_there_degrades_and_fails_nothing(tmp_path: Path):
    config = {"surfaces": {"gone": {"kind": "module", "reference": "no_such_module_at_all"}}}
    async with holdfast.open("memory:", config) as hf:
        await hf.shell.run("1", session="s")
        [found] = [one for one in await Health(hf).look() if one.name == "surfaces"]
    assert found.state == "degraded"
    assert "gone" in found.detail


async def test_what_was_found_is_good_for_a_moment(hf: Runtime):
    looking = Health(hf, every=3600)
    first = await looking.look()
    await hf.journal.close()
    assert await looking.look() == first


# -- the text -----------------------------------------------------------------------------------------


@given(st.text(max_size=20))
def test_a_label_stays_on_its_line(label: str):
    counts = Counts("name")
    counts.add(label)
    text = Text()
    text.counts("x", "An x.", counts)
    *_, line, end = str(text).split("\n")
    assert end == ""
    told = re.fullmatch(r'x\{name="((?:[^"\\\n]|\\["\\n])*)"\} 1', line)
    assert told is not None
    back = re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], told[1])
    assert back == label


def test_series_are_bounded():
    counts, histogram = Counts("name"), Histogram("name")
    for n in range(MAX_SERIES + 10):
        counts.add(str(n))
        histogram.add(str(n), seconds=1)
    assert len(counts.values) == MAX_SERIES + 1
    assert counts.values["other",] == 10
    assert len(histogram.classes) == MAX_SERIES + 1


def test_a_histogram_is_cumulative():
    histogram = Histogram("route")
    for seconds in (0.0005, 0.005, 0.02, 100):
        histogram.add("/", seconds=seconds)
    text = Text()
    text.histogram("t", "How long.", histogram)
    found = dict(line.rsplit(" ", 1) for line in str(text).splitlines() if line[0] != "#")
    assert found['t_bucket{route="/",le="0.001"}'] == "1"
    assert found['t_bucket{route="/",le="0.005"}'] == "2"
    assert found['t_bucket{route="/",le="0.05"}'] == "3"
    assert found['t_bucket{route="/",le="+Inf"}'] == found['t_count{route="/"}'] == "4"

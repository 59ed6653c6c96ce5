"""Of what is another's, a tenant is told what it is told of what there is not: to the letter."""

import re
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import httpx
import pytest
from tests.server.http_client import Site, site
from tests.server.shop import paid, pay

import holdfast
from holdfast.contracts.token import TOKENS
from holdfast.gate.approvals import ANSWERS
from holdfast.runtime import Runtime

FULL = ("read", "run", "approve")


@pytest.fixture
async def hf() -> AsyncIterator[Runtime]:
    paid.clear()
    async with holdfast.open("memory:", config={}, capabilities=[pay]) as found:
        yield found


@pytest.fixture
async def web(hf: Runtime) -> AsyncIterator[Site]:
    async with site(hf) as found:
        yield found


class Theirs(NamedTuple):
    """What a tenant has."""

    run: str
    approval: str
    effect: str
    plan: str


async def made(client: httpx.AsyncClient, session: str) -> Theirs:
    path = f"/v1/sessions/{session}/run"
    parked = (await client.post(path, json={"code": "pay('bob')"})).json()
    shown = (await client.get(f"/v1/runs/{parked['run_id']}")).json()
    dry = {"code": "pay('bob')", "dry_run": True}
    plan = (await client.post(f"/v1/sessions/{session}-dry/run", json=dry)).json()["plan_id"]
    await client.post(f"/v1/approvals/{plan}/decision", json={"decision": "approved"})
    return Theirs(parked["run_id"], parked["approval_id"], shown["effects"][0]["id"], plan)


NOBODYS = Theirs("run_nope", "apr_nope", "eff_nope", "plan_nope")
YES = {"decision": "approved"}
PLANNED = {"code": "pay('bob')"}


def asked(it: Theirs, own: Theirs) -> list[tuple[str, str, Any]]:
    """Every request that names something that is no session, which a prefix would tell."""
    rpc = {"jsonrpc": "2.0", "id": 1}
    happened = {"answer": "happened"}

    def call(method: str, **params: Any) -> tuple[str, str, Any]:
        return "POST", "/rpc", {**rpc, "method": method, "params": params}

    return [
        ("GET", f"/v1/runs/{it.run}", None),
        ("GET", f"/v1/runs/{it.run}?wait_ms=1", None),
        ("POST", f"/v1/runs/{it.run}/resume", {}),
        ("POST", f"/v1/runs/{it.run}/cancel", {}),
        ("POST", "/v1/sessions/b-1/cancel", {"run_id": it.run}),
        ("GET", f"/v1/approvals/{it.approval}", None),
        ("POST", f"/v1/approvals/{it.approval}/decision", YES),
        ("POST", f"/v1/approvals/{it.plan}/decision", YES),
        ("POST", f"/v1/effects/{it.effect}/resolve", {"answer": "retry"}),
        ("POST", f"/v1/effects/{own.effect}/resolve", {**happened, "run_id": it.run}),
        ("POST", "/v1/sessions/b-2/run", {**PLANNED, "plan_id": it.plan}),
        ("GET", f"/v1/events?live=true&run={it.run}", None),
        ("GET", f"/v1/journal?run_id={it.run}", None),
        call("run.get", run_id=it.run),
        call("run.resume", run_id=it.run),
        call("run.cancel", run_id=it.run),
        call("effect.resolve", effect_id=it.effect, **happened),
        call("effect.resolve", effect_id=own.effect, run_id=it.run, **happened),
        call("approvals.decide", id=it.approval, **YES),
        call("approvals.decide", id=it.plan, **YES),
        call("session.run", session_id="b-2", plan_id=it.plan, **PLANNED),
    ]


def told(answer: httpx.Response, it: Theirs) -> tuple[int, str]:
    text = answer.text
    for place, name in it._asdict().items():
        text = text.replace(name, f"<{place}>")
    return answer.status_code, text


async def test_what_is_anothers_and_what_there_is_not_are_told_alike(web: Site, hf: Runtime):
    ours, theirs = await web.client(*FULL, prefix="a-"), await web.client(*FULL, prefix="b-")
    mine, own = await made(ours, "a-1"), await made(theirs, "b-1")
    for (method, path, body), (_, other, none) in zip(
        asked(mine, own), asked(NOBODYS, own), strict=True
    ):
        of_another = told(await theirs.request(method, path, json=body), mine)
        of_nobody = told(await theirs.request(method, other, json=none), NOBODYS)
        assert of_another == of_nobody, (method, path, body)
    assert paid == []
    shown = (await ours.get(f"/v1/runs/{mine.run}")).json()
    assert shown["status"] == "waiting_for_approval"


async def test_pages_tell_no_more_than_answers(web: Site):
    ours = await web.client(*FULL, prefix="a-")
    mine = await made(ours, "a-1")
    browser = await web.client()
    link = (await web.tokens.create(FULL, kind="link", prefix="b-")).text
    await browser.get("/enter", params={"code": link})
    for path in ("/runs/{0.run}", "/inbox/{0.approval}", "/inbox/{0.plan}", "/doubts/{0.effect}"):
        found = [await page(browser, path, it) for it in (mine, NOBODYS)]
        assert found[0] == found[1], path
        assert found[0][0] == 404
    found = [await page(browser, "/journal?run_id={0.run}", it) for it in (mine, NOBODYS)]
    assert found[0] == found[1]


async def page(browser: httpx.AsyncClient, path: str, it: Theirs) -> tuple[int, str]:
    answer = await browser.get(path.format(it), headers={"Accept": "text/html"})
    status, text = told(answer, it)
    return status, re.sub(r'(data-seq|seq)="?\d+"?', "", text)


@pytest.mark.parametrize("way", ["rest", "rpc"])
async def test_an_answer_that_is_not_theirs_to_give_is_on_record_as_one(
    web: Site, hf: Runtime, way: str
):
    ours, theirs = await web.client(*FULL, prefix="a-"), await web.client(*FULL, prefix="b-")
    mine = await made(ours, "a-1")
    said = {"decision": "approved", "reason": "why not"}
    if way == "rest":
        await theirs.post(f"/v1/approvals/{mine.approval}/decision", json=said)
    else:
        params = {"id": mine.approval, **said}
        asked = {"jsonrpc": "2.0", "id": 1, "method": "approvals.decide", "params": params}
        await theirs.post("/rpc", json=asked)
    refused = [one async for one in hf.journal.read(ANSWERS) if one.kind == "approval_refused"]
    assert [one.payload["id"] for one in refused] == [mine.approval]
    assert refused[0].payload["reason_code"] == "approval.not_yours"
    decision: Any = refused[0].payload["decision"]
    assert decision["reason"] == "why not"
    assert [one.kind async for one in hf.journal.read(TOKENS) if one.kind == "access_refused"] == []

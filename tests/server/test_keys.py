"""`Idempotency-Key`: whatever a POST asks for, the same key is the same request."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from tests.server.http_client import Site, site
from tests.server.shop import paid, pay

import holdfast
from holdfast import Agent
from holdfast.runtime import Runtime
from holdfast.server.limits import UNLIMITED
from holdfast.server.rest import ENDPOINTS
from holdfast.testing import ScriptedModel, say

POSTS = [one for one in ENDPOINTS if one.method == "POST"]
KEY = {"Idempotency-Key": "k"}
IDS = {"session_id": "s", "name": "clerk", "run_id": "r", "effect_id": "e", "approval_id": "a"}


@pytest.fixture
async def hf() -> AsyncIterator[Runtime]:
    paid.clear()
    async with holdfast.open("memory:", config={}, capabilities=[pay]) as found:
        yield found


@pytest.fixture
async def web(hf: Runtime) -> AsyncIterator[Site]:
    agents = {"clerk": Agent(ScriptedModel([say("Done.")]))}
    async with site(hf, limits=UNLIMITED, agents=agents) as found:
        yield found


@pytest.fixture
async def client(web: Site) -> httpx.AsyncClient:
    return await web.client("admin")


def conflicts(answer: httpx.Response) -> bool:
    return (answer.status_code, answer.json().get("code")) == (409, "IDEMPOTENCY_CONFLICT")


@pytest.mark.parametrize("how", ["dry_run", "validate_only"])
async def test_what_runs_nothing_is_done_once_too(client: httpx.AsyncClient, how: str):
    async def post(code: str, key: dict[str, str]) -> httpx.Response:
        return await client.post("/v1/sessions/s/run", json={"code": code, how: True}, headers=key)

    first = await post("pay('bob')", KEY)
    assert first.status_code == 200
    assert (await post("pay('bob')", KEY)).json() == first.json()
    assert conflicts(await post("pay('eve')", KEY))
    other = (await post("pay('bob')", {})).json()
    assert how == "validate_only" or other["plan_id"] != first.json()["plan_id"]
    for_real = await client.post("/v1/sessions/s/run", json={"code": "pay('bob')"}, headers=KEY)
    assert conflicts(for_real)


async def test_going_on_is_done_once_too(client: httpx.AsyncClient):
    parked = (await client.post("/v1/sessions/s/run", json={"code": "pay('bob')"})).json()
    path = f"/v1/runs/{parked['run_id']}/resume"
    first = (await client.post(path, json={}, headers=KEY)).json()
    assert first["status"] == "waiting_for_approval"
    decided = f"/v1/approvals/{parked['approval_id']}/decision"
    await client.post(decided, json={"decision": "approved", "resume": False})
    assert (await client.post(path, json={}, headers=KEY)).json() == first
    assert paid == []
    assert conflicts(await client.post(path, json={"wait_ms": 1}, headers=KEY))
    assert (await client.post(path, json={})).json()["status"] == "ok"
    assert paid == ["bob"]


async def test_a_run_that_goes_on_for_longer_has_its_result_by_the_same_key(
    client: httpx.AsyncClient,
):
    parked = (await client.post("/v1/sessions/s/run", json={"code": "pay('bob')"})).json()
    decided = f"/v1/approvals/{parked['approval_id']}/decision"
    await client.post(decided, json={"decision": "approved", "resume": False})
    path = f"/v1/runs/{parked['run_id']}/resume"
    said: dict[str, Any] = {"json": {}, "headers": KEY, "params": {"wait_ms": 0}}
    answer = await client.post(path, **said)
    assert answer.status_code == 202
    assert conflicts(await client.post(path, json={"wait_ms": 1}, headers=KEY))
    await client.get(f"/v1/runs/{parked['run_id']}", params={"wait_ms": 10_000})
    again = await client.post(path, **said)
    while again.status_code == 202:
        again = await client.post(path, **said)
    assert again.json()["status"] == "ok"
    assert paid == ["bob"]


@pytest.mark.parametrize("first", ["made", "run"])
@pytest.mark.parametrize("one", POSTS, ids=lambda one: one.name)
async def test_a_key_stands_for_one_request_of_any_kind(
    client: httpx.AsyncClient, one: Any, first: str
):
    if first == "made":
        path, body = "/v1/sessions", {"session_id": "first"}
    else:
        path, body = "/v1/sessions/first/run", {"code": "1"}
    assert (await client.post(path, json=body, headers=KEY)).status_code == 200
    other = (
        one.example
        if one.example is not None
        else {"snapshot": ""}
        if one.name == "restore_session"
        else {}
    )
    answer = await client.post(one.path.format(**IDS), json=other, headers=KEY)
    assert conflicts(answer), answer.text

"""HTTP: sessions, runs, approvals, agents, the journal, tools and surfaces."""

import re
from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx
import pytest
from tests.server.http_client import Site, ids, site
from tests.server.shop import look, paid, pay

import holdfast
from holdfast import Agent, Context, capability
from holdfast.contracts.approval import Asks
from holdfast.gate.executor import NeedsAnswer, Question
from holdfast.runtime import Runtime
from holdfast.testing import ScriptedModel, say


@capability(side_effect="read")
def greet(context: Context) -> str:
    """Greet somebody, whose name has to be asked for."""
    answer = context.answers.get("q")
    if answer is None:
        form: Any = {"type": "object", "properties": {"name": {"type": "string"}}}
        raise NeedsAnswer(Question(Asks.INPUT, "Who?", {**form, "required": ["name"]}, key="q"))
    return f"hello {answer.content}"


@pytest.fixture
async def hf() -> AsyncIterator[Runtime]:
    paid.clear()
    async with holdfast.open("memory:", config={}, capabilities=[pay, look]) as found:
        yield found


@pytest.fixture
async def web(hf: Runtime) -> AsyncIterator[Site]:
    agents = {"helper": Agent(ScriptedModel([say("All done.")]), instructions="Help.")}
    async with site(hf, agents=agents) as found:
        yield found


@pytest.fixture
async def admin(web: Site) -> httpx.AsyncClient:
    return await web.client("admin")


def ok(answer: httpx.Response, status: int = 200) -> Any:
    assert answer.status_code == status, (answer.status_code, answer.text)
    return answer.json()


def refused(answer: httpx.Response, status: int, code: str) -> Any:
    found = answer.json()
    assert (answer.status_code, found["code"]) == (status, code), answer.text
    assert found["message"].endswith(".")
    return found


async def run(client: httpx.AsyncClient, session: str, code: str, **more: Any) -> Any:
    return ok(await client.post(f"/v1/sessions/{session}/run", json={"code": code, **more}))


# -- sessions -----------------------------------------------------------------------------------------


async def test_code_runs_and_the_session_remembers(admin: httpx.AsyncClient):
    found = await run(admin, "s", "x = 20\nprint('hi')\nx + n", inputs={"n": 2})
    assert (found["status"], found["result"], found["stdout"]) == ("ok", 22, "hi\n")
    assert (await run(admin, "s", "x"))["result"] == 20
    assert ok(await admin.get("/v1/sessions/s"))["runs"] == 2


async def test_code_that_fails_is_an_answer_and_no_error(admin: httpx.AsyncClient):
    assert (await run(admin, "s", "1 / 0"))["status"] == "runtime_error"
    assert (await run(admin, "s", "nope("))["status"] == "validation_error"
    assert (await run(admin, "s", "1", validate_only=True))["status"] == "ok"


async def test_a_session_is_made_saved_forked_emptied_put_back_and_ended(admin: httpx.AsyncClient):
    ok(await admin.post("/v1/sessions", json={"session_id": "a"}))
    await run(admin, "a", "x = 1")
    saved = ok(await admin.post("/v1/sessions/a/snapshot"))
    assert saved["bytes"] > 0
    made = await admin.post("/v1/sessions/a/fork", json={"new_session_id": "b"})
    assert ok(made, 201)["id"] == "b"
    assert made.headers["location"] == "/v1/sessions/b"
    ok(await admin.post("/v1/sessions/a/reset"))
    assert (await run(admin, "a", "x"))["status"] != "ok"
    ok(await admin.post("/v1/sessions/a/restore", json={"snapshot": saved["snapshot"]}))
    assert (await run(admin, "a", "x"))["result"] == 1
    assert (await run(admin, "b", "x"))["result"] == 1
    assert ok(await admin.delete("/v1/sessions/b"))["status"] == "destroyed"
    assert ids(ok(await admin.get("/v1/sessions"))["items"]) == ["a"]
    refused(await admin.post("/v1/sessions/b/reset"), 404, "SESSION_NOT_FOUND")
    bad = await admin.post("/v1/sessions/a/restore", json={"snapshot": "%"})
    refused(bad, 400, "SNAPSHOT_CORRUPT")


async def test_a_session_gets_a_name_if_it_has_none(admin: httpx.AsyncClient):
    assert ok(await admin.post("/v1/sessions"))["id"].startswith("ses_")


async def test_lists_come_in_parts(admin: httpx.AsyncClient):
    for name in "abcde":
        ok(await admin.post("/v1/sessions", json={"session_id": name}))
    seen: list[str] = []
    after = ""
    for _ in range(3):
        part = ok(await admin.get("/v1/sessions", params={"after": after, "limit": 2}))
        seen += ids(part["items"])
        after = part["next"]
    assert seen == list("abcde")
    assert after is None


NOT_UNDERSTOOD: list[tuple[str, str, bytes | None]] = [
    ("GET", "/v1/sessions?limit=0", None),
    ("GET", "/v1/sessions?limit=x", None),
    ("GET", "/v1/sessions?lmit=1", None),
    ("GET", "/v1/sessions?limit=1&limit=2", None),
    ("POST", "/v1/sessions/s/run", b"{"),
    ("POST", "/v1/sessions/s/run", b"[1]"),
    ("POST", "/v1/sessions/s/run", b'{"code": "1", "cod": 1}'),
    ("POST", "/v1/sessions/s/run", b'{"code": "1", "inputs": {"a": NaN}}'),
    ("POST", "/v1/sessions/s/run", b"[" * 100_000),
    ("POST", "/v1/sessions/s/run", b"\xff"),
    ("POST", "/v1/sessions/s/run", b"{}"),
    ("POST", "/v1/sessions/s/run", b'{"code": "1", "language": "perl"}'),
]


async def test_what_can_not_be_understood_is_refused(admin: httpx.AsyncClient):
    for method, path, body in NOT_UNDERSTOOD:
        refused(await admin.request(method, path, content=body), 400, "INVALID_ARGUMENT")


async def test_a_session_id_that_is_none_is_refused(admin: httpx.AsyncClient):
    refused(await admin.get("/v1/sessions/a%20b"), 400, "INVALID_SESSION_ID")
    refused(await admin.get("/v1/sessions/nobody"), 404, "SESSION_NOT_FOUND")


async def test_there_is_no_such_route(admin: httpx.AsyncClient):
    refused(await admin.get("/v1/nope"), 404, "NOT_FOUND")
    refused(await admin.get("/v1/sessions/"), 404, "NOT_FOUND")
    found = await admin.put("/v1/sessions")
    refused(found, 405, "METHOD_NOT_FOUND")
    assert "GET" in found.headers["allow"] or "POST" in found.headers["allow"]


# -- approvals ----------------------------------------------------------------------------------------


async def test_a_run_waits_is_approved_and_goes_on(admin: httpx.AsyncClient):
    parked = await run(admin, "s", "pay('bob')")
    assert parked["status"] == "waiting_for_approval"
    listed = ok(await admin.get("/v1/approvals"))["items"]
    assert ids(listed) == [parked["approval_id"]]
    assert listed[0]["arguments"] == {"to": "bob"}
    assert paid == []
    told = ok(
        await admin.post(
            f"/v1/approvals/{parked['approval_id']}/decision", json={"decision": "approved"}
        )
    )
    decision = told["decision"]
    assert decision["actor"].startswith("token:tok_")
    assert decision["via"] == f"http:{decision['actor']}"
    done = ok(await admin.get(f"/v1/runs/{parked['run_id']}", params={"wait_ms": 10_000}))
    assert done["status"] == "completed"
    assert done["result"]["result"] == "paid bob"
    assert [one["name"] for one in done["effects"]] == ["approval", "pay"]
    assert paid == ["bob"]
    again = await admin.post(
        f"/v1/approvals/{parked['approval_id']}/decision", json={"decision": "denied"}
    )
    late = refused(again, 409, "APPROVAL_CLOSED")["message"]
    assert re.search(r"already, by token:tok_\w+ \(http:token:tok_\w+\); your answer", late), late
    shown = ok(await admin.get(f"/v1/approvals/{parked['approval_id']}"))
    assert shown["status"] == "approved"


async def test_a_denied_run_is_resumed_on_request(admin: httpx.AsyncClient):
    parked = await run(admin, "s", "pay('bob')")
    path = f"/v1/approvals/{parked['approval_id']}/decision"
    said = {"decision": "denied", "reason": "No.", "resume": False}
    ok(await admin.post(path, json=said))
    found = ok(await admin.post(f"/v1/runs/{parked['run_id']}/resume"))
    assert found["status"] == "permission_denied"
    assert paid == []


async def test_a_question_is_answered_with_content():
    async with (
        holdfast.open("memory:", config={}, capabilities=[greet]) as hf,
        site(hf) as web,
    ):
        client = await web.client("run", "approve", "read")
        parked = await run(client, "s", "greet()")
        path = f"/v1/approvals/{parked['approval_id']}/decision"
        bad = await client.post(path, json={"decision": "approved"})
        refused(bad, 400, "INVALID_ARGUMENT")
        said = {"decision": "approved", "content": {"name": "Ada"}, "resume": False}
        ok(await client.post(path, json=said))
        found = ok(await client.post(f"/v1/runs/{parked['run_id']}/resume"))
        assert "Ada" in found["result"]


async def test_a_plan_is_decided_like_an_approval(admin: httpx.AsyncClient):
    dry = await run(admin, "s", "pay('bob')", dry_run=True)
    path = f"/v1/approvals/{dry['plan_id']}/decision"
    refused(
        await admin.post(path, json={"decision": "approved", "content": {}}),
        400,
        "INVALID_ARGUMENT",
    )
    assert ok(await admin.post(path, json={"decision": "approved"}))["status"] == "approved"
    done = await run(admin, "s", "pay('bob')", plan_id=dry["plan_id"])
    assert done["status"] == "ok"
    assert paid == ["bob"]


# -- runs and agents ----------------------------------------------------------------------------------


async def test_a_status_that_is_none_is_refused(admin: httpx.AsyncClient):
    refused(await admin.get("/v1/runs?status=zzz"), 400, "INVALID_ARGUMENT")
    asked = {"jsonrpc": "2.0", "id": 1, "method": "run.list", "params": {"status": "zzz"}}
    told = ok(await admin.post("/rpc", json=asked))["error"]
    assert (told["code"], told["data"]["code"]) == (-32602, "INVALID_ARGUMENT")


async def test_runs_are_listed_shown_and_stopped(admin: httpx.AsyncClient):
    done = await run(admin, "s", "look('a')")
    parked = await run(admin, "t", "pay('bob')")
    assert ids(ok(await admin.get("/v1/runs"))["items"]) == [done["run_id"], parked["run_id"]]
    active = ok(await admin.get("/v1/runs", params={"status": "active"}))["items"]
    assert ids(active) == [parked["run_id"]]
    of_s = ok(await admin.get("/v1/runs", params={"session_id": "s"}))["items"]
    assert ids(of_s) == [done["run_id"]]
    refused(
        await admin.post("/v1/sessions/t/run", json={"code": "1", "wait_ms": 0}), 409, "RUN_OPEN"
    )
    told = {"reason": "no longer needed"}
    stopped = ok(await admin.post(f"/v1/runs/{parked['run_id']}/cancel", json=told))
    assert stopped["status"] == "cancelled"
    assert ok(await admin.get(f"/v1/runs/{done['run_id']}"))["result"]["result"] == "A"
    refused(await admin.get("/v1/runs/run_none"), 404, "NOT_FOUND")


async def test_what_stands_in_a_session_is_stopped(admin: httpx.AsyncClient):
    await run(admin, "s", "pay('bob')")
    assert ok(await admin.post("/v1/sessions/s/cancel"))["cancelled"] is True
    assert ok(await admin.post("/v1/sessions/s/cancel"))["cancelled"] is False


async def test_an_agent_is_run_by_its_name(admin: httpx.AsyncClient):
    lines = ok(await admin.get("/v1/agents"))["items"]
    assert [(one["name"], one["instructions"]) for one in lines] == [("helper", "Help.")]
    found = ok(await admin.post("/v1/agents/helper/runs", json={"prompt": "Do it."}))
    assert (found["status"], found["text"], found["id"]) == (
        "completed",
        "All done.",
        found["run_id"],
    )
    shown = ok(await admin.get(f"/v1/runs/{found['id']}"))
    assert (shown["kind"], shown["result"]["text"]) == ("agent", "All done.")
    refused(await admin.post("/v1/agents/nobody/runs", json={"prompt": "x"}), 404, "NOT_FOUND")


async def test_an_effect_that_is_not_in_doubt_is_not_resolved(admin: httpx.AsyncClient):
    done = await run(admin, "s", "look('a')")
    effect = ok(await admin.get(f"/v1/runs/{done['run_id']}"))["effects"][0]["id"]
    said = {"answer": "retry"}
    refused(
        await admin.post(f"/v1/effects/{effect}/resolve", json=said), 409, "EFFECT_NOT_IN_DOUBT"
    )
    refused(await admin.post("/v1/effects/none/resolve", json=said), 404, "NOT_FOUND")


# -- the rest -----------------------------------------------------------------------------------------


async def test_the_journal_is_read_in_parts(admin: httpx.AsyncClient, hf: Runtime):
    await run(admin, "s", "look('a')")
    await run(admin, "t", "look('b')")
    seqs: list[int] = []
    after: int | None = 0
    while after is not None:
        part = ok(await admin.get("/v1/journal", params={"after": after, "limit": 3}))
        seqs += [one["seq"] for one in part["items"]]
        after = part["next"]
    assert seqs == [record.seq async for record in hf.journal.read_all()]
    of_s = ok(await admin.get("/v1/journal", params={"session_id": "s"}))["items"]
    assert {one["stream"] for one in of_s} == {"s"}
    ended = ok(await admin.get("/v1/journal", params={"kind": "effect_result"}))["items"]
    assert [one["stream"] for one in ended] == ["s", "t"]


async def test_what_secrets_are_known_by_is_told_nobody(web: Site):
    reader = await web.client("read")
    params = {"kind": "token_created"}
    found = ok(await reader.get("/v1/journal", params=params))["items"]
    asked = {"jsonrpc": "2.0", "id": 1, "method": "journal.read", "params": params}
    found += ok(await reader.post("/rpc", json=asked))["result"]["items"]
    assert len(found) >= 2
    assert {"id", "scopes"} <= set(found[0]["payload"])
    assert not [one for one in found if "secret" in one["payload"]]


async def test_tools_are_listed_found_and_shown(admin: httpx.AsyncClient):
    lines = ok(await admin.get("/v1/tools"))["items"]
    assert [one["name"] for one in lines] == ["look", "pay"]
    assert "def pay" in lines[1]["stub"]
    found = ok(await admin.get("/v1/tools", params={"query": "pay somebody", "limit": 1}))["items"]
    assert [one["name"] for one in found] == ["pay"]
    assert ok(await admin.get("/v1/tools/pay"))["side_effect"] == "write"
    refused(await admin.get("/v1/tools/none"), 404, "NOT_FOUND")
    refused(await admin.get("/v1/tools", params={"session_id": "none"}), 404, "SESSION_NOT_FOUND")


async def test_surfaces_are_added_shown_and_removed(admin: httpx.AsyncClient):
    spec = {"kind": "module", "reference": "tests.server.no_such_module"}
    made = await admin.post("/v1/surfaces", json={"name": "mod", "spec": spec})
    assert ok(made, 201)["name"] == "mod"
    assert [one["name"] for one in ok(await admin.get("/v1/surfaces"))["items"]] == ["mod"]
    assert ok(await admin.get("/v1/surfaces/mod"))["kind"] == "module"
    ok(await admin.delete("/v1/surfaces/mod"))
    refused(await admin.get("/v1/surfaces/mod"), 404, "NOT_FOUND")
    refused(await admin.delete("/v1/surfaces/mod"), 404, "NOT_FOUND")


async def test_two_who_decide_at_once_are_one_decision(web: Site):
    first, second = await web.client("run", "approve"), await web.client("approve")
    parked = await run(first, "s", "pay('bob')")
    path = f"/v1/approvals/{parked['approval_id']}/decision"
    answers: list[httpx.Response] = []

    async def decide(client: httpx.AsyncClient, decision: str) -> None:
        answers.append(await client.post(path, json={"decision": decision}))

    async with anyio.create_task_group() as group:
        group.start_soon(decide, first, "approved")
        group.start_soon(decide, second, "denied")
    assert sorted(one.status_code for one in answers) == [200, 409]

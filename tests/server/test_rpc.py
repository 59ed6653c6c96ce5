"""JSON-RPC over an open runtime: the protocol, every method, and what may go wrong."""

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.server.shop import look, paid, pay

import holdfast
from holdfast import Context, capability
from holdfast.contracts.approval import Asks
from holdfast.gate.executor import NeedsAnswer, Question
from holdfast.runtime import Runtime
from holdfast.server import rpc
from holdfast.server.methods import Methods
from holdfast.server.params import NoParams
from holdfast.server.rpc import MAX_BATCH, Connection, Method

SURFACE = """
session.create session.run session.validate session.cancel session.snapshot session.restore session.fork
session.reset session.destroy session.list tools.list tools.describe tools.search policy.get run.get run.list
run.resume run.cancel effect.resolve approvals.list approvals.decide journal.read journal.subscribe
journal.verify
""".split()


@pytest.fixture
async def hf() -> AsyncIterator[Runtime]:
    paid.clear()
    async with holdfast.open("memory:", config={}, capabilities=[pay, look]) as found:
        yield found


async def talk(methods: dict[str, Method], lines: list[bytes]) -> list[Any]:
    """What a client is sent for these lines, after which it has no more to say."""
    sent: list[Any] = []
    left = iter(lines)

    async def send(data: bytes) -> None:
        assert data.endswith(b"\n")
        assert data.count(b"\n") == 1
        sent.append(json.loads(data))

    async def receive() -> bytes | None:
        return next(left, None)

    await Connection(methods, send).serve(receive)
    return sent


async def heard(hf: Runtime, *lines: bytes) -> list[Any]:
    sent: list[Any] = []
    async with anyio.create_task_group() as background:
        methods = Methods(hf, background, actor="me", via="test").table
        sent += await talk(dict(methods), list(lines))
    return sent


async def said(hf: Runtime, *messages: Any) -> list[Any]:
    return await heard(hf, *(json.dumps(one).encode() for one in messages))


def request(method: str, id_: Any = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}


async def ask(hf: Runtime, method: str, **params: Any) -> Any:
    [answer] = await said(hf, request(method, **params))
    assert answer["jsonrpc"] == "2.0"
    assert answer["id"] == 1
    assert "error" not in answer, answer
    return answer["result"]


async def fail(hf: Runtime, method: str, **params: Any) -> tuple[int, str]:
    [answer] = await said(hf, request(method, **params))
    error = answer["error"]
    assert error["message"] == error["data"]["message"]
    return error["code"], error["data"]["code"]


# -- the protocol -------------------------------------------------------------------------------------


async def test_every_method_of_the_surface_is_there(hf):
    for method in SURFACE:
        [answer] = await said(hf, request(method, odd=1))
        assert answer["error"]["code"] == -32602, method


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{", -32700),
        (b"\xff", -32700),
        (b"NaN", -32700),
        (b"[" * 100_000, -32700),
        (b"1", -32600),
        (b'"text"', -32600),
        (b"null", -32600),
        (b"[]", -32600),
        (b"{}", -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"session.list"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":5}', -32600),
        (b'{"jsonrpc":"2.0","id":{},"method":"session.list"}', -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"session.list"}', -32600),
        (b'{"jsonrpc":"2.0","id":1e999,"method":"session.list"}', -32600),
        (b'{"jsonrpc":"2.0","id":-1e999,"method":"session.list"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"session.list","params":"x"}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"session.list","params":{"odd":1}}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"session.list","params":[1,2,3,4]}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"run.get","params":{}}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"nothing"}', -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"run.get","params":["run_x"]}', -32000),
    ],
    ids=lambda value: value[:60].decode(errors="replace") if isinstance(value, bytes) else None,
)
async def test_errors_by_the_standard(hf, line: bytes, code: int):
    [answer] = await heard(hf, line)
    assert answer["error"]["code"] == code
    assert {"code", "message"} <= set(answer["error"]["data"])


async def test_a_batch_is_answered_at_once_without_its_notifications(hf):
    batch = [
        request("session.run", "a", session_id="s", code="1"),
        {"jsonrpc": "2.0", "method": "session.create", "params": {"session_id": "t"}},
        request("session.list", "b"),
        5,
    ]
    [answers] = await said(hf, batch)
    assert [one["id"] for one in answers] == ["a", "b", None]
    assert await said(hf, [{"jsonrpc": "2.0", "method": "session.list"}]) == []
    [refused] = await said(hf, [1] * (MAX_BATCH + 1))
    assert refused["error"]["code"] == -32600


async def test_a_notification_is_carried_out_and_not_answered(hf):
    note = {"jsonrpc": "2.0", "method": "session.create", "params": {"session_id": "s"}}
    assert await said(hf, note, {"jsonrpc": "2.0", "method": "nothing"}) == []
    assert [one["id"] for one in (await ask(hf, "session.list"))["items"]] == ["s"]


async def test_what_changes_one_session_is_done_in_order(hf):
    messages = [request("session.run", at, session_id="s", code=f"x = {at}; x") for at in range(9)]
    answers = await said(hf, request("session.create", "new", session_id="s"), *messages)
    assert [one["result"]["result"] for one in answers[1:]] == list(range(9))


async def test_one_request_that_breaks_does_not_end_the_others():
    async def broken(_: Any, __: Any) -> None:
        raise ZeroDivisionError("oops")

    async def fine(_: Any, __: Any) -> int:
        return 1

    methods = {"broken": Method(NoParams, broken), "fine": Method(NoParams, fine)}
    lines = [json.dumps(request(name, name)).encode() for name in ("broken", "fine")]
    first, second = await talk(methods, lines)
    assert (first["error"]["code"], first["error"]["data"]["code"]) == (-32000, "INTERNAL_ERROR")
    assert second["result"] == 1


async def test_too_many_at_once_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rpc, "MAX_OPEN", 2)
    refused = anyio.Event()

    async def slow(_: Any, __: Any) -> int:
        await refused.wait()
        return 1

    async def send(data: bytes) -> None:
        sent.append(json.loads(data))
        refused.set()

    async def receive() -> bytes | None:
        return next(lines, None)

    sent: list[Any] = []
    lines = iter([json.dumps(request("slow", at)).encode() for at in range(3)])
    await Connection({"slow": Method(NoParams, slow)}, send).serve(receive)
    assert [one["id"] for one in sent] == [2, 0, 1]
    assert sent[0]["error"]["data"]["code"] == "RATE_LIMITED"


async def test_a_batch_waits_for_room_and_nothing_in_it_is_lost(monkeypatch: pytest.MonkeyPatch):
    """Nobody would hear that a notification was refused."""
    monkeypatch.setattr(rpc, "MAX_OPEN", 2)
    done: list[int] = []

    async def slow(_: Any, __: Any) -> int:
        await anyio.lowlevel.checkpoint()
        done.append(len(done))
        return 1

    methods = {"slow": Method(NoParams, slow)}
    told = {"jsonrpc": "2.0", "method": "slow"}
    asked = [request("slow", at) for at in range(5)]
    [answers] = await talk(methods, [json.dumps([*[told] * 5, *asked]).encode()])
    assert [(one["id"], one["result"]) for one in answers] == [(at, 1) for at in range(5)]
    assert len(done) == 10


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
MESSAGE = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | JSON,
        "id": JSON,
        "method": st.sampled_from(["fine", "nothing"]) | JSON,
        "params": JSON,
    },
)


@given(st.lists(MESSAGE | JSON | st.lists(MESSAGE, max_size=3), max_size=4), st.binary(max_size=20))
def test_whatever_comes_is_answered_by_the_standard_or_not_at_all(messages: list[Any], junk: bytes):
    async def fine(_: Any, __: Any) -> int:
        return 1

    lines = [json.dumps(one).encode() for one in messages]
    sent = anyio.run(talk, {"fine": Method(NoParams, fine)}, [*lines, junk.replace(b"\n", b"")])
    for answer in [
        one for found in sent for one in (found if isinstance(found, list) else [found])
    ]:
        assert answer["jsonrpc"] == "2.0"
        assert "id" in answer
        assert ("result" in answer) != ("error" in answer)
        if "error" in answer:
            assert answer["error"]["code"] in (-32700, -32600, -32601, -32602)


# -- the methods --------------------------------------------------------------------------------------


async def test_the_walk(hf):
    assert (await ask(hf, "session.create", session_id="s"))["status"] == "open"
    made = await ask(hf, "session.create")
    assert made["id"] != "s"
    done = await ask(hf, "session.run", session_id="s", code="x = 1; x + n", inputs={"n": 1})
    assert (done["status"], done["result"]) == ("ok", 2)
    saved = await ask(hf, "session.snapshot", session_id="s")
    assert len(base64.b64decode(saved["snapshot"])) == saved["bytes"]
    forked = await ask(hf, "session.fork", session_id="s", new_session_id="f")
    assert forked["id"] == "f"
    assert (await ask(hf, "session.run", session_id="f", code="x"))["result"] == 1
    await ask(hf, "session.reset", session_id="s")
    gone = await ask(hf, "session.run", session_id="s", code="x")
    assert gone["status"] == "runtime_error"
    await ask(hf, "session.restore", session_id="s", snapshot=saved["snapshot"])
    assert (await ask(hf, "session.run", session_id="s", code="x"))["result"] == 1
    assert (await ask(hf, "session.destroy", session_id="s"))["status"] == "destroyed"
    listed = await ask(hf, "session.list", limit=1)
    assert len(listed["items"]) == 1
    rest = await ask(hf, "session.list", after=listed["next"])
    assert rest["next"] is None


async def test_code_that_fails_is_a_result_and_not_an_error(hf):
    done = await ask(hf, "session.run", code="1/0")
    assert done["error"]["code"] == "RUNTIME_ERROR"
    done = await ask(hf, "session.run", code="1", session_id="no/slash")
    assert done["error"]["code"] == "INVALID_SESSION_ID"
    done = await ask(hf, "session.validate", code="x = (")
    assert (done["status"], done["error"]["code"]) == ("validation_error", "SYNTAX_ERROR")


async def test_tools_and_policy(hf):
    names = [one["name"] for one in (await ask(hf, "tools.list"))["items"]]
    assert names == ["look", "pay"]
    assert (await ask(hf, "tools.describe", name="pay"))["side_effect"] == "write"
    assert (await ask(hf, "tools.search", query="pay somebody"))["items"][0]["name"] == "pay"
    assert await fail(hf, "tools.describe", name="odd") == (-32000, "NOT_FOUND")
    await ask(hf, "session.create", session_id="s", setup={"clock": True})
    names = [one["name"] for one in (await ask(hf, "tools.list", session_id="s"))["items"]]
    assert names == ["look", "now", "pay"]
    policy = await ask(hf, "policy.get", session_id="s")
    assert policy["capabilities"] == names
    assert policy["setup"]["clock"] is True
    assert policy["limits"]["cpu_ms"] == 2000
    assert policy["policy"]["default"] == "ask"
    assert await fail(hf, "policy.get", session_id="n") == (-32000, "SESSION_NOT_FOUND")


async def test_runs_and_approvals(hf):
    parked = await ask(hf, "session.run", session_id="s", code="pay('ada')")
    assert parked["status"] == "waiting_for_approval"
    run = parked["run_id"]
    assert [one["id"] for one in (await ask(hf, "run.list", status="active"))["items"]] == [run]
    shown = await ask(hf, "run.get", run_id=run)
    assert shown["pending_approvals"] == [parked["approval_id"]]
    still = await ask(hf, "run.resume", run_id=run)
    assert still["status"] == "waiting_for_approval"
    decision = {"id": parked["approval_id"], "decision": "approved", "resume": False}
    decided = await ask(hf, "approvals.decide", **decision)
    assert (decided["status"], decided["decision"]["via"]) == ("approved", "test")
    assert paid == []
    done = await ask(hf, "run.resume", run_id=run)
    assert (done["result"], paid) == ("paid ada", ["ada"])
    assert await fail(hf, "approvals.decide", **decision) == (-32000, "APPROVAL_CLOSED")
    assert await fail(hf, "effect.resolve", effect_id="eff_x", answer="retry") == (
        -32000,
        "NOT_FOUND",
    )
    assert (await ask(hf, "approvals.list"))["items"] == []
    assert len((await ask(hf, "approvals.list", status="all"))["items"]) == 1


async def test_a_decision_resumes_unless_told_not_to(hf):
    parked = await ask(hf, "session.run", session_id="s", code="pay('ada')")
    # Leaving the task group waits for what goes on in the background.
    await ask(hf, "approvals.decide", id=parked["approval_id"], decision="approved")
    assert (await ask(hf, "run.get", run_id=parked["run_id"]))["status"] == "completed"
    assert paid == ["ada"]


async def test_a_plan_is_decided_too(hf):
    dry = await ask(hf, "session.run", session_id="s", code="pay('ada')", dry_run=True)
    decided = await ask(hf, "approvals.decide", id=dry["plan_id"], decision="approved")
    assert decided["status"] == "approved"
    run = {"session_id": "s", "code": "pay('ada')", "plan_id": dry["plan_id"]}
    assert (await ask(hf, "session.run", **run))["result"] == "paid ada"


async def test_cancel_reaches_a_run_that_waits(hf):
    parked = await ask(hf, "session.run", session_id="s", code="pay('ada')")
    assert (await ask(hf, "session.cancel", session_id="s"))["cancelled"]
    shown = await ask(hf, "run.get", run_id=parked["run_id"])
    assert shown["status"] == "cancelled"
    assert not (await ask(hf, "session.cancel", session_id="s"))["cancelled"]
    assert (await ask(hf, "run.cancel", run_id=parked["run_id"]))["status"] == "cancelled"
    assert await fail(hf, "session.cancel", session_id="n") == (-32000, "SESSION_NOT_FOUND")


async def test_the_journal(hf):
    await ask(hf, "session.run", session_id="s", code="look('x')")
    every = (await ask(hf, "journal.read"))["items"]
    assert [one["seq"] for one in every] == list(range(1, len(every) + 1))
    part = await ask(hf, "journal.read", limit=2)
    rest = await ask(hf, "journal.read", after=part["next"])
    assert [*part["items"], *rest["items"]] == every
    of_kind = await ask(hf, "journal.read", session_id="s", kind="effect_intent")
    assert [one["payload"]["name"] for one in of_kind["items"]] == ["look"]
    report = await ask(hf, "journal.verify")
    assert (report["ok"], report["records"]) == (True, len(every))


@pytest.mark.parametrize("snapshot", ["", "not base64!", "AAAA"])
async def test_a_snapshot_that_is_none_is_refused(hf, snapshot: str):
    params = {"session_id": "s", "snapshot": snapshot}
    assert await fail(hf, "session.restore", **params) == (-32000, "SNAPSHOT_CORRUPT")


async def test_a_subscription_that_is_not_there(hf):
    assert await fail(hf, "journal.unsubscribe", subscription="x") == (-32000, "NOT_FOUND")


async def test_a_question_is_answered_with_content():
    @capability(side_effect="read")
    def book(what: str, context: Context) -> str:
        """Book something."""
        answer = context.answers.get("q")
        if answer is None:
            form: Any = {"type": "object", "properties": {"n": {"type": "integer"}}}
            raise NeedsAnswer(
                Question(Asks.INPUT, "How many?", {**form, "required": ["n"]}, key="q")
            )
        return f"{what}: {answer.content}"

    async with holdfast.open("memory:", config={}, capabilities=[book]) as hf:
        parked = await ask(hf, "session.run", session_id="s", code="book('x')")
        item = (await ask(hf, "approvals.list"))["items"][0]
        assert (item["asks"], item["form"]["required"]) == ("input", ["n"])
        decision = {"id": parked["approval_id"], "decision": "approved", "resume": False}
        for content in (None, {"n": "x"}):
            failed = await fail(hf, "approvals.decide", **decision, content=content)
            assert failed[1] == "INVALID_ARGUMENT"
        await ask(hf, "approvals.decide", **decision, content={"n": 3})
        done = await ask(hf, "run.resume", run_id=parked["run_id"])
        assert done["result"] == "x: {'n': 3}"
        dry = await ask(hf, "session.run", session_id="t", code="1", dry_run=True)
        plan = {"id": dry["plan_id"] or "plan_x", "decision": "approved", "content": {}}
        assert (await fail(hf, "approvals.decide", **plan))[1] == "INVALID_ARGUMENT"

"""`/rpc`: the methods of the daemon over HTTP and WebSocket, each for those who may, and about nothing of others."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
import websockets
from tests.agent.watching import until
from tests.server.serving import make_app, served
from tests.server.shop import pay
from tests.server.sse import Heard, watching
from tests.server.sse import until as hears

import holdfast
from holdfast.contracts import Draft
from holdfast.contracts.content import Privacy
from holdfast.runtime import Runtime
from holdfast.server import events, rpc_http
from holdfast.server.methods import Methods
from holdfast.server.refusals import Refusals


@pytest.fixture
async def hf() -> AsyncIterator[Runtime]:
    async with holdfast.open("memory:", config={}, capabilities=[pay]) as found:
        yield found


class Site:
    def __init__(self, port: int, http: httpx.AsyncClient) -> None:
        self.port = port
        self.http = http

    async def post(self, message: Any, caller: str = "local") -> httpx.Response:
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        headers = {"Content-Type": "application/json", "X-Caller": caller}
        return await self.http.post("/rpc", content=data, headers=headers)

    async def ask(self, method: str, caller: str = "local", **params: Any) -> Any:
        answer = (await self.post(request(method, **params), caller)).json()
        assert "error" not in answer, answer
        return answer["result"]

    async def refused(self, method: str, caller: str, **params: Any) -> str:
        answer = (await self.post(request(method, **params), caller)).json()
        assert answer["error"]["code"] == -32000, answer
        return answer["error"]["data"]["code"]


@pytest.fixture
async def site(hf: Runtime) -> AsyncIterator[Site]:
    app = make_app(hf, [*rpc_http.routes(), *events.routes()])
    app.state.refusals = Refusals(hf.journal)
    async with served(app) as port, httpx.AsyncClient(timeout=20) as http:
        http.base_url = f"http://127.0.0.1:{port}"
        yield Site(port, http)


def request(method: str, id_: Any = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}


# -- the protocol -------------------------------------------------------------------------------------


async def test_a_message_a_batch_and_notifications(site: Site):
    one = await site.post(request("session.run", session_id="s", code="20 + 1"))
    assert one.status_code == 200
    assert one.headers["content-type"] == "application/json"
    assert one.json()["result"]["result"] == 21
    told = {"jsonrpc": "2.0", "method": "session.create", "params": {"session_id": "t"}}
    batch = await site.post([request("session.list", "a"), told, 5])
    assert [each["id"] for each in batch.json()] == ["a", None]
    silent = await site.post(told)
    assert (silent.status_code, silent.content) == (204, b"")
    names = [each["id"] for each in (await site.ask("session.list"))["items"]]
    assert names == ["s", "t"]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"{", -32700),
        (b"", -32700),
        (b"[]", -32600),
        (b"1", -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"nothing"}', -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"run.get","params":{"odd":1}}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"run.get","params":{"run_id":"x"}}', -32000),
    ],
)
async def test_errors_by_the_standard(site: Site, data: bytes, code: int):
    found = await site.post(data)
    assert found.status_code == 200
    assert found.json()["error"]["code"] == code


async def test_only_json_is_taken(site: Site):
    """A page of another site can't make a browser send this without asking first."""
    data = json.dumps(request("session.list")).encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        found = await site.http.post("/rpc", content=data, headers={"Content-Type": kind})
        assert found.status_code == 400


async def test_a_subscription_is_the_address_of_a_stream(hf: Runtime, site: Site):
    await site.ask("session.run", session_id="s", code="1")
    found = await site.ask("journal.subscribe", after=0, session_id="s", kind="session_created")
    assert found["subscription"] is None
    heard = Heard()
    url = f"http://127.0.0.1:{site.port}{found['url']}"
    async with watching(site.http, url, heard) as parts:
        await hears(parts, lambda heard: heard.data)
    assert heard.kinds == ["session_created"]
    assert (await site.ask("journal.subscribe"))["after"] == await hf.journal.last_seq()


async def test_a_decision_goes_on_with_the_run_and_says_who_made_it(hf: Runtime, site: Site):
    parked = await site.ask("session.run", "tenant", session_id="ten-a", code="pay('amy')")
    assert parked["status"] == "waiting_for_approval"
    id_ = parked["approval_id"]
    view = await site.ask("approvals.decide", "tenant", id=id_, decision="approved")
    assert view["decision"]["actor"] == "token:t"
    assert view["decision"]["via"] == "http:token:t"

    async def over() -> bool:
        return (await hf.runs.show(parked["run_id"])).status == "completed"

    await until(over)


# -- who may ------------------------------------------------------------------------------------------


SCOPE = {
    "read": "session.list tools.list tools.describe tools.search policy.get run.get run.list approvals.list"
    " journal.read journal.subscribe journal.unsubscribe journal.verify",
    "run": "session.create session.run session.validate session.cancel session.snapshot session.restore"
    " session.fork session.reset session.destroy run.resume run.cancel",
    "approve": "effect.resolve approvals.decide",
}
PARAMS: dict[str, dict[str, Any]] = {
    "session.run": {"code": "1"},
    "session.validate": {"code": "1"},
    "session.restore": {"snapshot": ""},
    "session.fork": {"new_session_id": "x"},
    "tools.describe": {"name": "pay"},
    "tools.search": {"query": "pay"},
    "run.get": {"run_id": "x"},
    "run.resume": {"run_id": "x"},
    "run.cancel": {"run_id": "x"},
    "effect.resolve": {"effect_id": "x", "answer": "retry"},
    "approvals.decide": {"id": "x", "decision": "denied"},
    "journal.unsubscribe": {"subscription": "x"},
}


async def test_every_method_has_a_scope(hf: Runtime):
    wanted = {name: scope for scope, names in SCOPE.items() for name in names.split()}
    async with anyio.create_task_group() as background:
        table = Methods(hf, background).table
        assert {name: method.scope for name, method in table.items()} == wanted


async def test_scope_is_enforced(site: Site):
    callers = {"read": "reader", "run": "runner", "approve": "approver"}
    for scope, names in SCOPE.items():
        for method in names.split():
            for other, caller in callers.items():
                params = PARAMS.get(method, {})
                answer = (await site.post(request(method, **params), caller)).json()
                code = answer.get("error", {}).get("data", {}).get("code")
                assert (code == "FORBIDDEN") == (other != scope), (method, caller, answer)


async def test_setup_and_actor_need_admin(site: Site):
    setup = {"mounts": [{"path": "/data", "host": "/etc"}]}
    for method, params in {
        "session.create": {"session_id": "ten-x", "setup": setup},
        "session.run": {"session_id": "ten-x", "code": "1", "setup": setup},
    }.items():
        answer = (await site.post(request(method, **params), "tenant")).json()
        assert answer["error"]["data"]["code"] in ("FORBIDDEN", "INVALID_ARGUMENT"), answer
    code = await site.refused("session.create", "tenant", session_id="ten-x", setup={})
    assert code == "FORBIDDEN"
    decision = {"id": "x", "decision": "denied", "actor": "the boss"}
    assert await site.refused("approvals.decide", "tenant", **decision) == "FORBIDDEN"


async def test_a_tenant_reaches_nothing_of_others(hf: Runtime, site: Site):
    parked = await site.ask("session.run", session_id="other", code="pay('amy')")
    effect = (await site.ask("run.get", run_id=parked["run_id"]))["effects"]
    names: list[tuple[str, dict[str, Any]]] = [
        (name, {**PARAMS.get(name, {}), "session_id": "other"})
        for name in SCOPE["run"].split()
        if name.startswith("session.")
    ]
    names += [
        (name, {"run_id": parked["run_id"]}) for name in ("run.get", "run.resume", "run.cancel")
    ]
    names += [
        (name, {"session_id": "other"}) for name in ("tools.list", "policy.get", "journal.read")
    ]
    names += [("approvals.decide", {"id": parked["approval_id"], "decision": "denied"})]
    names += [("journal.verify", {}), ("journal.subscribe", {"session_id": "other"})]
    names += [("effect.resolve", {"effect_id": one["id"], "answer": "retry"}) for one in effect]
    for name, params in names:
        assert await site.refused(name, "tenant", **params) == "NOT_FOUND", name
    assert await site.refused("session.fork", "tenant", session_id="ten-a", new_session_id="b")
    [waiting] = await hf.approvals.list()
    assert waiting.status == "pending"
    kinds = [one.kind async for one in hf.journal.read_all()]
    assert "access_refused" in kinds


async def test_what_is_not_there_and_what_is_anothers_look_the_same(site: Site):
    parked = await site.ask("session.run", session_id="other", code="1")
    found = [
        (await site.post(request("run.get", run_id=run), "tenant")).json()["error"]
        for run in (parked["run_id"], "run_nothing")
    ]
    assert found[0] == found[1]


async def test_lists_have_only_what_is_the_tenants(site: Site):
    for name in ("other", "ten-a", "ten-b", "tex"):
        await site.ask("session.run", session_id=name, code="1")
    first = await site.ask("session.list", "tenant", limit=1)
    assert [one["id"] for one in first["items"]] == ["ten-a"]
    rest = await site.ask("session.list", "tenant", after=first["next"])
    assert ([one["id"] for one in rest["items"]], rest["next"]) == (["ten-b"], None)
    runs = await site.ask("run.list", "tenant")
    assert [one["session_id"] for one in runs["items"]] == ["ten-a", "ten-b"]
    read = await site.ask("journal.read", "tenant")
    assert {one["stream"] for one in read["items"]} == {"ten-a", "ten-b"}
    made = await site.ask("session.create", "tenant")
    assert made["id"].startswith("ten-")


async def test_a_tenant_is_not_told_where_on_this_machine_things_are(tmp_path: Path, site: Site):
    database = {"name": "shop", "url": f"sqlite:///{tmp_path}/shop.db"}
    setup = {"mounts": [{"path": "/data", "host": str(tmp_path)}], "databases": [database]}
    await site.ask("session.create", session_id="ten-a", setup=setup)
    whole = await site.ask("policy.get", "reader", session_id="ten-a")
    assert whole["setup"]["mounts"][0]["host"] == str(tmp_path)
    told = await site.ask("policy.get", "tenant", session_id="ten-a")
    assert str(tmp_path) not in json.dumps(told)
    assert told["setup"]["mounts"] == [{"path": "/data", "writable": False}]
    assert told["capabilities"] == whole["capabilities"]


async def test_what_is_for_nobody_is_not_read(hf: Runtime, site: Site):
    said: dict[str, Any] = {"word": "swordfish"}
    await hf.journal.append("s", [Draft(kind="test.note", payload=said, privacy=Privacy.SECRET)])
    [record] = (await site.ask("journal.read", "reader"))["items"]
    assert (record["kind"], record["payload"]) == ("test.note", {})


async def test_the_journal_is_read_in_parts(hf: Runtime, site: Site):
    drafts = [Draft(kind="test.tick", payload={"n": n}) for n in range(7)]
    await hf.journal.append("s", drafts)
    await hf.journal.append("t", drafts)
    after, found = 0, []
    while after is not None:
        part = await site.ask("journal.read", after=after, limit=3, session_id="t")
        found += [one["seq"] for one in part["items"]]
        after = part["next"]
    assert found == list(range(8, 15))


# -- WebSocket ----------------------------------------------------------------------------------------


async def test_a_web_socket_is_a_connection_with_events(hf: Runtime, site: Site):
    url = f"ws://127.0.0.1:{site.port}/rpc"
    async with websockets.connect(url) as socket:
        await socket.send(json.dumps(request("journal.subscribe")))
        name = json.loads(await socket.recv())["result"]["subscription"]
        await socket.send(json.dumps(request("session.create", 2, session_id="s")))
        told = [json.loads(await socket.recv()) for _ in range(2)]
    [event] = [one["params"] for one in told if one.get("method") == "journal.event"]
    assert event["subscription"] == name
    assert event["event"]["kind"] == "session_created"


async def test_watching_a_session_has_what_shared_streams_say_of_it(hf: Runtime, site: Site):
    parked = await site.ask("session.run", session_id="s", code="pay('amy')")
    after = await hf.journal.last_seq()
    await hf.shell.run("1", session="t")
    decision = {"id": parked["approval_id"], "decision": "denied", "resume": False}
    await site.ask("approvals.decide", **decision)
    async with websockets.connect(f"ws://127.0.0.1:{site.port}/rpc") as socket:
        asked = request("journal.subscribe", after=after, session_id="s")
        await socket.send(json.dumps(asked))
        await socket.recv()
        event = json.loads(await socket.recv())["params"]["event"]
    assert (event["kind"], event["stream"]) == ("approval_responded", "holdfast:approvals")


async def test_a_place_that_is_to_come_is_refused_as_by_the_stream(site: Site):
    """It would be silent until the journal is there, and then leave out all that was before."""
    for refused in (
        await site.post(request("journal.subscribe", after=10_000)),
        await site.http.get("/v1/events?after=10000"),
    ):
        told = refused.json()
        assert told.get("error", {}).get("data", told)["code"] == "INVALID_ARGUMENT"
    async with websockets.connect(f"ws://127.0.0.1:{site.port}/rpc") as line:
        await line.send(json.dumps(request("journal.subscribe", after=10_000)))
        assert json.loads(await line.recv())["error"]["data"]["code"] == "INVALID_ARGUMENT"


async def test_a_web_socket_of_nobody_is_refused(site: Site):
    url = f"ws://127.0.0.1:{site.port}/rpc"
    with pytest.raises(websockets.exceptions.InvalidStatus):
        async with websockets.connect(url, additional_headers={"X-Caller": "nobody"}):
            pass

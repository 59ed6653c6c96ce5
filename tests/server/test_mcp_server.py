"""holdfast as an MCP server over HTTP: a real server on loopback, and the official client."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp_types import (
    CreateMessageRequestParams,
    CreateMessageResultWithTools,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    SamplingCapability,
    SamplingToolsCapability,
    TextContent,
    ToolUseContent,
)
from tests.server.http_client import listening

import holdfast
from holdfast import Agent, Context, capability
from holdfast.contracts.approval import Asks
from holdfast.gate.executor import Question
from holdfast.runtime import Runtime
from holdfast.server.mcp.sampling import ClientModel
from holdfast.server.serving import Started
from holdfast.testing import ScriptedModel, say

LEGACY, MODERN = "legacy", "2026-07-28"
ALL = ("read", "run", "approve")

FIRST = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    },
}

paid: list[str] = []
started = anyio.Event()


@capability(side_effect="write")
def pay(to: str) -> str:
    """Pay somebody."""
    paid.append(to)
    return f"paid {to}"


@capability(side_effect="read")
def look(what: str, *, times: int = 1) -> dict[str, str]:
    """Look something up."""
    return {"found": what.upper() * times}


@capability(side_effect="read", timeout_ms=60_000)
async def stand_still() -> str:
    """Take for ever."""
    started.set()
    await anyio.sleep_forever()
    return "never"


@capability(side_effect="read")
async def greet(context: Context) -> str:
    """Greet somebody, whose name has to be asked for."""
    form: Any = {"type": "object", "properties": {"name": {"type": "string", "minLength": 2}}}
    answer = await context.ask(Question(Asks.INPUT, "Who?", {**form, "required": ["name"]}))
    return f"hello {answer.content}"


CAPABILITIES = [pay, look, stand_still, greet]


@asynccontextmanager
async def opened(url: str = "memory:") -> AsyncGenerator[Runtime]:
    async with holdfast.open(url, {"shell": {"jail": "off"}}, capabilities=CAPABILITIES) as found:
        yield found


@pytest.fixture(autouse=True)
def nothing_paid() -> None:
    global started
    paid.clear()
    started = anyio.Event()


@pytest.fixture(scope="module")
async def hf() -> AsyncIterator[Runtime]:
    async with opened() as found:
        yield found


@pytest.fixture(scope="module")
async def server(hf: Runtime) -> AsyncIterator[Started]:
    agents: Any = {
        "helper": Agent(ScriptedModel([say("All done.")]), instructions="Help people."),
        "guest": Agent(ClientModel(), instructions="Use code."),
    }
    async with listening(hf, expose=True, agents=agents) as found:
        yield found


class Person:
    """Who sits at the client."""

    def __init__(self, *answers: ElicitResult) -> None:
        self.answers = [*answers]
        self.asked: list[ElicitRequestFormParams] = []

    async def __call__(self, context: Any, params: Any) -> ElicitResult:
        self.asked.append(params)
        return self.answers.pop(0)


def said(decision: str, **more: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"decision": decision, **more})


@asynccontextmanager
async def client(
    server: Started,
    *scopes: str,
    prefix: str | None = None,
    token: str | None = None,
    mode: str = LEGACY,
    **more: Any,
) -> AsyncGenerator[Client]:
    if token is None:
        token = (await server.tokens.create(scopes or ALL, prefix=prefix)).text
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http,
        Client(
            streamable_http_client(f"{server.url}/mcp", http_client=http),
            mode=mode,
            **more,
        ) as found,
    ):
        yield found


async def run(c: Client, code: str, **more: Any) -> dict[str, Any]:
    result = await c.call_tool("run_code", {"code": code, **more})
    assert isinstance(result.structured_content, dict)
    return result.structured_content


async def names(c: Client) -> set[str]:
    return {one.name for one in (await c.list_tools()).tools}


# -- code and sessions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [LEGACY, MODERN])
async def test_code_runs_in_a_session_of_the_connection(server: Started, mode: str):
    async with client(server, mode=mode) as c:
        first = await run(c, "x = 20")
        second = await run(c, "x + 1 + len(look('ab')['found'])")
    assert (first["status"], second["result"]) == ("ok", 23)
    assert first["session_id"] == second["session_id"]
    assert first["session_id"].startswith("mcp-")


async def test_two_connections_have_two_sessions_unless_they_name_one(server: Started):
    token = (await server.tokens.create(ALL)).text
    async with client(server, token=token) as one, client(server, token=token) as two:
        await run(one, "x = 1")
        assert (await run(two, "x"))["status"] != "ok"
        await run(one, "y = 2", session_id="shared")
        assert (await run(two, "y", session_id="shared"))["result"] == 2


async def test_failing_code_is_an_error_that_says_what_to_repair(server: Started):
    async with client(server) as c:
        result = await c.call_tool("run_code", {"code": "1 / 0"})
        checked = await c.call_tool("validate_code", {"code": "nobody()"})
        wrong = await c.call_tool("run_code", {"cod": "1"})
    assert result.is_error
    assert result.structured_content["error"]["code"] == "RUNTIME_ERROR"
    assert checked.structured_content["error"]["code"] == "UNKNOWN_TOOL"
    assert wrong.is_error
    assert wrong.structured_content["code"] == "INVALID_ARGUMENT"


async def test_sessions_can_be_shown_forked_reset_and_destroyed(server: Started):
    async with client(server) as c:
        await run(c, "x = 1", session_id="a")
        forked = await c.call_tool("session_fork", {"session_id": "a", "new_session_id": "b"})
        assert forked.structured_content["id"] == "b"
        assert (await run(c, "x", session_id="b"))["result"] == 1
        await c.call_tool("session_reset", {"session_id": "b"})
        assert (await run(c, "x", session_id="b"))["status"] != "ok"
        snapshot = await c.call_tool("session_snapshot", {"session_id": "a"})
        assert snapshot.structured_content["bytes"] > 0
        shown = await c.call_tool("session_show", {"session_id": "b"})
        assert len(shown.structured_content["latest_runs"]) == 2
        await c.call_tool("session_destroy", {"session_id": "b"})
        listed = await c.call_tool("session_list", {})
    ids = [one["id"] for one in listed.structured_content["items"]]
    assert "a" in ids
    assert "b" not in ids


async def test_tools_of_code_are_found_and_described(server: Started):
    async with client(server) as c:
        found = await c.call_tool("search_tools", {"query": "pay"})
        told = await c.call_tool("describe_tool", {"name": "look"})
    assert "def pay(" in found.structured_content["items"][0]["stub"]
    assert told.structured_content["side_effect"] == "read"


# -- tools of their own -----------------------------------------------------------------------------------


async def test_capabilities_are_tools_where_they_are_exposed(hf: Runtime, server: Started):
    async with client(server) as c:
        assert {"look", "pay", "helper", "run_code"} <= await names(c)
        before = len(await hf.runs.list())
        found = await c.call_tool("look", {"what": "a", "times": 2})
        wrong = await c.call_tool("look", {"who": "a"})
    assert found.structured_content == {"found": "AA"}
    assert wrong.is_error
    runs = await hf.runs.list()
    assert len(await hf.runs.effects(runs[before].id)) == 1  # through the gate
    async with opened() as another, listening(another) as other, client(other) as c:
        assert "look" not in await names(c)
        with pytest.raises(MCPError, match="no tool"):
            await c.call_tool("look", {"what": "a"})


async def test_an_agent_is_a_tool(server: Started):
    async with client(server) as c:
        result = await c.call_tool("helper", {"prompt": "Hello"})
    assert result.structured_content["status"] == "completed"
    assert result.structured_content["text"] == "All done."


async def test_an_agent_may_think_with_the_model_of_the_client(server: Started):
    heard: list[CreateMessageRequestParams] = []

    async def think(context: Any, params: CreateMessageRequestParams) -> Any:
        heard.append(params)
        if len(heard) == 1:
            code = {"code": "look('ab')['found']"}
            content: Any = [ToolUseContent(name="run_code", id="call_1", input=code)]
            reason = "toolUse"
        else:
            content, reason = TextContent(text="It is AB."), "endTurn"
        return CreateMessageResultWithTools(
            role="assistant", content=content, model="theirs", stop_reason=reason
        )

    tools = SamplingCapability(tools=SamplingToolsCapability())
    more: Any = {"sampling_callback": think, "sampling_capabilities": tools}
    async with client(server, **more) as c:
        result = await c.call_tool("guest", {"prompt": "What is ab?"})
    assert result.structured_content["text"] == "It is AB."
    assert heard[0].system_prompt is not None
    assert "Use code." in heard[0].system_prompt
    assert "AB" in str(heard[1].messages[-1].content)
    async with client(server) as c:
        alone = await c.call_tool("guest", {"prompt": "What is ab?"})
    assert alone.is_error
    assert alone.structured_content["error"]["code"] == "MODEL_AUTH"


# -- approvals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [LEGACY, MODERN])
async def test_the_person_at_the_client_is_asked(hf: Runtime, server: Started, mode: str):
    person = Person(said("approve", reason="fine"))
    token = await server.tokens.create(ALL)
    async with client(server, token=token.text, mode=mode, elicitation_callback=person) as c:
        found = await run(c, "pay('ann')")
    assert (found["status"], found["result"], paid) == ("ok", "paid ann", ["ann"])
    assert "May `pay` be called?" in person.asked[0].message
    assert '{"to": "ann"}' in person.asked[0].message
    decided = (await hf.approvals.list(status="decided"))[-1]
    assert decided.decision is not None
    assert decided.decision.actor == f"token:{token.view.id}"
    assert decided.decision.via == f"mcp:token:{token.view.id}"
    assert decided.decision.reason == "fine"


@pytest.mark.parametrize("mode", [LEGACY, MODERN])
@pytest.mark.parametrize(
    "answer", [said("deny"), said("maybe"), ElicitResult(action="decline")], ids=str
)
async def test_anything_but_a_yes_is_a_no(server: Started, mode: str, answer: ElicitResult):
    async with client(server, mode=mode, elicitation_callback=Person(answer)) as c:
        found = await run(c, "pay('bob')")
    assert found["error"]["code"] == "PERMISSION_DENIED"
    assert not paid


@pytest.mark.parametrize("mode", [LEGACY, MODERN])
async def test_who_says_nothing_leaves_it_waiting_and_it_can_be_resumed(server: Started, mode: str):
    person = Person(ElicitResult(action="cancel"))
    async with client(server, mode=mode, elicitation_callback=person) as c:
        found = await run(c, "pay('cid') + '!'")
        assert (found["status"], paid) == ("waiting_for_approval", [])
        waits = (await c.call_tool("approvals_list", {})).structured_content["items"][-1]
        assert found["approvals"] == [waits["id"]]
        answer = {"approval_id": waits["id"], "decision": "approved"}
        assert not (await c.call_tool("approvals_decide", answer)).is_error
        resumed = await c.call_tool("run_resume", {"run_id": found["run_id"]})
    assert resumed.structured_content["result"] == "paid cid!"
    assert paid == ["cid"]


async def test_a_client_that_can_not_ask_is_told_how_to_decide(server: Started):
    async with client(server) as c:
        found = await run(c, "pay('dan')")
        called = await c.call_tool("pay", {"to": "eve"})
    assert found["status"] == "waiting_for_approval"
    assert "approvals_decide" in found["next"]
    assert called.is_error  # clients hold what is no error against the schema of the result
    assert "waiting_for_approval" in str(called.content[0])


async def test_without_the_scope_nobody_at_the_client_is_asked(hf: Runtime, server: Started):
    person = Person()
    async with client(server, "read", "run", elicitation_callback=person) as c:
        assert "approvals_decide" not in await names(c)
        found = await run(c, "pay('fay')")
        answer = {"approval_id": found["approvals"][0], "decision": "approved"}
        refused = await c.call_tool("approvals_decide", answer)
        assert refused.structured_content["code"] == "FORBIDDEN"
        await hf.approvals.decide(found["approvals"][0], "approved", actor="boss")
        resumed = await c.call_tool("run_resume", {"run_id": found["run_id"]})
    assert resumed.structured_content["result"] == "paid fay"
    assert not person.asked


async def test_somebody_else_may_be_faster(hf: Runtime, server: Started):
    asked = anyio.Event()

    async def never(context: Any, params: Any) -> ElicitResult:
        asked.set()
        await anyio.sleep_forever()
        raise AssertionError

    async def decide() -> None:
        await asked.wait()
        waits = (await hf.approvals.list())[-1]
        await hf.approvals.decide(waits.id, "approved", actor="boss")

    async with client(server, elicitation_callback=never) as c, anyio.create_task_group() as group:
        group.start_soon(decide)
        assert (await run(c, "pay('gil')"))["result"] == "paid gil"


@pytest.mark.parametrize("mode", [LEGACY, MODERN])
async def test_a_question_of_a_call_under_way_is_asked_until_the_answer_fits(
    server: Started, mode: str
):
    person = Person(
        ElicitResult(action="accept", content={"name": "x"}),
        ElicitResult(action="accept", content={"name": "Hal"}),
    )
    async with client(server, mode=mode, elicitation_callback=person) as c:
        found = await run(c, "await greet()")
    assert found["result"] == "hello {'name': 'Hal'}"
    assert person.asked[0].requested_schema["properties"]["name"]["minLength"] == 2
    assert "does not fit" in person.asked[1].message


async def test_an_answer_counts_after_a_restart_and_for_nobody_else(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/journal.db"
    arguments = {"code": "pay('ida')"}
    async with opened(url) as hf, listening(hf) as server:
        token = (await server.tokens.create(ALL)).text
        stranger = (await server.tokens.create(ALL)).text
        person = Person()
        async with client(server, token=token, mode=MODERN, elicitation_callback=person) as c:
            found = await c.session.call_tool("run_code", arguments, allow_input_required=True)
        assert isinstance(found, InputRequiredResult)
        assert found.input_requests
    answers: Any = dict.fromkeys(found.input_requests, said("approve"))
    async with opened(url) as hf, listening(hf) as server:
        state = found.request_state
        async with client(server, token=stranger, mode=MODERN, elicitation_callback=person) as c:
            with pytest.raises(MCPError, match="requestState"):
                await c.call_tool(
                    "run_code", arguments, input_responses=answers, request_state=state
                )
        assert not paid
        async with client(server, token=token, mode=MODERN, elicitation_callback=person) as c:
            done = await c.call_tool(
                "run_code", arguments, input_responses=answers, request_state=state
            )
    assert done.structured_content["result"] == "paid ida"
    assert paid == ["ida"]


# -- while it is under way --------------------------------------------------------------------------------


async def test_progress_and_lines_come_with_the_effects_of_a_run(server: Started):
    heard: list[tuple[float, str | None]] = []
    lines: list[Any] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, message))

    async def log(params: Any) -> None:
        lines.append(params)

    more: Any = {"logging_callback": log, "log_level": "debug"}
    async with client(server, mode=MODERN, **more) as c:
        await c.call_tool("run_code", {"code": "look('a')"}, progress_callback=hear)
    values = [value for value, _ in heard]
    assert values == sorted(values)
    assert "Calling `look`." in [message for _, message in heard]
    assert "Calling `look`." in [one.data["message"] for one in lines]


@pytest.mark.parametrize("mode", [LEGACY, MODERN])
async def test_who_takes_a_request_back_cancels_its_run(hf: Runtime, server: Started, mode: str):
    async with client(server, "admin", mode=mode) as c:
        async with anyio.create_task_group() as group:

            async def call() -> None:
                code = "await stand_still()"
                await c.call_tool("run_code", {"code": code, "timeout_ms": 60_000})

            group.start_soon(call)
            await started.wait()
            group.cancel_scope.cancel()
        with anyio.fail_after(20):
            while (await hf.runs.list())[-1].status != "cancelled":  # noqa: ASYNC110 - another task's doing
                await anyio.sleep(0.02)
        assert (await hf.runs.list())[-1].ended_at is not None


async def test_a_client_that_is_gone_leaves_its_parked_run(hf: Runtime, server: Started):
    asked = anyio.Event()

    async def never(context: Any, params: Any) -> ElicitResult:
        asked.set()
        await anyio.sleep_forever()
        raise AssertionError

    async def call(c: Client) -> None:
        with pytest.raises(MCPError, match="closed"):
            await run(c, "pay('joe')")

    async with (
        anyio.create_task_group() as group,
        client(server, elicitation_callback=never) as c,
    ):
        group.start_soon(call, c)
        await asked.wait()
    found = (await hf.runs.list())[-1]
    assert found.status == "waiting_for_approval"
    await hf.approvals.decide(found.pending_approvals[0], "approved", actor="boss")
    assert (await hf.runs.resume(found.id)).result == "paid joe"


# -- who may what ---------------------------------------------------------------------------------------


async def test_a_prefix_is_all_that_a_caller_sees(hf: Runtime, server: Started):
    async with client(server) as c:
        other = await run(c, "pay('kim')", session_id="theirs")
    async with client(server, prefix="ten-") as c:
        own = await run(c, "1")
        assert own["session_id"].startswith("ten-mcp-")
        for tool, arguments in {
            "run_code": {"code": "1", "session_id": "theirs"},
            "session_show": {"session_id": "theirs"},
            "session_destroy": {"session_id": "theirs"},
            "run_resume": {"run_id": other["run_id"]},
            "approvals_decide": {"approval_id": other["approvals"][0], "decision": "approved"},
        }.items():
            result = await c.call_tool(tool, arguments)
            assert result.structured_content["code"] == "NOT_FOUND", tool
        assert (await c.call_tool("approvals_list", {})).structured_content["items"] == []
        uris = [one.uri for one in (await c.list_resources()).resources]
        assert "holdfast://sessions/theirs" not in uris
        with pytest.raises(MCPError, match="no such"):
            await c.read_resource(f"holdfast://runs/{other['run_id']}")
        journal = (await c.read_resource("holdfast://journal")).contents[0]
        assert "theirs" not in str(journal)
    assert not paid
    refused = [one async for one in hf.journal.read_all() if one.kind == "access_refused"]
    assert "/mcp approvals_decide" in [one.payload["path"] for one in refused]


async def test_only_admin_gets_more_than_the_limits_of_the_server(hf: Runtime, server: Started):
    more = hf.shell.services.limits.wall_ms + 1
    for prefix in (None, "ten-"):
        async with client(server, prefix=prefix) as c:
            result = await c.call_tool("run_code", {"code": "1", "timeout_ms": more})
            assert result.structured_content["code"] == "FORBIDDEN"
            assert (await run(c, "1", timeout_ms=more - 1))["status"] == "ok"
    async with client(server, "admin") as c:
        assert (await run(c, "1", timeout_ms=more))["status"] == "ok"


async def test_a_reader_runs_nothing(server: Started):
    async with client(server, "read") as c:
        assert "run_code" not in await names(c)
        result = await c.call_tool("run_code", {"code": "1"})
    assert result.structured_content["code"] == "FORBIDDEN"


async def test_a_connection_is_for_nobody_but_whose_it_is(server: Started):
    mine, other = [(await server.tokens.create(ALL)).text for _ in range(2)]
    headers = {"Accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient(base_url=server.url, headers=headers) as http:
        assert (await http.post("/mcp", json=FIRST)).status_code == 401
        mine_only = {"Authorization": f"Bearer {mine}"}
        opened = await http.post("/mcp", json=FIRST, headers=mine_only)
        session = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
        assert "\nretry: " in opened.text.replace("\r", "")  # a stream that is cut can be taken up
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        stolen = await http.post(
            "/mcp", json=listing, headers={"Authorization": f"Bearer {other}", **session}
        )
        assert stolen.status_code == 404
        fine = await http.post("/mcp", json=listing, headers={**mine_only, **session})
        assert "run_code" in fine.text
        rebound = await http.post("/mcp", json=FIRST, headers={**mine_only, "Host": "evil.com"})
        assert rebound.status_code == 403


async def test_a_stream_that_was_cut_is_taken_up_and_is_no_other_connections(server: Started):
    token = (await server.tokens.create(ALL)).text
    headers = {
        "Accept": "application/json, text/event-stream",
        "Authorization": f"Bearer {token}",
        "MCP-Protocol-Version": "2025-11-25",
    }

    async def call(http: httpx2.AsyncClient, session: str, code: str) -> list[str]:
        arguments = {"name": "run_code", "arguments": {"code": code}}
        asked = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": arguments}
        answer = await http.post("/mcp", json=asked, headers={"Mcp-Session-Id": session})
        return [line[4:] for line in answer.text.splitlines() if line.startswith("id: ")]

    async with httpx2.AsyncClient(base_url=server.url, headers=headers) as http:
        opened = [await http.post("/mcp", json=FIRST) for _ in range(2)]
        mine, other = (one.headers["mcp-session-id"] for one in opened)
        first, last = await call(http, mine, "'of ' + 'mine'")
        await call(http, other, "'of ' + 'others'")
        again = {"Mcp-Session-Id": mine, "Last-Event-ID": first}
        async with http.stream("GET", "/mcp", headers=again) as cut:
            heard = ""
            async for line in cut.aiter_lines():
                heard += line + "\n"
                if line.startswith("data: {"):
                    break
    assert "of mine" in heard
    assert f"id: {last}" in heard
    assert "of others" not in heard


# -- resources ------------------------------------------------------------------------------------------


async def test_sessions_runs_and_the_journal_are_resources(server: Started):
    async with client(server) as c:
        found = await run(c, "look('a')", session_id="a")
        uris: set[str] = set()
        page = await c.list_resources()
        while page.next_cursor is not None:
            uris |= {one.uri for one in page.resources}
            page = await c.list_resources(cursor=page.next_cursor)
        uris |= {one.uri for one in page.resources}
        run_uri = f"holdfast://runs/{found['run_id']}"
        assert {"holdfast://journal", "holdfast://sessions/a", run_uri} <= uris
        assert '"look"' in str((await c.read_resource(run_uri)).contents[0])
        session = (await c.read_resource("holdfast://sessions/a")).contents[0]
        assert found["run_id"] in str(session)
        some = await c.read_resource("holdfast://journal?after=1&limit=2&session_id=a")
        assert '"next": ' in some.contents[0].text  # pyright: ignore[reportAttributeAccessIssue]
        templates = (await c.list_resource_templates()).resource_templates
        assert "holdfast://runs/{id}" in [one.uri_template for one in templates]
        with pytest.raises(MCPError, match="no run"):
            await c.read_resource("holdfast://runs/run_none")


async def test_who_subscribes_is_told_of_changes(server: Started):
    told: list[str] = []

    async def hear(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/resources/updated":
            told.append(message.params.uri)

    async with client(server, message_handler=hear) as c:
        await run(c, "x = 1", session_id="a")
        with pytest.warns(MCPDeprecationWarning):
            await c.subscribe_resource("holdfast://sessions/a")
        await run(c, "x = 2", session_id="b")
        await run(c, "x = 3", session_id="a")
        with anyio.fail_after(20):
            while not told:  # noqa: ASYNC110 - it is told by the client
                await anyio.sleep(0.02)
    assert set(told) == {"holdfast://sessions/a"}


async def test_who_listens_is_told_of_changes_that_they_may_see(server: Started):
    uris = ["holdfast://sessions/ten-a", "holdfast://sessions/b", "holdfast://journal"]
    async with (
        client(server, prefix="ten-", mode=MODERN) as c,
        client(server) as other,
        c.listen(resource_subscriptions=uris) as heard,
    ):
        assert heard.honored.resource_subscriptions == uris[:1]
        await run(other, "x = 1", session_id="b")
        await run(c, "x = 1", session_id="ten-a")
        with anyio.fail_after(20):
            event: Any = await anext(aiter(heard))
    assert event.uri == "holdfast://sessions/ten-a"

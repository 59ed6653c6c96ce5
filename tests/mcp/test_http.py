"""Servers at an address, and the protocol of 2026."""

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp_types import LATEST_PROTOCOL_VERSION
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from tests.mcp import modern
from tests.mcp.support import context, opened, until, web

from holdfast.capabilities.mcp import Root, Services, Step
from holdfast.contracts import Json
from holdfast.contracts.approval import Asks
from holdfast.contracts.canonical import digest
from holdfast.contracts.surface import HttpSurface
from holdfast.errors import ModelError, OperatorError, PersonError
from holdfast.gate.executor import Answer, Context, NeedsAnswer, Unsure

KEY = "k" * 32


async def sampled(request: Any, context: Context) -> dict[str, Json]:
    assert request["messages"][0]["content"]["text"] == "A name for a cat?"
    assert context.effect_id == "e1"
    return {"role": "assistant", "content": {"type": "text", "text": "Tom"}, "model": "m"}


def services(**more: Any) -> Services:
    return Services(sample=sampled, roots=lambda: [Root("file:///data", "data")], **more)


async def test_list_call_read_and_prompt():
    async with web(modern.server()) as url, opened(HttpSurface(url=url)) as server:
        assert server.protocol == LATEST_PROTOCOL_VERSION == "2026-07-28"
        assert server.server == "modern 3"
        await server.check()
        assert await server.call("add", {"a": 1, "b": 2}, context()) == {"total": 3}
        add = next(one.capability for one in server.offers.tools if one.tool == "add")
        assert add.side_effect == "read"
        assert "total" in json.dumps(add.output_schema)
        lines = await server.resources()
        assert [(one.uri, one.template) for one in lines] == [
            ("mem://note", False),
            ("mem://blob", False),
            ("mem://user/{name}", True),
        ]
        assert await server.read("mem://note") == [(b"remember", "text/plain")]
        assert await server.read("mem://blob") == [(b"\x00\x01", "application/x-blob")]
        assert await server.read("mem://user/ann") == [(b"ann", "text/plain")]
        with pytest.raises(ModelError, match="resources/read"):
            await server.read("mem://none")
        assert [(one.name, one.arguments) for one in await server.prompts()] == [
            ("greet", (("name", True),))
        ]
        assert await server.get_prompt("greet", {"name": "Ann"}) == [
            {"role": "user", "content": {"type": "text", "text": "Greet Ann."}}
        ]
        with pytest.raises(ModelError, match=r"no luck.31m today") as why:
            await server.call("fail", {}, context())
        assert why.value.code == "TOOL_ERROR"
        with pytest.raises(ModelError):
            await server.call("no-such-tool", {}, context())


async def test_parts_are_references_and_data_where_it_is_small():
    kept: dict[str, tuple[bytes, str]] = {}

    async def keep(_: Context, body: bytes, mime: str) -> str:
        kept[digest(body)] = (body, mime)
        return digest(body)

    async with web(modern.server()) as url:
        async with opened(HttpSurface(url=url), services(keep=keep)) as server:
            found: Any = await server.call("parts", {}, context())
        async with opened(HttpSurface(url=url)) as server:
            bare: Any = await server.call("parts", {}, context())
    text, picture, sound, inside, blob, link, broken = found
    assert text == {"type": "text", "text": "hello"}
    assert picture["data"] == modern.PICTURE
    assert kept[picture["digest"]][1] == "image/png"
    assert sound["bytes"] == 50_000
    assert "data" not in sound
    assert kept[sound["digest"]] == (b"s" * 50_000, "audio/wav")
    assert inside == {
        "type": "resource",
        "uri": "mem://text",
        "mime": "text/plain",
        "text": "inside",
    }
    assert blob["uri"] == "mem://blob"
    assert blob["bytes"] == 104
    assert link == {"type": "resource_link", "uri": "mem://far", "name": "far", "size": 7}
    assert broken["invalid"] == "it is not base64"
    assert bare[2]["data"] == modern.LONG  # nobody keeps it, so all of it is there


async def test_progress_is_told():
    steps: list[Step] = []
    telling = Services(progress=steps.append)
    async with web(modern.server()) as url, opened(HttpSurface(url=url), telling) as server:
        assert await server.call("steps", {"count": 3}, context("e7")) == {"result": "done"}
        await until(lambda: len(steps) == 3)
    assert sorted(steps, key=lambda one: one.progress)[1] == Step(
        "e7", "steps", 2, 3, "step 2", "r1", "s1"
    )


async def test_a_cancelled_call_harms_nobody():
    async with web(modern.server()) as url, opened(HttpSurface(url=url)) as server:
        with anyio.move_on_after(0.2) as scope:
            await server.call("hang", {}, context())
        assert scope.cancelled_caught
        assert await server.call("add", {"a": 1, "b": 2}, context()) == {"total": 3}
        assert not server.lost.is_set()


async def test_a_change_of_tools_is_noticed():
    async with web(modern.server()) as url, opened(HttpSurface(url=url)) as server:
        with anyio.fail_after(20):
            while not server.changed.is_set():  # the first change may come before anybody listens
                await server.call("grow", {}, context())
                await anyio.sleep(0.05)
        assert "grown" not in {one.tool for one in server.offers.tools}
        async with opened(HttpSurface(url=url)) as again:
            assert "grown" in {one.tool for one in again.offers.tools}


# -- questions ---------------------------------------------------------------------------------------------


async def test_a_question_is_answered_in_another_process():
    server_side = modern.server([KEY])
    async with web(server_side) as url:
        async with opened(HttpSurface(url=url)) as server:
            with pytest.raises(NeedsAnswer) as asked:
                await server.call("delete", {"path": "/x"}, context())
        question = asked.value.question
        assert question.asks is Asks.INPUT
        assert question.message == "Delete /x?"
        assert question.form is not None
        assert question.form["properties"] == {"sure": {"type": "boolean", "title": "Sure"}}
        assert server_side.calls == []  # pyright: ignore[reportAttributeAccessIssue]
    # The server is another one, too, but has the same key.
    async with web(modern.server([KEY])) as url:
        state = json.loads(json.dumps(question.state))
        answer = {"action": "accept", "content": {"sure": True}, "state": state}
        told = {
            "url": url,
            "tool": "delete",
            "arguments": {"path": "/x"},
            "answers": {question.key: answer},
        }
        script = Path(__file__).with_name("resume.py")
        done = await anyio.run_process([sys.executable, str(script), json.dumps(told)])
    assert json.loads(done.stdout) == {"result": "deleted /x: True"}


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_question_that_is_not_answered_ends_the_call(action: Any):
    async with web(modern.server()) as url, opened(HttpSurface(url=url)) as server:
        with pytest.raises(NeedsAnswer) as asked:
            await server.call("delete", {"path": "/x"}, context())
        answers = {asked.value.question.key: Answer(action, None, asked.value.question.state)}
        with pytest.raises(ModelError) as why:
            await server.call("delete", {"path": "/x"}, context(answers=answers))
        assert why.value.code == "TOOL_ERROR"


async def test_several_questions_are_put_one_after_the_other_and_models_asked_last():
    given: dict[str, Answer] = {}
    replies: dict[str, Json] = {
        "Delete /x?": {"sure": False},
        "Which city?": {"city": "Rome"},
    }
    asked: list[str] = []
    found: Json = None
    async with web(modern.server()) as url:
        spec = HttpSurface(url=url, sampling=True)
        async with opened(spec, services()) as server:
            for _ in range(5):
                try:
                    found = await server.call("both", {"path": "/x"}, context(answers=given))
                    break
                except NeedsAnswer as why:
                    one = why.question
                    assert one.key not in given
                    asked.append(one.message)
                    given[one.key] = Answer("accept", replies[one.message], one.state)
    assert sorted(asked) == sorted(replies)
    assert found == {"result": "/x False Rome Tom ['file:///data']"}


async def test_state_that_was_lost_fails_the_call():
    async with web(modern.server()) as url, opened(HttpSurface(url=url)) as server:
        answers = {"input-1": Answer("accept", {"sure": True}, None)}
        with pytest.raises(ModelError, match="its question was not kept"):
            await server.call("delete", {"path": "/x"}, context(answers=answers))


async def test_sampling_that_is_not_allowed_is_not_announced():
    async with web(modern.server()) as url, opened(HttpSurface(url=url), services()) as server:
        with pytest.raises(ModelError, match="sampling"):
            await server.call("both", {"path": "/x"}, context())


# -- trouble -----------------------------------------------------------------------------------------------


class Trouble:
    """Stands between: answers some requests itself."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.status: int | None = None
        self.seen: list[dict[str, str]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = {k.decode(): v.decode() for k, v in scope["headers"]}
            self.seen.append(headers)
            if self.status is not None:
                await PlainTextResponse("trouble", self.status)(scope, receive, send)
                return
        await self.app(scope, receive, send)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (503, "SURFACE_UNAVAILABLE"),
        (429, "SURFACE_UNAVAILABLE"),
        (500, None),
        (401, "SIGN_IN_REQUIRED"),
    ],
)
async def test_a_refused_request_fails_its_call_alone(status: int, code: str | None):
    trouble = Trouble(modern.server().streamable_http_app())
    async with web(trouble) as url, opened(HttpSurface(url=url)) as server:
        trouble.status = status
        # Of most it is not known whether they were carried out.
        with pytest.raises((ModelError, PersonError) if code else Unsure) as why:
            await server.call("add", {"a": 1, "b": 2}, context())
        assert getattr(why.value, "code", None) == code
        trouble.status = None
        assert await server.call("add", {"a": 1, "b": 2}, context()) == {"total": 3}
        assert not server.lost.is_set()


async def test_headers_are_sent_and_filled_in(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TOKEN_OF_MINE", "t0ken-value")
    trouble = Trouble(modern.server().streamable_http_app())
    async with web(trouble) as url:
        spec = HttpSurface(url=url, headers={"Authorization": "Bearer $TOKEN_OF_MINE"})
        async with opened(spec):
            pass
    assert {one.get("authorization") for one in trouble.seen} == {"Bearer t0ken-value"}


class Signing(httpx2.Auth):
    """Signs requests until it can't."""

    why: Exception | None = None

    def auth_flow(self, request: httpx2.Request):
        if self.why is not None:
            raise self.why
        request.headers["X-Signed"] = "yes"
        yield request


async def test_what_the_signing_of_requests_raises_reaches_the_caller_alone():
    auth = Signing()
    trouble = Trouble(modern.server().streamable_http_app())
    async with web(trouble) as url:
        async with opened(HttpSurface(url=url), Services(auth=auth)) as server:
            assert trouble.seen[-1]["x-signed"] == "yes"
            auth.why = PersonError("SIGN_IN_REQUIRED", "Please sign in.")
            with pytest.raises(PersonError, match="Please sign in"):
                await server.call("add", {"a": 1, "b": 2}, context())
            auth.why = None
            assert await server.call("add", {"a": 1, "b": 2}, context()) == {"total": 3}
        auth.why = PersonError("SIGN_IN_REQUIRED", "Please sign in.")
        with pytest.raises(PersonError, match="Please sign in"):
            async with opened(HttpSurface(url=url), Services(auth=auth)):
                pass


async def test_a_server_that_goes_away_is_lost():
    gone, address = anyio.Event(), list[str]()
    ended = anyio.Event()

    async def serve() -> None:
        async with web(modern.server()) as url:
            address.append(url)
            await gone.wait()
        ended.set()

    async with anyio.create_task_group() as group:
        group.start_soon(serve)
        await until(lambda: bool(address))
        async with opened(HttpSurface(url=address[0])) as server:
            gone.set()
            await ended.wait()
            with pytest.raises(ModelError) as why:
                await server.call("add", {"a": 1, "b": 2}, context())
            assert why.value.code == "SURFACE_UNAVAILABLE"
            with anyio.fail_after(20):
                await server.lost.wait()


async def test_an_address_where_nobody_is():
    with pytest.raises(OperatorError, match="can't be connected") as why:
        async with opened(HttpSurface(url="http://127.0.0.1:9/mcp")):
            pass
    assert why.value.code == "SURFACE_FAILED"


@pytest.mark.parametrize(("status", "code"), [(401, "SIGN_IN_REQUIRED"), (500, "SURFACE_FAILED")])
async def test_an_address_that_refuses(status: int, code: str):
    async def refuse(request: Request) -> Response:
        return PlainTextResponse("no", status)

    app = Starlette(routes=[Route("/mcp", refuse, methods=["GET", "POST"])])
    async with web(app) as url:
        with pytest.raises((OperatorError, PersonError)) as why:
            async with opened(HttpSurface(url=url)):
                pass
    assert why.value.code == code
    assert str(status) in why.value.message


async def test_an_answer_that_is_too_long_fails_its_call_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("holdfast.capabilities.mcp.http.MAX_BODY", 50_000)
    app = modern.server().streamable_http_app(json_response=True)
    async with web(app) as url, opened(HttpSurface(url=url)) as server:
        with pytest.raises(ModelError, match="more than 50000 bytes"):
            await server.call("parts", {}, context())
        assert await server.call("add", {"a": 1, "b": 2}, context()) == {"total": 3}


class Old:
    """A server of 2025 with sessions that it can forget; asks in the middle of a call, on the call's own stream."""

    def __init__(self) -> None:
        self.session = "s1"
        self.answers: dict[str, anyio.Event] = {}
        self.said: dict[str, Any] = {}

    async def post(self, request: Request) -> Response:
        told = await request.json()
        method, id = told.get("method"), told.get("id")
        if method == "initialize":
            result = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "old", "version": "1"},
            }
            headers = {"mcp-session-id": self.session}
            return JSONResponse({"jsonrpc": "2.0", "id": id, "result": result}, headers=headers)
        if method == "server/discover":
            error = {"code": -32601, "message": "no"}
            return JSONResponse({"jsonrpc": "2.0", "id": id, "error": error}, 400)
        if request.headers.get("mcp-session-id") != self.session:
            return PlainTextResponse("who?", 404)
        if method == "tools/list":
            tools = [{"name": "ask", "inputSchema": {"type": "object"}}]
            return JSONResponse({"jsonrpc": "2.0", "id": id, "result": {"tools": tools}})
        if method == "tools/call":
            return await self.call(id, told["params"]["arguments"]["who"])
        if method is None and id in self.answers:
            self.said[id] = told["result"]
            self.answers[id].set()
        return Response(status_code=202)

    async def call(self, id: int, who: str) -> Response:
        from starlette.responses import StreamingResponse

        async def stream():
            key = f"q-{who}"
            self.answers[key] = anyio.Event()
            schema = {"type": "object", "properties": {"x": {"type": "string"}}}
            params = {"message": f"For {who}?", "requestedSchema": schema}
            ask = {"jsonrpc": "2.0", "id": key, "method": "elicitation/create", "params": params}
            yield f"data: {json.dumps(ask)}\n\n"
            await self.answers[key].wait()
            content = [{"type": "text", "text": json.dumps(self.said[key]["content"])}]
            done = {"jsonrpc": "2.0", "id": id, "result": {"content": content}}
            yield f"data: {json.dumps(done)}\n\n"

        return StreamingResponse(stream(), media_type="text/event-stream")

    def app(self) -> Starlette:
        async def no(request: Request) -> Response:
            return Response(status_code=405)

        return Starlette(
            routes=[
                Route("/mcp", self.post, methods=["POST"]),
                Route("/mcp", no, methods=["GET", "DELETE"]),
            ]
        )


async def test_each_of_several_calls_is_asked_its_own_question():
    found: dict[str, Json] = {}
    async with web(Old().app()) as url, opened(HttpSurface(url=url)) as server:
        assert server.protocol == "2025-06-18"

        async def call(who: str) -> None:
            def answer(question: Any) -> Answer:
                assert question.message == f"For {who}?"
                return Answer("accept", {"x": who})

            found[who] = await server.call("ask", {"who": who}, context(who, ask=answer))

        async with anyio.create_task_group() as group:
            for who in ("ann", "bob", "cid"):
                group.start_soon(call, who)
    assert found == {who: json.dumps({"x": who}) for who in ("ann", "bob", "cid")}


async def test_a_session_that_the_server_forgot_is_lost():
    old = Old()
    async with web(old.app()) as url, opened(HttpSurface(url=url)) as server:
        old.session = "s2"
        with pytest.raises(ModelError, match="forgotten the session"):
            await server.call("ask", {"who": "ann"}, context())
        assert server.lost.is_set()

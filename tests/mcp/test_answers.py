"""Calls over stdio and their answers: the same whether we wait for them ourselves, or leave that to the SDK."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import ErrorData, JSONRPCError, JSONRPCNotification, JSONRPCResponse
from opentelemetry.context import attach, detach
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context
from tests.mcp.support import context, odd, opened, until
from tests.mcp.test_stdio import SECRET, redact

from holdfast.capabilities.mcp import Services
from holdfast.capabilities.mcp.answers import Answers
from holdfast.capabilities.mcp.services import Step
from holdfast.capabilities.mcp.wire import Wire
from holdfast.contracts import Json
from holdfast.errors import ModelError
from holdfast.gate.executor import Unsure

TRACE = SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=TraceFlags(1))


@contextmanager
def tracing(on: bool) -> Iterator[None]:
    """Whether whoever calls is part of a trace: then the SDK makes the calls."""
    if not on:
        yield
        return
    token = attach(set_span_in_context(NonRecordingSpan(TRACE)))
    try:
        yield
    finally:
        detach(token)


both = pytest.mark.parametrize("traced", [False, True])


@both
async def test_what_a_call_is_part_of_is_told(traced: bool):
    async with opened(odd()) as server:
        with tracing(traced):
            found = json.loads(str(await server.call("meta", {}, context())))
    assert found == ({"traceparent": f"00-{0xABC:032x}-{0xDEF:016x}-01"} if traced else {})


@both
async def test_progress_is_told_in_order_and_without_secrets(traced: bool):
    told: list[Step] = []
    steps = [{"progress": 1}, {"progress": 2.5, "total": 3, "message": f"at {SECRET}"}]
    odd_ones = [{"progress": True}, {"progress": "much"}, {"progressToken": 77, "progress": 1}]
    async with opened(odd(), Services(redact=redact, progress=told.append)) as server:
        with tracing(traced):
            args = {"steps": [*odd_ones, *steps, {"progress": 3, "total": "x", "message": 7}]}
            assert await server.call("steps", args, context()) == "stepped"
            assert traced or len(told) == 3
        await until(lambda: len(told) == 3)
    assert [(one.progress, one.total, one.message) for one in told] == [
        (1.0, None, None),
        (2.5, 3.0, "at [password]"),
        (3.0, None, None),
    ]
    assert {(one.effect_id, one.tool, one.session_id) for one in told} == {("e1", "steps", "s1")}


@both
async def test_who_can_not_be_told_harms_nobody(traced: bool):
    def told(_: Step) -> None:
        raise OSError

    async with opened(odd(), Services(progress=told)) as server:
        with tracing(traced):
            args: dict[str, Json] = {"steps": [{"progress": 1}]}
            assert await server.call("steps", args, context()) == "stepped"
            assert await server.call("echo", {}, context()) == "{}"


@both
async def test_an_answer_counts_once_also_with_its_number_in_words(traced: bool):
    async with opened(odd()) as server:
        with tracing(traced):
            assert await server.call("twice", {}, context()) == "first"
            assert await server.call("echo", {}, context()) == "{}"


@both
async def test_an_error_is_told_without_secrets(traced: bool):
    async with opened(odd(), Services(redact=redact)) as server:
        with tracing(traced), pytest.raises(ModelError, match=r"it is \[password\]") as why:
            await server.call("fail", {"code": -1, "message": f"it is {SECRET}"}, context())
    assert why.value.code == "TOOL_ERROR"


@both
async def test_a_call_that_ends_its_server_is_unsure(traced: bool):
    async with opened(odd()) as server:
        with tracing(traced), pytest.raises(Unsure):
            await server.call("die", {}, context())
        with anyio.fail_after(10):
            await server.lost.wait()
        with tracing(traced), pytest.raises(ModelError, match="the connection is gone"):
            await server.call("echo", {}, context())


@both
async def test_a_cancelled_call_is_cancelled_there(traced: bool):
    async with opened(odd()) as server:
        with tracing(traced), anyio.move_on_after(0.1):
            await server.call("hang", {}, context())
        found: list[int] = []
        with anyio.fail_after(10):
            while not found:
                found = json.loads(str(await server.call("cancelled", {}, context())))
        assert len(found) == 1


@both
async def test_a_call_that_was_cancelled_before_is_not_made(traced: bool):
    async with opened(odd()) as server:
        with tracing(traced), anyio.CancelScope() as scope:
            scope.cancel()
            await server.call("die", {}, context())
        assert json.loads(str(await server.call("cancelled", {}, context()))) == []


async def test_many_calls_get_their_own_answers():
    found: dict[int, object] = {}

    async def call(at: int) -> None:
        found[at] = await server.call("echo", {"at": at}, context())

    async with opened(odd()) as server, anyio.create_task_group() as group:
        for at in range(100):
            group.start_soon(call, at)
    assert found == {at: json.dumps({"at": at}) for at in range(100)}


async def test_only_answers_that_a_call_waits_for_are_taken():
    answers = Answers()
    answers.expect(1, None)
    assert not await answers.take(JSONRPCNotification(jsonrpc="2.0", method="x"))
    assert not await answers.take(JSONRPCResponse(jsonrpc="2.0", id=2, result={}))
    error = ErrorData(code=1, message="")
    assert not await answers.take(JSONRPCError(jsonrpc="2.0", id=None, error=error))
    assert await answers.take(JSONRPCError(jsonrpc="2.0", id="1", error=error))
    answers.forget(1)
    assert not await answers.take(JSONRPCResponse(jsonrpc="2.0", id=1, result={}))


async def test_nothing_is_called_before_and_after_the_connection():
    incoming, read = anyio.create_memory_object_stream[object](1)
    write, outgoing = anyio.create_memory_object_stream[object](1)
    wire = Wire(read, write, redact, Answers())

    async def nobody(*_: object) -> dict[str, object]:
        raise AssertionError

    with pytest.raises(RuntimeError, match="before run"):
        await wire.send_raw_request("tools/call", {"name": "x"})
    async with outgoing, incoming, anyio.create_task_group() as group:
        await group.start(wire.run, nobody, nobody)
        await outgoing.aclose()
        with pytest.raises(MCPError, match="Connection closed"):  # which was not noticed yet
            await wire.send_raw_request("tools/call", {"name": "x"})
        await incoming.aclose()
        await wire.ended.wait()
    with pytest.raises(MCPError, match="Connection closed"):
        await wire.send_raw_request("tools/call", {"name": "x"})

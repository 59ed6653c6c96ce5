"""What comes from a server that is started here."""

import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from io import FileIO

import anyio
import anyio.lowlevel
import pytest
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp_types import JSONRPCNotification, JSONRPCResponse
from tests.mcp.support import until

from holdfast.capabilities.mcp import Services
from holdfast.capabilities.mcp.answers import Answers
from holdfast.capabilities.mcp.errlog import ErrorLog
from holdfast.capabilities.mcp.hearing import Hearing, Incoming
from holdfast.capabilities.mcp.services import LogLine


def answer(number: object, **result: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode() + b"\n"


def notice(at: int) -> bytes:
    said = {"jsonrpc": "2.0", "method": "m", "params": {"at": at}}
    return json.dumps(said).encode() + b"\n"


class Ear:
    """Both ends."""

    def __init__(self, theirs: FileIO, read: MemoryObjectReceiveStream[Incoming]) -> None:
        self.theirs = theirs
        self.read = read
        self.answers = Answers()
        self.logged: list[LogLine] = []

    async def next(self) -> object:
        with anyio.fail_after(10):
            found = await self.read.receive()
        assert not isinstance(found, Exception)
        if isinstance(found.message, JSONRPCNotification):
            return (found.message.params or {})["at"]
        assert isinstance(found.message, JSONRPCResponse)
        return found.message.result


@asynccontextmanager
async def opened() -> AsyncGenerator[tuple[Ear, Hearing]]:
    ours, write = os.pipe()
    os.set_blocking(ours, False)
    incoming, read = anyio.create_memory_object_stream[Incoming](0)
    with FileIO(write, "w") as theirs, read:
        ear = Ear(theirs, read)
        log = ErrorLog("srv", Services(log=ear.logged.append))
        hearing = Hearing(ours, incoming, ear.answers, log)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(hearing.own)
                yield ear, hearing
                group.cancel_scope.cancel()
        finally:
            hearing.release()


async def test_an_answer_is_with_its_call_at_once_and_others_go_on():
    async with opened() as (ear, _):
        waiting = ear.answers.expect(1, None)
        ear.theirs.write(answer(1, a=1) + answer(2, a=2) + notice(3))
        with anyio.fail_after(10):
            assert await waiting.outcome == {"a": 1}
        assert [await ear.next(), await ear.next()] == [{"a": 2}, 3]


async def test_what_is_said_before_an_answer_is_heard_before_it():
    told: list[float] = []

    async def step(progress: float, total: float | None, message: str | None) -> None:
        await anyio.lowlevel.checkpoint()
        told.append(progress)

    async with opened() as (ear, _):
        waiting = ear.answers.expect(1, step)
        params = {"progressToken": 1, "progress": 0.5}
        said = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
        ear.theirs.write(notice(1) + json.dumps(said).encode() + b"\n" + answer(1))
        await anyio.sleep(0.05)
        assert not waiting.outcome.done()
        assert await ear.next() == 1
        with anyio.fail_after(10):
            assert await waiting.outcome == {}
        assert told == [0.5]


async def test_nothing_is_read_while_something_waits():
    async with opened() as (ear, _):
        waiting = ear.answers.expect(9, None)
        ear.theirs.write(notice(1) + notice(2))
        await anyio.sleep(0.05)
        ear.theirs.write(answer(9) + notice(3))
        await anyio.sleep(0.05)
        assert not waiting.outcome.done()
        assert [await ear.next() for _ in range(3)] == [1, 2, 3]
        assert waiting.outcome.done()


@pytest.mark.parametrize("number", ["1", 1.0, True, None])
async def test_an_answer_with_an_odd_number_is_left_to_who_knows_better(number: object):
    async with opened() as (ear, _):
        waiting = ear.answers.expect(1, None)
        ear.theirs.write(answer(number) + b"\n  \nnone\n" + answer(1, a=1) + notice(2))
        assert await ear.next() == 2
        assert waiting.outcome.result() == ({} if number == "1" else {"a": 1})
        assert "a line that is no message: none" in [one.text for one in ear.logged]


async def test_all_that_was_said_is_heard_before_the_end():
    async with opened() as (ear, hearing):
        ear.theirs.write(b"".join(map(notice, range(800))) + b"half a line")
        ear.theirs.close()
        assert [await ear.next() for _ in range(800)] == [*range(800)]
        with anyio.fail_after(10), pytest.raises(anyio.EndOfStream):
            await ear.read.receive()
        assert hearing.ended


async def test_it_ends_when_nobody_listens():
    async with opened() as (ear, hearing):
        ear.read.close()
        ear.theirs.write(notice(1))
        await until(lambda: hearing.ended)

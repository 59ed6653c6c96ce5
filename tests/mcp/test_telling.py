"""What goes to a server that is started here."""

import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from io import FileIO
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification

from holdfast.capabilities.mcp.telling import Telling

BIG = "x" * 300_000
"""More than a pipe holds."""


def said(at: int, more: str = "") -> SessionMessage:
    params = {"at": at, "more": more}
    return SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="m", params=params))


def heard(pipe: FileIO) -> bytes:
    """What can be read now; empty at the end, and where nothing is there yet."""
    return pipe.read(1 << 20) or b""


async def lines(pipe: FileIO, wanted: int) -> list[int]:
    """Which messages come out, in order."""
    data = b""
    with anyio.fail_after(10):
        while data.count(b"\n") < wanted:
            data += heard(pipe)
            await anyio.lowlevel.checkpoint()
    found: list[Any] = [json.loads(line) for line in data.splitlines()]
    return [one["params"]["at"] for one in found]


@asynccontextmanager
async def opened() -> AsyncGenerator[tuple[Telling, FileIO, list[bool]]]:
    read, ours = os.pipe()
    os.set_blocking(ours, False)
    os.set_blocking(read, False)
    deaf: list[bool] = []
    telling = Telling(ours, lambda: deaf.append(True))
    with FileIO(read) as theirs:
        async with anyio.create_task_group() as group:
            group.start_soon(telling.own)
            yield telling, theirs, deaf
            with anyio.fail_after(10):
                await telling.end()


async def test_a_line_is_there_at_once():
    async with opened() as (telling, theirs, _):
        await telling.send(said(1))
        data = heard(theirs)
    assert json.loads(data)["params"] == {"at": 1, "more": ""}
    assert data.endswith(b"\n")


async def test_lines_stay_whole_and_in_order_when_the_pipe_is_full():
    async with opened() as (telling, theirs, _):
        for at in range(5):
            await telling.send(said(at, BIG if at % 2 else ""))
        assert await lines(theirs, 5) == [0, 1, 2, 3, 4]
        await anyio.wait_all_tasks_blocked()
        await telling.send(said(5))  # at once again
        assert b'"at":5' in heard(theirs)


async def test_who_is_cancelled_while_the_pipe_is_full_leaves_no_half_a_line():
    async with opened() as (telling, theirs, _):
        await telling.send(said(0, BIG))
        sent = 1
        with anyio.move_on_after(0.2) as scope:
            while True:  # until no more may wait
                await telling.send(said(sent))
                sent += 1
        assert scope.cancelled_caught
        assert sent > 100
        found = await lines(theirs, sent)
        assert found[:sent] == list(range(sent))


async def test_what_waits_is_written_after_it_is_closed():
    async with opened() as (telling, theirs, _):
        await telling.send(said(0, BIG))
        await telling.send(said(1))
        await telling.aclose()
        with pytest.raises(anyio.ClosedResourceError):
            await telling.send(said(2))
        assert await lines(theirs, 2) == [0, 1]
        with anyio.fail_after(10):
            await telling.told.wait()


async def test_its_end_does_not_wait_for_who_does_not_read():
    async with opened() as (telling, theirs, _):
        await telling.send(said(0, BIG))
        with anyio.fail_after(5):
            await telling.end()
        while heard(theirs):
            pass
        assert theirs.read(1) == b""  # the end, not just nothing


@pytest.mark.parametrize("more", ["", BIG])
async def test_that_nobody_reads_any_more_is_told(more: str):
    async with opened() as (telling, theirs, deaf):
        await telling.send(said(0, more))
        theirs.close()
        if more:
            with anyio.fail_after(5):
                await telling.told.wait()
        with pytest.raises(anyio.BrokenResourceError):
            await telling.send(said(1))
        assert deaf

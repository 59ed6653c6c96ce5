"""Where clients come in."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from holdfast.errors import CallerError
from holdfast.server import listen
from holdfast.server.connections import Connections
from holdfast.server.params import NoParams
from holdfast.server.rpc import Method


async def one(_: Any, __: Any) -> int:
    return 1


METHODS = {"one": Method(NoParams, one)}
ASKED = b'{"jsonrpc":"2.0","id":1,"method":"one"}'


async def told(path: Path, data: bytes) -> list[Any]:
    """What a client is sent that says this, and then no more."""
    found = b""
    async with await anyio.connect_unix(path) as stream:
        await stream.send(data)
        await stream.send_eof()
        async for chunk in stream:
            found += chunk
    return [json.loads(line) for line in found.splitlines()]


async def served(path: Path, *talks: bytes) -> list[list[Any]]:
    ready = anyio.Event()
    found: list[list[Any]] = []
    async with anyio.create_task_group() as group:
        group.start_soon(listen.serve_unix, path, METHODS, Connections(), ready)
        await ready.wait()
        for data in talks:
            found.append(await told(path, data))
        group.cancel_scope.cancel()
    return found


async def test_lines_come_in_any_pieces_and_the_last_needs_no_end(tmp_path: Path):
    path = tmp_path / "s"
    [answers] = await served(path, b"\n\n" + ASKED + b"\r\n  \n" + ASKED)
    assert [answer["result"] for answer in answers] == [1, 1]
    assert not path.exists()


async def test_a_line_that_is_too_long_is_refused_and_those_after_it_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(listen, "MAX_LINE", 1000)
    [answers] = await served(
        tmp_path / "s", b"x" * 300_000 + b"\n" + ASKED + b"\n" + b"y" * 200_000
    )
    refusals = [answer["error"]["data"]["code"] for answer in answers if "error" in answer]
    assert refusals == ["REQUEST_TOO_LARGE"] * 2
    assert [answer["result"] for answer in answers if "result" in answer] == [1]


async def test_a_path_that_can_not_be_is_refused(tmp_path: Path):
    for path in (tmp_path / "nowhere" / "s", tmp_path / ("x" * 200)):
        with pytest.raises(CallerError) as why:
            await listen.serve_unix(path, METHODS, Connections(), anyio.Event())
        assert why.value.code == "INVALID_ARGUMENT"

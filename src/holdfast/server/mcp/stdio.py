"""MCP over standard input and output: what an editor starts, and ends by closing the pipe.

Not with the SDK's reader: that waits in a thread, which nothing can stop before the other side writes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from pydantic import ValidationError

from holdfast.server.callers import Caller
from holdfast.server.mcp.service import Service
from holdfast.server.pipes import MAX_LINE, read_stdin, taken_stdout, write
from holdfast.server.work import Work

if TYPE_CHECKING:
    from holdfast.runtime import Runtime
    from holdfast.server.agents import Served

PATIENCE = 5.0
"""Seconds that runs under way get at the end; what is not over then stays on record, to be resumed."""

_In = SessionMessage | Exception


async def serve_stdio(
    hf: Runtime,
    caller: Caller,
    *,
    agents: Mapping[str, Served] | None = None,
    expose: bool = False,
    left: Callable[[list[str]], Awaitable[None]] | None = None,
) -> None:
    """Answer what comes on standard input until it ends, on behalf of `caller`.

    `left` is told the runs that are not over at the end, before they are cancelled: a program that ends there leaves
    them on record, to be resumed.
    """
    with taken_stdout() as output:
        async with anyio.create_task_group() as background:
            work = Work(hf, background, agents)
            async with Service.open(hf, work, expose=expose, local=caller) as service:
                try:
                    await _serve(service, output)
                finally:
                    with anyio.CancelScope(shield=True):
                        runs = await work.close(PATIENCE)
                        if runs and left is not None:
                            await left(runs)
            background.cancel_scope.cancel()


async def _serve(service: Service, output: int) -> None:
    into, incoming = anyio.create_memory_object_stream[_In](0)
    outgoing, out_of = anyio.create_memory_object_stream[SessionMessage](0)
    server = service.server
    async with anyio.create_task_group() as pipes:
        pipes.start_soon(_read, into)
        pipes.start_soon(_write_all, out_of, output)
        await server.run(incoming, outgoing, server.create_initialization_options())
        pipes.cancel_scope.cancel()


async def _read(into: MemoryObjectSendStream[_In]) -> None:
    """Messages, line by line."""
    held = bytearray()
    async with into:
        while True:
            data = await read_stdin()
            if not data:
                return
            held += data
            if len(held) > MAX_LINE:
                held.clear()
                await into.send(ValueError(f"A message has more than {MAX_LINE} bytes."))
            while (end := held.find(b"\n")) >= 0:
                line = bytes(held[:end])
                del held[: end + 1]
                if line.strip():
                    await into.send(_message(line))


def _message(line: bytes) -> _In:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValidationError as why:
        return why


async def _write_all(out_of: MemoryObjectReceiveStream[SessionMessage], fd: int) -> None:
    async with out_of:
        async for one in out_of:
            text = one.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                await write(fd, text.encode() + b"\n")
            except anyio.BrokenResourceError:
                return  # nobody reads on; what was asked is done all the same, and on record

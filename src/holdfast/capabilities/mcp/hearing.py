"""What comes from a server that is started here: one line is one message.

A line that is none is logged and forgotten, and one that is too long is never held in memory. The answer that a call
waits for reaches it as soon as it is read. Everything else waits for the task that owns the pipe, and so does all that
comes after it; nothing is read meanwhile. So a server is heard in order, and no faster than it is dealt with.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
from contextlib import suppress
from typing import TypeAlias, cast

import anyio
from anyio.streams.memory import MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter
from pydantic_core import from_json

from holdfast.capabilities.mcp.answers import Answers
from holdfast.capabilities.mcp.errlog import ErrorLog

MAX_LINE = 16 * 1024 * 1024
"""Bytes of one message."""

_CHUNK = 64 * 1024
_ENDS = 200
# Where an answer has its id: in front, or, as some servers write it, at the end.
_ID_FIRST = re.compile(rb'^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d+)')
_ID_LAST = re.compile(rb'"id"\s*:\s*(\d+)\s*\}\s*$')
_ANSWER = frozenset({"jsonrpc", "id", "result"})

Incoming: TypeAlias = SessionMessage | Exception
Line: TypeAlias = bytes | tuple[bytes, bytes]
"""A line; of one that is too long, its beginning and its end."""


class Lines:
    """Bytes in, whole lines out; of a line that is too long only its ends are kept."""

    def __init__(self, most: int = MAX_LINE) -> None:
        self._most = most
        self._buffer = bytearray()
        self._scanned = 0
        self._head: bytes | None = None
        """The beginning of a line that is too long, while it goes on."""

    def feed(self, chunk: bytes) -> list[Line]:
        """The lines that are complete now; of one that was too long, its beginning and its end."""
        self._buffer += chunk
        found: list[Line] = []
        while (end := self._buffer.find(b"\n", self._scanned)) >= 0:
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            self._scanned = 0
            if self._head is not None:
                found.append((self._head, line[-_ENDS:]))
                self._head = None
            elif len(line) > self._most:
                found.append((line[:_ENDS], line[-_ENDS:]))
            else:
                found.append(line)
        if len(self._buffer) > self._most or self._head is not None:
            if self._head is None:
                self._head = bytes(self._buffer[:_ENDS])
            del self._buffer[:-_ENDS]
        self._scanned = len(self._buffer)
        return found


class Hearing:
    """Reads from a pipe, as long as somebody owns it. What no call waits for goes to `incoming`."""

    def __init__(
        self,
        pipe: int,
        incoming: MemoryObjectSendStream[Incoming],
        answers: Answers | None,
        log: ErrorLog,
    ) -> None:
        self._pipe = pipe
        self._incoming = incoming
        self._answers = answers
        self._log = log
        self._lines = Lines()
        # Never more than the lines of one chunk: nothing is read while one waits.
        self._later, self._waiting = anyio.create_memory_object_stream[Line](math.inf)
        self.ended = False
        """Whether the other side has ended, and all that it said was heard."""

    async def own(self) -> None:
        """Hear until the other side ends, or nobody takes what is heard."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._pipe, self._read)
        try:
            async with self._incoming:
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    async for line in self._waiting:
                        await self._hear(line)
                        if not self._waiting.statistics().current_buffer_used:
                            loop.add_reader(self._pipe, self._read)
                self.ended = True
        finally:
            loop.remove_reader(self._pipe)

    def _read(self) -> None:
        """Read what is there: called by the loop, so an answer is with its call without any task in between."""
        try:
            chunk = os.read(self._pipe, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        waits = not chunk
        for line in self._lines.feed(chunk):
            if waits or not self._answered(line):
                waits = True
                self._later.send_nowait(line)
        if waits:
            asyncio.get_running_loop().remove_reader(self._pipe)
        if not chunk:
            self._later.close()

    def _answered(self, line: Line) -> bool:
        """Whether it is an answer, as they usually are, to a call that waits: then the call has it."""
        if self._answers is None or isinstance(line, tuple):
            return False
        try:
            found: object = from_json(line)
        except ValueError:
            return False
        told = cast("dict[str, object]", found) if isinstance(found, dict) else {}
        return (
            told.keys() == _ANSWER
            and told["jsonrpc"] == "2.0"
            and self._answers.give(told["id"], told["result"])
        )

    async def _hear(self, line: Line) -> None:
        message = (
            _too_long(*line, self._log) if isinstance(line, tuple) else _parsed(line, self._log)
        )
        if message is None:
            return
        if self._answers is None or not await self._answers.take(message.message):
            await self._incoming.send(message)

    def release(self) -> None:
        """Give the pipe back; only once its owner is gone."""
        self._later.close()
        self._waiting.close()
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1


def _parsed(line: bytes, log: ErrorLog) -> SessionMessage | None:
    if not line.strip():
        return None
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        log.note(f"a line that is no message: {line[:200].decode(errors='replace')}")
        return _broken(line)


def _broken(line: bytes) -> SessionMessage | None:
    """The failure of the call that a line seems to answer."""
    try:
        found: object = from_json(line)
    except ValueError:
        return None
    told = cast("dict[str, object]", found) if isinstance(found, dict) else {}
    number = told.get("id")
    return None if type(number) is not int or "method" in told else _failure(number, "is none")


def _too_long(head: bytes, tail: bytes, log: ErrorLog) -> SessionMessage | None:
    """The failure of the call whose answer is too long, if its id is where it is expected."""
    log.note(f"a message of more than {MAX_LINE} bytes")
    match = _ID_FIRST.search(head) or _ID_LAST.search(tail)
    if match is None:
        return None
    return _failure(int(match[1]), f"has more than {MAX_LINE} bytes")


def _failure(number: int, why: str) -> SessionMessage:
    error = ErrorData(code=INTERNAL_ERROR, message=f"the answer {why}")
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=number, error=error))

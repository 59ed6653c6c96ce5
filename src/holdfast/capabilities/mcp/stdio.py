"""A server that is started here: its process, and the lines between it and us.

Of what it writes, one line is one message; a line that is none is logged and forgotten, and one that is too long is
never held in memory. Whatever becomes of the connection, its process group is gone in the end: asked first (its
standard input ends), then told, then killed, which also ends what is stopped.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias, cast

import anyio
from anyio.abc import AsyncResource, ByteReceiveStream, Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter
from pydantic_core import from_json

from holdfast.capabilities.mcp.answers import Answers
from holdfast.capabilities.mcp.errlog import ErrorLog
from holdfast.capabilities.mcp.telling import Telling

MAX_LINE = 16 * 1024 * 1024
"""Bytes of one message."""

GRACE = 1.0
"""Seconds a server has to end once its input has."""

TERM_GRACE = 0.5
"""Seconds it has once it was told to."""

_ENDS = 200
_POLL = 0.01
_REAP = 2.0
# Where an answer has its id: in front, or, as some servers write it, at the end.
_ID_FIRST = re.compile(rb'^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d+)')
_ID_LAST = re.compile(rb'"id"\s*:\s*(\d+)\s*\}\s*$')
_GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)

Incoming: TypeAlias = SessionMessage | Exception
Streams: TypeAlias = tuple[MemoryObjectReceiveStream[Incoming], Telling]


class Lines:
    """Bytes in, whole lines out; of a line that is too long only its ends are kept."""

    def __init__(self, most: int = MAX_LINE) -> None:
        self._most = most
        self._buffer = bytearray()
        self._scanned = 0
        self._head: bytes | None = None
        """The beginning of a line that is too long, while it goes on."""

    def feed(self, chunk: bytes) -> list[bytes | tuple[bytes, bytes]]:
        """The lines that are complete now; of one that was too long, its beginning and its end."""
        self._buffer += chunk
        found: list[bytes | tuple[bytes, bytes]] = []
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


@asynccontextmanager
async def stdio(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str | None,
    log: ErrorLog,
    answers: Answers | None = None,
) -> AsyncGenerator[Streams]:
    """Start the program and talk with it. Raises `OSError` when it can't be started.

    The answers that `answers` takes are not among what is read.
    """
    process, pipe = await _started(argv, env, cwd)
    # From here to the task group nothing is awaited: a cancellation in between would leave the process alone.
    incoming, read = anyio.create_memory_object_stream[Incoming](0)
    telling, eof = Telling(pipe, incoming.close), anyio.Event()
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_hear, process, incoming, answers, log, eof)
            group.start_soon(telling.own)
            group.start_soon(_complaints, process, log)
            try:
                yield read, telling
            finally:
                with anyio.CancelScope(shield=True):
                    # What was said last may be that a call is cancelled: it has a moment to be written.
                    telling.close()
                    with anyio.move_on_after(TERM_GRACE):
                        await telling.told.wait()
                    by_itself = eof.is_set()
                    with anyio.move_on_after(TERM_GRACE):
                        await telling.end()
                    code = await _end(process)
                    log.exit_code = code if by_itself else None
                group.cancel_scope.cancel()
    finally:
        if process.returncode is None:
            # A loop that is interrupted twice cancels all there is, shielded or not: a server that hangs would stay.
            _signal(process, signal.SIGKILL)
        telling.release()
        for stream in (incoming, read):
            stream.close()


async def _started(
    argv: Sequence[str], env: Mapping[str, str], cwd: str | None
) -> tuple[Process, int]:
    """The process, and our end of the pipe that it reads."""
    theirs, ours = os.pipe()
    try:
        os.set_blocking(ours, False)
        process = await anyio.open_process(
            list(argv),
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    return process, ours


async def _hear(
    process: Process,
    incoming: MemoryObjectSendStream[Incoming],
    answers: Answers | None,
    log: ErrorLog,
    eof: anyio.Event,
) -> None:
    stdout, lines = cast("ByteReceiveStream", process.stdout), Lines()
    async with incoming:
        with suppress(anyio.EndOfStream, *_GONE):
            while True:
                for line in lines.feed(await stdout.receive()):
                    message = (
                        _too_long(*line, log) if isinstance(line, tuple) else _parsed(line, log)
                    )
                    if message is None or (
                        answers is not None and await answers.take(message.message)
                    ):
                        continue
                    await incoming.send(message)
        eof.set()


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


async def _complaints(process: Process, log: ErrorLog) -> None:
    stderr = cast("ByteReceiveStream", process.stderr)
    with suppress(anyio.EndOfStream, *_GONE):
        while True:
            log.feed(await stderr.receive())


async def _end(process: Process) -> int | None:
    """End the whole process group, whatever state it is in; every wait is bounded. Its input has ended."""
    if not await _ended(process, GRACE):
        _signal(process, signal.SIGTERM)
        await _ended(process, TERM_GRACE)
    # Also when it ended by itself: its children may not have.
    _signal(process, signal.SIGKILL)
    await _ended(process, _REAP)
    await _closed(process.stdout)
    await _closed(process.stderr)
    # Open as long as anybody holds an end of a pipe, which may be a process that left the group.
    transport = getattr(getattr(process, "_process", None), "_transport", None)
    if transport is not None:
        with suppress(PermissionError):
            transport.close()
    return process.returncode


async def _closed(stream: AsyncResource | None) -> None:
    if stream is not None:
        with suppress(*_GONE):
            await stream.aclose()


def _signal(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


async def _ended(process: Process, seconds: float) -> bool:
    # Not `wait`: that waits for the pipes, too, which a child may have inherited.
    with anyio.move_on_after(seconds):
        while process.returncode is None:  # noqa: ASYNC110 - nothing else tells
            await anyio.sleep(_POLL)
    return process.returncode is not None

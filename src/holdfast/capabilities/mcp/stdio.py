"""A server that is started here: its process, and the lines between it and us.

What goes to it is in `telling.py`, what comes from it in `hearing.py`. Whatever becomes of the connection, its process
group is gone in the end: asked first (its standard input ends), then told, then killed, which also ends what is stopped.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import TypeAlias, cast

import anyio
from anyio.abc import AsyncResource, ByteReceiveStream, Process
from anyio.streams.memory import MemoryObjectReceiveStream

from holdfast.capabilities.mcp.answers import Answers
from holdfast.capabilities.mcp.errlog import ErrorLog
from holdfast.capabilities.mcp.hearing import Hearing, Incoming
from holdfast.capabilities.mcp.telling import Telling

GRACE = 1.0
"""Seconds a server has to end once its input has."""

TERM_GRACE = 0.5
"""Seconds it has once it was told to."""

_POLL = 0.01
_REAP = 2.0
_GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)

Streams: TypeAlias = tuple[MemoryObjectReceiveStream[Incoming], Telling]


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
    process, said, heard = await _started(argv, env, cwd)
    # From here to the task group nothing is awaited: a cancellation in between would leave the process alone.
    incoming, read = anyio.create_memory_object_stream[Incoming](0)
    telling, hearing = Telling(said, incoming.close), Hearing(heard, incoming, answers, log)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(hearing.own)
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
                    by_itself = hearing.ended
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
        hearing.release()
        for stream in (incoming, read):
            stream.close()


async def _started(
    argv: Sequence[str], env: Mapping[str, str], cwd: str | None
) -> tuple[Process, int, int]:
    """The process, and our ends of the pipes that it reads and writes."""
    with ExitStack() as theirs, ExitStack() as ours:
        reads, said = os.pipe()
        theirs.callback(os.close, reads)
        ours.callback(os.close, said)
        heard, writes = os.pipe()
        theirs.callback(os.close, writes)
        ours.callback(os.close, heard)
        for pipe in (said, heard):
            os.set_blocking(pipe, False)
        process = await anyio.open_process(
            list(argv),
            stdin=reads,
            stdout=writes,
            stderr=subprocess.PIPE,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
        )
        ours.pop_all()
    return process, said, heard


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

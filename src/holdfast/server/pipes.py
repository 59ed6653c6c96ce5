"""Standard input and output for messages alone, waited for without a thread: one that waits could not be stopped."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

import anyio
from anyio.lowlevel import checkpoint

MAX_LINE = 96 << 20
"""Bytes of one message: room for the largest snapshot, in base64."""

CHUNK = 65536
"""Bytes that are read at once."""

_PIPE_BUF = 4096
"""What can be written to a pipe that is ready without waiting for who reads it."""


@contextmanager
def taken_stdout() -> Generator[int]:
    """The file descriptor to write messages to.

    Whatever else is printed in this process goes to standard error: nothing comes between the messages.
    """
    sys.stdout.flush()
    output = os.dup(1)
    os.dup2(2, 1)
    try:
        yield output
    finally:
        os.dup2(output, 1)
        os.close(output)


async def read_stdin() -> bytes:
    """What came; nothing at the end."""
    await _ready(anyio.wait_readable, 0)
    return os.read(0, CHUNK)


async def write(fd: int, data: bytes) -> None:
    """All of it; raises `BrokenResourceError` when nobody reads on."""
    view = memoryview(data)
    while view:
        await _ready(anyio.wait_writable, fd)
        try:
            view = view[os.write(fd, view[:_PIPE_BUF]) :]
        except BrokenPipeError:
            raise anyio.BrokenResourceError from None


async def _ready(wait: Callable[[int], Awaitable[None]], fd: int) -> None:
    try:
        await wait(fd)
    except PermissionError:
        await checkpoint()  # a file is always ready, and can't be waited for

"""Where a sign-in in the browser comes back to: one path on this machine, for as long as somebody waits there."""

from __future__ import annotations

import html
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import anyio
from anyio.abc import Listener, SocketAttribute, SocketStream

from holdfast.errors import HoldfastError, OperatorError

HOST = "127.0.0.1"
PATH = "/callback"
MAX_HEAD = 16 * 1024
SECONDS = 10

Finish = Callable[[str], Awaitable[object]]
"""Is given the address that the browser was sent to; raises what is wrong with it."""


class Loopback:
    """An open listener."""

    def __init__(self, listener: Listener[SocketStream], port: int) -> None:
        self._listener = listener
        self.redirect_uri = f"http://{HOST}:{port}{PATH}"
        """Where it listens."""

    async def wait(self, finish: Finish) -> None:
        """Return once `finish` took what a browser brought. What it refuses is told to the browser, and raised.

        Anybody on this machine can knock here: a visit that belongs to no sign-in (`NOT_FOUND`) changes nothing.
        """
        failed: list[HoldfastError] = []

        async def served(stream: SocketStream) -> None:
            async with stream:
                target = None
                with anyio.move_on_after(SECONDS):
                    target = await _target(stream)
                if target is None or urlsplit(target).path != PATH:
                    await _answer(stream, 404, "There is nothing here.")
                    return
                try:
                    await finish(f"http://{HOST}{target}")
                except HoldfastError as why:
                    await _answer(stream, 400, why.message)
                    if why.code == "NOT_FOUND":
                        return
                    failed.append(why)
                else:
                    await _answer(stream, 200, "You are signed in. You can close this window.")
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            await self._listener.serve(served, tasks)
        if failed:
            raise failed[0]


@asynccontextmanager
async def listening(port: int = 0) -> AsyncGenerator[Loopback]:
    """Listen on `port`, or on any free one; raises `IO_ERROR` when another program has it."""
    try:
        listener = await anyio.create_tcp_listener(local_host=HOST, local_port=port)
    except OSError as why:
        raise OperatorError(
            "IO_ERROR",
            f"Port {port} of this machine can't be listened on: {why.strerror}.",
            hint="Another program, or another sign-in, has it. Try again.",
        ) from None
    async with listener:
        (one,) = listener.listeners
        yield Loopback(one, one.extra(SocketAttribute.local_port))


async def free_port() -> int:
    """A port that nobody has right now."""
    async with listening() as found:
        return urlsplit(found.redirect_uri).port or 0


async def _target(stream: SocketStream) -> str | None:
    """What a browser asks for: the path and query of a GET."""
    head = b""
    while b"\r\n\r\n" not in head and len(head) < MAX_HEAD:
        try:
            head += await stream.receive(MAX_HEAD)
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return None
    words = head.split(b"\r\n", 1)[0].split(b" ")
    if len(words) != 3 or words[0] != b"GET" or not words[1].startswith(b"/"):
        return None
    return words[1].decode("ascii", errors="replace")


async def _answer(stream: SocketStream, status: int, text: str) -> None:
    body = f"<!doctype html><meta charset=utf-8><title>holdfast</title><p>{html.escape(text)}</p>"
    head = (
        f"HTTP/1.1 {status} {'OK' if status == 200 else 'No'}\r\n"
        "Content-Type: text/html; charset=utf-8\r\n"
        f"Content-Length: {len(body.encode())}\r\n"
        "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n"
    )
    with anyio.move_on_after(SECONDS):
        try:
            await stream.send(head.encode() + body.encode())
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the browser went away, which does not undo the sign-in

"""A client of server-sent events that can be cut anywhere, even within a line."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx

LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=0)


def client() -> httpx.AsyncClient:
    return httpx.AsyncClient(timeout=20, limits=LIMITS)


class Heard:
    """What one connection brought, up to the last whole block."""

    def __init__(self, last_id: str | None = None) -> None:
        self.data: list[Any] = []
        """What was told, in order; pieces have no seq of their own in it."""
        self.pieces: list[Any] = []
        self.errors: list[Any] = []
        self.comments: list[str] = []
        self.retry: str | None = None
        self.last_id = last_id
        self._rest = b""

    @property
    def seqs(self) -> list[int]:
        return [one["seq"] for one in self.data]

    @property
    def kinds(self) -> list[str]:
        return [one["kind"] for one in self.data]

    def feed(self, data: bytes) -> None:
        *blocks, self._rest = (self._rest + data).split(b"\n\n")
        for block in blocks:
            self._block(block.decode())

    def _block(self, block: str) -> None:
        event, data = "message", []
        for line in block.split("\n"):
            name, _, value = line.partition(": ")
            if name == "":
                self.comments.append(value)
            elif name == "event":
                event = value
            elif name == "data":
                data.append(value)
            elif name == "id":
                self.last_id = value
            else:
                assert name == "retry", line
                self.retry = value
        if data:
            told = {"message": self.data, "piece": self.pieces, "error": self.errors}[event]
            told.append(json.loads("\n".join(data)))


@asynccontextmanager
async def watching(
    http: httpx.AsyncClient, url: str, heard: Heard, caller: str = "local"
) -> AsyncIterator[AsyncIterator[Heard]]:
    """Connect, coming back after the last id that was heard; gives what was heard whenever there is more."""
    headers = {"X-Caller": caller}
    if heard.last_id is not None:
        headers["Last-Event-ID"] = heard.last_id
    async with http.stream("GET", url, headers=headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")

        async def parts() -> AsyncIterator[Heard]:
            async for chunk in answer.aiter_bytes():
                heard.feed(chunk)
                yield heard

        yield parts()


async def until(parts: AsyncIterator[Heard], done: Any) -> None:
    """Listen until `done(heard)`; it is an error if the stream ends before."""
    with anyio.fail_after(30):
        async for heard in parts:
            if done(heard):
                return
    raise AssertionError("the stream ended")

"""The connections by which clients of JSON-RPC are served, so that they can be left in order when the server stops."""

from __future__ import annotations

import anyio

from holdfast.server.rpc import Connection, Receive


class Connections:
    """Those that are open."""

    def __init__(self) -> None:
        self._open: set[Connection] = set()
        self._fewer = anyio.Event()
        self._closed = False

    async def serve(self, connection: Connection, receive: Receive) -> None:
        """Answer what comes by one, until its client has no more to say, or the server stops."""
        if self._closed:
            connection.leave()
        self._open.add(connection)
        try:
            await connection.serve(receive)
        finally:
            self._open.discard(connection)
            self._fewer.set()

    async def close(self) -> None:
        """Leave each once what came by it is answered; return when all are left."""
        self._closed = True
        for one in self._open:
            one.leave()
        while self._open:
            self._fewer = anyio.Event()
            await self._fewer.wait()

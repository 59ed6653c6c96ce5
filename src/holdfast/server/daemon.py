"""The daemon as a program: who is answered where, and how it stops without losing anything."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from holdfast.server.connections import Connections
from holdfast.server.listen import serve_stdio, serve_unix
from holdfast.server.methods import Methods
from holdfast.server.rpc import Method
from holdfast.server.stopping import FAREWELL, GRACE, watch
from holdfast.server.work import Work

if TYPE_CHECKING:
    from holdfast.runtime import Runtime

Left = Callable[[list[str]], Awaitable[None]]


async def serve(
    hf: Runtime,
    path: Path | None,
    *,
    actor: str,
    ready: anyio.Event,
    left: Left,
    grace: float = GRACE,
) -> None:
    """Answer clients of a socket, or on standard input and output, until a signal comes or the input ends.

    After a signal no run is taken on, no effect begins, those under way end, and whoever waits for a run is told its
    id. `left` gets the runs that are not at rest then, while they stand on record as running: a process that ends
    there leaves them to whoever resumes them. When it returns, they are cancelled.
    """
    stopping, listened, listening = anyio.Event(), anyio.Event(), anyio.CancelScope()
    async with anyio.create_task_group() as group:
        async with anyio.create_task_group() as background:
            work, clients = Work(hf, background), Connections()

            def stop() -> None:
                work.shut()
                stopping.set()

            async def wind_down() -> None:
                await stopping.wait()
                rest = await work.close(grace)
                with anyio.move_on_after(FAREWELL):
                    await clients.close()
                listening.cancel()
                await listened.wait()
                if rest:
                    await left(rest)
                background.cancel_scope.cancel()

            await group.start(watch, stop)
            group.start_soon(wind_down)
            via = "rpc:stdio" if path is None else "rpc:unix"
            table = Methods(hf, background, actor=actor, via=via, work=work).table
            with listening:
                await _listen(path, table, clients, ready)
            listened.set()
        group.cancel_scope.cancel()
    hf.shell.services.gate.hold.lift()  # for whoever uses the runtime after the daemon


async def _listen(
    path: Path | None, table: Mapping[str, Method], clients: Connections, ready: anyio.Event
) -> None:
    if path is None:
        await serve_stdio(table, clients)
    else:
        await serve_unix(path, table, clients, ready)

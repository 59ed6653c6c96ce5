"""`holdfast daemon`: JSON-RPC 2.0 for other programs on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import _options, _output
from holdfast.cli._setup import Flags, import_from_here, with_setup

if TYPE_CHECKING:
    from pathlib import Path

UNIX, STDIO = "unix://", "stdio"


@with_setup
def daemon(
    listen: Annotated[
        str,
        typer.Option("--listen", metavar="WHERE", help="unix:///path/to/socket, or stdio."),
    ],
    *,
    flags: Flags,
) -> int:
    """Serve JSON-RPC 2.0, one message per line, until SIGTERM or the end of standard input.

    The socket is for this user alone. Sessions that say nothing else are opened with what is given here. On a
    socket, one line of JSON on standard output tells when clients can come. Runs that wait stay on record, and so
    do those under way when a signal stops it: whoever waits for one is told its id, and can resume it later.
    """
    import anyio

    from holdfast.server.heap import share_one_heap

    share_one_heap()
    return anyio.run(_main, _where(listen), flags.fields())


def _where(listen: str) -> Path | None:
    """The socket; `None` for standard input and output."""
    from pathlib import Path

    if listen in (STDIO, "-"):
        return None
    if listen.startswith(UNIX) and len(listen) > len(UNIX):
        return Path(listen.removeprefix(UNIX)).expanduser().absolute()
    _options.refuse(f"`--listen {listen[:80]}` is no place.", "Use unix:///path or stdio.")


async def _main(path: Path | None, fields: dict[str, Any]) -> int:
    import anyio

    from holdfast import runtime
    from holdfast.cli._stop import leave
    from holdfast.cli._work import user
    from holdfast.server.daemon import serve
    from holdfast.server.heap import collect_seldom

    import_from_here()
    async with (
        runtime.open(config=config_of(fields)) as hf,
        anyio.create_task_group() as beside,
    ):

        async def left(runs: list[str]) -> None:
            await leave(hf, f"{len(runs)} runs are left on record; `run.resume` goes on with one.")

        collect_seldom()
        ready = anyio.Event()
        if path is not None:
            beside.start_soon(_announce, path, ready)
        await serve(hf, path, actor=user(), ready=ready, left=left)
        beside.cancel_scope.cancel()
    return 0


async def _announce(path: Path, ready: Any) -> None:
    import os

    await ready.wait()
    _output.print_bytes(b'{"listening":"unix://%s","pid":%d}\n' % (bytes(path), os.getpid()))


def config_of(fields: dict[str, Any]) -> dict[str, Any] | None:
    """The settings in force with what was given over what sessions are opened with; `None`: just those."""
    if not fields:
        return None
    from holdfast.runtime import Settings

    known: dict[str, Any] = Settings.load().model_dump(mode="json", exclude_unset=True)
    return {**known, "session": {**known.get("session", {}), **fields}}

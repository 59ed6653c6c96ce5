"""`holdfast mcp serve`: holdfast as an MCP server on standard input and output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from holdfast.cli import _options
from holdfast.cli._setup import Flags, import_from_here, with_setup

if TYPE_CHECKING:
    from holdfast.runtime import Runtime
    from holdfast.server.callers import Scope

SCOPES = ("read", "run", "approve", "admin")


@with_setup
def serve(
    expose: Annotated[
        bool, typer.Option("--expose", help="Each capability is a tool of its own, too.")
    ] = False,
    agents: Annotated[
        list[str] | None,
        typer.Option("--agents", metavar="REF", help="module:attr of an Agent; repeatable."),
    ] = None,
    scopes: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            metavar="S",
            help="What the client may: read, run, approve, admin; repeatable.  [read run approve]",
        ),
    ] = None,
    prefix: Annotated[
        str | None,
        typer.Option("--prefix", metavar="P", help="The only sessions it sees start with this."),
    ] = None,
    *,
    flags: Flags,
) -> int:
    """Serve MCP on standard input and output, for a client that starts this program.

    It gets a session of its own, opened with what is given here, and the tools `run_code`, `search_tools`, `session_*`,
    `approvals_list` and others. Who is asked to approve is the person at the client, if it can ask; without the scope
    `approve`, somebody else has to decide. With `--scope admin` the client's model can pass decisions on, too
    (`approvals_decide`): whether a person made them, nobody can tell. Over HTTP the same is at `/mcp` of `holdfast serve`.
    """
    import anyio

    for one in scopes or ():
        if one not in SCOPES:
            _options.refuse(f"`--scope {one[:80]}` is no scope.", f"Use {', '.join(SCOPES)}.")
    wanted = {"expose": expose, "scopes": tuple(scopes or SCOPES[:3]), "prefix": prefix}
    return anyio.run(_main, tuple(agents or ()), wanted, flags.fields())


async def _main(references: tuple[str, ...], wanted: dict[str, Any], fields: dict[str, Any]) -> int:
    from holdfast import runtime
    from holdfast.cli._stop import Stopped, until_stopped
    from holdfast.cli.daemon import config_of

    import_from_here()
    try:
        async with runtime.open(config=config_of(fields)) as hf:
            await until_stopped(lambda: _serve(hf, references, wanted))
    except Stopped:
        pass  # that is how it ends
    return 0


async def _serve(hf: Runtime, references: tuple[str, ...], wanted: dict[str, Any]) -> None:
    from holdfast.cli._work import user
    from holdfast.server.agents import agents_of, served
    from holdfast.server.callers import Caller
    from holdfast.server.mcp.stdio import serve_stdio
    from holdfast.server.mcp.tools import STDIO

    scopes = frozenset(cast("tuple[Scope, ...]", wanted["scopes"]))
    caller = Caller(user(), scopes, wanted["prefix"], via=STDIO)

    async def left(_: list[str]) -> None:
        """End here and now: what is left is on record, and cancelling it would be on record, too."""
        await hf.journal.flush()
        _exit()

    agents = served(agents_of(hf.settings, references))
    await serve_stdio(hf, caller, agents=agents, expose=wanted["expose"], left=left)


def _exit() -> None:
    import os

    os._exit(0)

"""`holdfast serve`: HTTP, events, JSON-RPC, MCP and the console for other programs and people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import _output
from holdfast.cli._listen_flags import ListenFlags, with_listen
from holdfast.cli._setup import Flags, import_from_here, with_setup

if TYPE_CHECKING:
    from holdfast.server.serving import Listen, Started


@with_setup
@with_listen
def serve(
    agents: Annotated[
        list[str] | None,
        typer.Option("--agents", metavar="REF", help="module:attr of an Agent; repeatable."),
    ] = None,
    console: Annotated[
        bool, typer.Option("--console/--no-console", help="Pages for people, at /.")
    ] = True,
    link: Annotated[
        bool, typer.Option("--link/--no-link", help="Print a link that signs a browser in.")
    ] = True,
    expose: Annotated[
        bool, typer.Option("--expose", help="Over MCP, each capability is a tool of its own, too.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume/--no-resume", help="Go on with interrupted runs.")
    ] = True,
    resume_every: Annotated[
        float,
        typer.Option(
            "--resume-every",
            metavar="S",
            min=1,
            help="How often to look for runs whose process died.",
        ),
    ] = 30.0,
    grace: Annotated[
        float, typer.Option("--grace", metavar="S", min=0, help="What is under way gets to end.")
    ] = 10.0,
    as_json: _output.JsonFlag = None,
    *,
    where: ListenFlags,
    flags: Flags,
) -> int:
    """Serve HTTP until SIGTERM. Described at /openapi.json; tokens come from `holdfast token create`.

    Sessions that say nothing else are opened with what is given here. A link for a browser is printed: it is good
    once, for five minutes; `holdfast token link` makes another. When the server stops, runs are left on record, and go on when it starts again.
    """
    import anyio

    from holdfast.server.heap import share_one_heap

    listen = where.listen()
    listen.check()
    options = {
        "console": console,
        "expose": expose,
        "recover": resume,
        "look_every": resume_every,
        "grace": grace,
    }
    told = _Told(_output.as_json(as_json), link=console and link)
    share_one_heap()
    return anyio.run(_main, listen, tuple(agents or ()), options, told, flags.fields())


async def _main(
    listen: Listen,
    references: tuple[str, ...],
    options: dict[str, Any],
    told: _Told,
    fields: dict[str, Any],
) -> int:
    from holdfast import runtime
    from holdfast.cli._stop import leave
    from holdfast.cli.daemon import config_of
    from holdfast.server.agents import agents_of
    from holdfast.server.heap import collect_seldom
    from holdfast.server.serving import serve

    import_from_here()
    async with runtime.open(config=config_of(fields)) as hf:
        agents = agents_of(hf.settings, references)
        collect_seldom()

        async def left(runs: list[str]) -> None:
            await leave(hf, told.left(runs))

        await serve(hf, listen, ready=told.ready, left=left, agents=agents, **options)
    return 0


class _Told:
    """What the program prints."""

    def __init__(self, as_json: bool, *, link: bool) -> None:
        self._as_json = as_json
        self._link = link

    async def ready(self, started: Started) -> None:
        """That it is there, and how people get in."""
        import os

        link: str | None = None
        if self._link:
            link = f"{started.public_url}/enter?code={await started.tokens.link()}"
        if self._as_json:
            told = {
                "listening": started.url,
                "pid": os.getpid(),
                "link": link,
                "resumed": list(started.resumed),
            }
            _output.print_json(told)
            return
        out = _output.console()
        out.print("holdfast serves at ", end="")
        out.print(started.url, style="bold")
        if link is not None:
            out.print(f"  for a browser, once, within five minutes:\n  {link}")
        out.print("  for a program: holdfast token create --scope read --scope run")
        if started.resumed:
            out.print(f"  {len(started.resumed)} interrupted runs go on")

    def left(self, runs: list[str]) -> str | None:
        """What was not at rest when it stopped."""
        if self._as_json:
            return None
        return f"{len(runs)} runs are left on record; they go on with the next start."

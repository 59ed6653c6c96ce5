"""`holdfast resources`: what a session can read by URI, and a part of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import _output
from holdfast.cli._setup import Flags, with_setup
from holdfast.cli.tools import SessionId
from holdfast.errors import CallerError, ModelError, NotFound

if TYPE_CHECKING:
    from holdfast.contracts import Setup
    from holdfast.contracts.resource import GrepView, ResourceList, ResourceView
    from holdfast.journal import Journal
    from holdfast.resources import Resources

app = typer.Typer(help="Big things by URI: read a part, search, list.", rich_markup_mode=None)

FORMATS = ("auto", "text", "jsonl", "csv", "pdf", "image")

Start = Annotated[
    int,
    typer.Option("--start", metavar="N", min=0, help="The byte, line, row or page to begin at."),
]
Length = Annotated[
    int | None, typer.Option("--length", metavar="N", min=1, help="How many of these.")
]


@app.command()
@with_setup
def read(
    uri: Annotated[str, typer.Argument(metavar="URI", help="Which.", show_default=False)],
    start: Start = 0,
    length: Length = None,
    lines: Annotated[bool, typer.Option("--lines", help="Count lines, not bytes.")] = False,
    format_: Annotated[
        str, typer.Option("--format", metavar="F", help=f"How to read it: {', '.join(FORMATS)}.")
    ] = "auto",
    grep: Annotated[
        str | None,
        typer.Option("--grep", metavar="RE", help="Only the lines that match, from byte --start."),
    ] = None,
    session_id: SessionId = None,
    as_json: _output.JsonFlag = None,
    *,
    flags: Flags,
) -> None:
    """Read a part of something, or search it: a mounted file, a page of an allowed host, content, data."""
    from holdfast.contracts import parse
    from holdfast.contracts.resource import GrepRequest, ResourceRequest

    asked: dict[str, Any] = {"uri": uri, "start": start, "session_id": session_id}
    if grep is not None:
        request = parse(GrepRequest, {**asked, "pattern": grep, "max_matches": length or 50})
    else:
        if format_ not in FORMATS:
            raise CallerError(
                "INVALID_ARGUMENT", f"`--format {format_[:40]}` is none of {', '.join(FORMATS)}."
            )
        more = {"length": length, "unit": "lines" if lines else "bytes", "format": format_}
        request = parse(ResourceRequest, {**asked, **more, "max_bytes": _MOST})
    found = _answer(session_id, flags, request)
    if _output.as_json(as_json):
        _output.print_json(found)
    else:
        _tell(found)


@app.command("list")
@with_setup
def list_(
    prefix: Annotated[
        str, typer.Argument(metavar="[URI]", help="A folder or a server.", show_default=False)
    ] = "",
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=1000, help="At most so many.")
    ] = 200,
    after: Annotated[
        str | None, typer.Option("--after", metavar="CURSOR", help="Go on after this.")
    ] = None,
    session_id: SessionId = None,
    as_json: _output.JsonFlag = None,
    *,
    flags: Flags,
) -> None:
    """List what there is below a folder or a server; without one, where each kind begins."""
    from holdfast.contracts import parse
    from holdfast.contracts.resource import ListRequest

    asked = {"prefix": prefix, "limit": limit, "after": after, "session_id": session_id}
    found = _answer(session_id, flags, parse(ListRequest, asked))
    if _output.as_json(as_json):
        _output.print_json(found)
    else:
        _tell(found)


_MOST = 256 * 1024


# `Any`: one of three requests, and the view that answers it.
def _answer(session_id: str | None, flags: Flags, request: Any) -> Any:
    """What answers a request, over what the session or the settings grant."""
    import anyio

    from holdfast.cli._stop import until_stopped
    from holdfast.runtime.resources import make_resources

    async def work() -> Any:
        async with _journal(session_id) as journal:
            setup = await _setup(session_id, flags, journal)
            if _names_servers(request):
                return await _at_servers(setup, journal, request)
            return await _asked(make_resources(setup, journal), request)

    return anyio.run(until_stopped, work)


@asynccontextmanager
async def _journal(session_id: str | None) -> AsyncGenerator[Journal | None]:
    """The journal in force, if there is one: most of it needs none, a session and its content do."""
    from holdfast.cli._state import journal_to_read

    async with AsyncExitStack() as rest:
        journal: Journal | None = None
        try:
            journal = await rest.enter_async_context(journal_to_read())
        except NotFound as why:
            if session_id is not None or "There is no journal" not in why.message:
                raise
        yield journal


async def _asked(resources: Resources, request: Any) -> Any:
    from holdfast.contracts.resource import GrepRequest, ListRequest

    try:
        if isinstance(request, GrepRequest):
            return await resources.grep(request)
        if isinstance(request, ListRequest):
            return await resources.list(request)
        return await resources.read(request)
    except (OSError, ValueError) as why:
        # As code would see it: there is no such file, or the server is not there.
        raise ModelError("TOOL_ERROR", str(why)) from None


def _names_servers(request: Any) -> bool:
    """Whether tool servers are asked: only then are they started, which takes seconds."""
    where = _where(request)
    return not where or where.startswith("mcp:")


def _where(request: Any) -> str:
    from holdfast.contracts.resource import ListRequest

    return request.prefix if isinstance(request, ListRequest) else request.uri


async def _at_servers(setup: Setup, journal: Journal | None, request: Any) -> Any:
    """The answer with the tool servers that the session sees; one that is asked by name is connected alone."""
    from holdfast.cli._surfaces import definitions, trial
    from holdfast.resources.resolvers.mcp import split
    from holdfast.runtime import Settings
    from holdfast.runtime.resources import make_resources

    settings, where = Settings.load(), _where(request)
    named = split(where)[0] if where.partition(":")[2].strip("/") else None
    specs = {
        name: spec
        for name, spec in (await definitions(settings)).specs.items()
        if (setup.surfaces is None or name in setup.surfaces) and named in (None, name)
    }
    if not specs and not where:
        return await _asked(make_resources(setup, journal), request)
    async with trial(settings, specs) as trying:
        for name in specs:
            problem = await trying.problem(name)
            if problem is not None and named is not None:
                raise problem
            if problem is not None:
                _output.console(stderr=True).print(_output.visible(problem.message), style="yellow")
        resources = make_resources(setup, journal, connected=trying.surfaces, under_way=True)
        return await _asked(resources, request)


async def _setup(session_id: str | None, flags: Flags, journal: Journal | None) -> Setup:
    """What the session was opened with, or the settings say; over that what was given."""
    from holdfast.contracts import Setup, parse
    from holdfast.runtime import Settings

    known = Settings.load().session
    if session_id is not None and journal is not None:
        known = await _remembered(session_id, journal) or known
    return parse(Setup, {**known.model_dump(exclude_unset=True), **flags.fields()})


async def _remembered(session_id: str, journal: Journal) -> Setup | None:
    from holdfast.cli._state import sessions_of
    from holdfast.contracts import Setup

    await sessions_of(journal).show(session_id)
    row = await journal.row("sessions", session_id) or {}
    setup = row.get("setup")
    return None if setup is None else Setup.model_validate(setup)


# -- for people ---------------------------------------------------------------------------------------


def _tell(found: ResourceView | GrepView | ResourceList) -> None:
    from holdfast.contracts.resource import GrepView, ResourceList

    out, aside = _output.console(), _output.console(stderr=True)
    if isinstance(found, ResourceList):
        for one in found.items:
            size = "" if one.size is None else f"  {one.size}"
            out.print(f"{_output.visible(one.uri)}{'/' if one.kind == 'folder' else ''}{size}")
        if not found.items:
            aside.print("Nothing: grant something with --mount or --allow-host.")
        elif found.next is not None:
            aside.print(f"more: --after {_output.visible(found.next)}")
        return
    if isinstance(found, GrepView):
        for match in found.matches:
            where = match.at if match.line is None else match.line
            out.print(f"{where}: {_output.visible(match.text)}")
    else:
        _tell_part(found)
    for note in found.notes:
        aside.print(_output.visible(note), style="dim")
    if found.next is not None:
        aside.print(f"more: --start {found.next}", style="dim")


def _tell_part(found: ResourceView) -> None:
    import json

    if found.rows is not None:
        for row in (*([found.columns] if found.columns else ()), *found.rows):
            print(_output.visible(json.dumps(row, ensure_ascii=False)))
    elif found.text is not None:
        # Not by rich, which would turn its tabs into spaces.
        print(_output.visible(found.text), end="" if found.text.endswith("\n") else "\n")
    if found.image is not None:
        print(f"{found.mime}, {found.image.width} × {found.image.height}")

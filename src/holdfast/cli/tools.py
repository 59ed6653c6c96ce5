"""`holdfast tools`: what a session may call, with stubs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import _output
from holdfast.cli._setup import Flags, import_from_here, with_setup
from holdfast.errors import NotFound

if TYPE_CHECKING:
    from holdfast.contracts import Setup
    from holdfast.gate.executor import Toolbox

app = typer.Typer(help="What a session may call: list, describe, search.", rich_markup_mode=None)

SessionId = Annotated[
    str | None,
    typer.Option("--session-id", metavar="S", help="What this session was opened with."),
]


@app.command("list")
@with_setup
def list_(session_id: SessionId = None, as_json: _output.JsonFlag = None, *, flags: Flags) -> None:
    """List what a session may call, by name.

    A session is opened with what the settings say, or with the options given here.
    """
    from holdfast.server.views import tool_lines

    toolbox = _toolbox(session_id, flags)
    _tell(tool_lines(toolbox, toolbox.all()), _output.as_json(as_json))


@app.command()
@with_setup
def search(
    query: Annotated[
        str, typer.Argument(metavar="WORDS", help="What it should do.", show_default=False)
    ],
    session_id: SessionId = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=1000, help="At most so many.")
    ] = 20,
    as_json: _output.JsonFlag = None,
    *,
    flags: Flags,
) -> None:
    """Find capabilities by what they say of themselves, best first."""
    from holdfast.server.views import tool_lines

    toolbox = _toolbox(session_id, flags)
    _tell(tool_lines(toolbox, toolbox.search(query, limit=limit)), _output.as_json(as_json))


@app.command()
@with_setup
def describe(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The capability.", show_default=False)
    ],
    session_id: SessionId = None,
    as_json: _output.JsonFlag = None,
    *,
    flags: Flags,
) -> None:
    """Show everything about one capability: schemas, limits, side effect, stub."""
    from holdfast.server.views import tool

    found = tool(_toolbox(session_id, flags), name)
    if _output.as_json(as_json):
        _output.print_json(found)
        return
    from rich.table import Table

    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_column(style="dim")
    for key in ("side_effect", "risk", "idempotent", "approval_policy", "limits", "digest"):
        facts.add_row(key, _output.visible(str(found[key])))
    out = _output.console()
    out.print(_output.visible(found["stub"]))
    out.print(_output.visible(found["description"]))
    out.print()
    out.print(facts)


def _tell(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        _output.print_json(found)
        return
    out = _output.console()
    if not found["items"]:
        out.print("Nothing: open the session with --capabilities, --mount and the like.")
    for one in found["items"]:
        out.print(f"# {one['side_effect']}, risk {one['risk']}", style="dim")
        out.print(_output.visible(one["stub"].strip()))
        out.print()


def _toolbox(session_id: str | None, flags: Flags) -> Toolbox:
    import anyio

    from holdfast.contracts import Setup, parse
    from holdfast.runtime import Settings, wiring

    fields, settings = flags.fields(), Settings.load()
    known = settings.session
    if session_id is not None:
        known = anyio.run(_remembered, session_id) or known
    setup = parse(Setup, {**known.model_dump(exclude_unset=True), **fields})
    import_from_here()
    return wiring.make_tools((), wiring.make_redactor(settings, {}))(setup)


async def _remembered(session_id: str) -> Setup | None:
    from holdfast.cli._state import journal_to_read, sessions_of
    from holdfast.contracts import Setup
    from holdfast.shell.refusals import not_found

    try:
        async with journal_to_read() as journal:
            await sessions_of(journal).show(session_id)
            row = await journal.row("sessions", session_id) or {}
    except NotFound:
        raise not_found(session_id) from None
    setup = row.get("setup")
    return None if setup is None else Setup.model_validate(setup)

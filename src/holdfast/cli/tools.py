"""`holdfast tools`: what a session may call, with stubs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn

import typer

from holdfast.cli import _output
from holdfast.cli._setup import Flags, import_from_here, with_setup
from holdfast.errors import NotFound

if TYPE_CHECKING:
    from holdfast.contracts import Capability, Setup
    from holdfast.gate.executor import Toolbox
    from holdfast.runtime import Settings

app = typer.Typer(help="What a session may call: list, describe, search.", rich_markup_mode=None)

MOST = 1000
"""So many are found at most."""

SessionId = Annotated[
    str | None,
    typer.Option("--session-id", metavar="S", help="What this session was opened with."),
]
FromSurface = Annotated[
    str | None,
    typer.Option("--surface", metavar="NAME", help="Only the tools of this surface."),
]


@app.command("list")
@with_setup
def list_(
    surface: FromSurface = None,
    session_id: SessionId = None,
    as_json: _output.JsonFlag = None,
    *,
    flags: Flags,
) -> None:
    """List what a session may call, by name.

    A session is opened with what the settings say, or with the options given here. Its surfaces are connected for it.
    """
    seen = _seen(session_id, flags, surface)
    _tell(seen, seen.toolbox.all(), _output.as_json(as_json))


@app.command()
@with_setup
def search(
    query: Annotated[
        str, typer.Argument(metavar="WORDS", help="What it should do.", show_default=False)
    ],
    surface: FromSurface = None,
    session_id: SessionId = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=MOST, help="At most so many.")
    ] = 20,
    as_json: _output.JsonFlag = None,
    *,
    flags: Flags,
) -> None:
    """Find capabilities by what they say of themselves, best first."""
    seen = _seen(session_id, flags, surface)
    # Those of other surfaces are left out afterwards.
    found = seen.toolbox.search(query, limit=limit if surface is None else MOST)
    _tell(seen, found, _output.as_json(as_json), limit)


@app.command()
@with_setup
def describe(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The capability.", show_default=False)
    ],
    surface: FromSurface = None,
    session_id: SessionId = None,
    as_json: _output.JsonFlag = None,
    *,
    flags: Flags,
) -> None:
    """Show everything about one capability: schemas, limits, side effect, stub."""
    from holdfast.server.views import tool

    seen = _seen(session_id, flags, surface, name)
    if not seen.shows(name):
        _not_offered(name, str(surface))
    found: dict[str, Any] = {**tool(seen.toolbox, name), "surface": seen.origins.get(name)}
    if _output.as_json(as_json):
        _output.print_json(found)
        return
    from rich.table import Table

    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_column(style="dim")
    keys = ("side_effect", "risk", "idempotent", "approval_policy", "limits", "digest", "surface")
    for key in keys:
        if found[key] is not None:
            facts.add_row(key, _output.visible(str(found[key])))
    out = _output.console()
    out.print(_output.visible(found["stub"]))
    out.print(_output.visible(found["description"]))
    out.print()
    out.print(facts)


class _Seen(NamedTuple):
    """What a session sees."""

    toolbox: Toolbox
    origins: dict[str, str]
    """The surface of each tool that is one's."""
    failed: dict[str, str]
    """Why a surface's tools are missing."""
    surface: str | None
    """The one whose tools are asked for."""

    def shows(self, name: str) -> bool:
        """Whether it is asked for."""
        return self.surface is None or self.origins.get(name) == self.surface


def _not_offered(name: str, surface: str) -> NoReturn:
    raise NotFound(
        "NOT_FOUND",
        f"The surface `{surface}` offers no `{name[:80]}`.",
        hint=f"`holdfast tools list --surface {surface}` names what it offers.",
    )


def _tell(seen: _Seen, found: Sequence[Capability], as_json: bool, limit: int = MOST) -> None:
    from holdfast.server.views import tool_lines

    shown = [one for one in found if seen.shows(one.name)][:limit] if seen.surface else found
    told = tool_lines(seen.toolbox, shown)
    items: list[dict[str, Any]] = told["items"]
    for one in items:
        one["surface"] = seen.origins.get(one["name"])
    if as_json:
        _output.print_json({**told, "failed": seen.failed} if seen.failed else told)
        return
    out = _output.console()
    if not items and seen.surface is None:
        out.print("Nothing: open the session with --capabilities, --mount and the like.")
    for one in items:
        origin = f", from {one['surface']}" if one["surface"] is not None else ""
        out.print(f"# {one['side_effect']}, risk {one['risk']}{origin}", style="dim")
        out.print(_output.visible(one["stub"].strip()))
        out.print()
    for why in seen.failed.values():
        _output.console(stderr=True).print(_output.visible(why), style="yellow")


def _seen(session_id: str | None, flags: Flags, surface: str | None, name: str = "") -> _Seen:
    """What the session sees; no surface is connected when `name` is there without."""
    import anyio

    from holdfast.cli._stop import until_stopped
    from holdfast.contracts import Setup, parse
    from holdfast.runtime import Settings

    fields, settings = flags.fields(), Settings.load()

    async def work() -> _Seen:
        known = settings.session
        if session_id is not None:
            known = await _remembered(session_id) or known
        setup = parse(Setup, {**known.model_dump(exclude_unset=True), **fields})
        return await _connected(settings, setup, surface, name)

    return anyio.run(until_stopped, work)


async def _connected(settings: Settings, setup: Setup, surface: str | None, name: str) -> _Seen:
    from holdfast.cli._surfaces import definitions, trial
    from holdfast.runtime import wiring

    import_from_here()
    own = wiring.make_tools((), wiring.make_redactor(settings, {}))(setup)
    known = await definitions(settings)
    if surface is not None:
        known.get(surface)
        seen = setup.surfaces
        setup = setup.model_copy(
            update={"surfaces": (surface,) if seen is None or surface in seen else ()}
        )
    specs = {
        one: spec
        for one, spec in known.specs.items()
        if setup.surfaces is None or one in setup.surfaces
    }
    if not specs or (surface is None and own.get(name) is not None):
        return _Seen(own, {}, {}, surface)
    async with trial(settings, specs) as trying:
        toolbox = trying.toolbox(setup)
        problems = {one: await trying.problem(one) for one in specs}
        origins = {
            one.capability.name: one.surface
            for one in trying.surfaces.tools(setup)
            if toolbox.get(one.capability.name) is one
        }
    if surface is not None and (why := problems.get(surface)) is not None:
        raise why
    failed = {one: why.message for one, why in problems.items() if why is not None}
    return _Seen(toolbox, origins, failed, surface)


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

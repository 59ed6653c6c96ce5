"""`holdfast session`: which sessions there are, what one is, how one begins and ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import _options, _output, _session_state
from holdfast.cli._options import WAIT_MS
from holdfast.cli._session_state import Name
from holdfast.cli._setup import Flags, setup_for, with_setup
from holdfast.errors import NotFound

if TYPE_CHECKING:
    from holdfast.contracts import RunView, SessionView
    from holdfast.journal import Journal
    from holdfast.runtime import Runtime

RECENT, SEARCHED = 20, 200
"""Runs that are shown of a session, and records that are searched for them."""

app = typer.Typer(
    help="Sessions: list, show, create, snapshot, restore, fork, reset, diff, destroy.",
    rich_markup_mode=None,
)


@app.command("list")
def list_(
    limit: _options.Most = 100,
    after: _options.After = "",
    as_json: _output.JsonFlag = None,
) -> None:
    """List the open sessions, by id."""
    import anyio

    found = anyio.run(_list, after, limit + 1)
    items, more = found[:limit], len(found) > limit
    if _output.as_json(as_json):
        _output.print_json({"items": items, "next": items[-1].id if more else None})
        return
    from rich.table import Table

    table = Table("session", "language", "runs", "last used", "created", box=None, pad_edge=False)
    for one in items:
        times = (_output.clock(one.last_used_at), _output.clock(one.created_at))
        table.add_row(one.id, one.language.value, str(one.runs), *times)
    out = _output.console()
    out.print(table if items else "No sessions yet: `holdfast run` makes one.")
    if more:
        out.print(f"more: --after {items[-1].id}", style="dim")


@app.command()
def show(session: Name, as_json: _output.JsonFlag = None) -> None:
    """Show one session and its recent runs.

    Also a destroyed one: its records stay.
    """
    import anyio

    view, runs, setup = anyio.run(_show, session)
    if _output.as_json(as_json):
        _output.print_json(view)
        return
    from rich.table import Table

    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_column(style="dim")
    for name, value in [*_facts(view), *_opened(setup)]:
        facts.add_row(name, _output.visible(value))
    out = _output.console()
    out.print(facts)
    if runs:
        from holdfast.cli._standing import runs_table

        out.print()
        out.print(runs_table(runs, session=False))


@app.command()
@with_setup
def create(
    session: Name,
    language: Annotated[
        str, typer.Option("--language", metavar="L", help="What its code is written in.")
    ] = "python",
    limits: _options.Limit = None,
    as_json: _output.JsonFlag = None,
    *,
    flags: Flags,
) -> None:
    """Make an empty session, opened with what is given here.

    A session that is there already keeps what is in it; what is given here replaces what it was opened with.
    """
    from holdfast.cli._work import on_runtime

    fields = flags.fields()
    if limited := _options.limits_of(limits):
        fields["limits"] = limited

    async def work(hf: Runtime) -> SessionView:
        setup = await setup_for(hf, session, fields)
        return await hf.shell.create(session, language=language, setup=setup)

    view = on_runtime(work)
    if _output.as_json(as_json):
        _output.print_json(view)
    else:
        _output.console().print(f"Session {view.id} is there.")


app.command("snapshot")(_session_state.snapshot)
app.command("restore")(_session_state.restore)
app.command("fork")(_session_state.fork)
app.command("reset")(_session_state.reset)
app.command("diff")(_session_state.diff)


@app.command()
def destroy(
    session: Name,
    wait: _options.Wait = WAIT_MS,
    as_json: _output.JsonFlag = None,
) -> None:
    """End a session and erase what it held.

    The record that it was stays, and still verifies.
    """
    import anyio

    view = anyio.run(_destroy, session, wait)
    if _output.as_json(as_json):
        _output.print_json(view)
    else:
        _output.console().print(
            f"Session {view.id} is destroyed; its records stay, its content is erased."
        )


async def _list(after: str, limit: int) -> list[SessionView]:
    from holdfast.cli._state import journal_to_read, sessions_of

    try:
        async with journal_to_read() as journal:
            return await sessions_of(journal).list(after=after, limit=limit)
    except NotFound:
        return []  # no journal yet, so no sessions


async def _show(session: str) -> tuple[SessionView, list[RunView], dict[str, Any]]:
    from holdfast.cli._state import journal_to_read, sessions_of
    from holdfast.shell.refusals import not_found

    try:
        async with journal_to_read() as journal:
            view = await sessions_of(journal).show(session)
            row = await journal.row("sessions", session) or {}
            setup = row.get("setup")
            remembered = setup if isinstance(setup, dict) else {}
            return view, await _recent(journal, session), remembered
    except NotFound:
        raise not_found(session) from None


async def _recent(journal: Journal, session: str) -> list[RunView]:
    """The session's last runs, newest first."""
    from holdfast.contracts import RunView

    head = await journal.head(session)
    after = max(0, head.pos - SEARCHED)
    ids = [r.run_id async for r in journal.read(session, after=after) if r.run_id is not None]
    rows = [await journal.row("runs", id_) for id_ in list(dict.fromkeys(ids))[::-1][:RECENT]]
    return [RunView.model_validate(row) for row in rows if row is not None]


async def _destroy(session: str, wait: int) -> SessionView:
    from holdfast import runtime

    await _show(session)  # so that asking for one that is not there makes no journal
    async with runtime.open() as hf:
        await hf.shell.destroy(session, wait_ms=wait)
        return await hf.shell.show(session)


def _facts(view: SessionView) -> list[tuple[str, str]]:
    limits = view.limits.model_dump()
    return [
        ("session", view.id),
        ("status", view.status),
        ("language", view.language.value),
        ("created", _output.clock(view.created_at)),
        ("last used", _output.clock(view.last_used_at)),
        ("runs", str(view.runs)),
        ("limits", ", ".join(f"{name} {value}" for name, value in limits.items())),
        ("last record", str(view.last_seq)),
    ]


def _opened(setup: dict[str, Any]) -> list[tuple[str, str]]:
    """What the session remembers it was opened with."""
    told = {
        "capabilities": setup.get("capabilities"),
        "mounts": [f"{one['path']}={one['host']}" for one in setup.get("mounts") or ()],
        "hosts": setup.get("allow_hosts"),
        "databases": [one["name"] for one in setup.get("databases") or ()],
        "rules": [one["id"] for one in setup.get("rules") or ()],
    }
    return [(name, ", ".join(found)) for name, found in told.items() if found]

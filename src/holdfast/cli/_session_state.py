"""`holdfast session snapshot`, `restore`, `fork`, `reset` and `diff`: what is in a session, taken along or put back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import _files, _options, _output
from holdfast.cli._options import WAIT_MS, refuse
from holdfast.cli._setup import Flags, setup_for, with_setup

if TYPE_CHECKING:
    from holdfast.contracts import SessionView
    from holdfast.runtime import Runtime
    from holdfast.shell.diff import Difference

Name = Annotated[str, typer.Argument(metavar="S", help="The session's id.", show_default=False)]


def snapshot(
    session: Name,
    out: Annotated[str, typer.Option("--out", metavar="F", help="The file to write.")],
    wait: _options.Wait = WAIT_MS,
    as_json: _output.JsonFlag = None,
) -> None:
    """Write what is in a session to a file.

    Sealed with the key beside the journal, so only a holdfast that has it can restore it. The session goes on.
    """
    from holdfast.cli._work import on_runtime

    async def work(hf: Runtime) -> bytes:
        return await hf.shell.snapshot(session, wait_ms=wait)

    _look_first(session)
    data = on_runtime(work)
    _files.replace(out, data)
    if _output.as_json(as_json):
        _output.print_json({"session_id": session, "out": out, "bytes": len(data)})
    else:
        _output.console().print(f"{_output.size(len(data))} written to {out}.")


@with_setup
def restore(
    source: Annotated[str, typer.Option("--from", metavar="F", help="A snapshot's file.")],
    session_id: Annotated[
        str, typer.Option("--session-id", metavar="S", help="The session; made if need be.")
    ],
    wait: _options.Wait = WAIT_MS,
    as_json: _output.JsonFlag = None,
    *,
    flags: Flags,
) -> None:
    """Put a snapshot into a session, in place of what is there."""
    from holdfast.cli._work import on_runtime

    data, fields = _files.read(source), flags.fields()

    async def work(hf: Runtime) -> SessionView:
        setup = await setup_for(hf, session_id, fields)
        return await hf.shell.restore(session_id, data, setup=setup, wait_ms=wait)

    _tell(on_runtime(work), f"Session {session_id} is as in {source}.", as_json)


def fork(
    session: Name,
    new: Annotated[
        str, typer.Argument(metavar="NEW", help="The new session's id.", show_default=False)
    ],
    at: Annotated[
        int | None,
        typer.Option("--at", metavar="SEQ", min=1, help="As it was after this record.  [now]"),
    ] = None,
    wait: _options.Wait = WAIT_MS,
    as_json: _output.JsonFlag = None,
) -> None:
    """Make another session that goes on from where this one is, or was."""
    from holdfast.cli._work import on_runtime

    async def work(hf: Runtime) -> SessionView:
        return await hf.shell.fork(session, new, at=at, wait_ms=wait)

    _look_first(session)
    _tell(on_runtime(work), f"Session {new} goes on from {session}.", as_json)


def reset(session: Name, wait: _options.Wait = WAIT_MS, as_json: _output.JsonFlag = None) -> None:
    """Empty a session: its variables and functions are gone, its history stays."""
    from holdfast.cli._work import on_runtime

    async def work(hf: Runtime) -> SessionView:
        return await hf.shell.reset(session, wait_ms=wait)

    _look_first(session)
    _tell(on_runtime(work), f"Session {session} is empty.", as_json)


def diff(
    session: Name,
    at: Annotated[
        int | None,
        typer.Option("--at", metavar="SEQ", min=1, help="Compare with after this record."),
    ] = None,
    other: Annotated[
        str | None, typer.Option("--other", metavar="S2", help="Compare with another session.")
    ] = None,
    saved: Annotated[
        str | None, typer.Option("--snapshot", metavar="F", help="Compare with a snapshot.")
    ] = None,
    wait: _options.Wait = WAIT_MS,
    as_json: _output.JsonFlag = None,
) -> None:
    """Show what is different in a session's variables."""
    from holdfast.cli._work import on_runtime

    if sum(one is not None for one in (at, other, saved)) != 1:
        refuse("Say what to compare with: one of --at SEQ, --other S2 and --snapshot F.")
    data = None if saved is None else _files.read(saved)

    async def work(hf: Runtime) -> Difference:
        return await hf.shell.diff(session, other=other, at=at, snapshot=data, wait_ms=wait)

    _look_first(session)
    found = on_runtime(work)
    if _output.as_json(as_json):
        _output.print_json(found)
        return
    out = _output.console()
    for name, value in found.added.items():
        out.print(f"+ {name} = {_output.visible(value)}", style="green")
    for name, value in found.removed.items():
        out.print(f"- {name} = {_output.visible(value)}", style="red")
    for name, change in found.changed.items():
        told = f"~ {name} = {change.before}  →  {change.after}"
        out.print(_output.visible(told), style="yellow")
    if not (found.added or found.removed or found.changed):
        out.print("No difference.")


def _tell(view: SessionView, text: str, as_json: bool | None) -> None:
    if _output.as_json(as_json):
        _output.print_json(view)
    else:
        _output.console().print(text)


def _look_first(session: str) -> None:
    """Asking for a session that is not there makes no journal."""
    import anyio

    anyio.run(_exists, session)


async def _exists(session: str) -> None:
    from holdfast.cli._state import journal_to_read, sessions_of
    from holdfast.errors import NotFound
    from holdfast.shell.refusals import not_found

    try:
        async with journal_to_read() as journal:
            await sessions_of(journal).show(session)
    except NotFound:
        raise not_found(session) from None

"""`holdfast journal`: the audit. Show it, follow it, prove it, take it along."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import _files, _output
from holdfast.errors import CallerError, JournalError

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.cli._export import Exported
    from holdfast.journal import Report

app = typer.Typer(
    help="The audit: show, tail, verify, export, backup, sweep.", rich_markup_mode=None
)

SessionId = Annotated[
    str | None, typer.Option("--session-id", metavar="S", help="Only records of this session.")
]
Kind = Annotated[str | None, typer.Option("--kind", metavar="K", help="Only records of this kind.")]


@app.command()
def show(
    session_id: SessionId = None,
    run: Annotated[
        str | None, typer.Option("--run", metavar="R", help="Only records of this run.")
    ] = None,
    after: Annotated[
        int, typer.Option("--after", metavar="SEQ", min=0, help="Only records after this one.")
    ] = 0,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=100_000, help="At most so many.")
    ] = 100,
    kind: Kind = None,
    as_json: _output.JsonFlag = None,
) -> None:
    """Show records, oldest first."""
    import anyio

    from holdfast.cli._find import find

    found = anyio.run(find, session_id, run, after, limit + 1, kind)
    items, more = found[:limit], len(found) > limit
    if _output.as_json(as_json):
        _output.print_json({"items": items, "next": items[-1].seq if more else None})
        return
    from holdfast.cli._records import table

    out = _output.console()
    out.print(table(items, out.width) if items else "No records.")
    if more:
        out.print(f"more: --after {items[-1].seq}", style="dim")


@app.command()
def tail(
    session_id: SessionId = None,
    after: Annotated[
        int | None,
        typer.Option(
            "--after", metavar="SEQ", min=0, help="Start after this record.  [from now on]"
        ),
    ] = None,
    kind: Kind = None,
    as_json: _output.JsonFlag = None,
) -> None:
    """Show records as they come, until Ctrl-C.

    As JSON, one record per line.
    """
    import anyio

    from holdfast.cli._stop import Stopped, until_stopped

    def follow() -> Awaitable[None]:
        return _tail(session_id, after, kind, _output.as_json(as_json))

    try:
        # Not by the event loop's own way with Ctrl-C: that cancels once, and a wait that ends at the same moment
        # swallows it.
        anyio.run(until_stopped, follow)
    except Stopped as stopped:
        raise typer.Exit(stopped.exit_code) from None


@app.command()
def verify(
    file: Annotated[
        str | None,
        typer.Option(
            "--file", metavar="EXPORT.jsonl", help="An exported file; - is standard input."
        ),
    ] = None,
    as_json: _output.JsonFlag = None,
) -> int:
    """Prove that nothing was changed, removed or reordered.

    Exits with 1 and names the first bad record. Note the root elsewhere: who has it can prove later that the
    journal still holds this very state.
    """
    import anyio

    report = anyio.run(_verify) if file is None else _verify_file(file)
    if _output.as_json(as_json):
        from holdfast.server.views import report as as_told

        _output.print_json(as_told(report))
    else:
        _tell(report)
    return 0 if report.ok else 1


@app.command()
def export(
    out: Annotated[
        str | None, typer.Option("--out", metavar="F", help="A new file.  [standard output]")
    ] = None,
    as_json: _output.JsonFlag = None,
) -> int:
    """Write every record as a line of JSON.

    A line is {"body": {…}, "hash": "…"}. `journal verify --file` proves such a file without the journal.
    Content stays where it is.
    """
    import anyio

    done = anyio.run(_export, out)
    if out is not None:
        if _output.as_json(as_json):
            _output.print_json({"out": out, **asdict(done)})
        else:
            _output.console().print(f"{done.records} records written to {out}.")
    if done.damaged is not None:
        _output.console(stderr=True).print(
            f"Record {done.damaged} is damaged; what could be read was written."
            " `holdfast journal verify` tells more.",
            style="bold red",
        )
    return 0 if done.damaged is None else 1


@app.command()
def backup(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A new file.", show_default=False)],
    as_json: _output.JsonFlag = None,
) -> None:
    """Copy the journal while it is in use.

    With it goes the key that its saved states are sealed with. The copy is a journal of its own: open it with --url sqlite:///FILE.
    """
    import anyio

    records = anyio.run(_backup, file)
    if _output.as_json(as_json):
        _output.print_json({"file": file, "key": f"{file}.key", "records": records})
    else:
        _output.console().print(f"{records} records copied to {file}, the key to {file}.key.")


@app.command()
def sweep(as_json: _output.JsonFlag = None) -> None:
    """Erase content that nothing wants kept any longer.

    What a session held goes when it is destroyed; this finds what was left over: of its dry runs and validations, of
    runs that have ended, of a process that died over it. The records stay, and the chain verifies as before.
    """
    import anyio

    erased = anyio.run(_sweep)
    if _output.as_json(as_json):
        _output.print_json({"erased": erased})
    else:
        _output.console().print(f"{len(erased)} bodies erased.")


async def _tail(session_id: str | None, after: int | None, kind: str | None, as_json: bool) -> None:
    from holdfast.cli._records import cells
    from holdfast.cli._state import journal_to_read
    from holdfast.contracts import Gap

    out = _output.console()
    async with journal_to_read() as journal:
        async for record in journal.subscribe(after=after):
            if isinstance(record, Gap):
                continue  # asked for none, so there is none
            if session_id not in (None, record.stream) or kind not in (None, record.kind):
                continue
            if as_json:
                _output.print_bytes(record.model_dump_json().encode() + b"\n")
            else:
                seq, time, stream, name, _, what = cells(record)
                out.print(f"{seq:>6}  {time}  {stream}  {name}  {what}")


async def _verify() -> Report:
    from holdfast.cli._state import journal_to_read

    try:
        async with journal_to_read() as journal:
            if not sys.stderr.isatty():
                return await journal.verify()
            with _output.console(stderr=True).status("verifying …"):
                return await journal.verify()
    except JournalError as why:
        if why.code != "JOURNAL_DAMAGED":
            raise
        hint = "The file itself can't be read to its end, so nothing in it is proved: restore it from a backup."
        raise JournalError(why.code, why.message, hint=hint) from None


def _verify_file(name: str) -> Report:
    from holdfast.cli._export import verify as verify_lines

    if name == "-":
        return verify_lines(sys.stdin.buffer)
    try:
        with open(name, "rb") as file:
            return verify_lines(file)
    except OSError as why:
        raise CallerError(
            "INVALID_ARGUMENT", f"The file `{name}` can't be read: {why.strerror}."
        ) from None


def _tell(report: Report) -> None:
    out = _output.console()
    if report.bad is not None:
        bad = report.bad
        place = f"stream {bad.stream}, position {bad.pos}" if bad.stream else "stream unknown"
        out.print(f"BAD  record {bad.seq} ({place}): {_output.visible(bad.why)}", style="bold red")
        out.print(f"     the {report.records} records before it hold")
        return
    if report.bad_content is not None:
        out.print(f"BAD  content {report.bad_content}: not what was stored", style="bold red")
    else:
        out.print("ok   nothing was changed, removed or reordered", style="green")
    out.print(
        f"     {report.records} records in {report.streams} streams, {report.erased} bodies erased"
    )
    out.print(f"     root {report.root}")


async def _export(out: str | None) -> Exported:
    from holdfast.cli._export import Exported, lines
    from holdfast.cli._state import journal_to_read

    done = Exported()
    async with journal_to_read() as journal:
        if out is None:
            async for line in lines(journal, done):
                sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
            return done
        handle = _files.create(out)
        try:
            with os.fdopen(handle, "wb") as file:
                async for line in lines(journal, done):
                    file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            os.unlink(out)  # half an export would look like a whole one
            raise
    return done


async def _sweep() -> list[str]:
    from holdfast.cli._state import journal_to_write
    from holdfast.journal.retention import sweep as sweep_all

    async with journal_to_write() as journal:
        return await sweep_all(journal)


async def _backup(name: str) -> int:
    from pathlib import Path

    from holdfast.cli._state import journal_to_read
    from holdfast.runtime import Settings, wiring

    key = wiring.key_path(Settings.load())
    async with journal_to_read() as journal:
        await journal.backup(name)
        records = journal.found.records
    if key is not None and key.exists():
        _copy_key(key, Path(f"{name}.key"))
    return records


def _copy_key(key: Path, target: Path) -> None:
    with os.fdopen(_files.create(str(target)), "wb") as file:
        file.write(key.read_bytes())

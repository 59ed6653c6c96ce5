"""`holdfast runs`: which runs there are, what one did, and what becomes of one that stands."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from holdfast.cli import _options, _output
from holdfast.cli._agent_flags import AgentFlags, with_agent
from holdfast.cli._options import WAIT_MS, refuse
from holdfast.cli._setup import Flags, with_setup
from holdfast.errors import Conflict, NotFound

if TYPE_CHECKING:
    from holdfast.contracts import EffectView, Json, RunView
    from holdfast.contracts.agent_event import AgentEvent
    from holdfast.runtime import Runtime

app = typer.Typer(help="Runs: list, show, resume, cancel, resolve.", rich_markup_mode=None)

Run = Annotated[
    str, typer.Argument(metavar="RUN", help="The run's id, or its end.", show_default=False)
]


@app.command("list")
def list_(
    session_id: Annotated[
        str | None, typer.Option("--session-id", metavar="S", help="Only runs of this session.")
    ] = None,
    status: Annotated[
        str | None,
        typer.Option(
            "--status", metavar="STATUS", help="active, ended, waiting_for_approval, failed …"
        ),
    ] = None,
    limit: _options.Most = 100,
    after: _options.After = "",
    as_json: _output.JsonFlag = None,
) -> None:
    """List runs, oldest first."""
    import anyio

    from holdfast.contracts.view import RunFilter

    if status is not None and status not in get_args(RunFilter):
        refuse(
            f"`--status {status[:80]}` is none.", f"Use one of {', '.join(get_args(RunFilter))}."
        )
    found = anyio.run(_list, session_id, status, after, limit + 1)
    items, more = found[:limit], len(found) > limit
    if _output.as_json(as_json):
        _output.print_json({"items": items, "next": items[-1].id if more else None})
        return
    from holdfast.cli._standing import runs_table

    out = _output.console()
    out.print(runs_table(items) if items else "No runs.")
    if more:
        out.print(f"more: --after {items[-1].id}", style="dim")


@app.command()
def show(run: Run, as_json: _output.JsonFlag = None) -> None:
    """Show one run: where it stands, every call it made, and what it gave.

    Of an agent's run also what was said, step by step, with the code it wrote.
    """
    import anyio

    told = not _output.as_json(as_json)
    found, events = anyio.run(_show, run, told)
    if not told:
        _output.print_json(found)
        return
    from holdfast.cli._standing import show_run

    show_run(found, events)


@app.command()
@with_setup
@with_agent
def resume(
    run: Run,
    wait: _options.Wait = WAIT_MS,
    as_json: _output.JsonFlag = None,
    *,
    flags: Flags,
    agent: AgentFlags,
) -> int:
    """Go on with a run that stands, in this process, and print what it gives.

    One that still waits is left as it is; one that is over gives its result again. An agent goes on as it is on
    record, but for what is given here. Exit codes as with `run`.
    """
    from holdfast.cli._standing import Found, go_on, tell
    from holdfast.cli._work import on_runtime

    fields, changed = flags.fields(), agent.fields()

    async def work(hf: Runtime) -> Found:
        return await go_on(hf, await _id(hf, run), fields, changed, wait_ms=wait)

    _look_first(run)
    return tell(on_runtime(work), as_json=_output.as_json(as_json))


@app.command()
def cancel(
    run: Run,
    after_effect: Annotated[
        bool, typer.Option("--after-effect", help="Let the calls that are under way end first.")
    ] = False,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Why; goes on record.")
    ] = None,
    wait: _options.Wait = WAIT_MS,
    as_json: _output.JsonFlag = None,
) -> None:
    """Stop a run: where it stands, or in the process that has it."""
    from holdfast.cli._work import on_runtime

    async def work(hf: Runtime) -> RunView:
        run_id, mode = await _id(hf, run), "after_effect" if after_effect else "now"
        try:
            return await hf.runs.cancel(run_id, mode=mode, reason=reason, wait_ms=wait)
        except Conflict as why:
            if why.code != "SESSION_BUSY":
                raise
            return await hf.runs.show(run_id)  # the wish is on record; it has not been heard yet

    _look_first(run)
    view = on_runtime(work)
    if _output.as_json(as_json):
        _output.print_json(view)
        return
    _output.console().print(f"Run {view.id} is {view.status}.")


@app.command()
def resolve(
    run: Run,
    effect: Annotated[
        str, typer.Argument(metavar="EFFECT", help="The effect's id.", show_default=False)
    ],
    happened: Annotated[
        str | None,
        typer.Option("--happened", metavar="JSON", help="It was done, and this is what it gave."),
    ] = None,
    did_not_happen: Annotated[
        bool, typer.Option("--did-not-happen", help="It was not done; the code is told so.")
    ] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Do it again when resumed.")] = False,
    wait: _options.Wait = WAIT_MS,
    as_json: _output.JsonFlag = None,
) -> None:
    """Say what became of an effect in doubt. Then resume the run.

    An effect is in doubt when its process died in the middle of it and nothing tells whether it was done.
    """
    from holdfast.cli._work import on_runtime, user

    answer, value = _answer(happened, did_not_happen, retry)

    async def work(hf: Runtime) -> tuple[RunView, EffectView]:
        run_id = await _id(hf, run)
        await hf.runs.resolve(run_id, effect, answer, value=value, actor=user(), wait_ms=wait)
        found = [one for one in await hf.runs.effects(run_id) if one.id == effect]
        return await hf.runs.show(run_id), found[0]

    _look_first(run)
    view, done = on_runtime(work)
    if _output.as_json(as_json):
        _output.print_json(done)
        return
    out = _output.console()
    out.print(f"Effect {done.id} ({done.name}): {answer.replace('_', ' ')}.")
    out.print(f"Go on with: holdfast runs resume {view.id}", style="dim")


def _answer(happened: str | None, did_not_happen: bool, retry: bool) -> tuple[str, Json]:
    if (happened is not None) + did_not_happen + retry != 1:
        refuse("Say one of --happened JSON, --did-not-happen and --retry.")
    if happened is None:
        return "retry" if retry else "did_not_happen", None
    try:
        value: Any = json.loads(happened)
    except (ValueError, RecursionError) as why:
        refuse(
            f"What follows --happened is not JSON: {why}.", "Text needs quotes: --happened '\"…\"'."
        )
    return "happened", value


async def _list(
    session_id: str | None, status: str | None, after: str, limit: int
) -> list[RunView]:
    from holdfast.cli._state import journal_to_read, runs_of, sessions_of

    try:
        async with journal_to_read() as journal:
            if session_id is not None:
                await sessions_of(journal).show(session_id)  # a name that is none is a slip
            runs = runs_of(journal)
            return await runs.list(status=status, session=session_id, after=after, limit=limit)
    except NotFound as why:
        if why.code == "SESSION_NOT_FOUND":
            raise
        return []  # no journal yet, so no runs


async def _show(asked: str, told: bool) -> tuple[dict[str, Any], list[AgentEvent]]:
    """A run and, of an agent's that is to be `told`, what happened in it so far."""
    from holdfast.agent.events import watch
    from holdfast.cli._find import find_run
    from holdfast.cli._state import journal_to_read, runs_of
    from holdfast.server.views import run_details

    async with journal_to_read() as journal:
        row = await find_run(journal, asked)
        found, events = await run_details(runs_of(journal), row.key), list[Any]()
        if told and found["kind"] == "agent":
            events = [one async for one in watch(journal, row.key, until="now")]
        return found, events


def _look_first(asked: str) -> None:
    """Asking for a run that is not there makes no journal."""
    import anyio

    anyio.run(_exists, asked)


async def _exists(asked: str) -> None:
    from holdfast.cli._find import find_run
    from holdfast.cli._state import journal_to_read

    async with journal_to_read() as journal:
        await find_run(journal, asked)


async def _id(hf: Runtime, asked: str) -> str:
    from holdfast.cli._find import find_run

    return (await find_run(hf.journal, asked)).key

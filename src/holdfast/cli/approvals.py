"""`holdfast approvals`: what waits for a person, and the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from holdfast.cli import _options, _output
from holdfast.cli._agent_flags import AgentFlags, with_agent
from holdfast.cli._options import WAIT_MS
from holdfast.cli._setup import Flags, with_setup
from holdfast.errors import NotFound

if TYPE_CHECKING:
    from holdfast.contracts import ApprovalView, Grant, Json
    from holdfast.runtime import Runtime

PLAN = "plan_"
"""What the id of a plan starts with. A plan is approved as a whole, before anything runs."""

app = typer.Typer(
    help="What waits for a person: list, show, approve, deny, plans, grants, revoke.",
    rich_markup_mode=None,
)

Id = Annotated[
    str, typer.Argument(metavar="ID", help="An approval's id, or a plan's.", show_default=False)
]
ForSession = Annotated[
    bool, typer.Option("--for-session", help="And do not ask again in this session.")
]
Reason = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Why; goes on record.")
]
Answer = Annotated[
    str | None,
    typer.Option("--answer", metavar="JSON", help="What was asked for, as one JSON object."),
]
Fields = Annotated[
    list[str] | None,
    typer.Option("--field", metavar="NAME=VALUE", help="One field of what was asked for."),
]
NoResume = Annotated[
    bool, typer.Option("--no-resume", help="Only decide; whoever resumes the run goes on.")
]


@app.command("list")
def list_(
    status: Annotated[
        str, typer.Option("--status", metavar="STATUS", help="pending, decided or all.")
    ] = "pending",
    limit: _options.Most = 100,
    after: _options.After = "",
    as_json: _output.JsonFlag = None,
) -> None:
    """List what waits for a person, oldest first."""
    import anyio

    if status not in ("pending", "decided", "all"):
        _options.refuse(f"`--status {status[:80]}` is none.", "Use pending, decided or all.")
    found, plans = anyio.run(_list, status, after, limit + 1)
    items, more = found[:limit], len(found) > limit
    if _output.as_json(as_json):
        _output.print_json({"items": items, "next": items[-1].id if more else None})
        return
    from holdfast.cli._inbox import approvals_table

    out = _output.console()
    out.print(approvals_table(items) if items else "Nothing waits for you.")
    if more:
        out.print(f"more: --after {items[-1].id}", style="dim")
    if plans:
        out.print(f"plans that wait: {plans}  (holdfast approvals plans)", style="dim")


@app.command()
def plans(
    limit: _options.Most = 100,
    after: _options.After = "",
    as_json: _output.JsonFlag = None,
) -> None:
    """List the plans of dry runs that wait for a decision."""
    import anyio

    found = anyio.run(_plans, after, limit + 1)
    items, more = found[:limit], len(found) > limit
    if _output.as_json(as_json):
        _output.print_json({"items": items, "next": items[-1]["id"] if more else None})
        return
    from holdfast.cli._inbox import plans_table

    out = _output.console()
    out.print(plans_table(items) if items else "No plan waits: `holdfast run --dry-run` makes one.")


@app.command()
def show(id_: Id, as_json: _output.JsonFlag = None) -> None:
    """Show what would happen, with which arguments, on whose behalf."""
    import anyio

    from holdfast.cli._inbox import show_approval, show_plan

    if id_.startswith(PLAN):
        plan = anyio.run(_show_plan, id_)
        _output.print_json(plan) if _output.as_json(as_json) else show_plan(plan)
        return
    view = anyio.run(_show, id_)
    _output.print_json(view) if _output.as_json(as_json) else show_approval(view)


@app.command()
@with_setup
@with_agent
def approve(
    id_: Id,
    for_session: ForSession = False,
    answer: Answer = None,
    field: Fields = None,
    reason: Reason = None,
    no_resume: NoResume = False,
    wait: _options.Wait = WAIT_MS,
    as_json: _output.JsonFlag = None,
    *,
    flags: Flags,
    agent: AgentFlags,
) -> int:
    """Say yes. The parked run goes on: here, or in the process that has it.

    A question is answered with `--field` or `--answer`; on a terminal you are asked for each field. Prints the approval
    and, as `run`, what the run gave; exits as `run` would. A plan is only decided: `holdfast run --plan ID` keeps to it.
    """
    content = _content(id_, answer, field or [], json_wanted=_output.as_json(as_json))
    decision = "approved_for_session" if for_session else "approved"
    going = None if no_resume else _Going(flags.fields(), agent.fields(), wait)
    return _decided(id_, decision, reason, going, _output.as_json(as_json), content)


@app.command()
@with_setup
@with_agent
def deny(
    id_: Id,
    reason: Reason = None,
    no_resume: NoResume = False,
    wait: _options.Wait = WAIT_MS,
    as_json: _output.JsonFlag = None,
    *,
    flags: Flags,
    agent: AgentFlags,
) -> int:
    """Say no. The run goes on, and its code is told.

    Prints the approval and, as `run`, what the run gave; exits as `run` would.
    """
    going = None if no_resume else _Going(flags.fields(), agent.fields(), wait)
    return _decided(id_, "denied", reason, going, _output.as_json(as_json))


@app.command()
def grants(
    session: Annotated[
        str, typer.Argument(metavar="SESSION", help="The session's id.", show_default=False)
    ],
    as_json: _output.JsonFlag = None,
) -> None:
    """List what need not be asked again in a session."""
    import anyio

    found = anyio.run(_grants, session)
    if _output.as_json(as_json):
        _output.print_json({"items": found, "next": None})
        return
    from holdfast.cli._inbox import grants_table

    _output.console().print(
        grants_table(found) if found else "No grants: every call is asked about."
    )


@app.command()
def revoke(
    grant: Annotated[
        str, typer.Argument(metavar="GRANT", help="The grant's id.", show_default=False)
    ],
    reason: Reason = None,
    as_json: _output.JsonFlag = None,
) -> None:
    """End a grant, at once and everywhere: the next such call is asked about."""
    import anyio

    anyio.run(_revoke, grant, reason or "revoked")
    if _output.as_json(as_json):
        _output.print_json({"id": grant, "status": "revoked"})
    else:
        _output.console().print(f"Grant {grant} is revoked.")


# -- deciding -----------------------------------------------------------------------------------------


class _Going(NamedTuple):
    """How the run goes on."""

    setup: dict[str, Any]
    """Parts of a `Setup`."""
    agent: dict[str, Any]
    """Parts of an `AgentSpec`."""
    wait_ms: int


def _decided(
    id_: str,
    decision: str,
    reason: str | None,
    going: _Going | None,
    as_json: bool,
    content: Json = None,
) -> int:
    import anyio

    if id_.startswith(PLAN):
        plan = anyio.run(_decide_plan, id_, decision, reason)
        _output.print_json(plan) if as_json else _told(f"Plan {id_} is {plan['status']}.")
        return 0
    # Decided first, on the journal alone: whatever becomes of going on, the answer is on record.
    view = anyio.run(_decide, id_, decision, reason, content)
    if going is None or view.run_id is None:
        _output.print_json(view) if as_json else _told(f"{view.tool}: {view.status.value}.")
        return 0
    return _went_on(view, going, as_json)


def _went_on(view: ApprovalView, going: _Going, as_json: bool) -> int:
    from holdfast.cli._standing import Found, as_told, exit_code, go_on, tell
    from holdfast.cli._work import on_runtime

    run_id = str(view.run_id)

    async def work(hf: Runtime) -> Found:
        return await go_on(hf, run_id, going.setup, going.agent, wait_ms=going.wait_ms)

    found = on_runtime(work)
    if as_json:
        _output.print_json({**view.model_dump(mode="json"), "run": as_told(found)})
        return exit_code(found)
    _told(f"{view.tool}: {view.status.value}.")
    return tell(found, as_json=False, session=view.session_id or "")


def _told(text: str) -> None:
    _output.console().print(_output.visible(text))


def _content(id_: str, answer: str | None, given: list[str], *, json_wanted: bool) -> Json:
    """What is answered to a question; `None` when nothing was given, and nobody is there to be asked."""
    import anyio

    from holdfast.cli._forms import content_of, somebody_is_there

    if answer is not None and given:
        _options.refuse("`--answer` and `--field` say it twice.", "Use one of them.")
    said = answer is not None or bool(given)
    if id_.startswith(PLAN):
        if said:
            _options.refuse("A plan has no questions.", "Leave `--answer` and `--field` out.")
        return None
    if not said and (json_wanted or not somebody_is_there()):
        return None
    view = anyio.run(_show, id_)
    if not said and view.form is not None:
        from holdfast.cli._inbox import show_approval

        show_approval(view, here=True)
    return content_of(view, answer, given)


async def _decide(id_: str, decision: str, reason: str | None, content: Json) -> ApprovalView:
    from holdfast.cli._state import approvals_of, journal_to_write
    from holdfast.cli._work import user

    async with journal_to_write() as journal:
        inbox = approvals_of(journal)
        return await inbox.decide(
            id_, decision, actor=user(), reason=reason, via="cli", content=content
        )


async def _decide_plan(id_: str, decision: str, reason: str | None) -> dict[str, Any]:
    from holdfast.cli._inbox import plan_view
    from holdfast.cli._state import approvals_of, journal_to_write
    from holdfast.cli._work import user

    async with journal_to_write() as journal:
        inbox = approvals_of(journal)
        row = await inbox.decide_plan(id_, decision, actor=user(), reason=reason, via="cli")
        return await plan_view(journal, row)


# -- looking ------------------------------------------------------------------------------------------


async def _list(status: str, after: str, limit: int) -> tuple[list[ApprovalView], int]:
    from holdfast.cli._state import approvals_of, journal_to_write

    try:
        # To write, because looking ends what has run out of time.
        async with journal_to_write() as journal:
            inbox = approvals_of(journal)
            found = await inbox.list(status=status, after=after, limit=limit)
            return found, len(await inbox.plans())
    except NotFound:
        return [], 0  # no journal yet, so nothing waits


async def _plans(after: str, limit: int) -> list[dict[str, Any]]:
    from holdfast.cli._inbox import plan_view
    from holdfast.cli._state import approvals_of, journal_to_read

    try:
        async with journal_to_read() as journal:
            rows = await approvals_of(journal).plans(after=after, limit=limit)
            return [await plan_view(journal, row) for row in rows]
    except NotFound:
        return []


async def _show(id_: str) -> ApprovalView:
    from holdfast.cli._state import approvals_of, journal_to_write

    async with journal_to_write() as journal:
        inbox = approvals_of(journal)
        await inbox.status(id_)  # one whose time has run out is ended
        return await inbox.show(id_)


async def _show_plan(id_: str) -> dict[str, Any]:
    from holdfast.cli._inbox import plan_view
    from holdfast.cli._state import journal_to_read

    async with journal_to_read() as journal:
        row = await journal.row("plans", id_)
        if row is None:
            raise NotFound(
                "NOT_FOUND", f"There is no plan `{id_[:80]}`.", hint="A dry run makes one."
            )
        return await plan_view(journal, row)


async def _grants(session: str) -> list[Grant]:
    from holdfast.cli._state import approvals_of, journal_to_read, sessions_of

    async with journal_to_read() as journal:
        await sessions_of(journal).show(session)
        return await approvals_of(journal).grants(session)


async def _revoke(grant: str, reason: str) -> None:
    from holdfast.cli._state import approvals_of, journal_to_write

    async with journal_to_write() as journal:
        await approvals_of(journal).revoke(grant, reason=reason)

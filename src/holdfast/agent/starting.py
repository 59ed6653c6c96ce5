"""How a run of an agent begins, or goes on: what is recorded then, and where its work stands."""

from __future__ import annotations

from typing import Any

from holdfast.agent import inbox
from holdfast.agent.definition import Definition
from holdfast.agent.history import History, models_of
from holdfast.agent.standing import reason_of
from holdfast.agent.work import Work
from holdfast.contracts import Draft
from holdfast.contracts.payload import RunResumed, RunStarted


async def begin(
    agent: Definition, work: Work, prompt: str | None, actor: str | None, account: str | None
) -> None:
    """Make what was asked part of the conversation, and see to it that the run's start will be on record."""
    live = work.session
    if prompt is not None and not await inbox.waits(work.journal, live.id):
        start = _started(work, agent, prompt, actor, account)
        work.desk.begin = lambda: [*live.created(), start]
        work.transcript.prompt(prompt)
    else:
        created = live.created()
        first = [*created, _started(work, agent, None, actor, account)]
        try:
            await inbox.begin(work, first, prompt)
        except BaseException:
            if created:
                live.limits = None  # it is not on record
            raise
    work.nudged = False


def _started(
    work: Work, agent: Definition, prompt: str | None, actor: str | None, account: str | None
) -> Draft:
    spec = agent.body()
    said_first = () if prompt is None else (inbox.message_body(prompt),)
    said = RunStarted(
        kind="agent",
        language=work.session.language,
        agent=spec.ref.digest,
        prompt=said_first[0].ref.digest if said_first else None,
        toolbox=work.session.toolbox.digest,
        actor=actor,
        account=account,
    )
    return Draft.of(said, run_id=work.run_id, bodies=(spec, *said_first))


def resumed(agent: Definition, work: Work, history: History, row: dict[str, Any]) -> Draft:
    """That a run goes on; with its agent, where that is another by now."""
    spec = None
    if agent.spec != history.spec:
        spec = agent.body()
    said = RunResumed(
        how="replay",
        reason=reason_of(row),
        agent=spec.ref.digest if spec else None,
    )
    return Draft.of(said, run_id=work.run_id, bodies=(spec,) if spec else ())


def catch_up(work: Work, history: History, row: dict[str, Any]) -> None:
    """Put a run's work where its records end."""
    # A question that failed is asked again under its number.
    answered = min(history.turn_no, history.answers)
    work.turn_no = history.turn_no if history.open_question is not None else answered
    work.tries = history.tries
    work.ordinal = max(history.pasts.calls, default=0)
    work.desk.responses = history.pasts.responses
    work.guards.resumed()
    work.desk.begun = True
    work.open_question = history.open_question
    work.asides = history.asides
    work.main_text = history.main_text
    work.asked = history.asked
    if work.guards.hears_answers:
        work.unheard = history.unheard
    work.children = history.children
    for past in history.pasts.calls.values():
        if past.call_id is not None and (past.unseen or not past.answered):
            work.pasts[past.call_id] = past
    work.used = {unit: n for unit, n in row["usage"].items() if unit != "runs"}
    if history.model is not None and models_of(work.spec) == models_of(history.spec):
        ids = [one.id for one in work.models]
        if history.model in ids:
            work.models = work.models[ids.index(history.model) :]

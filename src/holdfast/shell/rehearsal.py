"""A recorded run once more, offline: every call is answered from the record, and none is made.

With another policy, it tells what that would have said about each call. With other code, it tells where that code
would have called something else: a call that is on record, with the same arguments, gets the answer it got; the first
that is not on record is where the rehearsal ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, cast

import anyio

from holdfast.contracts import (
    Diagnostic,
    ErrorObject,
    Json,
    RunResult,
    RunStatus,
    SessionLimits,
    canonical_json,
    digest,
)
from holdfast.contracts._base import Told, optional
from holdfast.errors import HoldfastError, NotFound, OperatorError
from holdfast.gate.answers import answer
from holdfast.gate.crossing import Crossing, Desk, Outcome, as_asked
from holdfast.gate.executor import Toolbox
from holdfast.gate.past import Past, Pasts, pasts_of, stored_json
from holdfast.gate.policy import Call, Policy
from holdfast.journal.pen import Pen
from holdfast.shell.box import Ran
from holdfast.shell.clock import Clock
from holdfast.shell.discovery import discovery
from holdfast.shell.drive import Drive
from holdfast.shell.recorded import Recorded, stands
from holdfast.shell.replay import restore
from holdfast.shell.services import Services, outside_of, setup_of
from holdfast.shell.standing import request_of
from holdfast.shell.story import result_of


class RehearsedCall(Told):
    """One call of a run, then and now."""

    ordinal: int
    """Its number among the calls of the run."""
    name: str
    """The capability."""
    status: str
    """How it ended then."""
    rules_then: tuple[str, ...] = ()
    """The rules that let it pass."""
    verdict_now: str | None = optional()
    """What the policy says now: `allow`, `ask` or `deny`."""
    rule_now: str | None = optional()
    """The rule that says so."""
    reached: bool = True
    """Whether the code came to it this time."""


class Rehearsal(Told):
    """What came of running a recorded run again."""

    run_id: str
    """Which."""
    same: bool
    """Whether it gave the same result, by the same calls."""
    result: RunResult
    """What it gives now."""
    before: RunResult | None = optional()
    """What it gave then, if that is on record."""
    calls: tuple[RehearsedCall, ...] = ()
    """Every call on record."""
    stopped_at: ErrorObject | None = optional()
    """Where the code calls what is not on record."""


async def rehearse(
    services: Services, run_id: str, *, policy: Policy | None = None, code: str | None = None
) -> Rehearsal:
    """Run a recorded run again without making any call."""
    journal = services.journal
    row = cast("dict[str, Any] | None", await journal.row("runs", run_id))
    if row is None:
        raise NotFound(
            "NOT_FOUND",
            f"There is no run `{run_id[:80]}`.",
            hint="`holdfast runs list` names those there are.",
        )
    stream, start = str(row["session_id"]), int(row["start_pos"])
    record = await anext(journal.read(stream, after=start - 1, limit=1))
    said = cast("dict[str, Any]", record.payload.get("start") or record.payload)
    request = await request_of(journal, said, stream)
    pasts = await pasts_of(journal, stream, run_id, after=start)
    session = await journal.row("sessions", stream)
    setup = setup_of(services, session)
    toolbox = services.tools(setup)
    own = SessionLimits.model_validate((session or {}).get("limits") or {})
    limits = request.limits or own
    performer = Recorded(journal) if code is None else _Matching(services, pasts)
    before, refused = await _before(services, stream, row)
    ran = await _again(
        services,
        (stream, run_id, start - 1),
        (code or request.code, dict(request.inputs)),
        limits,
        pasts,
        toolbox,
        performer,
        # Those of an older holdfast failed on the way, for what is refused by now.
        refusing=refused or code is not None,
    )
    if policy is not None:
        policy = policy.within(setup.rules)
    whole = all(past.ordinal in ran.reached for past in _all(pasts) if past.answered)
    return Rehearsal(
        run_id=run_id,
        same=_same(ran.result, before) and ran.stopped is None and whole,
        result=ran.result,
        before=before,
        calls=tuple(
            [await _told(services, past, toolbox, policy, ran, stream) for past in _all(pasts)]
        ),
        stopped_at=ran.stopped,
    )


class _Again(Told):
    result: RunResult
    reached: tuple[int, ...]
    stopped: ErrorObject | None = None


async def _again(
    services: Services,
    where: tuple[str, str, int],
    what: tuple[str, dict[str, Json]],
    limits: SessionLimits,
    pasts: Pasts,
    toolbox: Toolbox,
    performer: Recorded | _Matching,
    *,
    refusing: bool,
) -> _Again:
    (session_id, run_id, upto), (code, inputs) = where, what
    boxes = next(iter(services.boxes.values()))
    made = await restore(services, boxes, session_id=session_id, limits=limits, upto=upto)
    outside = outside_of(toolbox, pasts)
    desk = Desk(
        session_id=session_id,
        run_id=run_id,
        pen=Pen(services.journal, session_id, services.owner),
        toolbox=toolbox,
        policy=services.policy,
    )
    drive = Drive(
        box=made.box,
        performs=performer,
        desk=desk,
        pasts=pasts if isinstance(performer, Recorded) else Pasts(),
        clock=Clock(limits.wall_ms),
        awaited=lambda name: outside.get(name, False),
    )
    names = discovery(toolbox, services.policy, limits)
    first = made.box.run(
        code,
        inputs=inputs,
        limits=limits,
        names=names,
        outside=outside,
        known=(lambda: made.names) if refusing else None,
    )
    stopped: ErrorObject | None = None
    try:
        ran = await drive.go(first)
        if not isinstance(ran, Ran):
            raise stands(run_id, ran)
        result = result_of(run_id, ran, None, drive.records(ran.calls))
    except HoldfastError as why:
        if why.code != "REPLAY_MISMATCH":
            raise
        stopped = ErrorObject.of(why)
        result = RunResult(
            status=RunStatus.INTERRUPTED, diagnostics=(Diagnostic.error(stopped),), error=stopped
        )
    finally:
        with anyio.CancelScope(shield=True):
            await made.box.close()
    reached = performer.used if isinstance(performer, _Matching) else drive.errands
    return _Again(result=result, reached=tuple(sorted(reached)), stopped=stopped)


class _Matching:
    """Answers calls of other code: one that is on record, with the same arguments, gets the answer it got."""

    def __init__(self, services: Services, pasts: Pasts) -> None:
        self._journal = services.journal
        self.used: set[int] = set()
        """The calls on record that were made this time, by number."""
        self._left: dict[tuple[str, str], list[Past]] = defaultdict(list)
        for past in _all(pasts):
            if past.answered:
                self._left[past.name, past.request].append(past)

    async def perform(self, crossing: Crossing) -> Outcome:
        """The recorded answer; raises `REPLAY_MISMATCH` when there is none."""
        executor = crossing.desk.toolbox.get(crossing.name)
        asked = as_asked(crossing, executor)
        found = self._left[crossing.name, digest(canonical_json(asked))]
        if not found:
            raise OperatorError(
                "REPLAY_MISMATCH",
                f"Call {crossing.ordinal}, `{crossing.name}` with {_short(asked)}, is not on record.",
                hint="This is where the code goes another way than the run did.",
            )
        past = found.pop(0)
        self.used.add(past.ordinal)
        crossing.ordered(crossing.desk.next_order())
        return await answer(self._journal, past)


async def _before(
    services: Services, stream: str, row: dict[str, Any]
) -> tuple[RunResult | None, bool]:
    """What the run gave, and whether its code was refused before any of it ran."""
    if row["ended_at"] is None:
        return None, False
    record = await anext(services.journal.read(stream, after=int(row["end_pos"]) - 1, limit=1))
    said = record.payload.get("result")
    if said is None:
        return None, False
    result = RunResult.model_validate_json(await services.journal.content(str(said)))
    invalid = result.status is RunStatus.VALIDATION_ERROR
    return result, invalid and record.payload.get("state_kept") is False


async def _told(
    services: Services,
    past: Past,
    toolbox: Toolbox,
    policy: Policy | None,
    ran: _Again,
    session_id: str,
) -> RehearsedCall:
    result = past.result
    call = RehearsedCall(
        ordinal=past.ordinal,
        name=past.name,
        status=result.terminal_status.value if result else "open",
        rules_then=past.intent.policy_refs if past.intent else (),
        reached=past.ordinal in ran.reached,
    )
    if policy is None:
        return call
    executor = toolbox.get(past.name)
    arguments = await stored_json(services.journal, past.arguments)
    ruling = policy.decide(
        Call(
            tool=past.name,
            capability=executor.capability if executor else None,
            arguments=arguments if isinstance(arguments, dict) else {},
            session_id=session_id,
        )
    )
    return call.model_copy(update={"verdict_now": ruling.verdict.value, "rule_now": ruling.rule_id})


def _same(now: RunResult, before: RunResult | None) -> bool:
    if before is None:
        return True
    mine, theirs = (one.model_dump(include={"status", "result", "stdout"}) for one in (now, before))
    return canonical_json(mine) == canonical_json(theirs)


def _all(pasts: Pasts) -> Sequence[Past]:
    return [past for _, past in sorted(pasts.calls.items())]


def _short(value: Json) -> str:
    text = canonical_json(value).decode()
    return text if len(text) <= 200 else f"{text[:200]}…"

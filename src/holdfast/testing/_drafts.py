"""Drafts that tests append: one short name for each kind of record."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue

from holdfast.contracts import (
    ApprovalDecision,
    ApprovalRequest,
    Body,
    Decision,
    Draft,
    EffectIntent,
    EffectKind,
    EffectResult,
    EffectStatus,
    ErrorObject,
    Language,
    Metrics,
    RunStatus,
    SessionLimits,
    SideEffect,
)
from holdfast.contracts.payload import (
    ApprovalResponded,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    SessionCreated,
    SessionDestroyed,
    SessionState,
    UsageRecorded,
)

ENGINE = "test/1"
NOWHERE = "ab" * 32
"""A digest that a payload names and no body has."""


def note(n: JsonValue = 0, *, bodies: Sequence[Body] = (), run_id: str | None = None) -> Draft:
    """A record of a kind of our own, which no projection looks at."""
    return Draft(kind="test.note", payload={"n": n}, bodies=tuple(bodies), run_id=run_id)


def created() -> Draft:
    """`session_created`."""
    said = SessionCreated(language=Language.PYTHON, limits=SessionLimits(), engine=ENGINE)
    return Draft.of(said)


def state() -> Draft:
    """`session_state`."""
    return Draft.of(SessionState(state=NOWHERE, engine=ENGINE, limits=SessionLimits(cpu_ms=7)))


def destroyed() -> Draft:
    """`session_destroyed`."""
    return Draft.of(SessionDestroyed(reason="test"))


def started(run_id: str | None, *, bodies: Sequence[Body] = ()) -> Draft:
    """`run_started`."""
    said = RunStarted(kind="code", language=Language.PYTHON, limits=SessionLimits(), code=NOWHERE)
    return Draft.of(said, run_id=run_id, bodies=tuple(bodies))


def completed(
    run_id: str | None, *, duration_ms: int = 5, calls: int = 2, at_once: bool = False
) -> Draft:
    """`run_completed`; with `at_once`, the only record of its run."""
    metrics = Metrics(duration_ms=duration_ms, external_calls_count=calls)
    start = RunStarted(kind="code", language=Language.PYTHON, code=NOWHERE) if at_once else None
    return Draft.of(RunCompleted(result=NOWHERE, metrics=metrics, start=start), run_id=run_id)


def failed(run_id: str | None, *, cancelled: bool = False) -> Draft:
    """`run_failed`, or `run_cancelled`."""
    model = RunCancelled if cancelled else RunFailed
    said = model(
        status=RunStatus.CANCELLED if cancelled else RunStatus.RUNTIME_ERROR,
        error=ErrorObject(code="RUNTIME_ERROR", message="It raised."),
        metrics=Metrics(duration_ms=1),
        state_kept=True,
    )
    return Draft.of(said, run_id=run_id)


def intent(effect_id: str, run_id: str | None = None) -> Draft:
    """`effect_intent`."""
    said = EffectIntent(
        effect_id=effect_id,
        kind=EffectKind.TOOL_EXECUTION,
        name="tool",
        side_effect=SideEffect.WRITE,
        redacted_summary="tool(…)",
    )
    return Draft.of(said, run_id=run_id)


def result(
    effect_id: str, run_id: str | None = None, status: EffectStatus = EffectStatus.COMPLETED
) -> Draft:
    """`effect_result`."""
    said = EffectResult(
        effect_id=effect_id,
        terminal_status=status,
        reconciliation_ref="ask" if status is EffectStatus.UNKNOWN else None,
        redacted_summary=f"tool(…): {status.value}",
    )
    return Draft.of(said, run_id=run_id)


def asked(approval_id: str, effect_id: str = "e", run_id: str | None = None) -> Draft:
    """`approval_requested`."""
    said = ApprovalRequest(
        id=approval_id,
        effect_id=effect_id,
        tool="tool",
        arguments=NOWHERE,
        side_effect=SideEffect.WRITE,
        summary="May it?",
    )
    return Draft.of(said, run_id=run_id)


def answered(approval_id: str, decision: Decision = Decision.APPROVED) -> Draft:
    """`approval_responded`."""
    return Draft.of(
        ApprovalResponded(id=approval_id, decision=ApprovalDecision(decision=decision, actor="me"))
    )


def used(run_id: str | None = None, *, tokens: int = 3, cost: int = 11) -> Draft:
    """`usage_recorded`."""
    said = UsageRecorded(model="m", input_tokens=tokens, output_tokens=tokens, cost_micros=cost)
    return Draft.of(said, run_id=run_id)


STORY: tuple[Draft, ...] = (
    created(),
    started("r1"),
    intent("e1", "r1"),
    asked("a1", "e1", "r1"),
    answered("a1"),
    result("e1", "r1"),
    used("r1"),
    completed("r1"),
    state(),
    started("r2"),
    intent("e2", "r2"),
    result("e2", "r2", EffectStatus.UNKNOWN),
    failed("r2"),
    result("e2", "r2"),
    started("r3"),
    failed("r3", cancelled=True),
    completed("r4", at_once=True),
    note("done"),
)
"""One session's whole life but its end, with every kind that a projection looks at."""

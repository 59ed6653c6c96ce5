"""How a run of an agent ends: what is recorded, and what its caller gets."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.contracts import Body, Draft, ErrorObject, Metrics, RunStatus
from holdfast.contracts.agent import AgentResult
from holdfast.contracts.payload import RunCancelled, RunCompleted, RunFailed
from holdfast.errors import CODES, HoldfastError, PersonError
from holdfast.machines.outcome import Cause, Gets, Outcome, caller_gets
from holdfast.machines.turn_inputs import Turn
from holdfast.shell.story import was_cancelled

_STATUSES = {
    Gets.SUCCESS: "completed",
    Gets.CANCELLED: "cancelled",
    Gets.TERMINAL_FAILURE: "failed",
    Gets.INTERNAL_ERROR: "failed",
}


@dataclass(slots=True)
class End:
    """Why a run ended, beyond what its machine says."""

    error: HoldfastError | None = None
    reason: str | None = None
    """Why it was cancelled, in words."""


def failed(code: str, limit: int) -> HoldfastError:
    """The error of a run that used up what it may."""
    if code == "MAX_TURNS":
        return PersonError(
            "MAX_TURNS",
            f"The run asked its model {limit} times, which is all it may.",
            hint="Its conversation is kept: ask it to go on, with a greater `max_turns` if need be.",
        )
    return PersonError(
        "TIMEOUT_WALL",
        f"The run took longer than {limit} ms.",
        hint="Its conversation is kept: ask it to go on, with a greater `timeout_ms` if need be.",
    )


def cut_short() -> HoldfastError:
    """The error of a run whose last answer the budget cut short."""
    return PersonError(
        "BUDGET_EXCEEDED",
        "The budget had no room for a longer answer: it was cut short.",
        hint="What came of it is kept: raise the budget, and ask it to go on.",
    )


def status_of(turn: Turn) -> str:
    """How it ended, as its caller is told."""
    return _STATUSES[caller_gets(turn.outcome, turn.cause).gets]


def error_of(turn: Turn, end: End) -> ErrorObject | None:
    """Why it did not complete."""
    status = status_of(turn)
    if status == "cancelled":
        return was_cancelled(end.reason, agent=True)
    if end.error is not None and (status == "failed" or turn.outcome is Outcome.BUDGET_EXHAUSTED):
        return ErrorObject.of(end.error)
    if status == "failed":
        return ErrorObject(code="INTERNAL_ERROR", message="The run ended without saying why.")
    return None


def records_of(result: AgentResult) -> Draft:
    """The record of a run's end."""
    body = Body.of(result.model_dump_json().encode(), role="result", mime="application/json")
    metrics = Metrics(external_calls_count=0)
    if result.status == "completed":
        said = RunCompleted(result=body.ref.digest, metrics=metrics)
    else:
        kind = RunCancelled if result.status == "cancelled" else RunFailed
        error = result.error or ErrorObject(code="INTERNAL_ERROR", message="It ended.")
        status = CODES[error.code].status if error.code in CODES else None
        said = kind(
            status=RunStatus(status or "runtime_error"),
            error=error,
            result=body.ref.digest,
            metrics=metrics,
            state_kept=True,
        )
    return Draft.of(said, run_id=result.run_id, bodies=(body,))


def cause_of(turn: Turn) -> str | None:
    """Why it ended, where that was not of its own accord."""
    cause: Cause | None = turn.cause
    return cause.value if cause is not None else None

"""What a session refuses."""

from __future__ import annotations

from dataclasses import replace

from holdfast.contracts import Diagnostic, ErrorObject, Metrics, RunStatus, SessionLimits
from holdfast.errors import CODES, CallerError, Conflict, NotFound
from holdfast.shell.box import Ran


def busy(session_id: str) -> Conflict:
    """The refusal of a run while another one is under way."""
    return Conflict(
        "SESSION_BUSY",
        f"Session `{session_id}` is in use by another run.",
        hint="Wait longer for it (`wait_ms`), or use another session.",
    )


def not_found(session_id: str) -> NotFound:
    """The refusal of an operation on a session that is not there."""
    return NotFound(
        "SESSION_NOT_FOUND",
        f"There is no session `{session_id}`.",
        hint="`holdfast session list` names those there are.",
    )


def run_open(session_id: str, run_id: str) -> Conflict:
    """The refusal of a run while another one stands."""
    return Conflict(
        "RUN_OPEN",
        f"Run `{run_id}` of session `{session_id}` is not over: it waits, or was interrupted.",
        hint=f"`holdfast runs show {run_id}` tells what it waits for; resume it, or cancel it.",
    )


def other_language(session_id: str, inside: str) -> CallerError:
    """The refusal of a session that is there, and whose code is in another language."""
    return CallerError(
        "INVALID_ARGUMENT",
        f"Session `{session_id}` is there already, and its code is {inside}.",
        hint="Give the new one another id, or destroy that session first.",
    )


def other_limits(session_id: str, inside: SessionLimits) -> CallerError:
    """The refusal of limits that an engine's state can't have: it keeps those it was made with."""
    return CallerError(
        "INVALID_ARGUMENT",
        f"What is put into session `{session_id}` has {inside.memory_mb} MiB and"
        f" {inside.max_stack_depth} nested calls built in, and can't have other limits.",
        hint="Use `memory_mb` and `max_stack_depth` like these, or a new session.",
    )


def overtaken(ran: Ran, error: ErrorObject) -> Ran:
    """The end of a run whose code has ended, and which failed all the same; the first error stands."""
    if ran.error is not None:
        return ran
    return replace(
        ran,
        status=RunStatus(CODES[error.code].status or "interrupted"),
        value=None,
        error=error,
        diagnostics=(Diagnostic.error(error), *ran.diagnostics),
        state_kept=False,
    )


def hook_stopped(error: ErrorObject) -> Ran:
    """The end of a run that a hook did not let begin."""
    status = RunStatus(CODES[error.code].status or "interrupted")
    found = (Diagnostic.error(error),)
    return Ran(status, None, "", "", error, found, (), Metrics(), state_kept=False)

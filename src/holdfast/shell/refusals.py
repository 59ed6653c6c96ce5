"""What a session refuses."""

from __future__ import annotations

from holdfast.errors import Conflict, NotFound


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

"""The shapes that lists and details share on the command line, HTTP and JSON-RPC."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from holdfast.contracts._base import Told
from holdfast.contracts.run import ErrorObject


class Usage(Told):
    """What was used, added up."""

    runs: int = 0
    """Runs started."""
    duration_ms: int = 0
    """Time their code took."""
    external_calls: int = 0
    """Calls out of the box."""
    input_tokens: int = 0
    """Tokens sent to models."""
    output_tokens: int = 0
    """Tokens received from models."""
    cost_micros: int = 0
    """Millionths of a US dollar."""


RunFilter = Literal[
    "active",
    "ended",
    "running",
    "completed",
    "failed",
    "cancelled",
    "waiting_for_approval",
    "needs_attention",
    "interrupted",
]
"""Which runs a list has: those that are not over, those that are, or those with a status."""


class RunView(Told):
    """A run as lists show it."""

    id: str
    """Its name."""
    session_id: str
    """Its session."""
    kind: str
    """`code` or `agent`."""
    status: str
    """`running`, `completed`, `failed`, `cancelled`, `waiting_for_approval`, `needs_attention`, `interrupted`."""
    started_at: int
    """Unix milliseconds."""
    ended_at: int | None = None
    """Unix milliseconds, once it ended."""
    usage: Usage = Usage()
    """What it used."""
    error: ErrorObject | None = None
    """Why it did not complete."""
    pending_approvals: tuple[str, ...] = Field(default=())
    """The questions it waits for."""
    in_doubt: tuple[str, ...] = Field(default=())
    """Effects of which nobody knows whether they happened."""

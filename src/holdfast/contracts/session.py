"""A code session: its language, its limits, what is known about it."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from holdfast.contracts._base import Asked, Told
from holdfast.contracts.ids import SessionId

SNAPSHOT_VERSION = 1


class Language(StrEnum):
    """The languages a session can speak."""

    PYTHON = "python"
    TYPESCRIPT = "typescript"


class SessionLimits(Asked):
    """What one run of a session may use. Every limit is enforced."""

    memory_mb: int = Field(default=64, ge=1, le=4096)
    """Heap of the code, in MiB; breach: `MEMORY_EXCEEDED`."""
    cpu_ms: int = Field(default=2000, ge=1, le=3_600_000)
    """Time spent computing, not waiting for a capability; breach: `TIMEOUT_CPU`."""
    wall_ms: int = Field(default=5000, ge=1, le=86_400_000)
    """Time from start to end, waiting for an approval excepted; breach: `TIMEOUT_WALL`."""
    max_stdout_bytes: int = Field(default=65536, ge=0, le=64 << 20)
    """Output kept; more is cut with a warning, a flood stops with `STDOUT_EXCEEDED`."""
    max_external_calls: int = Field(default=32, ge=0, le=1_000_000)
    """Calls out of the box; breach: `EXTERNAL_CALLS_EXCEEDED`."""
    max_stack_depth: int = Field(default=256, ge=1, le=1000)
    """Nested function calls; breach: `STACK_OVERFLOW`."""


class SessionMeta(Told):
    """What a session is."""

    id: SessionId = "default"
    """Its name."""
    created_at: int = 0
    """Unix milliseconds."""
    last_used_at: int = 0
    """Unix milliseconds of the last run."""
    language: Language = Language.PYTHON
    """What its code is written in."""
    limits: SessionLimits = SessionLimits()
    """What each of its runs may use, unless the run says less or more."""
    snapshot_version: int = SNAPSHOT_VERSION
    """The version of its saved state."""


class SessionView(SessionMeta):
    """A session as lists show it."""

    status: str = "open"
    """`open` or `destroyed`."""
    runs: int = 0
    """Runs so far."""
    last_seq: int = 0
    """The newest record of its stream."""

"""The seam between a code session and the engine that runs its code.

A box is one live interpreter with the state of one session in it. It knows nothing of journals, sessions or
capabilities: code goes in, and what it gave comes out. Whatever the code does wrong is a `Ran` with an error,
never an exception. What is raised is the caller's mistake (`CallerError`) or the operator's (`OperatorError`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, Self, TypeAlias

from holdfast.contracts import (
    Diagnostic,
    ErrorObject,
    ExternalCallRecord,
    Json,
    Metrics,
    RunStatus,
    SessionLimits,
)

Call: TypeAlias = Callable[..., Json]
"""What answers a function the code may call. It is called in a thread of the engine, not in the event loop; one
call of a box at a time; it may block, and its time counts for `wall_ms` only."""

Meanwhile: TypeAlias = Callable[[], Awaitable[None]]
"""What to do while the engine computes."""

Jail: TypeAlias = Literal["auto", "required", "off"]
"""Whether to jail workers: where it works, or not at all without, or never."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What one run in a box gave."""

    status: RunStatus
    """How it ended; never a status that waits."""
    value: Json
    """The result; `None` unless `status` is `ok`."""
    stdout: str
    """What it printed, up to `max_stdout_bytes`."""
    stderr: str
    """What it printed there, within the same limit, and the traceback of its error."""
    error: ErrorObject | None
    """Present exactly when `status` is not `ok`."""
    diagnostics: tuple[Diagnostic, ...]
    """The error once more, and warnings."""
    calls: tuple[ExternalCallRecord, ...]
    """Every call out of the box, in order."""
    metrics: Metrics
    """What it used."""
    state_kept: bool
    """Whether what the code changed so far stays. If not, the box is dead: close it and open another."""


class Box(Protocol):
    """One live interpreter holding one session's state. One run at a time."""

    limits: SessionLimits
    """Those it was opened with."""

    def fits(self, limits: SessionLimits) -> bool:
        """Whether a run can have these limits here: memory and stack depth are built in, the rest is not."""
        ...

    async def run(
        self,
        code: str,
        *,
        inputs: Mapping[str, Json],
        limits: SessionLimits,
        names: Mapping[str, Call],
        meanwhile: Meanwhile | None = None,
    ) -> Ran:
        """Run code and wait for its end.

        `inputs` become variables, `names` the functions it can call. `meanwhile` is awaited while the engine
        computes, and has ended before this returns; if it raises, the run is stopped and the box is dead.
        A cancelled run kills the box's process before this raises.
        """
        ...

    async def dump(self) -> bytes:
        """The state between runs, for `Boxes.open`. Not authenticated: whoever stores it has to.

        The engine needs about as much memory again to write it down, within `memory_mb`. Where that is too
        much, this raises `MEMORY_EXCEEDED` and the box is dead.
        """
        ...

    async def close(self) -> None:
        """End its process; harmless when it is dead or closed already."""
        ...


class Boxes(Protocol):
    """Opens boxes of one language. An async context manager; leaving it ends every process it started."""

    engine: str
    """Name and version: `monty/1.4.0`. A state only fits the engine that made it."""
    jail: Literal["bubblewrap", "none"]
    """What is around the workers; known once the context is entered."""
    jail_reason: str
    """Why the jail is not there or weaker than wanted; empty when all is well."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc: object) -> None: ...

    async def open(self, limits: SessionLimits, state: bytes | None = None) -> Box:
        """An empty box, or one with `state` in it, which keeps the memory and stack limits it was made with.

        Raises `SNAPSHOT_CORRUPT` or `SNAPSHOT_VERSION_MISMATCH` for a state that can't be loaded.
        """
        ...

    async def validate(self, code: str) -> tuple[Diagnostic, ...]:
        """What is wrong with the code, found without running any of it."""
        ...

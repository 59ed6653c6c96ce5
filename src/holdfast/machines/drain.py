"""The inbox drain of a session: at most one pump, and whether a dead one may come back.

What the table guarantees: a task lives exactly while the phase is `Running`, an exit counts only when the task that
runs now reports it, and only a persistent pump that failed is started again by itself. A dismissed pump stays down.

Decisions that are not in the table's words:

* A mode is a number: how long to wait for mail, or `None` for ever. Both kinds the pump knows are that.
* The respawn timer quotes the task whose failure started it, like everything that answers late. Without that, the
  timer of a pump that was meanwhile stopped or replaced would start a second one. So `Ensure` is tolerant, as exits are.
* `Delivered` ends a run of failures. Without it a pump that fails once a week would wait a minute each time, for ever.
* Stopping a pump that waits to come back has no task to cancel, only its timer.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from holdfast.machines.kernel import Machine, guard, row

IDLE_MS = 300_000
"""How long a timed pump waits for mail."""
BACKOFF_MS = 1_000
"""The wait before the first respawn; it doubles with each failure."""
MAX_BACKOFF_MS = 60_000
"""The longest wait before a respawn."""


class Phase(StrEnum):
    """Where the pump is."""

    INACTIVE = "Inactive"
    RUNNING = "Running"
    STOPPED = "Stopped"
    EXITED_RESPAWNABLE = "ExitedRespawnable"


class Reason(StrEnum):
    """Why a pump ended."""

    IDLE_TIMEOUT = "IdleTimeout"
    DISMISSED = "Dismissed"
    FAILED = "Failed"
    ABORTED = "Aborted"
    SESSION_SHUTDOWN = "SessionShutdown"


class Mode(NamedTuple):
    """How long a pump lives."""

    idle_ms: int | None = IDLE_MS
    """It ends after so long without mail; `None`: it stays."""

    @property
    def persistent(self) -> bool:
        """Whether it stays."""
        return self.idle_ms is None


PERSISTENT = Mode(None)


class Drain(NamedTuple):
    """The state."""

    phase: Phase = Phase.INACTIVE
    mode: Mode | None = None
    task_id: int = 0
    """The pump that runs, or ran last."""
    failures: int = 0
    """How often it failed since it last delivered something."""

    @property
    def live_task(self) -> int | None:
        """The task that must exist now."""
        return self.task_id if self.phase is Phase.RUNNING else None


def backoff_ms(failures: int) -> int:
    """How long to wait after the `failures`-th failure in a row (1-based): 1 s, 2 s, 4 s … 60 s."""
    # The exponent is capped too: a counter must not turn into a huge power.
    return min(BACKOFF_MS * 2 ** min(failures - 1, 6), MAX_BACKOFF_MS)


# -- inputs -------------------------------------------------------------------------------------------


class Spawn(NamedTuple):
    """Start a pump."""

    mode: Mode = PERSISTENT


class Ensure(NamedTuple):
    """The respawn timer of that task has run out."""

    task_id: int


class Stop(NamedTuple):
    """No pump any more."""


class Delivered(NamedTuple):
    """The task passed something on: it works."""

    task_id: int


class Exited(NamedTuple):
    """The task is over."""

    task_id: int
    reason: Reason


# -- effects ------------------------------------------------------------------------------------------


class SpawnDrainTask(NamedTuple):
    """Start the task."""

    task_id: int
    mode: Mode


class CancelDrainTask(NamedTuple):
    """End the task."""

    task_id: int


class CancelRespawn(NamedTuple):
    """Forget the timer."""

    task_id: int


class RespawnAfter(NamedTuple):
    """Send `Ensure(task_id)` after so long."""

    task_id: int
    delay_ms: int


class Notice(NamedTuple):
    """Tell whoever watches that a pump ended."""

    task_id: int
    reason: Reason


# -- guards -------------------------------------------------------------------------------------------

_INACTIVE, _RUNNING, _STOPPED, _RESPAWNABLE = Phase


def _comes_back(state: Drain, exit_: Exited) -> bool:
    persistent = state.mode is not None and state.mode.persistent
    return persistent and exit_.reason is Reason.FAILED


IS_RUNNING = guard("running", lambda s, i: s.phase is _RUNNING)
WAITING = guard("waiting_to_respawn", lambda s, i: s.phase is _RESPAWNABLE)
TASK = guard("task_matches", lambda s, i: i.task_id == s.task_id)
COMES_BACK = guard("persistent_and_failed", _comes_back)
STAYS_DOWN = guard("timed_or_not_failed", lambda s, i: not _comes_back(s, i))


def _spawned(state: Drain, spawn: Spawn) -> Drain:
    return Drain(_RUNNING, spawn.mode, state.task_id + 1)


def _started(old: Drain, new: Drain, _: object) -> tuple[SpawnDrainTask]:
    assert new.mode is not None
    return (SpawnDrainTask(new.task_id, new.mode),)


DRAIN = Machine(
    name="drain",
    purpose="At most one pump per inbox, and whether a dead one may come back.",
    initial=Drain(),
    rows=(
        row(
            Spawn,
            [_INACTIVE, _STOPPED, _RESPAWNABLE],
            _RUNNING,
            update=_spawned,
            effects=_started,
            emits="SpawnDrainTask",
        ),
        row(
            Ensure,
            Phase,
            _RUNNING,
            WAITING,
            TASK,
            update=lambda s, i: s._replace(phase=_RUNNING, task_id=s.task_id + 1),
            effects=_started,
            emits="SpawnDrainTask",
        ),
        row(
            Stop,
            [_RUNNING],
            _STOPPED,
            update=lambda s, i: s._replace(phase=_STOPPED, failures=0),
            effects=lambda old, new, i: (CancelDrainTask(old.task_id),),
            emits="CancelDrainTask",
        ),
        row(
            Stop,
            [_RESPAWNABLE],
            _STOPPED,
            update=lambda s, i: s._replace(phase=_STOPPED, failures=0),
            effects=lambda old, new, i: (CancelRespawn(old.task_id),),
            emits="CancelRespawn",
        ),
        row(
            Delivered,
            Phase,
            "=",
            IS_RUNNING,
            TASK,
            update=lambda s, i: s._replace(failures=0),
        ),
        row(
            Exited,
            Phase,
            _RESPAWNABLE,
            IS_RUNNING,
            TASK,
            COMES_BACK,
            update=lambda s, i: s._replace(phase=_RESPAWNABLE, failures=s.failures + 1),
            effects=lambda old, new, i: (
                Notice(i.task_id, i.reason),
                RespawnAfter(i.task_id, backoff_ms(new.failures)),
            ),
            emits="Notice, RespawnAfter",
        ),
        row(
            Exited,
            Phase,
            _STOPPED,
            IS_RUNNING,
            TASK,
            STAYS_DOWN,
            update=lambda s, i: s._replace(phase=_STOPPED, failures=0),
            effects=lambda old, new, i: (Notice(i.task_id, i.reason),),
            emits="Notice",
        ),
    ),
    invariants={
        "Inactive exactly until the first spawn": lambda s: (
            (s.phase is _INACTIVE) == (s.task_id == 0)
        ),
        "a mode is set exactly once a task was spawned": lambda s: (
            (s.mode is not None) == (s.task_id > 0)
        ),
        "only a persistent pump fails and comes back": lambda s: (
            s.failures == 0 or (s.mode is not None and s.mode.persistent)
        ),
        "whoever waits to come back has failed": lambda s: (
            s.phase is not _RESPAWNABLE or s.failures > 0
        ),
        "a pump that is down counts no failures": lambda s: (
            s.phase is not _STOPPED or s.failures == 0
        ),
    },
    ends=frozenset({_STOPPED}),
    alphabet=lambda s: (
        Spawn(),
        Spawn(Mode()),
        Stop(),
        *(Ensure(task) for task in range(4)),
        *(Delivered(task) for task in range(4)),
        *(Exited(task, reason) for task in range(4) for reason in Reason),
    ),
    bounded=lambda s: s.task_id < 4,
)

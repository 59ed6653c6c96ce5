"""The spine of a session: who owns it, whether a run is open, whether it is stopping.

`executor_attached` is a plain attribute of the owner, and "accept nothing new" one of the input queue: neither is a
phase. `TakeOver` is what a second process sends once the first one's lease has run out; from then on everything the
old owner sends fails on `epoch_current`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from holdfast.machines.kernel import Machine, guard, row


class Phase(StrEnum):
    """Where a session is."""

    IDLE = "Idle"
    RUNNING = "Running"
    STOPPED = "Stopped"
    DESTROYED = "Destroyed"


class Spine(NamedTuple):
    """The state."""

    phase: Phase = Phase.IDLE
    run_id: str | None = None
    stop_requested: bool = False
    owner_epoch: int = 1


# -- inputs -------------------------------------------------------------------------------------------


class Prepare(NamedTuple):
    """Bind a run."""

    run_id: str
    epoch: int


class Commit(NamedTuple):
    """Close the run."""

    run_id: str
    epoch: int


class Stop(NamedTuple):
    """End the session once its run is over."""


class TakeOver(NamedTuple):
    """Another process becomes the owner of what the current one left."""

    epoch: int


class Recycle(NamedTuple):
    """Use a stopped session again."""


class Destroy(NamedTuple):
    """End it for good."""


# -- effects ------------------------------------------------------------------------------------------


class RunBound(NamedTuple):
    """A run is open."""

    run_id: str


class RunClosed(NamedTuple):
    """The run is over."""

    run_id: str


class RunOrphaned(NamedTuple):
    """The old owner's run was left behind."""

    run_id: str | None


class CancelAfterBoundary(NamedTuple):
    """The open run must stop at its next boundary."""


class Stopped(NamedTuple):
    """The session takes no more runs."""


class Recycled(NamedTuple):
    """It takes runs again."""


class Destroyed(NamedTuple):
    """It is gone."""


# -- guards -------------------------------------------------------------------------------------------

EPOCH = guard("epoch_current", lambda s, i: i.epoch == s.owner_epoch)
RUN = guard("run_matches", lambda s, i: i.run_id == s.run_id)
STOPPING = guard("stop_requested", lambda s, i: s.stop_requested)
GOING_ON = guard("stop_not_requested", lambda s, i: not s.stop_requested)

_IDLE, _RUNNING, _STOPPED, _DESTROYED = Phase


def _taken_over(state: Spine, _: TakeOver) -> Spine:
    stays = state.phase is Phase.STOPPED or state.stop_requested
    return Spine(Phase.STOPPED if stays else Phase.IDLE, owner_epoch=state.owner_epoch + 1)


SPINE = Machine(
    name="session_spine",
    purpose="Who owns a session, whether a run is open, and how it ends.",
    initial=Spine(),
    rows=(
        row(
            Prepare,
            [_IDLE],
            _RUNNING,
            EPOCH,
            update=lambda s, i: s._replace(phase=_RUNNING, run_id=i.run_id),
            effects=lambda old, new, i: (RunBound(i.run_id),),
            emits="RunBound",
        ),
        row(
            Commit,
            [_RUNNING],
            _IDLE,
            RUN,
            EPOCH,
            GOING_ON,
            update=lambda s, i: s._replace(phase=_IDLE, run_id=None),
            effects=lambda old, new, i: (RunClosed(i.run_id),),
            emits="RunClosed",
        ),
        row(
            Commit,
            [_RUNNING],
            _STOPPED,
            RUN,
            EPOCH,
            STOPPING,
            update=lambda s, i: s._replace(phase=_STOPPED, run_id=None, stop_requested=False),
            effects=lambda old, new, i: (RunClosed(i.run_id), Stopped()),
            emits="RunClosed, Stopped",
        ),
        row(
            Stop,
            [_IDLE],
            _STOPPED,
            update=lambda s, i: s._replace(phase=_STOPPED),
            effects=lambda old, new, i: (Stopped(),),
            emits="Stopped",
        ),
        row(
            Stop,
            [_RUNNING],
            "=",
            update=lambda s, i: s._replace(stop_requested=True),
            effects=lambda old, new, i: (CancelAfterBoundary(),),
            emits="CancelAfterBoundary",
        ),
        row(
            TakeOver,
            [_IDLE, _RUNNING, _STOPPED],
            "Idle, or Stopped if it was stopped or stopping",
            EPOCH,
            update=_taken_over,
            effects=lambda old, new, i: (RunOrphaned(old.run_id),),
            emits="RunOrphaned(old run)",
        ),
        row(
            Recycle,
            [_STOPPED],
            _IDLE,
            update=lambda s, i: s._replace(phase=_IDLE),
            effects=lambda old, new, i: (Recycled(),),
            emits="Recycled",
        ),
        row(
            Destroy,
            [_IDLE, _STOPPED],
            _DESTROYED,
            update=lambda s, i: s._replace(phase=_DESTROYED),
            effects=lambda old, new, i: (Destroyed(),),
            emits="Destroyed",
        ),
    ),
    invariants={
        "a run is open exactly while Running": lambda s: (
            (s.run_id is not None) == (s.phase is _RUNNING)
        ),
        "a stop is only pending while Running": lambda s: (
            not s.stop_requested or s.phase is _RUNNING
        ),
        "epochs start at 1": lambda s: s.owner_epoch >= 1,
    },
    ends=frozenset({_DESTROYED}),
    alphabet=lambda s: (
        *(kind(run, epoch) for kind in (Prepare, Commit) for run in "ab" for epoch in (1, 2, 3)),
        Stop(),
        *(TakeOver(epoch) for epoch in (1, 2, 3)),
        Recycle(),
        Destroy(),
    ),
    bounded=lambda s: s.owner_epoch < 4,
)

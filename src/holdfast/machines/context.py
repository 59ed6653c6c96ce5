"""The revision of a session's conversation, and who is told when it moves.

The revision is the store's: a count of commits, not a clock, so two changes in one millisecond are two and a clock that
steps back hides none. An observer is installed and told the revision it starts from in one step; after that it is told
each newer one. So every revision is in its baseline or reaches it by a notice, never both, never neither. A revision
that is not newer is refused by `newer`; one that comes after `Close` has no transition: the two are not the same news.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from holdfast.machines.kernel import Machine, guard, row


class Phase(StrEnum):
    """Whether the conversation may still change."""

    OPEN = "Open"
    CLOSED = "Closed"


class Context(NamedTuple):
    """The state."""

    phase: Phase = Phase.OPEN
    revision: int = 0
    observers: frozenset[str] = frozenset()


# -- inputs -------------------------------------------------------------------------------------------


class Advanced(NamedTuple):
    """The store committed that revision."""

    revision: int
    reason: str


class Observe(NamedTuple):
    """Tell this observer from now on."""

    observer: str


class Leave(NamedTuple):
    """Tell it no more."""

    observer: str


class Close(NamedTuple):
    """The session is gone."""


# -- effects ------------------------------------------------------------------------------------------


class Baseline(NamedTuple):
    """What a new observer has already missed or seen."""

    observer: str
    revision: int


class ContextAdvanced(NamedTuple):
    """Tell this observer."""

    observer: str
    revision: int
    reason: str


# -- the table ----------------------------------------------------------------------------------------

_OPEN, _CLOSED = Phase

NEWER = guard("newer", lambda s, i: i.revision > s.revision)
NOT_OBSERVING = guard("not_observing", lambda s, i: i.observer not in s.observers)
OBSERVING = guard("observing", lambda s, i: i.observer in s.observers)


def _tell(_: Context, new: Context, advanced: Advanced) -> tuple[ContextAdvanced, ...]:
    return tuple(
        ContextAdvanced(observer, advanced.revision, advanced.reason)
        for observer in sorted(new.observers)
    )


CONTEXT = Machine(
    name="context_revision",
    purpose="How far a conversation has come, and who is told when it moves.",
    initial=Context(),
    rows=(
        row(
            Advanced,
            [_OPEN],
            "=",
            NEWER,
            update=lambda s, i: s._replace(revision=i.revision),
            effects=_tell,
            emits="ContextAdvanced to each observer",
        ),
        row(
            Observe,
            [_OPEN],
            "=",
            NOT_OBSERVING,
            update=lambda s, i: s._replace(observers=s.observers | {i.observer}),
            effects=lambda old, new, i: (Baseline(i.observer, new.revision),),
            emits="Baseline",
        ),
        row(
            Leave,
            [_OPEN],
            "=",
            OBSERVING,
            update=lambda s, i: s._replace(observers=s.observers - {i.observer}),
        ),
        row(
            Close,
            [_OPEN],
            _CLOSED,
            update=lambda s, i: s._replace(phase=_CLOSED, observers=frozenset()),
        ),
    ),
    invariants={
        "revisions count from 0": lambda s: s.revision >= 0,
        "nobody observes what is closed": lambda s: s.phase is _OPEN or not s.observers,
    },
    ends=frozenset({_CLOSED}),
    alphabet=lambda s: (
        *(Advanced(s.revision + by, "prompt") for by in (-1, 0, 1, 2)),
        *(Observe(observer) for observer in "ab"),
        *(Leave(observer) for observer in "ab"),
        Close(),
    ),
    bounded=lambda s: s.revision < 5,
)

"""How a tool server is doing: `machines.md` §10."""

from typing import Any

import pytest
from tests.machines.support import after

from holdfast.machines import GuardRejected
from holdfast.machines.mcp_status import State, Status, pending_server_ids, status
from holdfast.machines.surface import SURFACE
from holdfast.machines.surface_types import (
    Apply,
    Cause,
    Failed,
    PumpRemoval,
    Record,
    Shutdown,
    StageAdd,
    StageReload,
    StageRemove,
    Succeeded,
)

ADDED = (StageAdd(), Apply(1, 0, 1))
SERVES = (*ADDED, Succeeded(1, 1, 0))
RELOADS = (*SERVES, StageReload(), Apply(2, 0, 1))
FAILED = Status(State.FAILED, Cause.PENDING_FAILED, "no route")


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ((), Status(State.DISCONNECTED)),
        ((StageAdd(),), Status(State.DISCONNECTED)),
        (ADDED, Status(State.CONNECTING)),
        (SERVES, Status(State.CONNECTED)),
        ((*SERVES, StageReload()), Status(State.CONNECTED)),
        (RELOADS, Status(State.CONNECTING)),
        ((*RELOADS, Succeeded(2, 2, 0)), Status(State.CONNECTED)),
        ((*ADDED, Failed(1, 1, detail="no route")), FAILED),
        ((*SERVES, StageRemove(), Apply(2, 0, 1)), Status(State.DISCONNECTED)),
        ((*SERVES, StageRemove(), Apply(2, 0, 1), PumpRemoval(0)), Status(State.DISCONNECTED)),
        ((*SERVES, Shutdown()), Status(State.DISCONNECTED)),
    ],
)
def test_status_is_read_off_the_record(inputs: tuple[Any, ...], expected: Status):
    assert status(after(SURFACE, *inputs).record) == expected


def test_pending_servers_are_sorted():
    connecting = after(SURFACE, *ADDED).record
    records = {"b": connecting, "x": Record(), "a": connecting}
    assert pending_server_ids(records) == ["a", "b"]


# -- what was wrong -----------------------------------------------------------------------------------


def test_wrong_reload_is_pending_when_staged_not_when_applied():
    assert status(after(SURFACE, *SERVES, StageReload()).record).state is State.CONNECTED
    assert status(after(SURFACE, *RELOADS).record).state is State.CONNECTING


def test_wrong_a_failed_reload_shows_failed_although_the_old_connection_serves():
    record = after(SURFACE, *RELOADS, Failed(2, 2, detail="no route")).record
    assert record.failure is not None
    assert status(record) == Status(State.CONNECTED)


def test_wrong_the_failure_is_recorded_before_the_surface_accepted_it():
    connecting = after(SURFACE, *ADDED)
    with pytest.raises(GuardRejected):
        SURFACE.apply(connecting, Failed(0, 1, detail="of an older attempt"))
    assert status(connecting.record) == Status(State.CONNECTING)
    removed = (*SERVES, StageRemove(), Apply(2, 0, 1), PumpRemoval(0))
    again = after(SURFACE, *removed, StageAdd(), Apply(3, 0, 1), Failed(2, 3, detail="no route"))
    assert status(again.record) == FAILED


def test_wrong_a_stuck_attempt_keeps_the_notice_for_ever():
    for end in (Succeeded(1, 1, 0), Failed(1, 1), Shutdown()):
        assert pending_server_ids({"a": after(SURFACE, *ADDED, end).record}) == []

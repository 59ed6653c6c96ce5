"""How a tool server is doing: read off its surface record, never stored.

There is no second machine, so nothing can drift: a server connects when an attempt is under way, not when one was
wished for; a failed reload does not hide the connection that still serves; an attempt that ended is not pending.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from holdfast.machines.surface_types import Base, Cause, Record


class State(StrEnum):
    """What a reader is told; the values go over the wire."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    FAILED = "failed"
    DISCONNECTED = "disconnected"


class Status(NamedTuple):
    """A server's state, and why it failed."""

    state: State
    cause: Cause | None = None
    detail: str = ""


def status(record: Record) -> Status:
    """The first that applies: an attempt is under way, it serves, the last attempt failed, neither."""
    if record.pending is not None:
        return Status(State.CONNECTING)
    if record.base is Base.ACTIVE:
        return Status(State.CONNECTED)
    if record.failure is not None:
        return Status(State.FAILED, record.failure.cause, record.failure.detail)
    return Status(State.DISCONNECTED)


def pending_server_ids(records: Mapping[str, Record]) -> list[str]:
    """The servers still connecting, sorted: what the notice to the model names."""
    return sorted(
        server for server, record in records.items() if status(record).state is State.CONNECTING
    )

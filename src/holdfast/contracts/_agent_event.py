"""The base of what watchers of an agent's run are told."""

from __future__ import annotations

from holdfast.contracts._base import Told


class Event(Told):
    """What every event has."""

    seq: int
    """The journal's number of the record it is made from; come back with `after` it."""
    time: int
    """Unix milliseconds."""
    run_id: str
    """The run: the agent's, or that of the code it wrote."""

"""What subscribers see: a record without its payload, and the notice of a gap."""

from __future__ import annotations

from holdfast.contracts._base import Told, optional
from holdfast.contracts.payload import TERMINAL
from holdfast.contracts.record import Record


class Event(Told):
    """A record as a live view shows it. Content stays behind its reference."""

    seq: int
    """The journal's seq; a client resumes after it."""
    time: int
    """Unix milliseconds."""
    family: str
    """The first word of the kind: `run`, `effect`, `approval` …"""
    kind: str
    """The record's kind."""
    terminal: bool
    """Whether it ends something."""
    known: bool
    """Whether this version understands the record."""
    stream: str
    """Whose history it is part of."""
    run_id: str | None = optional()
    """The run it belongs to."""
    turn_id: str | None = optional()
    """The turn it belongs to."""
    effect_id: str | None = optional()
    """The effect it belongs to."""
    actor: str
    """On whose authority."""
    privacy: str
    """Who may see the payload."""

    @classmethod
    def of(cls, record: Record) -> Event:
        """The view of `record`."""
        return cls(
            seq=record.seq,
            time=record.time,
            family=record.kind.replace(".", "_").partition("_")[0],
            kind=record.kind,
            terminal=record.kind in TERMINAL,
            known=record.known,
            stream=record.stream,
            run_id=record.run_id,
            turn_id=record.turn_id,
            effect_id=record.effect_id,
            actor=record.actor,
            privacy=record.privacy,
        )


class Gap(Told):
    """A subscriber fell behind: what was skipped, and how to read it after all."""

    after: int
    """The last seq delivered before the gap; `read_all(after=…)` catches up from here."""
    upto: int
    """The last seq of the gap."""
    skipped: int
    """Records not delivered; those that end something were."""

"""What folds look at and write to, and what they share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from holdfast.contracts import Record
from holdfast.errors import CallerError

# `Any`: a row is JSON; its shape is fixed by the view models in `contracts` and tested against them.
Value = dict[str, Any]


class Fact(NamedTuple):
    """The part of a record that folds look at."""

    seq: int
    stream: str
    pos: int
    time: int
    kind: str
    run_id: str | None
    effect_id: str | None
    payload: dict[str, Any]


class Rows(Protocol):
    """Where folds read and write."""

    def get(self, projection: str, key: str) -> Value | None:
        """The row as it is now."""
        ...

    def put(self, projection: str, key: str, value: Value, tag: str | None) -> None:
        """Replace the row. `tag` is what lists filter by."""
        ...


Fold = Callable[[Rows, Fact], None]

NO_USAGE: Value = {
    "runs": 0,
    "duration_ms": 0,
    "external_calls": 0,
    "input_tokens": 0,
    "output_tokens": 0,
    "cost_micros": 0,
}


def fact_of(record: Record) -> Fact:
    """The part of a record that folds look at."""
    return Fact(
        record.seq,
        record.stream,
        record.pos,
        record.time,
        record.kind,
        record.run_id,
        record.effect_id,
        record.payload,
    )


def illegal(fact: Fact, why: str) -> CallerError:
    """The refusal of a record that may not follow those before it."""
    return CallerError(
        "ILLEGAL_RECORD",
        f"A `{fact.kind}` record can't be appended to stream `{fact.stream}`: {why}.",
        hint="Read the stream: it is not in the state you think it is.",
    )


def effect_of(fact: Fact) -> str:
    """The effect a record is about: its payload says it, and its envelope must not say otherwise."""
    key: str = fact.payload["effect_id"]
    if fact.effect_id not in (None, key):
        raise illegal(fact, f"its envelope names effect `{fact.effect_id}`, its payload `{key}`")
    return key


def open_session(rows: Rows, fact: Fact) -> Value:
    """The record's session, which must be open."""
    session = rows.get("sessions", fact.stream)
    if session is None or session["status"] != "open":
        raise illegal(fact, "there is no open session")
    return session


def active_run(rows: Rows, fact: Fact) -> Value:
    """The record's run, which must be under way in its stream."""
    run = rows.get("runs", fact.run_id) if fact.run_id is not None else None
    if run is None or run["session_id"] != fact.stream or run["ended_at"] is not None:
        raise illegal(fact, f"run `{fact.run_id}` is not under way in this stream")
    return run


def doubt(rows: Rows, run_id: str | None, effect_id: str, *, doubtful: bool) -> None:
    """Note with a run that one of its effects is in doubt, or is no longer."""
    run = rows.get("runs", run_id) if run_id is not None else None
    if run is None or (effect_id in run["in_doubt"]) == doubtful:
        return
    rest = [key for key in run["in_doubt"] if key != effect_id]
    value = {**run, "in_doubt": [*rest, effect_id] if doubtful else rest}
    put_run(rows, value)


def use(rows: Rows, stream: str, **used: int) -> None:
    """Add to what a session used."""
    rows.put("usage", stream, added(rows.get("usage", stream) or NO_USAGE, used), None)


def added(usage: Value, used: Value) -> Value:
    """`usage` and what came on top."""
    return {**usage, **{key: usage[key] + more for key, more in used.items()}}


def put_run(rows: Rows, run: Value) -> None:
    """Replace a run's row, under the tag that follows from it."""
    rows.put("runs", run["id"], run, "active" if run["ended_at"] is None else "ended")

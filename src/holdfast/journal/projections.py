"""What is true now, folded from what happened: sessions, runs, effects, approvals, usage.

A fold is a pure step: it looks at rows, puts new ones, and never changes one in place. The store runs the
folds in the transaction that appends the record, so a projection is never behind; `Journal.rebuild` runs them
over every record again and must give the same bytes. A fold that meets a record which may not follow those
before it raises `ILLEGAL_RECORD`, and the append is refused: what can't have happened can't be recorded.

Records of a newer format, and kinds without a fold, change nothing here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from holdfast.contracts import Record, Retention
from holdfast.contracts.record import RECORD_VERSION
from holdfast.errors import CallerError, JournalError
from holdfast.journal.chain import Stored, damaged, decode

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

_NO_USAGE: Value = {
    "runs": 0,
    "duration_ms": 0,
    "external_calls": 0,
    "input_tokens": 0,
    "output_tokens": 0,
    "cost_micros": 0,
}


def _session_created(rows: Rows, fact: Fact) -> None:
    old = rows.get("sessions", fact.stream)
    if old is not None and old["status"] == "open":
        raise illegal(fact, "the session exists already")
    value = {
        "id": fact.stream,
        "created_at": fact.time,
        "last_used_at": fact.time,
        "language": fact.payload["language"],
        "limits": fact.payload["limits"],
        "snapshot_version": 1,
        "status": "open",
        "runs": 0,
        "created_seq": fact.seq,
        "created_pos": fact.pos,
        "state_pos": fact.pos,
    }
    rows.put("sessions", fact.stream, value, "open")


def _session_state(rows: Rows, fact: Fact) -> None:
    session = _open_session(rows, fact)
    rows.put("sessions", fact.stream, {**session, "state_pos": fact.pos}, "open")


def _session_destroyed(rows: Rows, fact: Fact) -> None:
    session = _open_session(rows, fact)
    rows.put("sessions", fact.stream, {**session, "status": "destroyed"}, "destroyed")


def _run_started(rows: Rows, fact: Fact) -> None:
    run = _begun(rows, fact, fact.payload)
    rows.put("runs", run["id"], run, "active")


def _begun(rows: Rows, fact: Fact, said: Value) -> Value:
    """A run that starts with this record."""
    session = _open_session(rows, fact)
    if fact.run_id is None or rows.get("runs", fact.run_id) is not None:
        raise illegal(fact, "it needs a run id of its own")
    used = {**session, "runs": session["runs"] + 1, "last_used_at": fact.time}
    rows.put("sessions", fact.stream, used, "open")
    _use(rows, fact.stream, runs=1)
    return {
        "id": fact.run_id,
        "session_id": fact.stream,
        "kind": said["kind"],
        "status": "running",
        "started_at": fact.time,
        "ended_at": None,
        "usage": {**_NO_USAGE, "runs": 1},
        "error": None,
        "pending_approvals": [],
        "in_doubt": [],
    }


def _run_ended(rows: Rows, fact: Fact) -> None:
    start = fact.payload.get("start")
    run = _active_run(rows, fact) if start is None else _begun(rows, fact, start)
    metrics = fact.payload["metrics"]
    used = {
        "duration_ms": metrics.get("duration_ms", 0),
        "external_calls": metrics.get("external_calls_count", 0),
    }
    value = {
        **run,
        "status": fact.kind.removeprefix("run_"),
        "ended_at": fact.time,
        "usage": _sum(run["usage"], used),
        "error": None if fact.kind == "run_completed" else fact.payload["error"],
    }
    rows.put("runs", run["id"], value, "ended")
    _use(rows, fact.stream, **used)


def _effect_intent(rows: Rows, fact: Fact) -> None:
    said = fact.payload
    key = _effect_of(fact)
    if rows.get("effects", key) is not None:
        raise illegal(fact, f"effect `{key}` has an intent already")
    if fact.run_id is not None:
        _active_run(rows, fact)
    value = {
        "id": key,
        "kind": said["kind"],
        "name": said["name"],
        "status": "open",
        "intent_at": fact.time,
        "result_at": None,
        "idempotent": said.get("idempotent", False),
        "summary": said["redacted_summary"],
        "session_id": fact.stream,
        "run_id": fact.run_id,
    }
    rows.put("effects", key, value, "open")


def _effect_result(rows: Rows, fact: Fact) -> None:
    said = fact.payload
    key = _effect_of(fact)
    effect = rows.get("effects", key)
    if effect is None or effect["session_id"] != fact.stream:
        raise illegal(fact, f"effect `{key}` has no intent in this stream")
    # `unknown` is an answer that settles nothing: the effect stays open until somebody finds out.
    if effect["status"] not in ("open", "unknown"):
        raise illegal(fact, f"effect `{key}` has a result already")
    status = said["terminal_status"]
    tag = "open" if status == "unknown" else "closed"
    rows.put("effects", key, {**effect, "status": status, "result_at": fact.time}, tag)
    _doubt(rows, effect["run_id"], key, doubtful=status == "unknown")


def _approval_requested(rows: Rows, fact: Fact) -> None:
    said = fact.payload
    if rows.get("approvals", said["id"]) is not None:
        raise illegal(fact, f"approval `{said['id']}` was asked already")
    value = {
        "id": said["id"],
        "status": "pending",
        "tool": said["tool"],
        "arguments": said["arguments"],
        "side_effect": said["side_effect"],
        "risk": said.get("risk", "medium"),
        "summary": said["summary"],
        "session_id": fact.stream,
        "run_id": fact.run_id,
        "effect_id": said["effect_id"],
        "requested_at": fact.time,
        "deadline": said.get("deadline"),
        "decision": None,
    }
    rows.put("approvals", said["id"], value, "pending")
    if fact.run_id is not None:
        run = _active_run(rows, fact)
        waits = [*run["pending_approvals"], said["id"]]
        rows.put("runs", run["id"], {**run, "pending_approvals": waits}, "active")


def _approval_responded(rows: Rows, fact: Fact) -> None:
    said = fact.payload
    asked = rows.get("approvals", said["id"])
    if asked is None or asked["status"] != "pending":
        raise illegal(fact, f"approval `{said['id']}` is not waiting for an answer")
    decision = said["decision"]
    value = {**asked, "status": decision["decision"], "decision": decision}
    rows.put("approvals", said["id"], value, "decided")
    run = rows.get("runs", asked["run_id"]) if asked["run_id"] else None
    if run is not None:
        waits = [key for key in run["pending_approvals"] if key != said["id"]]
        tag = "active" if run["ended_at"] is None else "ended"
        rows.put("runs", run["id"], {**run, "pending_approvals": waits}, tag)


def _usage_recorded(rows: Rows, fact: Fact) -> None:
    used = {k: fact.payload.get(k, 0) for k in ("input_tokens", "output_tokens", "cost_micros")}
    if fact.run_id is not None:
        run = _active_run(rows, fact)
        rows.put("runs", run["id"], {**run, "usage": _sum(run["usage"], used)}, "active")
    _use(rows, fact.stream, **used)


FOLDS: dict[str, Fold] = {
    "session_created": _session_created,
    "session_state": _session_state,
    "session_destroyed": _session_destroyed,
    "run_started": _run_started,
    "run_completed": _run_ended,
    "run_failed": _run_ended,
    "run_cancelled": _run_ended,
    "effect_intent": _effect_intent,
    "effect_result": _effect_result,
    "approval_requested": _approval_requested,
    "approval_responded": _approval_responded,
    "usage_recorded": _usage_recorded,
}
"""Kind → fold. A kind that is not here changes no projection."""


class Rebuilt:
    """Projections folded again from stored records, in seq order."""

    def __init__(self) -> None:
        self.cells: dict[tuple[str, str], tuple[str | None, Value]] = {}

    def add(self, stored: Stored) -> None:
        """Fold one record. Refuses a newer format: its meaning would be lost from the projections."""
        record = decode(stored)
        if record.v > RECORD_VERSION:
            raise JournalError(
                "JOURNAL_TOO_NEW",
                f"Record {record.seq} has format {record.v}; rebuilding would forget what it says.",
                hint="Rebuild with the newest holdfast that writes to this journal.",
            )
        fold = FOLDS.get(record.kind)
        if fold is None:
            return
        try:
            fold(self, fact_of(record))
        except (CallerError, KeyError, TypeError, AttributeError):
            # It was checked when it was appended: either it or one before it is not what it was.
            raise damaged(stored, "it may not follow those before it") from None

    def get(self, projection: str, key: str) -> Value | None:
        """The row so far."""
        cell = self.cells.get((projection, key))
        return None if cell is None else cell[1]

    def put(self, projection: str, key: str, value: Value, tag: str | None) -> None:
        """Replace the row."""
        self.cells[projection, key] = (tag, value)


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


def outlived(retention: str, *, run: Value | None, session_gone: bool) -> bool:
    """Whether a body held only for this reason may be erased now."""
    match Retention(retention):
        case Retention.EPHEMERAL:
            return True
        case Retention.RUN_SCOPED:
            return session_gone or (run is not None and run["ended_at"] is not None)
        case Retention.SESSION_SCOPED:
            return session_gone
        case _:
            return False


def _effect_of(fact: Fact) -> str:
    """The effect a record is about: its payload says it, and its envelope must not say otherwise."""
    key: str = fact.payload["effect_id"]
    if fact.effect_id not in (None, key):
        raise illegal(fact, f"its envelope names effect `{fact.effect_id}`, its payload `{key}`")
    return key


def _open_session(rows: Rows, fact: Fact) -> Value:
    session = rows.get("sessions", fact.stream)
    if session is None or session["status"] != "open":
        raise illegal(fact, "there is no open session")
    return session


def _active_run(rows: Rows, fact: Fact) -> Value:
    run = rows.get("runs", fact.run_id) if fact.run_id is not None else None
    if run is None or run["session_id"] != fact.stream or run["ended_at"] is not None:
        raise illegal(fact, f"run `{fact.run_id}` is not under way in this stream")
    return run


def _doubt(rows: Rows, run_id: str | None, effect_id: str, *, doubtful: bool) -> None:
    run = rows.get("runs", run_id) if run_id is not None else None
    if run is None or (effect_id in run["in_doubt"]) == doubtful:
        return
    rest = [key for key in run["in_doubt"] if key != effect_id]
    value = {**run, "in_doubt": [*rest, effect_id] if doubtful else rest}
    rows.put("runs", run["id"], value, "active" if run["ended_at"] is None else "ended")


def _use(rows: Rows, stream: str, **used: int) -> None:
    rows.put("usage", stream, _sum(rows.get("usage", stream) or _NO_USAGE, used), None)


def _sum(usage: Value, used: Value) -> Value:
    return {**usage, **{key: usage[key] + more for key, more in used.items()}}

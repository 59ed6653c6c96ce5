"""Messages that wait, and what only happens in an agent's run."""

from __future__ import annotations

from holdfast.journal._rows import Fact, Fold, Rows, Value, active_run, illegal, open_session


def _input_queued(rows: Rows, fact: Fact) -> None:
    said = fact.payload
    if rows.get("inputs", said["id"]) is not None:
        raise illegal(fact, f"input `{said['id']}` is there already")
    session = rows.get("sessions", said["session_id"])
    if session is not None and session["status"] != "open":
        raise illegal(fact, "its session was destroyed")
    value = {**said, "status": "queued", "queued_at": fact.time, "run_id": None}
    rows.put("inputs", said["id"], value, f"queued:{said['session_id']}")


def _run_prompted(rows: Rows, fact: Fact) -> None:
    active_run(rows, fact)
    key = fact.payload.get("input_id")
    if key is None:
        return
    value = _queued(rows, fact, key)
    if value["session_id"] != fact.stream:
        raise illegal(fact, f"input `{key}` is for another session")
    rows.put("inputs", key, {**value, "status": "consumed", "run_id": fact.run_id}, "ended")


def _input_dropped(rows: Rows, fact: Fact) -> None:
    key = fact.payload["id"]
    value = _queued(rows, fact, key)
    rows.put("inputs", key, {**value, "status": "abandoned"}, "ended")


def _queued(rows: Rows, fact: Fact, key: str) -> Value:
    value = rows.get("inputs", key)
    if value is None or value["status"] != "queued":
        raise illegal(fact, f"input `{key}` does not wait")
    return value


def _text_pinned(rows: Rows, fact: Fact) -> None:
    said = fact.payload
    if rows.get("pins", said["id"]) is not None:
        raise illegal(fact, f"pin `{said['id']}` is there already")
    rows.put("pins", said["id"], {**said, "seq": fact.seq}, said["session_id"])


def _text_unpinned(rows: Rows, fact: Fact) -> None:
    key = fact.payload["id"]
    value = rows.get("pins", key)
    if value is None or "unpinned" in value:
        raise illegal(fact, f"pin `{key}` is not there")
    rows.put("pins", key, {**value, "unpinned": fact.seq}, "ended")


def _context_outlined(rows: Rows, fact: Fact) -> None:
    open_session(rows, fact)
    rows.put("outlines", fact.stream, fact.payload, None)


def _of_a_run(rows: Rows, fact: Fact) -> None:
    """What only happens in a run that is under way."""
    open_session(rows, fact)
    active_run(rows, fact)


AGENTS: dict[str, Fold] = {
    "input_queued": _input_queued,
    "input_dropped": _input_dropped,
    "run_prompted": _run_prompted,
    "text_pinned": _text_pinned,
    "text_unpinned": _text_unpinned,
    "context_outlined": _context_outlined,
    "notice_given": _of_a_run,
    "model_retry": _of_a_run,
    "model_switched": _of_a_run,
    "tool_answered": _of_a_run,
    "output_checked": _of_a_run,
}
"""Kind → fold."""

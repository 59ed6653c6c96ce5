"""Effects: open until they have a result; and what is set aside for them."""

from __future__ import annotations

from holdfast.journal._rows import (
    Fact,
    Fold,
    Rows,
    Value,
    active_run,
    doubt,
    effect_of,
    illegal,
)

_UNITS = ("calls", "cost_micros", "wall_ms")

NO_BUDGET: Value = {name: 0 for unit in _UNITS for name in (unit, f"held_{unit}")}
"""A session's account: what was used, and what is set aside for calls under way."""


def _effect_intent(rows: Rows, fact: Fact) -> None:
    said = fact.payload
    key = effect_of(fact)
    if rows.get("effects", key) is not None:
        raise illegal(fact, f"effect `{key}` has an intent already")
    if fact.run_id is not None:
        active_run(rows, fact)
    value: Value = {
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
        "attempt": 1,
    }
    held = said.get("reserved")
    if held is not None:
        value["held"] = held
        _account(rows, fact.stream, held=held)
    rows.put("effects", key, value, "open")


def _effect_attempt(rows: Rows, fact: Fact) -> None:
    key = effect_of(fact)
    effect = _unsettled(rows, fact, key)
    attempt = fact.payload["attempt"]
    if attempt != effect.get("attempt", 1) + 1:
        raise illegal(fact, f"attempt {attempt} of effect `{key}` is not the next")
    rows.put("effects", key, {**effect, "status": "open", "attempt": attempt}, "open")
    doubt(rows, effect["run_id"], key, doubtful=False)


def _effect_released(rows: Rows, fact: Fact) -> None:
    key = effect_of(fact)
    effect = _unsettled(rows, fact, key)
    if fact.payload["attempt"] != effect.get("attempt", 1) + 1:
        raise illegal(fact, f"effect `{key}` was done again meanwhile")
    rows.put("effects", key, {**effect, "status": "open"}, "open")
    doubt(rows, effect["run_id"], key, doubtful=False)


def _effect_result(rows: Rows, fact: Fact) -> None:
    said = fact.payload
    key = effect_of(fact)
    effect = _unsettled(rows, fact, key)
    status = said["terminal_status"]
    tag = "open" if status == "unknown" else "closed"
    value: Value = {**effect, "status": status, "result_at": fact.time}
    held = value.pop("held", None) if tag == "closed" else None
    if held is not None:
        _account(rows, fact.stream, held=held, sign=-1, spent=said.get("spent") or held)
    rows.put("effects", key, value, tag)
    doubt(rows, effect["run_id"], key, doubtful=status == "unknown")


def _unsettled(rows: Rows, fact: Fact, key: str) -> Value:
    effect = rows.get("effects", key)
    if effect is None or effect["session_id"] != fact.stream:
        raise illegal(fact, f"effect `{key}` has no intent in this stream")
    # `unknown` is an answer that settles nothing: the effect stays open until somebody finds out.
    if effect["status"] not in ("open", "unknown"):
        raise illegal(fact, f"effect `{key}` has a result already")
    return effect


def _account(
    rows: Rows, stream: str, *, held: Value, sign: int = 1, spent: Value | None = None
) -> None:
    account = rows.get("budgets", stream) or NO_BUDGET
    moved = {f"held_{u}": account[f"held_{u}"] + sign * held.get(u, 0) for u in _UNITS}
    used = {u: account[u] + (spent or {}).get(u, 0) for u in _UNITS}
    rows.put("budgets", stream, {**account, **moved, **used}, None)


EFFECTS: dict[str, Fold] = {
    "effect_intent": _effect_intent,
    "effect_attempt": _effect_attempt,
    "effect_released": _effect_released,
    "effect_result": _effect_result,
}
"""Kind → fold."""

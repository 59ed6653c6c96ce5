"""Effects: open until they have a result; and what is set aside for them."""

from __future__ import annotations

from holdfast.journal._rows import (
    Fact,
    Fold,
    Rows,
    Value,
    active_run,
    added,
    doubt,
    effect_of,
    illegal,
    put_run,
    use,
)

_UNITS = ("calls", "cost_micros", "wall_ms", "tokens")

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
    if "call_id" in said:
        value["call_id"] = said["call_id"]
    held = said.get("reserved")
    refused = _refused(rows, said) if held is not None else None
    if refused is not None:
        value["refused"] = refused
    elif held is not None:
        value["held"] = held
        _account(rows, fact.stream, held=held)
        for account in said.get("accounts", ()):
            _account(rows, account, held=held)
        if "accounts" in said:
            value["accounts"] = said["accounts"]
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
        spent = said.get("spent") or held
        for account in (fact.stream, *value.get("accounts", ())):
            _account(rows, account, held=held, sign=-1, spent=spent)
    if "usage" in said:
        _used(rows, fact, effect["run_id"], said["usage"])
    if "call_id" in value and said.get("content_refs") and not said.get("hooked"):
        value["result"] = said["content_refs"][0]  # a model may want to read more of it
    rows.put("effects", key, value, tag)
    doubt(rows, effect["run_id"], key, doubtful=status == "unknown")


def _effect_seen(rows: Rows, fact: Fact) -> None:
    """Hooks let go of a result: what they left of it is all that a model may read more of."""
    key, value = effect_of(fact), fact.payload.get("value")
    effect = rows.get("effects", key)
    if effect is not None and "call_id" in effect and value is not None:
        rows.put("effects", key, {**effect, "result": value}, "closed")


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
    account = {**NO_BUDGET, **(rows.get("budgets", stream) or {})}
    moved = {f"held_{u}": account[f"held_{u}"] + sign * held.get(u, 0) for u in _UNITS}
    used = {u: account[u] + (spent or {}).get(u, 0) for u in _UNITS}
    rows.put("budgets", stream, {**account, **moved, **used}, None)


def _refused(rows: Rows, said: Value) -> Value | None:
    """Which account has no room for an effect, and why; nothing is set aside for it then, and it may not happen.

    Several processes use an account up: only here is it known what the others have set aside. The intent stays on
    record, so that its writer, whose other records may be on their way behind it, need not take anything back.
    """
    for account in said.get("accounts", ()):
        row = rows.get("budgets", account) or {}
        for unit, limit in row.get("limits", {}).items():
            total, wanted = row[unit] + row[f"held_{unit}"], said["reserved"].get(unit, 0)
            if total + wanted > limit:
                numbers = {"limit": limit, "total": total, "wanted": wanted}
                return {"account": account, "unit": unit, **numbers}
    return None


def _account_opened(rows: Rows, fact: Fact) -> None:
    """An account has limits of its own; opened again, it has others."""
    key = fact.payload["account"]
    limits = {unit: n for unit, n in fact.payload["budget"].items() if n is not None}
    rows.put(
        "budgets", key, {**NO_BUDGET, **(rows.get("budgets", key) or {}), "limits": limits}, None
    )


def _used(rows: Rows, fact: Fact, run_id: str | None, usage: Value) -> None:
    """What a question to a model used."""
    used = {name: usage.get(name) or 0 for name in ("input_tokens", "output_tokens", "cost_micros")}
    run = rows.get("runs", run_id) if run_id is not None else None
    if run is not None:
        put_run(rows, {**run, "usage": added(run["usage"], used)})
    use(rows, fact.stream, **used)


EFFECTS: dict[str, Fold] = {
    "effect_intent": _effect_intent,
    "effect_attempt": _effect_attempt,
    "effect_released": _effect_released,
    "effect_result": _effect_result,
    "effect_seen": _effect_seen,
    "account_opened": _account_opened,
}
"""Kind → fold."""

"""Tokens of the server, and requests that carry a key of their caller's own."""

from __future__ import annotations

from holdfast.contracts.token import KEY_KEPT_MS
from holdfast.journal._rows import Fact, Fold, Rows, Value, illegal


def _token_created(rows: Rows, fact: Fact) -> None:
    said = fact.payload
    if rows.get("tokens", said["id"]) is not None:
        raise illegal(fact, f"token `{said['id']}` exists already")
    value = {**said, "created_at": fact.time, "revoked_at": None, "last_used_at": None}
    rows.put("tokens", said["id"], value, "active")


def _token_revoked(rows: Rows, fact: Fact) -> None:
    token = _active(rows, fact)
    value = {**token, "revoked_at": fact.time, "reason": fact.payload.get("reason", "revoked")}
    rows.put("tokens", token["id"], value, "revoked")


def _token_used(rows: Rows, fact: Fact) -> None:
    token = _active(rows, fact)
    rows.put("tokens", token["id"], {**token, "last_used_at": fact.time}, "active")


def _active(rows: Rows, fact: Fact) -> Value:
    """The token of a record, which must count; so of two who use a link, one gets in."""
    token = rows.get("tokens", fact.payload["id"])
    if token is None or token["revoked_at"] is not None:
        raise illegal(fact, f"there is no token `{fact.payload['id']}` that counts")
    return token


def _request_accepted(rows: Rows, fact: Fact) -> None:
    said = fact.payload
    known = rows.get("requests", said["key"])
    if known is not None and fact.time - known["at"] < KEY_KEPT_MS:
        raise illegal(fact, "this key stands for another request")
    rows.put("requests", said["key"], {**said, "at": fact.time}, None)


TOKENS: dict[str, Fold] = {
    "token_created": _token_created,
    "token_revoked": _token_revoked,
    "token_used": _token_used,
    "request_accepted": _request_accepted,
}
"""Kind → fold."""

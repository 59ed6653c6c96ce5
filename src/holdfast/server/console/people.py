"""Who did something, and how they were known, in words."""

from __future__ import annotations

from holdfast.server.callers import Caller

_WAYS = {
    "console": "in the console",
    "http": "over HTTP",
    "rpc": "over JSON-RPC",
    "mcp": "over MCP",
    "cli": "on the command line",
    "local": "on this machine",
    "callback": "by a function that is asked",
}


def who(caller: Caller, actor: str | None) -> str:
    """Somebody on record, for whoever looks."""
    return "you" if actor in (caller.id, caller.person) else actor or "somebody"


def how(via: str | None) -> str:
    """How somebody was known, in words."""
    return "" if via is None else _WAYS.get(via.partition(":")[0], f"by {via}")

"""Why a server can't be connected, or a call did not work, in words for whoever must act."""

from __future__ import annotations

from holdfast.errors import ModelError, OperatorError
from holdfast.gate.executor import Unsure


def cut(surface: str, tool: str, why: str) -> Unsure:
    """A call that was under way when the connection went away."""
    error = ModelError(
        "SURFACE_UNAVAILABLE",
        f"The connection to `{surface}` went away during `{tool}`: {why}.",
        hint="It may have been done all the same. Look before you call it again.",
    )
    return Unsure(error)


def unavailable(surface: str, why: str) -> ModelError:
    """A call that was not made, because nobody is there."""
    return ModelError(
        "SURFACE_UNAVAILABLE",
        f"`{surface}` is not there now: {why}.",
        hint="Nothing was done. Try again later, or go without.",
    )


def tool_error(tool: str, said: str) -> ModelError:
    """What a tool says went wrong."""
    return ModelError(
        "TOOL_ERROR",
        f"`{tool}` failed: {said or 'it does not say why'}",
        hint="The words are the server's. Call it differently, or do without.",
    )


def failed(surface: str, why: str, *, said: str = "", hint: str | None = None) -> OperatorError:
    """A connection that could not be made; `said` is the end of what the server's program complained about."""
    shown = f" It said: {said}" if said else ""
    return OperatorError(
        "SURFACE_FAILED",
        f"The MCP server `{surface}` can't be connected: {why}.{shown}",
        hint=hint or f"`holdfast mcp test {surface}` shows what it says.",
    )

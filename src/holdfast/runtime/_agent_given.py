"""What callers give an agent, held against what it takes."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import CallerError
from holdfast.models.base import Model


def check_stream(prompt: str | None, run: object, after: int | None, session: str | None) -> None:
    """Refuse what could mean two things."""
    if prompt is not None and run is not None:
        raise CallerError(
            "INVALID_ARGUMENT",
            "A stream has a prompt, or a run to go on with, and not both.",
            hint='`agent.stream("…", session=…)`, or `agent.stream(run=…, after=…)`.',
        )
    if run is None and after is not None:
        raise CallerError(
            "INVALID_ARGUMENT",
            "A run that begins has no events before its first: `after` needs a `run`.",
            hint="`agent.stream(run=…, after=…)` goes on with a run.",
        )
    if run is not None and session is not None:
        raise CallerError(
            "INVALID_ARGUMENT",
            "A run to go on with has its session already.",
            hint="Leave `session` out.",
        )


def names_of(capabilities: Sequence[object]) -> tuple[str, ...]:
    """What capabilities are called."""
    from holdfast.capabilities._contract import Contract

    return tuple(one.capability.name for one in capabilities if isinstance(one, Contract))


def id_of(model: str | Model) -> str:
    """What a model is called; raises `INVALID_ARGUMENT` for what is none."""
    found: object = model if isinstance(model, str) else getattr(model, "id", None)
    if isinstance(found, str):
        return found
    raise CallerError(
        "INVALID_ARGUMENT",
        f"`{repr(model)[:80]}` is no model.",
        hint="Name one, such as `anthropic:claude-opus-4-6`, or give an object with an `id` that answers.",
    )


def check_tools(capabilities: Sequence[object], hooks: Sequence[object]) -> None:
    """Refuse functions that were not made into capabilities, or hooks, before anything is run with them."""
    if capabilities:
        from holdfast.capabilities.registry import capability_of

        for one in capabilities:
            capability_of(one)
    if hooks:
        from holdfast.gate.hooks import spec_of

        for one in hooks:
            spec_of(one)

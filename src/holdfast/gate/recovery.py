"""What to do about an effect that has an intent and no result. One table, and nothing else decides it.

A read, and what is harmless to repeat, is done again under the same id. A capability that can find out is asked.
Anything else is a person's business: it is never silently done again, and never silently dropped.
"""

from __future__ import annotations

from enum import StrEnum

from holdfast.contracts import EffectIntent, EffectKind, SideEffect

HARMLESS = frozenset((SideEffect.NONE, SideEffect.READ))
"""Side effects that need no record before the act, and may be repeated."""


class Action(StrEnum):
    """What to do."""

    REPEAT = "repeat"
    """Do it again, with the same id; the attempt counts up."""
    RECONCILE = "reconcile"
    """Ask the capability what became of it."""
    LOOK_UP = "look_up"
    """Its own record tells: an approval's row, a hook's decision, a child's journal."""
    ASK = "ask"
    """Stop, and let a person say."""


_LOOKED_UP = frozenset(
    (
        EffectKind.APPROVAL_DISPATCH,
        EffectKind.HOOK_MUTATION,
        EffectKind.CHILD_AGENT_START,
        EffectKind.CHILD_ARTIFACT_SHUTDOWN,
    )
)


def action(intent: EffectIntent, *, reconciles: bool, released: bool = False) -> Action:
    """What to do about an effect of which only the intent is known.

    `reconciles`: its capability can find out. `released`: a person said that it may be done again.
    """
    if intent.kind in _LOOKED_UP:
        return Action.LOOK_UP
    if released or intent.kind is EffectKind.PROVIDER_REQUEST:
        return Action.REPEAT
    if repeatable(intent):
        return Action.REPEAT
    return Action.RECONCILE if reconciles else Action.ASK


def repeatable(intent: EffectIntent) -> bool:
    """Whether doing it again is harmless: a read, or something the other side recognises."""
    if intent.kind is EffectKind.OUTPUT_DELIVERY:
        return False  # even with a key: look first, a message that was delivered is not sent again
    if intent.side_effect in HARMLESS and intent.kind is EffectKind.TOOL_EXECUTION:
        return True
    return intent.idempotent or intent.idempotency_key is not None or intent.dedupe_key is not None

"""What to do about an effect that has an intent and no result. One table, and nothing else decides it.

A read is done again under the same id. A capability that can find out is asked. What the other side would recognise
is done again, under the same id; also where asking did not help. Anything else is a person's business: it is never
silently done again, and never silently dropped.

A call that asked a person for what it needs, before it did anything, is in no doubt: it waits for the answer. Once
that is there and the next attempt is on record, it is as any other.
"""

from __future__ import annotations

from enum import StrEnum

from holdfast.contracts import EffectIntent, EffectKind, SideEffect

HARMLESS = (SideEffect.NONE, SideEffect.READ)
"""Side effects that need no record before the act, and may be repeated."""  # no set: enums are slow to hash


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
    ANSWER = "answer"
    """Nothing was done: wait for the answer it needs, then do it."""


_LOOKED_UP = frozenset(
    (
        EffectKind.APPROVAL_DISPATCH,
        EffectKind.HOOK_MUTATION,
        EffectKind.CHILD_AGENT_START,
        EffectKind.CHILD_ARTIFACT_SHUTDOWN,
    )
)


def action(
    intent: EffectIntent, *, reconciles: bool, released: bool = False, asks: bool = False
) -> Action:
    """What to do about an effect of which only the intent is known.

    `reconciles`: its capability can find out. `released`: a person said that it may be done again. `asks`: the last
    thing it did was to ask a person for what it needs, answered by now or not.
    """
    if intent.kind in _LOOKED_UP:
        return Action.LOOK_UP
    if asks:  # also what must not be done twice: it was not done once
        return Action.ANSWER
    if released or _reads(intent):
        return Action.REPEAT
    if reconciles:  # also where a repetition would be recognised: who can tell need not do it again
        return Action.RECONCILE
    return Action.REPEAT if repeatable(intent) else Action.ASK


def repeatable(intent: EffectIntent) -> bool:
    """Whether doing it again is harmless: a read, or something the other side recognises."""
    if intent.kind is EffectKind.OUTPUT_DELIVERY:
        return False  # even with a key: look first, a message that was delivered is not sent again
    if _reads(intent):
        return True
    return intent.idempotent or intent.idempotency_key is not None or intent.dedupe_key is not None


def _reads(intent: EffectIntent) -> bool:
    """Whether it changes nothing: a read, or a question to a model."""
    if intent.kind is EffectKind.PROVIDER_REQUEST:
        return True
    return intent.kind is EffectKind.TOOL_EXECUTION and intent.side_effect in HARMLESS

"""What is done about an effect of which only the intent is known: every combination, against the table as it is written."""

from itertools import product
from typing import NamedTuple

import pytest

from holdfast import EffectIntent, EffectKind, SideEffect
from holdfast.gate.recovery import Action, action, repeatable

K, A = EffectKind, Action
READS = (SideEffect.NONE, SideEffect.READ)


class Row(NamedTuple):
    """One line: the first that fits decides. `None`: any."""

    kinds: tuple[EffectKind, ...] | None
    reads: bool | None
    key: bool | None
    reconciler: bool | None
    then: Action


TABLE = (
    Row((K.PROVIDER_REQUEST,), None, None, None, A.REPEAT),
    Row((K.HOOK_MUTATION, K.APPROVAL_DISPATCH), None, None, None, A.LOOK_UP),
    Row((K.CHILD_AGENT_START, K.CHILD_ARTIFACT_SHUTDOWN), None, None, None, A.LOOK_UP),
    Row((K.TOOL_EXECUTION,), True, None, None, A.REPEAT),
    Row((K.TOOL_EXECUTION,), None, None, True, A.RECONCILE),
    Row((K.TOOL_EXECUTION,), None, True, False, A.REPEAT),
    Row((K.TOOL_EXECUTION,), None, False, False, A.ASK),
    # A message that may have been delivered is not sent again for its key alone.
    Row((K.OUTPUT_DELIVERY,), None, None, True, A.RECONCILE),
    Row((K.OUTPUT_DELIVERY,), None, None, False, A.ASK),
    # The rest is as a tool that writes, whatever it says it touches.
    Row(None, None, None, True, A.RECONCILE),
    Row(None, None, True, False, A.REPEAT),
    Row(None, None, False, False, A.ASK),
)

KEYS: tuple[dict[str, object], ...] = (
    {},
    {"idempotent": True},
    {"idempotency_key": "k"},
    {"dedupe_key": "k"},
)


def expected(kind: EffectKind, reads: bool, key: bool, reconciler: bool) -> Action:
    for row in TABLE:
        if (
            (row.kinds is None or kind in row.kinds)
            and row.reads in (None, reads)
            and row.key in (None, key)
            and row.reconciler in (None, reconciler)
        ):
            return row.then
    raise AssertionError("the table has a hole")


def intended(kind: EffectKind, touches: SideEffect, key: dict[str, object]) -> EffectIntent:
    fields = {"effect_id": "e", "kind": kind, "name": "n", "redacted_summary": "", **key}
    return EffectIntent.model_validate({**fields, "side_effect": touches})


@pytest.mark.parametrize("kind", EffectKind)
def test_every_combination(kind: EffectKind) -> None:
    for touches, key, reconciler in product(SideEffect, KEYS, (False, True)):
        found = action(intended(kind, touches, key), reconciles=reconciler)
        assert found is expected(kind, touches in READS, bool(key), reconciler), (touches, key)


@pytest.mark.parametrize("kind", EffectKind)
def test_what_a_person_released_is_done_again(kind: EffectKind) -> None:
    for touches, key, reconciler in product(SideEffect, KEYS, (False, True)):
        intent = intended(kind, touches, key)
        found = action(intent, reconciles=reconciler, released=True)
        looked_up = expected(kind, False, False, False) is A.LOOK_UP
        assert found is (A.LOOK_UP if looked_up else A.REPEAT)


@pytest.mark.parametrize("kind", EffectKind)
def test_nothing_is_repeated_that_is_not_repeatable(kind: EffectKind) -> None:
    for touches, key, reconciler in product(SideEffect, KEYS, (False, True)):
        intent = intended(kind, touches, key)
        if action(intent, reconciles=reconciler) is A.REPEAT:
            assert repeatable(intent)

"""Budgets: never more is set aside than is left, and nothing is lost."""

from collections.abc import Iterable
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.contracts import (
    Draft,
    EffectIntent,
    EffectKind,
    EffectResult,
    EffectStatus,
    SideEffect,
)
from holdfast.contracts.effect import Reserved
from holdfast.contracts.policy import Budget
from holdfast.errors import PersonError
from holdfast.gate.budgets import NOTHING, Ledger
from holdfast.journal import MemoryJournal

UNITS = ("calls", "cost_micros", "wall_ms")


def amount(calls: int = 1, cost: int = 0, wall: int = 0) -> Reserved:
    return Reserved(calls=calls, cost_micros=cost, wall_ms=wall)


def refused(ledger: Ledger, budget: Budget, estimate: Reserved) -> PersonError:
    with pytest.raises(PersonError) as caught:
        ledger.reserve(budget, estimate)
    assert caught.value.code == "BUDGET_EXCEEDED"
    return caught.value


def test_budget_calls_is_enforced():
    budget = Budget(calls=2)
    ledger = Ledger().reserve(budget, amount()).reserve(budget, amount())
    why = refused(ledger, budget, amount())
    assert why.message == "Of the session's 2 calls, 0 are left, and the call needs 1."
    assert why.hint == "Whoever opened the session can raise `budget.calls`."
    refused(ledger.settle(amount()), budget, amount())
    ledger.release(amount()).reserve(budget, amount())
    refused(Ledger(), Budget(calls=0), amount())


def test_budget_cost_micros_is_enforced():
    budget = Budget(cost_micros=100)
    ledger = Ledger().reserve(budget, amount(cost=60))
    why = refused(ledger, budget, amount(cost=41))
    assert "100 millionths of a US dollar, 40 are left" in why.message
    ledger.reserve(budget, amount(cost=40))
    cheap = ledger.settle(amount(cost=60), amount(cost=10))
    cheap.reserve(budget, amount(cost=90))
    refused(cheap, budget, amount(cost=91))


def test_budget_wall_ms_is_enforced():
    budget = Budget(wall_ms=10_000)
    held = amount(wall=5_000)
    ledger = Ledger().reserve(budget, held).reserve(budget, held)
    refused(ledger, budget, amount(wall=1))
    done = ledger.settle(held, amount(wall=20)).settle(held, amount(wall=30))
    assert done.left(budget) == {"wall_ms": 9_950}
    done.reserve(budget, amount(wall=9_950))


def test_an_answer_that_crosses_the_budget_is_kept_and_the_next_call_refused():
    budget = Budget(cost_micros=100)
    held = amount(cost=10)
    ledger = Ledger().reserve(budget, held).settle(held, amount(cost=250))
    assert ledger.used.cost_micros == 250
    assert ledger.left(budget) == {"cost_micros": 0}
    assert "0 are left" in refused(ledger, budget, amount()).message


def test_a_free_call_passes_while_the_budget_is_just_used():
    budget = Budget(cost_micros=100)
    held = amount(cost=100)
    ledger = Ledger().reserve(budget, held).settle(held)
    assert ledger.left(budget) == {"cost_micros": 0}
    assert ledger.reserve(budget, amount()).reserved == amount()


def test_without_a_budget_everything_is_counted_and_nothing_refused():
    ledger = Ledger().reserve(None, amount(5, 6, 7)).settle(amount(5, 6, 7), amount(5, 1, 2))
    assert (ledger.used, ledger.reserved) == (amount(5, 1, 2), NOTHING)
    assert ledger.left(None) == {}
    assert ledger.left(Budget()) == {}
    assert ledger.left(Budget(calls=9, wall_ms=9)) == {"calls": 4, "wall_ms": 7}


def test_giving_back_what_was_not_set_aside_makes_no_room():
    budget = Budget(calls=1)
    ledger = Ledger().release(amount()).release(amount()).reserve(budget, amount())
    refused(ledger, budget, amount())


def test_a_ledger_does_not_change():
    ledger = Ledger().reserve(None, amount())
    ledger.settle(amount())
    assert ledger.reserved == amount()
    with pytest.raises(FrozenInstanceError):
        ledger.used = NOTHING  # type: ignore[misc]


# -- from the journal ---------------------------------------------------------------------------------


def intent(effect_id: str, reserved: Reserved) -> Draft:
    return Draft.of(
        EffectIntent(
            effect_id=effect_id,
            kind=EffectKind.TOOL_EXECUTION,
            name="pay",
            side_effect=SideEffect.WRITE,
            reserved=reserved,
            redacted_summary="pay",
        )
    )


def result(effect_id: str, status: EffectStatus, spent: Reserved | None = None) -> Draft:
    return Draft.of(
        EffectResult(
            effect_id=effect_id,
            terminal_status=status,
            spent=spent,
            reconciliation_ref="ask" if status is EffectStatus.UNKNOWN else None,
            redacted_summary="pay",
        )
    )


async def ledger_of(*drafts: Draft) -> Ledger:
    journal = MemoryJournal()
    await journal.append("s-1", drafts, expected_pos=0)
    return Ledger.of(await journal.row("budgets", "s-1"))


@pytest.mark.parametrize(
    ("status", "used", "reserved"),
    [
        (EffectStatus.COMPLETED, amount(1, 3, 4), NOTHING),
        (EffectStatus.FAILED, amount(1, 3, 4), NOTHING),
        (EffectStatus.UNKNOWN, NOTHING, amount(1, 9, 9)),
    ],
)
async def test_the_ledger_follows_from_the_records(
    status: EffectStatus, used: Reserved, reserved: Reserved
):
    ledger = await ledger_of(intent("a", amount(1, 9, 9)), result("a", status, amount(1, 3, 4)))
    assert (ledger.used, ledger.reserved) == (used, reserved)


async def test_a_session_without_an_account_has_used_nothing():
    assert Ledger.of(await MemoryJournal().row("budgets", "s-1")) == Ledger()


# -- properties ---------------------------------------------------------------------------------------

amounts = st.builds(amount, st.integers(0, 3), st.integers(0, 50), st.integers(0, 50))
budgets = st.builds(
    Budget,
    calls=st.none() | st.integers(0, 8),
    cost_micros=st.none() | st.integers(0, 200),
    wall_ms=st.none() | st.integers(0, 200),
)
steps = st.lists(
    st.tuples(st.sampled_from(["reserve", "settle", "release"]), amounts, st.integers(0, 9)),
    max_size=30,
)


def fields(value: Reserved) -> tuple[int, ...]:
    return tuple(getattr(value, name) for name in UNITS)


def add(values: Iterable[Reserved]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*map(fields, [NOTHING, *values]), strict=True)))


def at_most(one: Reserved, other: Reserved) -> Reserved:
    return amount(*map(min, fields(one), fields(other)))


def within(budget: Budget, ledger: Ledger) -> bool:
    limits = [getattr(budget, name) for name in UNITS]
    return all(
        limit is None or used <= limit
        for limit, used in zip(limits, fields(ledger.total), strict=True)
    )


@given(budgets, steps, st.booleans())
def test_no_interleaving_sets_aside_more_than_is_left_and_nothing_is_lost(
    budget: Budget, plan: list[tuple[str, Reserved, int]], honest: bool
):
    """Honest calls use at most what was set aside for them, and then the budget is never crossed."""
    ledger = Ledger()
    under_way: list[Reserved] = []
    spent: list[Reserved] = []
    for what, value, which in plan:
        if what == "reserve":
            try:
                ledger = ledger.reserve(budget, value)
            except PersonError:
                continue
            assert within(budget, ledger)
            under_way.append(value)
        elif under_way:
            held = under_way.pop(which % len(under_way))
            if what == "settle":
                spent.append(at_most(value, held) if honest else value)
                ledger = ledger.settle(held, spent[-1])
            else:
                ledger = ledger.release(held)
        assert fields(ledger.used) == add(spent)
        assert fields(ledger.reserved) == add(under_way)
        assert fields(ledger.total) == add([*spent, *under_way])
        assert not honest or within(budget, ledger)

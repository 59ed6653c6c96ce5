"""The revision of a conversation: `machines.md` §12."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.machines.support import (
    after,
    assert_breaks,
    assert_no_transition,
    assert_refused,
    assert_sound,
    run,
)

from holdfast.machines import GuardRejected
from holdfast.machines.context import (
    CONTEXT,
    Advanced,
    Baseline,
    Close,
    Context,
    ContextAdvanced,
    Leave,
    Observe,
    Phase,
)


def test_sound():
    assert_sound(CONTEXT)


def test_a_newer_revision_reaches_every_observer():
    state = after(CONTEXT, Observe("b"), Observe("a"))
    state, effects = run(CONTEXT, Advanced(1, "prompt"), state=state)
    assert state == Context(revision=1, observers=frozenset({"a", "b"}))
    assert effects == (ContextAdvanced("a", 1, "prompt"), ContextAdvanced("b", 1, "prompt"))


def test_what_is_not_newer_is_refused():
    state = after(CONTEXT, Advanced(2, "prompt"))
    for revision in (-1, 1, 2):
        assert_refused(CONTEXT, state, Advanced(revision, "prompt"), "newer")


def test_an_observer_starts_from_a_baseline():
    state, effects = run(CONTEXT, Advanced(7, "prompt"), Observe("a"))
    assert effects == (Baseline("a", 7),)
    assert_refused(CONTEXT, state, Observe("a"), "not_observing")


def test_an_observer_that_left_is_told_no_more():
    state = after(CONTEXT, Observe("a"), Leave("a"))
    assert run(CONTEXT, Advanced(1, "prompt"), state=state)[1] == ()
    assert_refused(CONTEXT, state, Leave("a"), "observing")


def test_close_lets_everybody_go():
    state, effects = run(CONTEXT, Observe("a"), Close())
    assert (state, effects) == (Context(Phase.CLOSED), (Baseline("a", 0),))
    for input_ in (Observe("b"), Leave("a"), Close()):
        assert_no_transition(CONTEXT, state, input_)


# -- the catalogue ------------------------------------------------------------------------------------


@given(
    st.lists(
        st.one_of(
            st.builds(Advanced, st.integers(0, 12), st.just("prompt")),
            st.builds(Observe, st.sampled_from("abc")),
        ),
        max_size=40,
    )
)
def test_each_revision_is_observed_exactly_once_in_baseline_or_by_callback(inputs: list[Any]):
    state = CONTEXT.initial
    baselines: dict[str, int] = {}
    told: dict[str, list[int]] = {}
    published: list[int] = []
    for input_ in inputs:
        try:
            state, effects = CONTEXT.apply(state, input_)
        except GuardRejected:
            continue
        if isinstance(input_, Advanced):
            published.append(input_.revision)
        for effect in effects:
            if isinstance(effect, Baseline):
                baselines[effect.observer], told[effect.observer] = effect.revision, []
            else:
                told[effect.observer].append(effect.revision)
    assert published == sorted(set(published))
    for observer, baseline in baselines.items():
        assert told[observer] == [revision for revision in published if revision > baseline]


# -- what was wrong -----------------------------------------------------------------------------------


def test_wrong_two_changes_in_one_millisecond_lose_one():
    state, effects = run(CONTEXT, Observe("a"), Advanced(1, "prompt"), Advanced(2, "tool results"))
    assert state.revision == 2
    assert [effect.revision for effect in effects] == [0, 1, 2]


def test_wrong_a_clock_that_steps_back_suppresses_every_tick():
    # There is no clock: only the store's count of commits decides.
    assert Advanced._fields == ("revision", "reason")


def test_wrong_a_call_in_the_wrong_phase_looks_like_not_newer():
    closed = after(CONTEXT, Advanced(1, "prompt"), Close())
    assert_no_transition(CONTEXT, closed, Advanced(2, "prompt"))
    assert_no_transition(CONTEXT, closed, Advanced(1, "prompt"))


def test_wrong_an_event_is_both_delivered_and_in_the_baseline():
    _, effects = run(CONTEXT, Advanced(1, "prompt"), Observe("a"), Advanced(2, "prompt"))
    assert effects == (Baseline("a", 1), ContextAdvanced("a", 2, "prompt"))


@pytest.mark.parametrize(
    ("state", "invariant"),
    [
        (Context(revision=-1), "revisions count from 0"),
        (Context(Phase.CLOSED, 0, frozenset("a")), "nobody observes what is closed"),
    ],
)
def test_invariants(state: Context, invariant: str):
    assert_breaks(CONTEXT, state, invariant)

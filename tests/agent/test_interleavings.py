"""Cancel, steer, approve, deny, die and go on, in any order and at any moment: a run always ends, once, and rightly."""

import functools
from collections import Counter
from collections.abc import Sequence

import anyio
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.agent.lives import Deed, Plot, lived

from holdfast.models.script import Line, call, cut, fail, garble, say, together, write_code

DEEDS: tuple[Deed, ...] = (
    "crash",
    "crash",
    "cancel",
    "cancel after",
    "give up",
    "steer",
    "queue",
    "approve",
    "deny",
)
BETWEEN: tuple[Deed, ...] = (
    "crash",
    "cancel",
    "cancel after",
    "steer",
    "approve",
    "deny",
    "deny",
    "nothing",
)
TOOLS = ("look", "keep", "put", "ask_put", "ask_put")


def _calls(names: Sequence[str], turn: int) -> Line:
    """Calls of one answer; no two of a life have the same argument, so that doing one twice is seen."""
    steps = [call(name, what=f"{name} {turn}.{number}") for number, name in enumerate(names)]
    return together(*steps) if len(steps) > 1 else steps[0]


def _program(names: Sequence[str], turn: int, at_once: bool) -> Line:
    calls = [f"{name}('{name} {turn}.{number}')" for number, name in enumerate(names)]
    if at_once:
        return write_code(
            f"import asyncio\nr{turn} = await asyncio.gather({', '.join(calls)})\nr{turn}"
        )
    return write_code("\n".join(f"r{turn} = await {one}" for one in calls) + f"\nr{turn}")


@st.composite
def _turn(draw: st.DrawFn, turn: int, code_mode: bool) -> list[Line]:
    kind = draw(st.integers(0, 9))
    names = draw(st.lists(st.sampled_from(TOOLS), min_size=1, max_size=3))
    if kind == 0:
        return [fail("MODEL_OVERLOADED"), say(f"Turn {turn}.")] if not turn else [say("Well.")]
    if kind == 1:
        return [cut("So far"), _calls(["look"], turn)]
    if kind == 2:
        return [together(call("nosuch", x=turn), garble("look", "{"))]
    if code_mode:
        if kind == 3:
            return [write_code("1 / 0")]
        return [_program(names, turn, at_once=kind > 6)]
    return [_calls(names, turn)]


@st.composite
def plots(draw: st.DrawFn) -> Plot:
    """A life: what the model says, and what happens when."""
    code_mode = draw(st.integers(0, 3)) == 0
    script: list[Line] = []
    for turn in range(draw(st.integers(1, 3))):
        script += draw(_turn(turn, code_mode))
    moments = draw(
        st.dictionaries(st.integers(1, 50), st.sampled_from(DEEDS), min_size=1, max_size=5)
    )
    between = draw(st.lists(st.sampled_from(BETWEEN), max_size=4))
    return Plot(
        script,
        code_mode,
        moments,
        between,
        streams=draw(st.booleans()),
        output=draw(st.booleans()),
    )


ALL_WAIT = Plot(
    [_calls(["ask_put", "ask_put"], 0), _calls(["keep", "put"], 1)],
    code_mode=False,
    moments={1: "queue", 5: "cancel after"},
    between=["cancel after", "crash", "crash", "steer"],
)
"""The run is to stop when some of its calls wait and the rest is not begun: once, it waited with them for ever."""

SETTLED = Plot(
    [_program(["ask_put", "ask_put", "put"], turn, at_once=True) for turn in range(2)],
    code_mode=True,
    moments={11: "crash", 17: "crash", 18: "cancel after", 22: "crash", 28: "crash"},
    between=["approve", "nothing", "approve", "cancel after"],
    output=True,
)
"""It dies when an answer is taken note of and what follows from it is not: once, no process could go on from there."""


def lives(times: int) -> Counter[str]:
    """So many of them, and what they add up to."""
    found: Counter[str] = Counter()

    @settings(max_examples=times)
    @example(ALL_WAIT)
    @example(SETTLED)
    @given(plots())
    def any_life(plot: Plot) -> None:
        life = anyio.run(functools.partial(lived, plot))
        found.update(life.tally)

    any_life()
    return found


def test_every_life_ends_once_and_rightly() -> None:
    """The full figure: `scripts/agent_crash_lives.py`."""
    found = lives(60)
    assert found["lives"] >= 60
    for what in ("deaths", "completed", "cancelled", "approved", "denied", "steered", "resumed"):
        assert found[what] >= 2, found

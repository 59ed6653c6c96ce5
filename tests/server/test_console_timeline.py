"""A run as a story and as a picture: steps, moments, geometry, lines of code."""

from collections.abc import AsyncIterator
from itertools import pairwise, product
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast
from holdfast import capability
from holdfast.contracts import Record
from holdfast.gate.hooks import HookInput, hook
from holdfast.runtime import Runtime
from holdfast.server.console import drawing
from holdfast.server.console.drawing import draw, elapsed
from holdfast.server.console.source import places, sites, source
from holdfast.server.console.steps import LANES, Mark, Step, Timeline, moment
from holdfast.server.console.timeline import timeline

NOW = 10**13


@capability(side_effect="read")
async def look(what: str) -> str:
    """Look at something; it takes a moment."""
    await anyio.sleep(0.03)
    return f"saw {what}"


@capability(side_effect="write")
async def note(what: str) -> str:
    """Write something down."""
    return f"noted {what}"


@capability(side_effect="write")
async def breaks(what: str) -> str:
    """Never works."""
    raise ValueError(what)


@pytest.fixture
async def hf() -> AsyncIterator[Runtime]:
    async with holdfast.open("memory:", {}, capabilities=[look, note, breaks]) as found:
        yield found


CODE = "a = await look('x')\nb = await look('y')\n\nx = await note(what=a)\nx"


async def told(hf: Runtime, run_id: str) -> Timeline:
    return timeline(run_id, await hf.runs.records(run_id), now=NOW)


def by_lane(view: Timeline) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for step in view.steps:
        found.setdefault(step.lane, []).append((step.name, step.status))
    return found


# -- real runs ----------------------------------------------------------------------------------------


async def test_a_run_that_waits_and_goes_on(hf: Runtime):
    parked = await hf.shell.run(CODE, session="s")
    run_id = str(parked.run_id)
    view = await told(hf, run_id)
    assert by_lane(view) == {
        "code": [("code", "parked")],
        "effect": [("look", "completed"), ("look", "completed")],
        "approval": [("note", "waiting")],
        "wait": [("waiting_for_approval", "waiting")],
    }
    assert view.end == NOW  # it is not over
    for step in view.steps[:3]:
        assert step.end is not None
    looked = [one for one in view.steps if one.name == "look"]
    # An intent that changes nothing is written with its result; the bar is as long as the call took.
    assert all(one.end is not None and one.end - one.start >= 25 for one in looked)
    assert looked[0].rules == ("default.read",)

    await hf.approvals.decide(str(parked.approval_id), "approved", actor="ann", via="console:t")
    await hf.runs.resume(run_id)
    view = await told(hf, run_id)
    lanes = by_lane(view)
    assert lanes["code"] == [("code", "parked"), ("code", "completed")]
    assert lanes["effect"][-1] == ("note", "completed")
    assert lanes["approval"] == [("note", "approved")]
    assert lanes["wait"] == [("waiting_for_approval", "done")]
    (asked,) = [one for one in view.steps if one.lane == "approval"]
    assert asked.decision is not None
    assert (asked.decision["actor"], asked.decision["via"]) == ("ann", "console:t")
    (wrote,) = [one for one in view.steps if one.name == "note" and one.lane == "effect"]
    assert wrote.approval_id == asked.key
    assert view.asked(wrote.key) == [asked]
    assert view.end < NOW


async def test_every_moment_adds_up(hf: Runtime):
    parked = await hf.shell.run(CODE, session="s")
    await hf.approvals.decide(str(parked.approval_id), "denied", actor="ann")
    await hf.runs.resume(str(parked.run_id))
    view = await told(hf, str(parked.run_id))
    for seq in view.seqs:
        now = moment(view, seq)
        assert now.done + len(now.open) + now.ahead == len(view.steps)
    assert moment(view, view.seqs[0] - 1).ahead == len(view.steps)
    last = moment(view, view.seqs[-1])
    assert (last.open, last.ahead) == ((), 0)
    waits = [seq for seq in view.seqs if any(o.lane == "wait" for o in moment(view, seq).open)]
    assert waits, "there is a moment at which it waits"


async def test_a_short_run_is_one_record(hf: Runtime):
    done = await hf.shell.run("1 + 1", session="s")
    records = await hf.runs.records(str(done.run_id))
    if len(records) == 2:  # how long it takes decides which of the two ways it is written
        first, last = records
        said = {**last.payload, "start": first.payload}
        content = (*first.content, *last.content)
        records = [last.model_copy(update={"payload": said, "content": content})]
    view = timeline(str(done.run_id), records, now=NOW)
    assert len(view.seqs) == 1
    assert by_lane(view) == {"code": [("code", "completed")]}
    assert len(view.programs) == 1
    assert draw(view).bars


async def test_a_call_that_fails_and_one_that_is_denied(hf: Runtime):
    async with holdfast.open(
        "memory:",
        {"policy": {"default": "allow", "rules": [{"id": "no", "tool": "note", "then": "deny"}]}},
        capabilities=[look, note, breaks],
    ) as other:
        for tool, status in (("breaks", "failed"), ("note", "denied")):
            done = await other.shell.run(f"await {tool}('x')", session=tool)
            view = await told(other, str(done.run_id))
            (step,) = [one for one in view.steps if one.lane == "effect"]
            assert (step.name, step.status) == (tool, status)
            assert step.error is not None
            assert step.rules


@hook(
    "before_tool_call",
    id="no-xs",
    rights=["deny"],
    failure="deny",
    privacy="content_capture_allowed",
)
def no_xs(question: HookInput) -> Any:
    """Nobody looks at an x."""
    if (question.arguments or {}).get("what") == "x":
        return question.deny("no_x", "Not at an x.")
    return None


async def test_what_hooks_say_is_told_with_the_call():
    async with holdfast.open("memory:", {}, capabilities=[look], hooks=[no_xs]) as other:
        done = await other.shell.run("await look('y')\nawait look('x')", session="s")
        view = await told(other, str(done.run_id))
    said = [one for one in view.steps if one.lane == "hook"]
    assert [(one.name, one.status) for one in said] == [("no-xs", "completed")]
    (denied,) = [one for one in view.steps if one.lane == "effect" and one.status == "denied"]
    assert view.hooks(denied.key) == said
    assert dict(said[0].facts)["at"] == "before tool call"
    assert len(draw(view).bars) == len(view.steps)


async def test_a_payload_for_nobody_is_not_told(hf: Runtime):
    done = await hf.shell.run("await look('x')", session="s")
    records = await hf.runs.records(str(done.run_id))
    hidden = [one.model_copy(update={"privacy": "secret"}) for one in records]
    view = timeline(str(done.run_id), hidden, now=NOW)
    assert not any(one.name == "look" or one.rules for one in view.steps)


def test_records_of_a_newer_version_are_passed_over():
    strange = Record.model_validate(
        {
            "seq": 1, "stream": "s", "pos": 1, "time": 5, "kind": "effect_intent", "run_id": "r",
            "effect_id": "e", "payload": {"kind": ["?"], "policy_refs": [1], "ordinal": 0},
            "prev": "0" * 64, "hash": "0" * 64, "privacy": "internal",
        }
    )  # fmt: skip
    other = strange.model_copy(update={"seq": 2, "kind": "run_levitated", "effect_id": None})
    view = timeline("r", [strange, other], now=NOW)
    assert view.seqs == (1, 2)
    assert len(draw(view).bars) == 1


# -- the picture --------------------------------------------------------------------------------------

STATUS = ["open", "waiting", "in_doubt", "completed", "failed", "denied", "running"]


@st.composite
def timelines(draw_: Any, sizes: tuple[int, ...] = (1, 8, 60, 450)) -> Timeline:
    most = draw_(st.sampled_from(sizes))
    start = 1_700_000_000_000
    length = draw_(st.sampled_from([0, 1, 50, 10_000, 86_400_000]))
    count = draw_(st.integers(0, most))
    rng = draw_(st.randoms(use_true_random=False))
    steps: list[Step] = []
    for number in range(count):
        begin = start + rng.randint(0, length)
        status = rng.choice(STATUS)
        over = status not in ("open", "waiting", "running")
        end = begin + rng.choice([0, 0, 1, length // 100, length // 3]) if over else None
        marks = (Mark(number * 2 + 1, begin, "open"), Mark(number * 2 + 2, begin, status))
        lane = rng.choice(LANES)
        steps.append(
            Step(f"k{number}", lane, "kind", "n" * rng.randint(1, 40), "r", begin, end, marks)
        )
    ends = [start + length, *(one.end for one in steps if one.end is not None)]
    seqs = tuple(range(1, 2 * count + 1))
    return Timeline("r", tuple(steps), (), seqs, tuple(start for _ in seqs), start, max(ends))


@given(timelines())
@settings(max_examples=120, deadline=None)
def test_nothing_overlaps_and_all_is_inside(view: Timeline):
    found = draw(view)
    rows: dict[tuple[str, int], list[drawing.Bar]] = {}
    for bar in found.bars:
        assert bar.width >= drawing.LEAST
        assert bar.height > 0
        assert bar.x >= drawing.GUTTER - 0.01
        assert bar.x + bar.width <= found.width + 0.01
        band = next(one for one in found.bands if one.lane == bar.lane)
        assert band.y <= bar.y
        assert bar.y + bar.height <= band.y + band.height
        rows.setdefault((bar.lane, bar.row), []).append(bar)
    for bars in rows.values():
        bars.sort(key=lambda one: one.x)
        for left, right in pairwise(bars):
            assert left.x + left.width <= right.x + 0.02
    for upper, lower in pairwise(found.bands):
        assert upper.y + upper.height <= lower.y + 0.01
    # Whatever happened can be seen, alone or with others.
    assert {one.lane for one in view.steps} == {one.lane for one in found.bars}
    if len(view.steps) <= drawing.MOST_BARS and all(one.many == 1 for one in found.bars):
        assert {one.key for one in found.bars} == {one.key for one in view.steps}
    assert all(drawing.GUTTER - 0.01 <= x <= found.width for x in found.xs)
    assert all(0 <= one.x <= found.width for one in found.ticks)


@given(timelines((1, 8, 40)))
@settings(max_examples=60, deadline=None)
def test_later_is_further_right_and_words_keep_apart(view: Timeline):
    found = draw(view)
    for left, right in pairwise(found.ticks):
        assert left.x < right.x
    letter = 5.5  # at the least
    for tick, wait in product(found.ticks, found.quiet):
        words = (len(tick.label) + len(wait.label)) * letter / 2
        assert not wait.label or abs(tick.x - wait.x - wait.width / 2) > words
    alone = [one for one in found.bars if one.height == drawing.BAR]  # not one for a stretch
    single = {one.key: one for one in alone if one.width > drawing.LEAST}
    steps = [one for one in view.steps if one.key in single]
    for one, other in pairwise(steps):
        if one.start < other.start:
            assert single[one.key].x <= single[other.key].x + 0.02


def _step(key: str, lane: Any, start: int, end: int | None, status: str = "completed") -> Step:
    return Step(
        key, lane, "k", key, "r", start, end, (Mark(1, start, "open"), Mark(2, start, status))
    )


def test_hours_of_waiting_do_not_hide_milliseconds():
    hour = 3_600_000
    steps = (
        _step("a", "effect", 0, 20),
        _step("w", "wait", 20, 3 * hour),
        _step("b", "effect", 3 * hour, 3 * hour + 40),
    )
    view = Timeline("r", steps, (), (1, 2), (0, 20), 0, 3 * hour + 40)
    found = draw(view)
    a, b = (next(one for one in found.bars if one.key == key) for key in "ab")
    assert a.width > 100
    assert b.width == pytest.approx(2 * a.width, rel=0.01)
    (quiet,) = found.quiet
    assert quiet.label == "2 h 59 min"
    assert next(one for one in found.bars if one.key == "w").hatched


def test_many_bars_become_few():
    steps = tuple(_step(f"k{n}", "effect", n * 10, n * 10 + 5) for n in range(1000))
    view = Timeline("r", steps, (), (1,), (0,), 0, 10_000)
    found = draw(view)
    assert len(found.bars) <= 100
    assert sum(one.many for one in found.bars) >= 1000


@pytest.mark.parametrize(
    ("ms", "step", "text"),
    [
        (0, 1, "0"), (120, 20, "120 ms"), (1200, 100, "1.2 s"), (3000, 1000, "3 s"),
        (125_000, 1000, "2:05"), (3_725_000, 1000, "1:02:05"), (61_250, 50, "1:01.25"),
    ],
)  # fmt: skip
def test_times_are_short(ms: int, step: int, text: str):
    assert elapsed(ms, step) == text


# -- lines --------------------------------------------------------------------------------------------


def test_the_only_place_is_the_place():
    assert places([], sites(CODE), {}) == {}
    step = _named("note", "e1")
    found = places([step], sites(CODE), {})
    assert found["e1"] == (4, True)


def _named(name: str, key: str, **more: Any) -> Step:
    return Step(key, "effect", "tool_execution", name, "r", 0, 1, (Mark(1, 0, "open"),), **more)


def test_written_arguments_tell_places_apart():
    steps = [_named("look", "e1"), _named("look", "e2")]
    found = places(steps, sites(CODE), {"e1": {"what": "y"}, "e2": {"what": "x"}})
    assert (found["e1"], found["e2"]) == ((2, True), (1, True))
    guessed = places(steps, sites("await look(a)\nawait look(b)"), {})
    assert [(one.line, one.sure) for one in guessed.values()] == [(1, False), (2, False)]


def test_a_line_on_record_is_believed():
    found = places([_named("look", "e1", line=7)], sites(CODE), {})
    assert found["e1"] == (7, True)
    # The call of a run that was resumed is where the question about it was asked.
    asked = Step(
        "apr",
        "approval",
        "approval",
        "look",
        "r",
        0,
        1,
        (Mark(1, 0, "waiting"),),
        line=2,
        subject="e2",
    )
    found = places([asked, _named("look", "e2")], sites(CODE), {})
    assert (found["apr"], found["e2"]) == ((2, True), (2, True))


@given(st.text(max_size=200), st.sampled_from(["python", "typescript"]))
@settings(max_examples=100, deadline=None)
def test_any_text_can_be_code(code: str, language: str):
    found = source(
        code, run_id="r", language=language, steps=[_named("look", "e1")], arguments={}, at=9
    )
    assert len(found.lines) >= 1
    assert all(one.line >= 1 for one in sites(code, language))


def test_lines_are_those_of_the_language():
    strange = "a = 'x\u2028y\x0b\x0c\x85'\nlook(1)\r\nnote(2)\rlook(3)\n"
    found = source(strange, run_id="r", language="python", steps=[], arguments={}, at=1)
    assert len(found.lines) == 4
    for language in ("python", "typescript"):
        assert [one.line for one in sites(strange, language)] == [2, 3, 4]


def test_deep_code_does_not_break_the_page():
    assert sites("(" * 3000 + "look(1)" + ")" * 3000) is not None
    assert sites("-" * 50_000 + "1") is not None


async def test_the_line_it_stands_on(hf: Runtime):
    parked = await hf.shell.run(CODE, session="s")
    view = await told(hf, str(parked.run_id))
    found = source(
        CODE, run_id=view.run_id, language="python", steps=view.steps, arguments={},
        at=view.seqs[-1],
    )  # fmt: skip
    (here,) = [one for one in found.lines if one.here]
    assert (here.number, here.sure) == (4, True)
    assert here.waits == "waits for a person to approve note"
    earlier = source(
        CODE, run_id=view.run_id, language="python", steps=view.steps, arguments={},
        at=view.seqs[0],
    )  # fmt: skip
    assert not any(one.here for one in earlier.lines)

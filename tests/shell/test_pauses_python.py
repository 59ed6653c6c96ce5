"""Python that stops at its calls: what the language adds to what every box promises."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.contracts import CallStatus, ErrorObject, Json, RunStatus, SessionLimits, Span
from holdfast.errors import CallerError, ModelError
from holdfast.shell.box import AtAwait, AtCall, Box, Boxes, Gave, Later, Progress, Raised, Ran, Stop
from holdfast.shell.languages._python_process import innermost
from holdfast.shell.languages.python import PythonBox, PythonBoxes
from holdfast.testing import ParkingBoxConformance

LIMITS = SessionLimits(cpu_ms=60_000, wall_ms=120_000)
OUTSIDE = {"cap": False, "acap": True}


class TestPythonBoxes(ParkingBoxConformance):
    def boxes(self) -> Boxes:
        return PythonBoxes()


@pytest.fixture(scope="module")
async def boxes() -> AsyncGenerator[PythonBoxes]:
    async with PythonBoxes() as opened:
        yield opened


@pytest.fixture
async def box(boxes: PythonBoxes) -> AsyncGenerator[PythonBox]:
    one = await boxes.open(LIMITS)
    yield one
    await one.close()


async def start(box: Box, code: str, **inputs: Json) -> Stop:
    return await box.run(code, inputs=inputs, limits=LIMITS, names={}, outside=OUTSIDE)


async def moved(boxes: Boxes, box: Box, code: str) -> Box:
    """The standing run in another worker process, by way of JSON and bytes."""
    state, told = await box.dump(), box.progress().model_dump_json()
    await box.close()
    progress = Progress.model_validate_json(told)
    again, _ = await boxes.reopen(
        LIMITS,
        state,
        progress,
        code=code,
        run_limits=LIMITS,
        names={},
        outside=OUTSIDE,
        inputs={},
    )
    return again


async def echoed(box: Box, stop: Stop) -> tuple[Ran, list[Any]]:
    """Answer each call with its first argument; what it gave, and the arguments."""
    seen: list[Any] = []
    put_off: dict[int, Json] = {}
    while not isinstance(stop, Ran):
        if isinstance(stop, AtAwait):
            id = min(stop.ids)
            stop = await box.resume(Gave(put_off[id]), id=id)
            continue
        call = stop.call
        seen.append(call.args[0] if call.args else None)
        if OUTSIDE[call.name]:
            put_off[call.id] = seen[-1]
            stop = await box.resume(Later())
        else:
            stop = await box.resume(Gave(seen[-1]))
    return ran_well(stop), seen


def ran_well(stop: Stop) -> Ran:
    assert isinstance(stop, Ran)
    assert stop.error is None, stop.error
    return stop


# -- where code may call --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "expected", "calls"),
    [
        ("f = cap\nf(1) + f(2)", 3, [1, 2]),
        ("[f(i) for f in [cap] for i in range(3) if cap(i)]", [1, 2], [0, 1, 1, 2, 2]),
        ("{i: cap(i) for i in 'ab'}", {"a": "a", "b": "b"}, ["a", "b"]),
        ("sum(cap(i) for i in range(3))", 3, [0, 1, 2]),
        ("(lambda v: cap(v) + 1)(1)", 2, [1]),
        ("eval('cap(5)')", 5, [5]),
        ("x = 0\nwhile cap(x) < 3:\n  x += 1\nx", 3, [0, 1, 2, 3]),
        ("def f(n):\n  return n if n == 0 else cap(n) + f(n - 1)\nf(3)", 6, [3, 2, 1]),
        ("class A:\n  def m(self):\n    return cap('m')\nA().m()", "m", ["m"]),
        ("f'{cap(1)} {cap(2)}'", "1 2", [1, 2]),
        ("assert cap(True), cap('no')\n1", 1, [True]),
        (
            "def f():\n  try:\n    return cap('try')\n  finally:\n    cap('finally')\nf()",
            "try",
            ["try", "finally"],
        ),
        ("try:\n  1 / cap(0)\nexcept ZeroDivisionError:\n  r = cap('except')\nr", "except", [0, "except"]),
        ("async def f(i):\n  return await acap(i)\nawait f(await acap(7))", 7, [7, 7]),
        (
            "import asyncio\nasync def f(i):\n  return cap(i)\nawait asyncio.gather(f(1), acap(2), f(3))",
            [1, 2, 3],
            [2, 1, 3],
        ),
        ("a = acap(1)\nb = acap(2)\n[await b, cap(3), await a]", [2, 3, 1], [1, 2, 3]),
        ("a = acap(1)\n[await a, await a]", [1, 1], [1]),
        ("acap(1)\n'never awaited'", "never awaited", [1]),
    ],
)  # fmt: skip
async def test_calls_are_found_wherever_they_are(
    box: PythonBox, code: str, expected: Json, calls: list[Any]
):
    ran, seen = await echoed(box, await start(box, code))
    assert (ran.value, seen) == (expected, calls)


@pytest.mark.parametrize(
    "code",
    ["sorted([2, 1], key=cap)", "sorted([2, 1], key=lambda v: cap(v))", "list(map(cap, [1, 2]))"],
)
async def test_built_in_functions_cannot_call_out(box: PythonBox, code: str):
    ran = await start(box, code)
    assert isinstance(ran, Ran)
    assert ran.error is not None
    assert ran.error.message == "NotImplementedError: a built-in function can't call `cap`."
    assert ran.error.hint == "Call `cap` in a loop or a comprehension, and use its results."
    assert ran.state_kept


async def test_a_function_of_an_earlier_run_may_call(boxes: PythonBoxes, box: PythonBox):
    ran_well(await start(box, "def f(x):\n  return cap(x)\ng = cap"))
    stop = await start(box, "1\nf('far') + cap('near') + g('kept')")
    assert isinstance(stop, AtCall)
    assert (stop.call.args, stop.call.span) == (("far",), None)
    stop = await box.resume(Gave("x"))
    assert isinstance(stop, AtCall)
    assert stop.call.span == Span(line=2, column=12, end_line=2, end_column=23)
    stop = await box.resume(Gave("y"))
    assert ran_well(await box.resume(Gave("z"))).value == "xyz"
    # Whose code it is, is known after loading, too.
    again = await boxes.open(LIMITS, await box.dump())
    stop = await start(again, "f(1)")
    assert isinstance(stop, AtCall)
    assert stop.call.span is None
    ran_well(await again.resume(Gave(1)))
    stop = await start(again, "é = cap('ü'); cap(é)")
    assert isinstance(stop, AtCall)
    assert stop.call.span == Span(line=1, column=5, end_line=1, end_column=13)
    again_moved = await moved(boxes, again, "é = cap('ü'); cap(é)")
    stop = await again_moved.resume(Gave(1))
    assert isinstance(stop, AtCall)
    assert stop.call.span == Span(line=1, column=15, end_line=1, end_column=21)
    await again_moved.close()


async def test_marks_are_not_counted_in_columns(box: PythonBox):
    stop = await start(box, "if cap(1): result = 1; cap(2)")
    assert isinstance(stop, AtCall)
    stop = await box.resume(Gave(1))
    assert isinstance(stop, AtCall)
    assert stop.call.span == Span(line=1, column=24, end_line=1, end_column=30)
    assert ran_well(await box.resume(Gave(0))).value == 1


async def test_a_capability_that_is_gone_is_an_unknown_name(box: PythonBox):
    ran_well(await start(box, "g = cap"))
    ran = await box.run("g(1)", inputs={}, limits=LIMITS, names={}, outside={"other": False})
    assert isinstance(ran, Ran)
    assert ran.error is not None
    assert ran.error.message == "NameError: name 'cap' is not defined"


async def test_a_variable_hides_a_capability(box: PythonBox):
    ran, seen = await echoed(box, await start(box, "def cap(x): return -x\ncap(1)"))
    assert (ran.value, seen) == (-1, [])


async def test_a_capability_is_not_a_result(box: PythonBox):
    for code in ("cap", "result = cap", "acap(1)", "[cap]"):
        stop = await start(box, code)
        ran = await box.resume(Later()) if isinstance(stop, AtCall) else stop
        assert isinstance(ran, Ran)
        assert ran.error is not None
        assert ran.error.code == "RESULT_NOT_SERIALIZABLE"


async def test_an_input_cannot_have_the_name_of_a_capability(box: PythonBox):
    with pytest.raises(CallerError) as refused:
        await start(box, "1", cap=1)
    assert refused.value.code == "INVALID_ARGUMENT"


async def test_inputs_are_there_on_both_sides_of_a_call(boxes: PythonBoxes, box: PythonBox):
    code = "before = data['a']\ncap(1)\n[before, data['a']]"
    await start(box, code, data={"a": 5})
    again = await moved(boxes, box, code)
    assert ran_well(await again.resume(Gave(1))).value == [5, 5]
    await again.close()


async def test_the_machine_is_refused_on_the_way(box: PythonBox):
    code = (
        "try:\n  open('/etc/passwd')\nexcept PermissionError:\n  cap(1)\nimport time\ntime.time()"
    )
    stop = await start(box, code)
    assert isinstance(stop, AtCall)
    assert stop.call.id == 1  # the machine is numbered, too
    ran = await box.resume(Gave(1))
    assert isinstance(ran, Ran)
    assert ran.status is RunStatus.PERMISSION_DENIED


async def test_awaiting_a_call_of_an_earlier_run_is_an_error(box: PythonBox):
    await start(box, "left = acap(1)\nNone")
    ran_well(await box.resume(Later()))
    ran = await start(box, "await left")
    assert isinstance(ran, Ran)
    assert ran.error is not None
    assert "made in an earlier run" in ran.error.message
    assert ran_well(await start(box, "1")).value == 1


# -- answers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind", "caught_as"),
    [
        ("PERMISSION_DENIED", None, "PermissionError"),
        ("TIMEOUT_TOOL", None, "TimeoutError"),
        ("INVALID_ARGUMENT", None, "ValueError"),
        ("TOOL_ERROR", None, "RuntimeError"),
        ("TOOL_ERROR", "KeyError", "KeyError"),
        ("TOOL_ERROR", "FileNotFoundError", "FileNotFoundError"),
        ("TOOL_ERROR", "NoSuchError", "RuntimeError"),
        ("TOOL_ERROR", "KeyboardInterrupt", "RuntimeError"),
        ("TOOL_ERROR", "MemoryError", "RuntimeError"),
    ],
)
async def test_failures_are_exceptions_of_the_language(
    box: PythonBox, code: str, kind: str | None, caught_as: str
):
    raised = Raised(ErrorObject(code=code, message="memory limit exceeded"), kind)
    await start(box, f"try:\n  cap()\nexcept {caught_as} as e:\n  name = type(e).__name__\nname")
    assert ran_well(await box.resume(raised)).value == caught_as
    await start(box, "cap()")
    ran = await box.resume(raised)
    assert isinstance(ran, Ran)
    assert ran.error is not None
    expected = code if code in ("PERMISSION_DENIED", "TIMEOUT_TOOL") else "TOOL_ERROR"
    assert (ran.error.code, ran.state_kept) == (expected, True)


@pytest.mark.parametrize(
    ("kind", "message"),
    [("TimeoutError", "feed time limit exceeded: 2s > 1s"), ("RecursionError", "maximum recursion depth exceeded")],
)  # fmt: skip
async def test_a_capability_cannot_claim_a_limit(box: PythonBox, kind: str, message: str):
    await start(box, "cap()")
    ran = await box.resume(Raised(ErrorObject(code="TOOL_ERROR", message=message), kind))
    assert isinstance(ran, Ran)
    assert ran.error is not None
    assert (ran.error.code, ran.error.message) == ("TOOL_ERROR", message)


async def test_calls_nobody_waits_for_any_more_are_harmless(box: PythonBox):
    code = (
        "import asyncio\ntry:\n  await asyncio.gather(acap(0), acap(1), acap(2))\n"
        "except ValueError as e:\n  print(e)\nawait acap(3)"
    )
    stop = await start(box, code)
    while isinstance(stop, AtCall):
        stop = await box.resume(Later())
    failed = Raised(ErrorObject(code="TOOL_ERROR", message="bad"), "ValueError")
    stop = await box.resume(failed, id=1)
    assert isinstance(stop, AtCall)
    stop = await box.resume(Later())
    # The other two are under way still, though nobody waits for them: what comes of them harms nobody.
    assert stop == AtAwait(frozenset({0, 2, 3}))
    assert await box.resume(failed, id=0) == AtAwait(frozenset({2, 3}))
    ran = ran_well(await box.resume(Gave("end"), id=3))
    assert (ran.value, ran.stdout) == ("end", "bad\n")


@pytest.mark.parametrize("argument", ["{1}", "b'x'", "float('nan')", "lambda: 1", "{1: 2}", "10**5000"])  # fmt: skip
@pytest.mark.parametrize("name", ["cap", "acap"])
async def test_arguments_must_be_json(box: PythonBox, name: str, argument: str):
    ran = await start(box, f"{name}({argument})")
    assert isinstance(ran, Ran)
    assert ran.error is not None
    assert f"TypeError: {name}() takes JSON values" in ran.error.message
    assert [(number, one.status) for number, one in ran.calls] == [(0, CallStatus.ERROR)]


async def test_deep_arguments_do_not_harm_the_host(box: PythonBox):
    ran = await start(box, "x = []\nfor i in range(200_000): x = [x]\ncap(x)")
    assert isinstance(ran, Ran)
    assert ran.error is not None
    assert "deep" in ran.error.message


# -- what it gives, across a move -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "code", "expected"),
    [
        ("", "cap(1)", "answer"),
        ("", "cap(1)\n'last'", "last"),
        ("", "x = cap(1)", None),
        ("", "result = cap(1)", "answer"),
        ("", "result = 1\ncap(1)", 1),
        ("", "if cap(1):\n  result = 'set'", "set"),
        ("", "if not cap(1):\n  result = 'set'\n'last'", "last"),
        ("result = 0", "if cap(1):\n  result = 'set'", "set"),
        ("result = 0", "if not cap(1):\n  result = 'set'\n'last'", "last"),
        ("", "for result in [1, 2]: cap(result)", 2),
        ("result = 0", "for result in [1, 2]: cap(result)", 2),
        ("def f():\n  global result\n  result = cap('f')", "f()", "answer"),
        ("", "def f():\n  global result\n  cap(1)\n  result = 2\nf()", 2),
        ("", "exec('result = cap(1)')", "answer"),
        ("", "import asyncio\nresult = await asyncio.gather(acap(1), acap(2))", ["answer", "answer"]),
        ("", "result = cap(1)\nreturn", "answer"),
        ("", "cap(1)\n{'<range object>': range}", None),
    ],
)  # fmt: skip
async def test_results_survive_a_move(boxes: PythonBoxes, before: str, code: str, expected: Json):
    outcomes: list[Ran] = []
    for moving in (False, True):
        box: Box = await boxes.open(LIMITS)
        if before:
            ran_well(await start(box, before))
        stop = await start(box, code)
        while not isinstance(stop, Ran):
            if moving:
                box = await moved(boxes, box, code)
            if isinstance(stop, AtAwait):
                stop = await box.resume(Gave("answer"), id=max(stop.ids))
            else:
                late = OUTSIDE[stop.call.name]
                stop = await box.resume(Later() if late else Gave("answer"))
        outcomes.append(stop)
        await box.close()
    stayed, went = outcomes
    assert stayed.value == expected
    assert (went.value, went.error, went.state_kept) == (expected, stayed.error, stayed.state_kept)


async def test_later_runs_after_a_move_see_result_set_from_afar(boxes: PythonBoxes, box: PythonBox):
    code = "def f():\n  global result\n  result = cap(1)\nf()"
    await start(box, code)
    again = await moved(boxes, box, code)
    assert ran_well(await again.resume(Gave(1))).value == 1
    await start(again, "f()")
    assert ran_well(await again.resume(Gave(2))).value == 2
    await again.close()


async def test_what_was_printed_survives_a_move(boxes: PythonBoxes, box: PythonBox):
    code = "import sys\nprint('a')\nprint('b', file=sys.stderr)\ncap(1)\nprint('c')\n1 / 0"
    await start(box, code)
    again = await moved(boxes, box, code)
    ran = await again.resume(Gave(1))
    assert isinstance(ran, Ran)
    assert (ran.stdout, ran.stderr.splitlines()[:2]) == (
        "a\nc\n",
        ["b", "Traceback (most recent call last):"],
    )
    assert ran.error is not None
    assert ran.error.span == Span(line=6, column=1, end_line=6, end_column=6)
    await again.close()


ELSEWHERE = textwrap.dedent("""
    import sys
    from pathlib import Path
    import anyio
    from holdfast.contracts import SessionLimits
    from holdfast.shell.box import Gave, Progress
    from holdfast.shell.languages.python import PythonBoxes

    async def main(place):
        limits = SessionLimits(cpu_ms=60_000, wall_ms=120_000)
        progress = Progress.model_validate_json((place / "progress").read_text())
        async with PythonBoxes() as boxes:
            box, at = await boxes.reopen(
                limits, (place / "state").read_bytes(), progress,
                code=(place / "code").read_text(), run_limits=limits, names={},
                outside={"cap": False, "acap": True}, inputs={},
            )
            for id in sorted(at.ids):
                stop = await box.resume(Gave(id * 10), id=id)
            stop = await box.resume(Gave("done"))
            print(stop.value, repr(stop.stdout), stop.error)

    anyio.run(main, Path(sys.argv[1]))
""")


async def test_a_run_goes_on_in_another_process(box: PythonBox, tmp_path: Path):
    code = (
        "import asyncio\nprint('before')\ndef inner(x):\n  return cap(x)\n"
        "r = await asyncio.gather(*[acap(i) for i in range(3)])\nprint('between')\n"
        "result = [*r, inner('last')]"
    )
    stop = await start(box, code)
    while isinstance(stop, AtCall):
        stop = await box.resume(Later())
    await box.resume(Gave("first"), id=1)
    (tmp_path / "state").write_bytes(await box.dump())
    (tmp_path / "progress").write_text(box.progress().model_dump_json())
    (tmp_path / "code").write_text(code)
    await box.close()
    done = await anyio.run_process([sys.executable, "-c", ELSEWHERE, str(tmp_path)], check=False)
    told = done.stdout.decode()
    assert told == "[0, 'first', 20, 'done'] 'before\\nbetween\\n' None\n", done.stderr.decode()


# -- harm -----------------------------------------------------------------------------------------------


def processes_of(box: PythonBox) -> tuple[int, int]:
    """The worker and what is around it; between runs only."""
    pid = box._live.session.worker_pid
    assert pid is not None
    return pid, innermost(pid)


async def gone(*pids: int) -> None:
    for _ in range(1000):
        if not any(is_alive(pid) for pid in pids):
            return
        await anyio.sleep(0.01)
    raise AssertionError("a process was left behind")


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_a_worker_that_dies_while_a_run_stands_is_an_error(
    boxes: PythonBoxes, box: PythonBox
):
    one = await boxes.open(LIMITS)
    pids = processes_of(one)
    await start(one, "cap(1)")
    os.kill(pids[1], signal.SIGKILL)
    await gone(*pids)
    ran = await one.resume(Gave(1))
    assert isinstance(ran, Ran)
    assert ran.error is not None
    assert not ran.state_kept
    await one.close()
    assert ran_well(await start(box, "1")).value == 1


async def test_stopping_and_cancelling_leave_no_process(boxes: PythonBoxes):
    error = ErrorObject(code="CANCELLED", message="enough")
    for cancelled in (False, True):
        box = await boxes.open(LIMITS)
        pids = processes_of(box)
        await start(box, "cap(1)\nwhile True: pass")
        if cancelled:
            with anyio.move_on_after(0.1) as scope:
                await box.resume(Gave(1))
            assert scope.cancelled_caught
        else:
            assert (await box.stop(error)).error == error
        await gone(*pids)
        await box.close()


async def test_a_standing_state_too_large_to_save_is_said_so(boxes: PythonBoxes):
    limits = LIMITS.model_copy(update={"memory_mb": 16})
    box = await boxes.open(limits)
    code = "x = 'x' * 10_000_000\ncap(1)"
    await box.run(code, inputs={}, limits=limits, names={}, outside=OUTSIDE)
    with pytest.raises(ModelError) as refused:
        await box.dump()
    assert refused.value.code == "MEMORY_EXCEEDED"
    await box.close()


async def test_a_large_value_goes_out_and_in(box: PythonBox):
    stop = await start(box, "len(cap('x' * 1_000_000))")
    assert isinstance(stop, AtCall)
    assert len(str(stop.call.args[0])) == 1_000_000
    assert ran_well(await box.resume(Gave("y" * 2_000_000))).value == 2_000_000


# -- the same code with the same answers ----------------------------------------------------------------

LINES = st.sampled_from(
    [
        "n += cap(n) % 7",
        "n += await acap(n)",
        "n += sum(await asyncio.gather(acap(n), acap(n + 1)))",
        "n += sum(await asyncio.gather(both(n), acap(-n), both(n + 1)))",
        "for i in range(n % 4): n += cap(i)",
        "if n % 2: n += f(n)",
        "n += [cap(i) for i in range(2)][0]",
        "try: n += cap({n})\nexcept TypeError: n += 1",
        "try: open('x')\nexcept PermissionError: n += 2",
        "left = acap(n)",
        "print(n)",
        "n += len(local())",
    ]
)
HEAD = (
    "import asyncio\nn = 1\ndef f(x):\n  return cap(x) + cap(-x)\n"
    "async def both(x):\n  return await acap(x) + cap(x)\n"
)


async def told(boxes: PythonBoxes, code: str, picks: list[int], *, moving: bool) -> list[object]:
    """Everything that can be seen of a run whose awaited calls are answered in the order of `picks`."""
    box: Box = await boxes.open(LIMITS)
    names = {"local": lambda: "here"}
    more: dict[str, Any] = {"inputs": {}, "names": names, "outside": OUTSIDE}
    stop = await box.run(code, limits=LIMITS, **more)
    story: list[object] = []
    while not isinstance(stop, Ran):
        story.append(stop)
        if moving and len(story) % 3 == 0:
            state, progress = await box.dump(), box.progress()
            await box.close()
            box, again = await boxes.reopen(
                LIMITS, state, progress, code=code, run_limits=LIMITS, **more
            )
            assert again == stop
        if isinstance(stop, AtAwait):
            id = sorted(stop.ids)[picks[len(story) % len(picks)] % len(stop.ids)]
            stop = await box.resume(Gave(id + 1), id=id)
        else:
            late = OUTSIDE[stop.call.name]
            stop = await box.resume(Later() if late else Gave(stop.call.id + 1))
    await box.close()
    numbers = [number for number, _ in stop.calls]
    return [*story, stop.value, stop.error, stop.stdout, numbers, stop.metrics.external_calls_count]


@settings(max_examples=25, deadline=None)
@given(lines=st.lists(LINES, min_size=1, max_size=5), picks=st.lists(st.integers(0, 3), min_size=1))
async def test_the_same_answers_give_the_same_story(
    boxes: PythonBoxes, lines: list[str], picks: list[int]
):
    code = HEAD + "\n".join(lines) + "\nn"
    first = await told(boxes, code, picks, moving=False)
    assert await told(boxes, code, picks, moving=False) == first
    assert await told(boxes, code, picks, moving=True) == first

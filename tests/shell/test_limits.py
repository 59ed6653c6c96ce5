"""Every limit of a run holds, whatever the code does about it, and counts for that run only."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest

from holdfast.contracts import CallStatus, RunStatus, SessionLimits
from holdfast.shell.box import Call, Ran
from holdfast.shell.languages._python_guard import FLOOD_BYTES
from holdfast.shell.languages.python import PythonBoxes

SLACK = 2.0
"""Seconds a busy machine may need to notice."""


@pytest.fixture(scope="module")
async def boxes() -> AsyncGenerator[PythonBoxes]:
    async with PythonBoxes() as opened:
        yield opened


async def run(
    boxes: PythonBoxes,
    code: str,
    *,
    opened_with: SessionLimits | None = None,
    names: Mapping[str, Call] | None = None,
    **limits: int,
) -> Ran:
    """One run in a box of its own."""
    allowed = SessionLimits().model_copy(update=limits)
    box = await boxes.open(opened_with or allowed)
    try:
        ran = await box.run(code, inputs={}, limits=allowed, names=names or {})
        assert isinstance(ran, Ran)
        if ran.state_kept:
            roomy = box.limits.model_copy(update={"cpu_ms": 30_000, "wall_ms": 30_000})
            again = await box.run("1 + 1", inputs={}, limits=roomy, names={})
            assert isinstance(again, Ran)
            assert again.value == 2
        return ran
    finally:
        await box.close()


def breach(ran: Ran) -> tuple[RunStatus, str, bool]:
    assert ran.error is not None, ran
    assert ran.diagnostics[0].code == ran.error.code
    assert ran.value is None
    return ran.status, ran.error.code, ran.state_kept


TIMEOUT_CPU = (RunStatus.TIMEOUT, "TIMEOUT_CPU", False)
TIMEOUT_WALL = (RunStatus.TIMEOUT, "TIMEOUT_WALL", False)
MEMORY = (RunStatus.RESOURCE_EXHAUSTED, "MEMORY_EXCEEDED", False)
STACK = (RunStatus.RESOURCE_EXHAUSTED, "STACK_OVERFLOW", True)
STDOUT = (RunStatus.RESOURCE_EXHAUSTED, "STDOUT_EXCEEDED", False)
CALLS = (RunStatus.RESOURCE_EXHAUSTED, "EXTERNAL_CALLS_EXCEEDED", False)

# -- cpu_ms --------------------------------------------------------------------------------------------


async def test_cpu_ms_is_enforced(boxes: PythonBoxes):
    started = time.perf_counter()
    ran = await run(boxes, "while True: pass")
    assert breach(ran) == TIMEOUT_CPU
    assert 2.0 <= time.perf_counter() - started < 2.0 + SLACK
    assert 2000 <= ran.metrics.duration_ms < 2000 + SLACK * 1000


@pytest.mark.parametrize(
    "code",
    [
        "while True:\n  try:\n    while True: pass\n  except BaseException: pass",
        "def f():\n  try:\n    while True: pass\n  finally:\n    while True: pass\nf()",
        "if True:\n  while True: pass\n  result = 1",
        "print('x')\nwhile True: pass",
        "import re\nre.match('(a*)*b', 'a' * 40)\nwhile True: pass",
        "for n in range(10**12): pass",
        "x = 3 ** 10**6\nwhile True: x = x * 3 % 10**1000",
        "exec('while True: pass')",
    ],
)
async def test_computing_cannot_evade_the_limit(boxes: PythonBoxes, code: str):
    started = time.perf_counter()
    assert breach(await run(boxes, code, cpu_ms=150)) == TIMEOUT_CPU
    assert time.perf_counter() - started < 0.15 + SLACK


async def test_waiting_outside_is_not_computing(boxes: PythonBoxes):
    names: dict[str, Call] = {"f": lambda: time.sleep(0.6)}
    ran = await run(boxes, "f()\nf()\n'done'", cpu_ms=1000, names=names)
    assert ran.value == "done"
    assert ran.metrics.duration_ms >= 1200


async def test_computing_between_calls_adds_up(boxes: PythonBoxes):
    work = "for i in range(1000):\n  f()\n  for j in range(20000): pass"
    ran = await run(boxes, work, cpu_ms=200, max_external_calls=5000, names={"f": lambda: None})
    assert breach(ran) == TIMEOUT_CPU
    assert len(ran.calls) > 1


async def test_a_busy_host_is_not_the_codes_fault(boxes: PythonBoxes):
    box = await boxes.open(SessionLimits())
    limits = SessionLimits(cpu_ms=50, wall_ms=100)

    async def busy() -> None:
        time.sleep(0.3)  # noqa: ASYNC251 - the point is that nothing else runs

    try:
        ran = await box.run("7", inputs={}, limits=limits, names={}, meanwhile=busy)
        assert isinstance(ran, Ran)
        assert (ran.error, ran.value) == (None, 7)
    finally:
        await box.close()


# -- wall_ms -------------------------------------------------------------------------------------------


async def test_wall_ms_is_enforced(boxes: PythonBoxes):
    started = time.perf_counter()
    assert breach(await run(boxes, "while True: pass", wall_ms=200)) == TIMEOUT_WALL
    assert 0.2 <= time.perf_counter() - started < 0.2 + SLACK


async def test_a_call_that_never_returns_is_given_up(boxes: PythonBoxes):
    release = threading.Event()
    started = time.perf_counter()
    ran = await run(boxes, "f()", wall_ms=200, names={"f": lambda: release.wait(20)})
    assert breach(ran) == TIMEOUT_WALL
    assert time.perf_counter() - started < 0.2 + SLACK
    assert [(one.name, one.status) for _, one in ran.calls] == [("f", CallStatus.TIMEOUT)]
    assert 0 < ran.calls[0][1].duration_ms <= ran.metrics.duration_ms
    release.set()


@pytest.mark.parametrize(
    ("cpu_ms", "wall_ms", "expected"),
    [(150, 250, TIMEOUT_CPU), (250, 150, TIMEOUT_WALL), (150, 150, TIMEOUT_CPU)],
)
async def test_the_limit_hit_first_is_named(
    boxes: PythonBoxes, cpu_ms: int, wall_ms: int, expected: tuple[RunStatus, str, bool]
):
    for _ in range(3):
        ran = await run(boxes, "while True: pass", cpu_ms=cpu_ms, wall_ms=wall_ms)
        assert breach(ran) == expected


# -- memory_mb -----------------------------------------------------------------------------------------


async def test_memory_mb_is_enforced(boxes: PythonBoxes):
    ran = await run(boxes, "x = []\nwhile True: x.append('a' * 1000)")
    assert breach(ran) == MEMORY
    assert 32 << 20 < ran.metrics.memory_peak_bytes < 160 << 20


@pytest.mark.parametrize(
    "code",
    [
        "x = 'a' * 10**9",
        "x = [0]\nwhile True: x = x * 2",
        "x = 2\nwhile True: x = x * x",
        "x = 10 ** 10**9",
        "x = 1 << 10**10",
        "x = list(range(10**9))",
        "x = 'a'.ljust(10**9)",
        "x = {}\nfor i in range(10**9): x[i] = [i] * 100",
        "while True:\n  try:\n    x = 'a' * 10**9\n  except BaseException: pass",
        "x = 'x' * 10**7\ny = x.replace('x', x)",
        "x = [1]\nfor _ in range(10**6): x = [x] * 1000",
        "import json\nx = json.loads('[' * 10 + '1,' * 10**7 + '1' + ']' * 10)",
    ],
)
async def test_memory_cannot_be_taken_another_way(boxes: PythonBoxes, code: str):
    status, error, kept = breach(await run(boxes, code, cpu_ms=4000))
    # A few are refused as a plain error before they take any memory: that is as good.
    assert (status, error, kept) in (MEMORY, (RunStatus.RUNTIME_ERROR, "RUNTIME_ERROR", True))


# -- max_stack_depth -----------------------------------------------------------------------------------

DOWN = "def down(n): return 0 if n == 0 else down(n - 1)\n"


async def test_max_stack_depth_is_enforced(boxes: PythonBoxes):
    assert (await run(boxes, f"{DOWN}down(255)")).value == 0
    assert breach(await run(boxes, f"{DOWN}down(256)")) == STACK
    assert (await run(boxes, f"{DOWN}down(9)", max_stack_depth=10)).value == 0
    assert breach(await run(boxes, f"{DOWN}down(10)", max_stack_depth=10)) == STACK
    assert (await run(boxes, f"{DOWN}down(900)", max_stack_depth=1000)).value == 0


async def test_a_caught_overflow_is_no_breach(boxes: PythonBoxes):
    ran = await run(boxes, f"{DOWN}try:\n  down(1000)\nexcept RecursionError:\n  x = 'caught'\nx")
    assert ran.value == "caught"


# -- max_stdout_bytes ----------------------------------------------------------------------------------


async def test_max_stdout_bytes_is_enforced(boxes: PythonBoxes):
    ran = await run(boxes, "print('x' * 70000)\n7")
    assert (ran.status, ran.value, ran.state_kept) == (RunStatus.OK, 7, True)
    assert ran.stdout == "x" * 65536
    assert [(one.code, one.severity.value) for one in ran.diagnostics] == [
        ("OUTPUT_TRUNCATED", "warning")
    ]


async def test_output_is_cut_at_a_character(boxes: PythonBoxes):
    ran = await run(boxes, "print('é' * 10)", max_stdout_bytes=5)
    assert ran.stdout == "éé"
    ran = await run(boxes, "print('aé' * 10)", max_stdout_bytes=5)
    assert ran.stdout == "aéa"


async def test_output_within_the_limit_is_whole(boxes: PythonBoxes):
    ran = await run(boxes, "print('éa')", max_stdout_bytes=4)
    assert (ran.stdout, ran.diagnostics) == ("éa\n", ())


async def test_both_streams_share_the_limit(boxes: PythonBoxes):
    code = "import sys\nprint('x' * 9)\nprint('y' * 9, file=sys.stderr)\nprint('z')"
    ran = await run(boxes, code, max_stdout_bytes=15)
    assert (ran.stdout, ran.stderr) == ("x" * 9 + "\n", "yyyyy")
    assert ran.diagnostics[0].code == "OUTPUT_TRUNCATED"


async def test_no_output_at_all(boxes: PythonBoxes):
    ran = await run(boxes, "print('x')\n1", max_stdout_bytes=0)
    assert (ran.stdout, ran.value, ran.diagnostics[0].code) == ("", 1, "OUTPUT_TRUNCATED")


@pytest.mark.parametrize(
    "code",
    [
        "while True: print('x' * 1000)",
        "while True:\n  try:\n    print('x')\n  except BaseException: pass",
        f"print('x' * {FLOOD_BYTES + 70000})\n'the end'",
        "import sys\nwhile True: print('x' * 1000, file=sys.stderr)",
    ],
)
async def test_a_flood_is_stopped_at_once(boxes: PythonBoxes, code: str):
    started = time.perf_counter()
    ran = await run(boxes, code)
    assert breach(ran) == STDOUT
    assert time.perf_counter() - started < SLACK
    assert len(ran.stdout + ran.stderr) == 65536
    assert [one.code for one in ran.diagnostics] == ["STDOUT_EXCEEDED", "OUTPUT_TRUNCATED"]


# -- max_external_calls --------------------------------------------------------------------------------


async def test_max_external_calls_is_enforced(boxes: PythonBoxes):
    called = 0

    def f() -> int:
        nonlocal called
        called += 1
        return called

    ran = await run(boxes, "for i in range(32): x = f()\nx", names={"f": f})
    assert (ran.value, len(ran.calls)) == (32, 32)
    called = 0
    ran = await run(boxes, "for i in range(33): x = f()\nx", names={"f": f})
    assert breach(ran) == CALLS
    assert (called, len(ran.calls), ran.metrics.external_calls_count) == (32, 32, 32)


@pytest.mark.parametrize(
    "code",
    [
        "while True:\n  try:\n    f()\n  except BaseException: pass",
        "def g():\n  try: f()\n  finally: return 1\nwhile True: g()",
        "[f() for _ in range(10**6)]",
        "def g():\n  try: return f()\n  except BaseException: return g()\nwhile True: g()",
    ],
)
async def test_a_call_storm_cannot_evade_the_limit(boxes: PythonBoxes, code: str):
    called = 0

    def f() -> None:
        nonlocal called
        called += 1

    ran = await run(boxes, code, names={"f": f}, max_external_calls=5)
    assert breach(ran) == CALLS
    assert called == 5


async def test_no_calls_at_all(boxes: PythonBoxes):
    ran = await run(boxes, "f()", names={"f": lambda: 1}, max_external_calls=0)
    assert breach(ran) == CALLS
    assert not ran.calls


# -- limits of one run ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "field", "tight", "loose", "broken"),
    [
        ("n = 0\nwhile n < 600000: n += 1\nn", "cpu_ms", 5, 20_000, TIMEOUT_CPU),
        ("n = 0\nwhile n < 600000: n += 1\nn", "wall_ms", 5, 20_000, TIMEOUT_WALL),
        ("print('x' * 2000000)\n600000", "max_stdout_bytes", 10, 3_000_000, STDOUT),
        ("for i in range(10): f()\n600000", "max_external_calls", 3, 10, CALLS),
    ],
)
async def test_a_run_may_have_more_or_less_than_its_box(
    boxes: PythonBoxes, code: str, field: str, tight: int, loose: int, broken: Any
):
    free = {"cpu_ms": 30_000, "wall_ms": 30_000}
    for built_in, asked, expected in [(loose, tight, broken), (tight, loose, None)]:
        opened_with = SessionLimits().model_copy(update={**free, field: built_in})
        limits = {**free, field: asked}
        ran = await run(boxes, code, opened_with=opened_with, names={"f": lambda: None}, **limits)
        if expected is None:
            assert (ran.error, ran.value) == (None, 600000)
        else:
            assert breach(ran) == expected


async def test_limits_survive_a_saved_state(boxes: PythonBoxes):
    tight = SessionLimits(memory_mb=16, max_stack_depth=20)
    box = await boxes.open(tight)
    await box.run(f"{DOWN}x = 1", inputs={}, limits=tight, names={})
    state = await box.dump()
    await box.close()
    for code, expected in [("down(30)", STACK), ("y = 'a' * (20 << 20)", MEMORY)]:
        box = await boxes.open(tight, state)
        ran = await box.run(code, inputs={}, limits=tight, names={})
        await box.close()
        assert isinstance(ran, Ran)
        assert breach(ran) == expected

"""Which value a run gives back: the global `result` if it set it, else its final expression."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.contracts import Json, SessionLimits, Span
from holdfast.shell.box import Ran
from holdfast.shell.languages._python_capture import read
from holdfast.shell.languages.python import PythonBox, PythonBoxes

LIMITS = SessionLimits()


@pytest.fixture(scope="module")
async def boxes() -> AsyncGenerator[PythonBoxes]:
    async with PythonBoxes() as opened:
        yield opened


@asynccontextmanager
async def opened(boxes: PythonBoxes) -> AsyncGenerator[PythonBox]:
    one = await boxes.open(LIMITS)
    try:
        yield one
    finally:
        await one.close()


async def run(box: PythonBox, code: str) -> Ran:
    ran = await box.run(code, inputs={}, limits=LIMITS, names={})
    assert isinstance(ran, Ran)
    return ran


async def value(box: PythonBox, code: str) -> Json:
    ran = await run(box, code)
    assert ran.error is None, ran.error
    return ran.value


CAPTURES: list[tuple[list[str], list[Json]]] = [
    (["result = 1"], [1]),
    (["result = 1\n2"], [1]),
    (["1 + 1"], [2]),
    (["x = 1"], [None]),
    (["x = 1; x + 1"], [2]),
    (["# nothing"], [None]),
    ([""], [None]),
    # Set in this run, or only read.
    (["result = 1", "2"], [1, 2]),
    (["result = 1", "x = 2"], [1, None]),
    (["result = 1", "result"], [1, 1]),
    (["result = 1", "result + 1"], [1, 2]),
    (["result = [1]", "result.append(2)"], [[1], None]),
    (["result = [1]", "result[0] = 5\nresult"], [[1], [5]]),
    (["result = {}", "result['a'] = 1"], [{}, None]),
    (["results = [1]\nresults"], [[1]]),
    (["my_result = 1", "my_result"], [None, 1]),
    # Every way to bind a name at the top level.
    (["result: int = 3"], [3]),
    (["result: int"], [None]),
    (["result = 1", "result += 1"], [1, 2]),
    (["a = result = 4"], [4]),
    (["a, result = 1, 2"], [2]),
    (["[a, *result] = 1, 2, 3"], [[2, 3]]),
    (["(result := 6)"], [6]),
    (["x = (result := 6) + 1"], [6]),
    (["[result := n for n in [1, 2]]"], [2]),
    (["for result in [1, 2]: pass"], [2]),
    (["for result in []: pass"], [None]),
    (["for a, result in [(1, 2)]: pass"], [2]),
    (["match 5:\n  case result: pass"], [5]),
    (["match [1, 2]:\n  case [1, *result]: pass"], [[2]]),
    (["match {'a': 1}:\n  case {**result}: pass"], [{"a": 1}]),
    (["x = [result for result in [1, 2]]\n'no'"], ["no"]),
    (["f = lambda result: result\nf(1)"], [1]),
    (["def f(result):\n  result = 2\n  return 3\nf(1)"], [3]),
    (["class A:\n  result = 2\n'no'"], ["no"]),
    (["try:\n  1/0\nexcept ZeroDivisionError as result:\n  pass\n'no'"], ["no"]),
    (["result = 1\ntry:\n  1/0\nexcept ZeroDivisionError as result:\n  pass\n'no'"], ["no"]),
    # Conditions.
    (["if True:\n  result = 1"], [1]),
    (["if False:\n  result = 1\n2"], [2]),
    (["if False: result = 1\nelse: result = 2"], [2]),
    (["if True: result = 1; x = 2\nx"], [1]),
    (["try:\n  result = 1\n  1/0\nexcept ZeroDivisionError:\n  pass\n3"], [1]),
    (["try:\n  1/0\n  result = 1\nexcept ZeroDivisionError:\n  pass\n3"], [3]),
    (["try:\n  1/0\nexcept ZeroDivisionError:\n  result = 2"], [2]),
    (["try:\n  pass\nfinally:\n  result = 2"], [2]),
    (["for i in range(3):\n  if i == 1:\n    result = i; break\n'no'"], [1]),
    (["n = 0\nwhile n < 3:\n  n += 1\n  result = n"], [3]),
    (["while True:\n  result = 1; break; x = 1/0"], [1]),
    (["match 1:\n  case 1: result = 'one'\n  case _: result = 'other'"], ["one"]),
    (["match 2:\n  case 1: result = 'one'\n'last'"], ["last"]),
    # The same value once more is set once more.
    (["if 1: result = 'yes'"] * 3, ["yes"] * 3),
    (["if 1: result = 7", "if 0: result = 7", "if 1: result = 7"], [7, None, 7]),
    (["if 1: result = None", "if 1: result = None\n5"], [None, None]),
    (["try:\n  result = int('x')\nexcept ValueError:\n  result = -1"] * 2, [-1, -1]),
    (
        ["result = 5", "for _ in [0]: result = result + 0", "for _ in []: result = result"],
        [5, 5, None],
    ),
    (["result = 1", "if result == 1: result = result"], [1, 1]),
    # From inside a function, also one of an earlier run.
    (["def f():\n  global result\n  result = 8\nf()"] * 2, [8, 8]),
    (["def f():\n  global result; result = 8\nf()", "f()", "1"], [8, 8, 1]),
    (
        ["def f():\n  global result\n  result = 8\n'defined'", "f()\n'no'", "'yes'"],
        ["defined", 8, "yes"],
    ),
    (["def f():\n  global result\n  result = 8\nresult = 1", "f()"], [1, 8]),
    (["def f():\n  global result\n  for result in [1, 2]: pass\nf()"], [2]),
    (["global result\nif True: result = 1"], [1]),
    (["class A:\n  def f(self):\n    global result\n    result = 4\nA().f()"] * 2, [4, 4]),
    # The code may take names away from itself.
    (["locals = 1\nif True: result = 1", "if True: result = 1"], [1, 1]),
    (["str = type = None\nif True: result = 1"] * 2, [1, 1]),
    # From text.
    (["exec('result = 9')"], [9]),
    (["exec('res' + 'ult = 9')"], [9]),
    (["eval('(result := 9)')"], [9]),
    (["exec('x = 9')\nx"], [9]),
    (["def f(text):\n  exec(text)\n  return 1\nf('x = 1')"], [1]),
    # The engine ends a run at a `return` of the top level.
    (["result = 1\nreturn 5"], [1]),
    (["return 5\nresult = 1"], [5]),
    (["if True:\n  return 5\nresult = 1"], [5]),
    # Text that only looks like an assignment.
    (["x = '''\nresult = 3\n'''\n'no'"], ["no"]),
    (["x = dict(\nresult = 3\n)\nx"], [{"result": 3}]),
    (["x = '''\nresult = 3\n\"\"\"\n''' # \"\"\"\nlen(x)"], [16]),
    (["x = [\n1, \\\nresult := 3\n]\n'no'"], [3]),
    (["result == 3 if False else 'no'"], ["no"]),
    (["x = 'result = 3'\n'no'"], ["no"]),
    # Names are compared as Python compares them, and columns may hold more than ASCII.
    (["ｒesult = 5"], [5]),
    (["s = 'é'; result = s"], ["é"]),
    (["if True: s = 'éé'; result = s; t = 'ü'\nt"], ["éé"]),
    # Syntax newer than the host's own.
    (['d = {\'k\': 1}\nresult = f"{d["k"]}"'] * 2, ["1", "1"]),
    (['d = {\'k\': 1}\nif True:\n  result = f"{d["k"]}"'], ["1"]),
    (["def first[T](a: T) -> T:\n  return a\nresult = first(4)"] * 2, [4, 4]),
    # Line ends of other systems, a byte order mark, endings without a line end.
    (["x = 1\r\nresult = 2\r\n"], [2]),
    (["x = 1\rif x:\r  result = 2\r"], [2]),
    (["\ufeffresult = 1"], [1]),
    (["result = 1 # done"], [1]),
    (["result = 1;"], [1]),
    (["if True:\n    result = 1\n    # done"], [1]),
    (["result = '''a\nb'''"], ["a\nb"]),
    (["if True: result = '''a\nb'''; x = 2\nx"], ["a\nb"]),
]


@pytest.mark.parametrize(("programs", "expected"), CAPTURES, ids=lambda one: repr(one)[:60])
async def test_result_capture(boxes: PythonBoxes, programs: list[str], expected: list[Json]):
    async with opened(boxes) as box:
        assert [await value(box, one) for one in programs] == expected


LEAF = st.sampled_from(["assign", "read", "other", "raise", "global", "loop"])
VALUES = st.sampled_from(["1", "'a'", "None", "[1]", "True"])


def indent(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]


@st.composite
def block(draw: st.DrawFn, depth: int = 0) -> tuple[list[str], list[str]]:
    """Statements for the box, and the same for CPython with a note after each assignment."""
    ours: list[str] = []
    model: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(LEAF if depth == 2 else LEAF | st.sampled_from(["if", "for", "try"]))
        if kind in ("if", "for", "try"):
            inner, inner_model = draw(block(depth + 1))
            other, other_model = draw(block(depth + 1))
            test = draw(st.sampled_from(["True", "False"]))
            head = {"if": f"if {test}:", "for": f"for _ in range(int({test})):", "try": "try:"}[
                kind
            ]
            middle = "except ValueError:" if kind == "try" else "else:"
            ours += [head, *indent(inner), middle, *indent(other)]
            model += [head, *indent(inner_model), middle, *indent(other_model)]
            continue
        one = draw(VALUES)
        if kind == "assign":
            ours.append(f"result = {one}")
            model += [f"result = {one}", "SET = True"]
        elif kind == "global":
            ours += ["def f():", "  global result", f"  result = {one}", "f()"]
            model += [
                "def f():",
                "  global result, SET",
                f"  result = {one}",
                "  SET = True",
                "f()",
            ]
        elif kind == "loop":
            # Fresh objects: that the very object of an earlier run comes again is not noticed.
            ours += [f"for result in [[{one}]]: pass"]
            model += [f"for result in [[{one}]]: SET = True"]
        else:
            line = {"read": "y = [result]", "raise": "int('x')"}.get(kind, f"x = {one}")
            ours.append(line)
            model.append(line)
    return ours, model


@st.composite
def program(draw: st.DrawFn) -> tuple[str, str]:
    ours, model = draw(block())
    last = draw(st.sampled_from([None, "'last'", "x", "result"]))
    if last is not None:
        ours, model = [*ours, last], [*model, f"LAST = {last}"]
    return "\n".join(ours), "\n".join(model)


def expected_of(model: str, state: dict[str, Any]) -> Any:
    """What CPython says the value is; an exception's name when it raises."""
    state.update(SET=False, LAST=None)
    try:
        exec(model, state)
    except (ValueError, NameError) as why:
        return type(why)
    return state["result"] if state["SET"] else state["LAST"]


@settings(max_examples=150)
@given(st.lists(program(), min_size=1, max_size=3))
async def test_result_capture_is_that_of_cpython(
    boxes: PythonBoxes, programs: list[tuple[str, str]]
):
    state: dict[str, Any] = {}
    async with opened(boxes) as box:
        for ours, model in programs:
            expected = expected_of(model, state)
            ran = await run(box, ours)
            if isinstance(expected, type):
                assert ran.error is not None
                assert ran.error.message.startswith(expected.__name__), (ours, ran)
            else:
                assert ran.error is None, (ours, ran)
                assert ran.value == expected, ours


async def test_finding_the_value_moves_no_place(boxes: PythonBoxes):
    async with opened(boxes) as box:
        ran = await run(box, "if True:\n  result = 1; 'é'; x = 1/0")
        assert ran.error is not None
        assert ran.error.span == Span(line=2, column=24, end_line=2, end_column=27)
        assert "__holdfast" not in ran.stderr
        assert "result = 1; 'é'; x = 1/0" in ran.stderr
        ran = await run(box, "if True:\n  result = 1/0; 'é'")
        assert ran.error is not None
        assert ran.error.span == Span(line=2, column=12, end_line=2, end_column=15)


async def test_running_out_of_memory_on_the_way_to_the_value_is_noticed(boxes: PythonBoxes):
    box = await boxes.open(LIMITS)
    ran = await run(box, "result = ['range(0, 1)'] + ['x' * 1000 + str(n) for n in range(30000)]")
    assert ran.error is not None
    assert (ran.error.code, ran.state_kept) == ("MEMORY_EXCEEDED", False)
    await box.close()


async def test_a_failing_run_keeps_what_it_set(boxes: PythonBoxes):
    async with opened(boxes) as box:
        await run(box, "if True:\n  result = 5\n1/0")
        assert await value(box, "result") == 5


@pytest.mark.parametrize(
    "code", ["x = (1,\nresult = 2", "result = 1\nx = (", "if True:\n  result = 1\nelse:"]
)
async def test_a_mistake_is_reported_as_the_agent_wrote_it(boxes: PythonBoxes, code: str):
    async with opened(boxes) as box:
        ran = await run(box, code)
        plain = await run(box, code.replace("result", "answer"))
    assert ran.error is not None
    assert ran.error == plain.error


HOSTILE = """
import sys, time
from holdfast.shell.languages._python_capture import last_expression, read, rebound
from holdfast.shell.languages._python_scope import MAX_CHARS

MANY = 30_000
shapes = {
    "open": "(" * MANY, "brackets": "[" * MANY + "]" * MANY, "minus": "-" * MANY + "1",
    "not": "not " * MANY + "1", "dots": "a" + ".b" * MANY, "calls": "a" + "()" * MANY,
    "sums": "1+" * MANY + "1", "chain": "x=" * MANY + "1", "lambda": "lambda:" * MANY + "1",
    "braces": "{" * MANY, "f-string": 'f"{' * MANY, "ternary": "a if b else " * MANY + "c",
    "elif": "if a:\\n result = 1\\n" + "elif a:\\n result = 1\\n" * MANY,
    "nested": "".join(" " * n + "if 1:\\n" for n in range(900)) + " " * 900 + "result = 1",
    "walrus": "(result:=" * MANY + "1" + ")" * MANY, "import": "import a" + ".b" * MANY,
    "nul": "result = 1\\0", "surrogate": "result = '\\ud800'", "decorators": "@a\\n" * MANY,
    "pattern": "match x:\\n case " + "[" * MANY + "]" * MANY + ": pass",
    "functions": "def f():\\n global result\\n result = 1\\n" * MANY,
    "quotes": "result = 1\\n" * MANY + "'''",
}
for name, text in shapes.items():
    for size in (90, 1_000, MAX_CHARS, MAX_CHARS + 1, len(text)):
        for code in (text[:size], "x\\nexec\\n" + text[:size], "global result\\n" + text[:size]):
            started = time.perf_counter()
            read(code, far=False), rebound(code, frozenset(("a", "x"))), last_expression(code)
            took = time.perf_counter() - started
            if took > 2:
                sys.exit(f"{name} of {size} took {took:.1f} s")
print("unharmed")
"""


def test_reading_hostile_code_does_not_harm_the_host():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", HOSTILE], capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stdout) == (0, "unharmed\n"), done.stderr[-2000:]


def test_reading_says_nothing_about_the_agents_escapes():
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "always",
            "-c",
            "from holdfast.shell.languages._python_capture import read\n"
            "print(read('if 1:\\n  result = \"\\\\d\"', far=False).watched)",
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_the_cheapest_way_is_taken():
    assert read("1 + 1", far=False) == ("1 + 1", *read("", far=False)[1:])
    assert read("result = 1", far=False).named
    assert read("x = 1\nresult = x", far=False).named
    assert read("if a: result = 1\nelse: result = 2", far=False).named
    assert not read("result + 1", far=False).watched
    assert read("if a: result = 1", far=False).watched

"""A box that runs Python: values, inputs, errors, calls, states. Real workers, jailed as usual."""

from __future__ import annotations

import asyncio
import builtins
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic_monty._binary import find_monty_binary

from holdfast.contracts import (
    CallStatus,
    Json,
    RunStatus,
    SessionLimits,
    Severity,
    SideEffect,
    Span,
    digest_json,
)
from holdfast.errors import CallerError, InternalError, ModelError
from holdfast.shell.box import Call, Ran
from holdfast.shell.languages._python_process import innermost
from holdfast.shell.languages._python_subset import BUILTINS, MODULES
from holdfast.shell.languages._python_values import MAX_DEPTH
from holdfast.shell.languages.python import PythonBox, PythonBoxes

LIMITS = SessionLimits()


@pytest.fixture(scope="module")
async def boxes() -> AsyncGenerator[PythonBoxes]:
    async with PythonBoxes() as opened:
        yield opened


@pytest.fixture
async def box(boxes: PythonBoxes) -> AsyncGenerator[PythonBox]:
    async with opened(boxes) as one:
        yield one


@asynccontextmanager
async def opened(boxes: PythonBoxes, state: bytes | None = None) -> AsyncGenerator[PythonBox]:
    one = await boxes.open(LIMITS, state)
    try:
        yield one
    finally:
        await one.close()


async def run(
    box: PythonBox,
    code: str,
    *,
    inputs: Mapping[str, Json] | None = None,
    names: Mapping[str, Call] | None = None,
    **limits: int,
) -> Ran:
    allowed = LIMITS.model_copy(update=limits)
    ran = await box.run(code, inputs=inputs or {}, limits=allowed, names=names or {})
    assert isinstance(ran, Ran)
    said = [one for one in ran.diagnostics if one.severity is Severity.ERROR]
    if ran.error is None:
        assert ran.status is RunStatus.OK
        assert not said
    else:
        assert ran.status is not RunStatus.OK
        assert ran.value is None
        assert [(one.code, one.message, one.hint, one.span) for one in said] == [
            (ran.error.code, ran.error.message, ran.error.hint, ran.error.span)
        ]
    return ran


async def value(box: PythonBox, code: str, **more: Any) -> Json:
    ran = await run(box, code, **more)
    assert ran.error is None, ran.error
    assert ran.state_kept
    return ran.value


async def failure(box: PythonBox, code: str, **more: Any) -> tuple[RunStatus, str, str, str]:
    """Status, code, message and hint of a run that must fail and leave the box usable."""
    ran = await run(box, code, **more)
    assert ran.error is not None, ran.value
    assert ran.state_kept
    assert await value(box, "1 + 1") == 2
    return ran.status, ran.error.code, ran.error.message, ran.error.hint or ""


# -- values --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("(1, (2, [3]))", [1, [2, [3]]]),
        ("{'a': (1, None, True, 1.5, 'x')}", {"a": [1, None, True, 1.5, "x"]}),
        ("-0.0", 0.0),
        ("10**4299", 10**4299),
        ("'\\ud800'", "\ufffd"),
        ("'a\\x00b'", "a\x00b"),
        ("(n for n in range(2))", [0, 1]),
        ("{'b': 1, 'a': {'d': 1, 'c': 2}}", {"b": 1, "a": {"d": 1, "c": 2}}),
        # Text that only looks like something else.
        ("x = '[...]'\nresult = [x]", ["[...]"]),
        ("[str(type(1))]", ["<class 'int'>"]),
        ("x = \"<function 'f' at 0xc>\"\nx", "<function 'f' at 0xc>"),
        ("result = 'range(0, 3)'", "range(0, 3)"),
        ("result = ['dict_keys([1])']", ["dict_keys([1])"]),
        ("x = 're.compile(a)'\n[x, x]", ["re.compile(a)", "re.compile(a)"]),
        ("'list_tools'", "list_tools"),
    ],
)
async def test_values_become_json(box: PythonBox, code: str, expected: Json):
    given = await value(box, code, names={"list_tools": list})
    assert given == expected
    assert repr(given) == repr(expected) or code == "-0.0"


@pytest.mark.parametrize(
    ("code", "kind", "help_"),
    [
        ("{1, 2}", "set", "list("),
        ("[frozenset()]", "frozenset", "list("),
        ("b'x'", "bytes", "decode"),
        ("float('nan')", "nan", "NaN"),
        ("{'a': [float('-inf')]}", "-inf", "Infinity"),
        ("import datetime\ndatetime.date(2020, 1, 1)", "date", "isoformat"),
        ("import datetime\ndatetime.timedelta(1)", "timedelta", "total_seconds"),
        ("import decimal\ndecimal.Decimal('1.5')", "Decimal", "float("),
        ("import pathlib\npathlib.Path('/x')", "PurePosixPath", "str("),
        ("1j", "complex", "real"),
        ("{1: 2}", "int keys", "str(k)"),
        ("{'a': {None: 2}}", "NoneType keys", "str(k)"),
        ("class P:\n  pass\n[P()]", "P", "fields"),
        ("ValueError('x')", "ValueError", "str("),
        ("len", "function len", "Call it"),
        ("int", "type", "text"),
        ("...", "ellipsis", "text"),
        ("10**5000", "4300 digits", "smaller"),
        ("[-10**5000]", "4300 digits", "smaller"),
        # What the engine hands over as text.
        ("def f(): pass\nf", "function", "text"),
        ("def f(): pass\nresult = [f]", "function", "text"),
        ("def f(): pass\n{'f': [f, f]}", "function", "text"),
        ("[lambda: 1][0]", "function", "text"),
        ("list_tools", "function", "text"),
        ("result = {'a': list_tools}", "function", "text"),
        ("range(3)", "range", "list("),
        ("result = {'a': 1}.keys()", "dict_keys", "list("),
        ("{'a': 1}.values()", "dict_values", "list("),
        ("result = iter([1])", "iterator", "list("),
        ("iter([1])", "iterator", "list("),
        ("import json\nresult = json", "module", "text"),
        ("import re\nresult = re.compile('a')", "Pattern", "text"),
        ("class A:\n  pass\nresult = A", "type", "text"),
        ("x = []\nx.append(x)\nx", "holds itself", "cycle"),
        ("result = {}\nresult['a'] = {'b': result}", "holds itself", "cycle"),
        ("async def f(): return 1\nresult = f()", "coroutine", "text"),
    ],
)
async def test_what_json_lacks_is_refused(box: PythonBox, code: str, kind: str, help_: str):
    status, error, _, hint = await failure(box, code, names={"list_tools": list})
    assert (status, error) == (RunStatus.VALIDATION_ERROR, "RESULT_NOT_SERIALIZABLE")
    assert kind in hint
    assert help_ in hint


@pytest.mark.parametrize("shape", ["[x]", "{'a': x}", "(x,)"])
async def test_nesting_is_bounded(box: PythonBox, shape: str):
    build = "x = 1\nfor _ in range({}): x = {}\nx"
    deep = await value(box, build.format(MAX_DEPTH, shape))
    assert deep is not None
    for depth in (MAX_DEPTH + 1, 100_000):
        _, error, _, hint = await failure(box, build.format(depth, shape))
        assert error == "RESULT_NOT_SERIALIZABLE"
        assert str(MAX_DEPTH) in hint


async def test_a_long_text_that_looks_odd_does_not_hold_the_host_up(box: PythonBox):
    for start in ("slice(", "<function '", "dict_keys([", "re.compile("):
        started = time.perf_counter()
        await run(box, f"'{start}'.replace(\"'\", '') + ', ' * 300000 + ' at 0x0' * 90000 + ')'")
        assert time.perf_counter() - started < 1.5


# -- inputs --------------------------------------------------------------------------------------------


async def test_inputs_are_variables(box: PythonBox):
    given: dict[str, Json] = {
        "rows": [{"a": 1}, {"a": 2}],
        "größe": 2,
        "n": None,
        "text": "a\x00b\n",
    }
    code = "[sum(r['a'] for r in rows), größe, n, text]"
    assert await value(box, code, inputs=given) == [3, 2, None, "a\x00b\n"]


async def test_inputs_replace_older_variables(box: PythonBox):
    assert await value(box, "n = 1\nn") == 1
    assert await value(box, "n", inputs={"n": 2}) == 2
    assert await value(box, "n", inputs={"n": 3}) == 3


async def test_inputs_are_copies(box: PythonBox):
    rows: list[Json] = [1]
    assert await value(box, "rows.append(2)\nrows", inputs={"rows": rows}) == [1, 2]
    assert rows == [1]


@pytest.mark.parametrize(
    ("code", "line", "column"),
    [
        ("rows = 1", 1, 1),
        ("x = 1\nif x:\n  rows = 1", 3, 3),
        ("rows += [1]", 1, 1),
        ("x, rows = 1, 2", 1, 4),
        ("'é'; rows = 2", 1, 6),
        ("for rows in []: pass", 1, 5),
        ("(rows := 1)", 1, 2),
        ("[rows := n for n in [1]]", 1, 2),
        ("def rows(): pass", 1, 1),
        ("class rows: pass", 1, 1),
        ("import json as rows", 1, 8),
        ("def f():\n  global rows\n  rows = 1", 3, 3),
        ("try:\n  pass\nexcept ValueError as rows:\n  pass", 3, 1),
        ("match 1:\n  case rows: pass", 2, 8),
        ("with f() as rows: pass", 1, 13),
        ("del rows", 1, 5),
    ],
)
async def test_inputs_are_read_only(box: PythonBox, code: str, line: int, column: int):
    ran = await run(box, f"{code}\nchanged = True", inputs={"rows": [1]})
    assert (ran.status, ran.error and ran.error.code) == (
        RunStatus.VALIDATION_ERROR,
        "INVALID_ARGUMENT",
    )
    assert ran.error is not None
    assert "`rows`" in ran.error.message
    assert ran.error.span is not None
    assert (ran.error.span.line, ran.error.span.column) == (line, column)
    assert ran.state_kept
    # Nothing of it was run.
    assert (await run(box, "changed")).error is not None


@pytest.mark.parametrize(
    "code",
    [
        "x = rows",
        "rows[0] = 5",
        "def f(rows):\n  rows = 2\nf(1)",
        "def f():\n  rows = 2\nf()",
        "x = [rows for rows in [1]]",
        "class A:\n  rows = 1",
        "rows == 1",
        "dict(rows=1)",
    ],
)
async def test_other_uses_of_an_input_are_fine(box: PythonBox, code: str):
    assert (await run(box, code, inputs={"rows": [1]})).error is None


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a b",
        "1a",
        "class",
        "None",
        "a.b",
        "__x",
        "__name__",
        "list_tools",
        "result",
        "ﬁ",
        "\ud800",
    ],
)
async def test_bad_input_names_are_refused(box: PythonBox, name: str):
    with pytest.raises(CallerError) as refused:
        await run(box, "1", inputs={name: 1}, names={"list_tools": list})
    assert refused.value.code == "INVALID_ARGUMENT"
    assert await value(box, "1") == 1


@pytest.mark.parametrize("bad", [float("nan"), "\ud800", {"a": {1}}, b"x"])
async def test_inputs_that_are_not_json_are_refused(box: PythonBox, bad: Any):
    with pytest.raises(CallerError) as refused:
        await run(box, "1", inputs={"x": bad})
    assert refused.value.code == "INVALID_ARGUMENT"


# -- errors --------------------------------------------------------------------------------------------

V, R, P, X = (
    RunStatus.VALIDATION_ERROR,
    RunStatus.RUNTIME_ERROR,
    RunStatus.PERMISSION_DENIED,
    RunStatus.RESOURCE_EXHAUSTED,
)


@pytest.mark.parametrize(
    ("code", "status", "error", "span", "message"),
    [
        ("x = = 3", V, "SYNTAX_ERROR", (1, 5, 1, 6), "Expected an expression"),
        ("x = 1\n  y = 2", V, "SYNTAX_ERROR", (2, 1, 2, 3), "indentation"),
        ("x = 1\nbreak", V, "SYNTAX_ERROR", (2, 1, 2, 6), "outside loop"),
        ("(" * 30_000, V, "SYNTAX_ERROR", (1, 201, 1, 202), "nested"),
        ("\x00", V, "SYNTAX_ERROR", (1, 1, 1, 2), "unexpected"),
        ("'\ud800'", V, "SYNTAX_ERROR", None, "UTF-8"),
        ("def f():\n  yield 1", V, "UNSUPPORTED_FEATURE", (2, 3, 2, 10), "yield"),
        ("class A(B): pass", V, "UNSUPPORTED_FEATURE", (1, 1, 1, 17), "inheritance"),
        ("x = 1\ndel x", V, "UNSUPPORTED_FEATURE", (2, 1, 2, 6), "del"),
        ("from os import *", V, "UNSUPPORTED_FEATURE", (1, 1, 1, 17), "Wildcard"),
        ("from . import x", V, "UNSUPPORTED_FEATURE", (1, 1, 1, 16), "relative"),
        ("x = 1\nimport heapq", V, "UNSUPPORTED_FEATURE", (2, 1, 2, 13), "'heapq'"),
        ("1/0", R, "RUNTIME_ERROR", (1, 1, 1, 4), "ZeroDivisionError: division by zero"),
        ("def f(a):\n  return a[3]\nf([1])", R, "RUNTIME_ERROR", (2, 10, 2, 14), "IndexError: "),
        ("raise ValueError('é')", R, "RUNTIME_ERROR", (1, 7, 1, 22), "ValueError: é"),
        ("raise ValueError", R, "RUNTIME_ERROR", (1, 7, 1, 17), "ValueError"),
        ("raise SystemExit('x')", R, "RUNTIME_ERROR", (1, 7, 1, 22), "SystemExit: x"),
        ("raise SystemExit(3)", R, "RUNTIME_ERROR", (1, 7, 1, 20), "one text argument"),
        (
            "def f(key):\n  raise KeyError(key)\ntry:\n  f(2)\nexcept ValueError as why:\n"
            "  raise OSError('é' + str(why))",
            R,
            "RUNTIME_ERROR",
            (2, 9, 2, 22),
            "one text argument",
        ),
        ("raise KeyboardInterrupt", R, "RUNTIME_ERROR", (1, 7, 1, 24), "KeyboardInterrupt"),
        (
            "raise NotImplementedError('x does not yet support y')",
            R,
            "RUNTIME_ERROR",
            (1, 7, 1, 54),
            "x",
        ),
        (
            "raise TimeoutError('feed time limit exceeded: 1s > 1s')",
            R,
            "RUNTIME_ERROR",
            (1, 7, 1, 56),
            "",
        ),
        (
            "raise MemoryError('memory limit exceeded: 1 bytes > 1 bytes')",
            R,
            "RUNTIME_ERROR",
            None,
            "",
        ),
        ("raise RecursionError('maximum recursion depth exceeded')", R, "RUNTIME_ERROR", None, ""),
        ("raise PermissionError('x')", R, "RUNTIME_ERROR", (1, 7, 1, 27), "PermissionError: x"),
        ("exec('x = = 1')", R, "RUNTIME_ERROR", (1, 1, 1, 16), "SyntaxError: "),
        ("exec('1/0')", R, "RUNTIME_ERROR", (1, 1, 1, 12), "ZeroDivisionError: "),
        ("assert 1 == 2, 'no'", R, "RUNTIME_ERROR", (1, 8, 1, 14), "AssertionError: no"),
        ("def f(x): return x\nf()", R, "RUNTIME_ERROR", (1, 5, 1, 6), "TypeError: f() missing"),
        ("def f(n): return f(n)\nf(1)", X, "STACK_OVERFLOW", (1, 18, 1, 22), "256"),
        ("import time\ntime.time()", P, "PERMISSION_DENIED", (2, 1, 2, 12), "clock"),
        ("import time\ntime.sleep(1)", P, "PERMISSION_DENIED", (2, 1, 2, 14), "sleep"),
        (
            "import datetime\ndatetime.datetime.now()",
            P,
            "PERMISSION_DENIED",
            (2, 1, 2, 24),
            "clock",
        ),
        ("import random\nrandom.random()", P, "PERMISSION_DENIED", (2, 1, 2, 16), "randomness"),
        ("import os\nos.environ", P, "PERMISSION_DENIED", (2, 1, 2, 11), "environment"),
        ("import os\nos.getenv('A')", P, "PERMISSION_DENIED", (2, 1, 2, 15), "environment"),
        ("open('/etc/passwd')", P, "PERMISSION_DENIED", (1, 1, 1, 20), "'/etc/passwd'"),
        ("import os\nos.listdir('/')", P, "PERMISSION_DENIED", (2, 1, 2, 16), "files"),
        ("import asyncio\nawait asyncio.sleep(0)", P, "PERMISSION_DENIED", (2, 7, 2, 23), "sleep"),
    ],
)
async def test_errors(
    box: PythonBox,
    code: str,
    status: RunStatus,
    error: str,
    span: tuple[int, int, int, int] | None,
    message: str,
):
    ran = await run(box, code)
    assert ran.error is not None
    assert (ran.status, ran.error.code) == (status, error)
    assert message in ran.error.message
    if span is not None:
        line, column, end_line, end_column = span
        wanted = Span(line=line, column=column, end_line=end_line, end_column=end_column)
        assert ran.error.span == wanted
    assert ran.state_kept
    assert await value(box, "1 + 1") == 2


async def test_what_the_engine_says_of_itself_is_told_in_other_words(box: PythonBox):
    ran = await run(box, "raise SystemExit(3)")
    assert "one text argument" in ran.stderr
    assert "monty" not in ran.stderr


async def test_of_several_exceptions_that_it_may_be_none_is_blamed(box: PythonBox):
    ran = await run(box, "def f(key):\n  raise KeyError(key)\nf(2) or ValueError('a', 'b')")
    assert ran.error is not None
    assert ran.error.span is None


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("lisst([1])", "`list`"),
        ("customers = 1\ncustomer", "`customers`"),
        ("serch_tools('x')", "`search_tools`"),
        ("globals()", "subset"),
        ("qqqqqq", "Define it"),
        ("import numpy", "itertools, json, math"),
        ("def f():\n  yield 1", "list"),
        ("class A(Exception): pass", "built-in exceptions"),
        ("import random\nrandom.random()", "random.seed"),
    ],
)
async def test_hints(box: PythonBox, code: str, hint: str):
    *_, given = await failure(box, code, names={"search_tools": list})
    assert hint in given


async def test_code_may_catch_a_refusal(box: PythonBox):
    code = "try:\n  open('/etc/passwd')\nexcept PermissionError as e:\n  said = str(e)\nsaid"
    assert "Not granted" in str(await value(box, code))


async def test_the_traceback_is_the_agents(box: PythonBox):
    await run(box, "def earlier():\n  raise ValueError('deep')")
    ran = await run(box, "import sys\nprint('seen', file=sys.stderr)\ndef f():\n  earlier()\n\nf()")
    assert ran.stderr == textwrap.dedent(
        """\
        seen
        Traceback (most recent call last):
          File "<code>", line 6, in <module>
            f()
          File "<code>", line 4, in f
            earlier()
          File "<earlier code>", line 2, in earlier
            raise ValueError('deep')
        ValueError: deep
        """
    )
    # The innermost place in *this* code.
    assert ran.error is not None
    assert ran.error.span == Span(line=4, column=3, end_line=4, end_column=12)


async def test_a_mistake_in_earlier_code_has_no_place_in_this(box: PythonBox):
    await run(box, "\n\ndef f(x): return x")
    ran = await run(box, "f()")
    assert ran.error is not None
    assert ran.error.message.startswith("TypeError: f() missing")
    assert ran.error.span is None


async def test_long_messages_are_cut(box: PythonBox):
    ran = await run(box, "raise ValueError('x' * 10**6)")
    assert ran.error is not None
    assert len(ran.error.message) < 3000
    ran = await run(box, f"x = '{'a' * 10**5}'; 1/0")
    assert len(ran.stderr) < 3000


async def test_a_dead_worker_is_an_error_not_an_exception(box: PythonBox):
    pid = pid_of(box)
    async with anyio.create_task_group() as tasks:

        async def kill() -> None:
            await anyio.sleep(0.1)
            os.kill(pid, 9)

        tasks.start_soon(kill)
        ran = await run(box, "while True: pass")
        assert ran.error is not None
        assert (ran.error.code, ran.state_kept) == ("MEMORY_EXCEEDED", False)
    with pytest.raises(InternalError):
        await run(box, "1")
    with pytest.raises(InternalError):
        await box.dump()


# -- calls ---------------------------------------------------------------------------------------------


async def test_calls_are_answered_and_recorded(box: PythonBox):
    def describe_tool(name: str, *, full: bool = False) -> Json:
        return {"name": name, "full": full}

    code = "[describe_tool('a'), describe_tool(name='b', full=True)]"
    ran = await run(box, code, names={"describe_tool": describe_tool})
    assert ran.value == [{"name": "a", "full": False}, {"name": "b", "full": True}]
    assert ran.metrics.external_calls_count == 2
    assert [number for number, _ in ran.calls] == [0, 1]
    first, second = (one for _, one in ran.calls)
    assert (first.name, first.status, first.side_effect) == (
        "describe_tool",
        CallStatus.OK,
        SideEffect.NONE,
    )
    assert first.request_digest == digest_json({"args": ["a"], "kwargs": {}})
    assert second.request_digest == digest_json({"args": [], "kwargs": {"name": "b", "full": True}})
    assert second.response_digest == digest_json({"name": "b", "full": True})


async def test_tuples_arrive_as_lists(box: PythonBox):
    seen: list[Any] = []
    await value(box, "f((1, (2,)))", names={"f": lambda x: seen.append(x)})
    assert seen == [[1, [2]]]


async def test_a_refusal_reaches_the_code_and_the_record(box: PythonBox):
    def describe_tool(name: str) -> Json:
        raise ModelError(
            "UNKNOWN_TOOL", f"There is no capability {name!r}.", hint="See list_tools()."
        )

    names = {"describe_tool": describe_tool}
    caught = "try:\n  describe_tool('x')\nexcept Exception as e:\n  said = str(e)\nsaid"
    ran = await run(box, caught, names=names)
    assert ran.value == "There is no capability 'x'."
    [(_, call)] = ran.calls
    assert call.status is CallStatus.ERROR
    assert call.error is not None
    assert (call.error.code, call.error.message) == ("UNKNOWN_TOOL", ran.value)
    ran = await run(box, "1\ndescribe_tool('x')", names=names)
    assert ran.error is not None
    assert (ran.status, ran.error.code) == (RunStatus.RUNTIME_ERROR, "TOOL_ERROR")
    assert ran.error.message == "UNKNOWN_TOOL: There is no capability 'x'."
    assert ran.error.hint == "See list_tools()."
    assert ran.error.span == Span(line=2, column=1, end_line=2, end_column=19)


@pytest.mark.parametrize(
    ("why", "status", "code", "caught_as"),
    [
        (
            ModelError("PERMISSION_DENIED", "not you"),
            CallStatus.DENIED,
            "PERMISSION_DENIED",
            "PermissionError",
        ),
        (
            ModelError("TIMEOUT_TOOL", "too slow"),
            CallStatus.TIMEOUT,
            "TIMEOUT_TOOL",
            "TimeoutError",
        ),
        (ValueError("bad"), CallStatus.ERROR, "TOOL_ERROR", "ValueError"),
        (KeyError("k"), CallStatus.ERROR, "TOOL_ERROR", "KeyError"),
        (
            MemoryError("memory limit exceeded: 1 bytes > 1 bytes"),
            CallStatus.ERROR,
            "TOOL_ERROR",
            "RuntimeError",
        ),
        (subprocess.SubprocessError("odd"), CallStatus.ERROR, "TOOL_ERROR", "RuntimeError"),
    ],
)
async def test_failures_outside(
    box: PythonBox, why: Exception, status: CallStatus, code: str, caught_as: str
):
    def f() -> Json:
        raise why

    ran = await run(
        box, f"try:\n  f()\nexcept {caught_as} as e:\n  said = str(e)\nsaid", names={"f": f}
    )
    assert ran.error is None
    assert str(getattr(why, "message", why)).strip("'") in str(ran.value)
    assert ran.calls[0][1].status is status
    ran = await run(box, "f()", names={"f": f})
    assert ran.error is not None
    assert ran.error.code == code
    assert ran.state_kept


@pytest.mark.parametrize(
    "argument", ["{1}", "b'x'", "float('nan')", "lambda: 1", "{1: 2}", "10**5000"]
)
async def test_arguments_must_be_json(box: PythonBox, argument: str):
    called: list[Any] = []
    names: dict[str, Call] = {"f": lambda x: called.append(x)}
    ran = await run(box, f"f({argument})", names=names)
    assert ran.error is not None
    assert ran.error.code == "RUNTIME_ERROR"
    assert "TypeError: f() takes JSON values" in ran.error.message
    assert [(one.status, one.error and one.error.code) for _, one in ran.calls] == [
        (CallStatus.ERROR, "INVALID_ARGUMENT")
    ]
    assert not called


async def test_an_answer_that_is_not_json_is_a_failure(box: PythonBox):
    names: dict[str, Call] = {"f": lambda: {1}}  # pyright: ignore[reportAssignmentType]
    ran = await run(box, "f()", names=names)
    assert ran.error is not None
    assert ran.error.code == "TOOL_ERROR"
    assert ran.calls[0][1].status is CallStatus.ERROR


async def test_names_are_those_of_the_run(box: PythonBox):
    assert await value(box, "f()", names={"f": lambda: 1}) == 1
    assert await value(box, "f()", names={"f": lambda: 2}) == 2
    ran = await run(box, "f()")
    assert ran.error is not None
    assert ran.error.message == "NameError: name 'f' is not defined"


async def test_calls_do_not_block_the_event_loop(box: PythonBox):
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await anyio.sleep(0.01)
            ticks += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tick)
        await value(box, "f()", names={"f": lambda: time.sleep(0.3)})
        tasks.cancel_scope.cancel()
    assert ticks > 5


# -- what goes on meanwhile ----------------------------------------------------------------------------


async def test_meanwhile_ends_before_the_run_does(box: PythonBox):
    done: list[str] = []

    async def meanwhile() -> None:
        await anyio.sleep(0.1)
        done.append("meanwhile")

    for code in ("1", "if 1: result = 1", "x = = 1"):
        done.clear()
        await box.run(code, inputs={}, limits=LIMITS, names={}, meanwhile=meanwhile)
        assert done == ["meanwhile"]
    done.clear()
    await box.run("a = 1", inputs={"a": 1}, limits=LIMITS, names={}, meanwhile=meanwhile)
    assert done == ["meanwhile"]


@pytest.mark.parametrize("code", ["1", "1/0", "while True: pass"])
async def test_a_failure_meanwhile_stops_the_run(box: PythonBox, code: str):
    async def meanwhile() -> None:
        await anyio.sleep(0.05)
        raise OSError("no room left")

    pid = pid_of(box)
    with pytest.raises(OSError, match="no room left"):
        await box.run(code, inputs={}, limits=LIMITS, names={}, meanwhile=meanwhile)
    await gone(pid)
    with pytest.raises(InternalError):
        await run(box, "1")


# -- cancelling, closing -------------------------------------------------------------------------------


def pid_of(box: PythonBox) -> int:
    pid = box._live.session.worker_pid
    assert pid is not None
    return innermost(pid)


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def gone(*pids: int) -> None:
    for _ in range(500):
        if not any(is_alive(pid) for pid in pids):
            return
        await anyio.sleep(0.01)
    raise AssertionError("a process was left behind")


@pytest.mark.parametrize("code", ["while True: pass", "f()", "print('x' * 9999)\nwhile True: pass"])
async def test_cancelling_kills_the_worker(boxes: PythonBoxes, code: str):
    release = threading.Event()
    async with opened(boxes) as box:
        worker = box._live.session.worker_pid
        assert worker is not None
        pid = pid_of(box)
        with anyio.move_on_after(0.2) as scope:
            await run(box, code, names={"f": lambda: release.wait(20)})
        assert scope.cancelled_caught
        await gone(pid, worker)
        with pytest.raises(InternalError):
            await run(box, "1")
    release.set()


async def test_native_cancellation_passes_through(boxes: PythonBoxes):
    async with opened(boxes) as box:
        pid = pid_of(box)
        task = asyncio.ensure_future(run(box, "while True: pass"))
        await anyio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await gone(pid)


def processes_of(path: str) -> list[int]:
    """The processes that have a path in their command line, jails included."""
    found: list[int] = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as command:
                if path.encode() in command.read():
                    found.append(int(pid))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


async def test_giving_up_while_a_box_opens_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # bubblewrap, killed while it sets up, left a process that waits for ever.
    engine = str(tmp_path / "engine")
    os.symlink(find_monty_binary(), engine)
    monkeypatch.setenv("MONTY_BIN", engine)
    async with PythonBoxes(max_boxes=4) as boxes:
        for number in range(60):
            with anyio.move_on_after(0.0003 * (number % 20)):
                await (await boxes.open(LIMITS)).close()
        for number in range(20):
            task = asyncio.ensure_future(boxes.open(LIMITS))
            await anyio.sleep(0.0003 * number)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await (await task).close()
        # Nor did it use up room for others.
        for box in [await boxes.open(LIMITS) for _ in range(4)]:
            await value(box, "1")
            await box.close()
    await anyio.sleep(0.1)
    assert processes_of(engine) == []


async def test_closing_leaves_nothing_behind():
    async with PythonBoxes() as boxes:
        folder = os.path.dirname(boxes.binary)
        assert os.stat(folder).st_mode & 0o777 == 0o700
        opened = [await boxes.open(LIMITS) for _ in range(20)]
        for box in opened:
            await value(box, "1")
        await boxes.validate("1")
        pids = [pid_of(box) for box in opened]
        assert len(set(pids)) == 20
        for box in opened[:10]:
            await box.close()
            await box.close()
        await gone(*pids[:10])
        assert all(is_alive(pid) for pid in pids[10:])
    await gone(*pids)
    assert not await anyio.Path(folder).exists()
    with pytest.raises(InternalError):
        await run(opened[15], "1")


EXIT = """
import anyio
from holdfast.contracts import SessionLimits
from holdfast.shell.languages.python import PythonBoxes

async def main():
    async with PythonBoxes() as boxes:
        box = await boxes.open(SessionLimits())
        await box.run("result = 1", inputs={}, limits=SessionLimits(), names={})
        await box.close()

anyio.run(main)
"""


def test_a_process_ends_quietly_after_closing():
    # The engine's threads aborted one process in six that ended right after closing the pool.
    for _ in range(10):
        done = subprocess.run([sys.executable, "-c", EXIT], capture_output=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, b"")


async def test_many_boxes_at_once(boxes: PythonBoxes):
    seen: dict[int, Json] = {}

    async def one(number: int) -> None:
        async with opened(boxes) as box:
            await value(box, f"secret = {number}")
            seen[number] = await value(box, "result = secret * 2")

    async with anyio.create_task_group() as tasks:
        for number in range(40):
            tasks.start_soon(one, number)
    assert seen == {number: number * 2 for number in range(40)}


# -- state ---------------------------------------------------------------------------------------------


async def test_state_goes_on_in_another_box(boxes: PythonBoxes):
    async with opened(boxes) as first:
        await value(first, "items = [1]\ndef add(n):\n  items.append(n)\n  return len(items)")
        state = await first.dump()
        assert await value(first, "add(5)") == 2
    async with opened(boxes, state) as second:
        assert await value(second, "add(7)\nitems") == [1, 7]
        ran = await run(second, "import time\ntime.time()")
        assert ran.status is RunStatus.PERMISSION_DENIED


async def test_result_set_from_afar_is_seen_after_loading(boxes: PythonBoxes):
    async with opened(boxes) as first:
        await value(first, "def f():\n  global result\n  result = 5\nx = 1")
        state = await first.dump()
    async with opened(boxes, state) as second:
        assert [await value(second, "f()") for _ in range(2)] == [5, 5]
        assert await value(second, "x") == 1


async def test_damaged_states_are_refused(boxes: PythonBoxes, box: PythonBox):
    await value(box, "x = 1")
    state = await box.dump()
    newer = state[:6] + b"\xff" + state[7:]
    for bad, code in [
        (b"", "SNAPSHOT_CORRUPT"),
        (b"no state", "SNAPSHOT_CORRUPT"),
        (state[:-5], "SNAPSHOT_CORRUPT"),
        (state + b"x", "SNAPSHOT_CORRUPT"),
        (newer, "SNAPSHOT_VERSION_MISMATCH"),
    ]:
        with pytest.raises(CallerError) as refused:
            await boxes.open(LIMITS, bad)
        assert refused.value.code == code


async def test_a_suspended_state_is_refused(boxes: PythonBoxes, box: PythonBox):
    await box._live.session.feed_start("f()")
    suspended = await box._live.session.dump()
    with pytest.raises(CallerError) as refused:
        await boxes.open(LIMITS, suspended)
    assert refused.value.code == "SNAPSHOT_CORRUPT"


async def test_a_state_too_large_to_save_is_said_so(box: PythonBox):
    await value(box, "x = ['a' * 1000 + str(n) for n in range(45000)]")
    with pytest.raises(ModelError) as refused:
        await box.dump()
    assert refused.value.code == "MEMORY_EXCEEDED"
    with pytest.raises(InternalError):
        await run(box, "1")


async def test_fits(box: PythonBox):
    assert box.fits(LIMITS.model_copy(update={"cpu_ms": 1, "wall_ms": 9, "max_external_calls": 0}))
    assert not box.fits(LIMITS.model_copy(update={"memory_mb": 65}))
    assert not box.fits(LIMITS.model_copy(update={"max_stack_depth": 255}))
    with pytest.raises(InternalError):
        await run(box, "1", memory_mb=65)


# -- validation ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        "",
        "1/0",
        "x = undefined + 1",
        "from __future__ import annotations\nx = 1",
        '"""doc"""\nfrom __future__ import annotations',
        "\ufeffx = 1",
        "# comment only",
        "await f()",
        "while True: pass",
        "print('x' * 10**9)",
        "x = 1\r\ny = 2\r\n",
        "match x:\n  case 1: pass",
    ],
)
async def test_valid_code_is_valid_and_not_run(boxes: PythonBoxes, code: str):
    with anyio.fail_after(5):
        stubs, known = "async def f() -> int: ...", frozenset({"undefined", "x"})
        assert await boxes.validate(code, stubs=stubs, known=known) == ()


@pytest.mark.parametrize(
    ("code", "error", "span"),
    [
        ("x = = 3", "SYNTAX_ERROR", (1, 5, 1, 6)),
        ("x = 1\ny = (", "SYNTAX_ERROR", None),
        ("  x = 1", "SYNTAX_ERROR", (1, 1, 1, 3)),
        ("\ufeffx = = 3", "SYNTAX_ERROR", (1, 5, 1, 6)),
        ("x = 1\n\ndef f():\n  yield x", "UNSUPPORTED_FEATURE", (4, 3, 4, 10)),
        ("class A(B): pass", "UNSUPPORTED_FEATURE", (1, 1, 1, 17)),
        ("from . import x", "UNSUPPORTED_FEATURE", (1, 1, 1, 16)),
        ("(" * 30_000, "SYNTAX_ERROR", (1, 201, 1, 202)),
        ("'\ud800'", "SYNTAX_ERROR", None),
        ("x = 1\n" * 150_000, "MEMORY_EXCEEDED", None),
    ],
)
async def test_validation_says_what_a_run_would(
    boxes: PythonBoxes, code: str, error: str, span: tuple[int, int, int, int] | None
):
    found = await boxes.validate(code)
    assert [one.code for one in found] == [error]
    if span is not None:
        line, column, end_line, end_column = span
        wanted = Span(line=line, column=column, end_line=end_line, end_column=end_column)
        assert found[0].span == wanted
    async with opened(boxes) as box:
        ran = await run(box, code)
        assert ran.diagnostics == found
    assert await boxes.validate("1") == ()


async def test_validations_may_overlap(boxes: PythonBoxes):
    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(boxes.validate, "x = = 1")
            with anyio.move_on_after(0.001):
                await boxes.validate("x" * 10_000)
    assert await boxes.validate("1") == ()


# -- what is known about the engine --------------------------------------------------------------------


async def test_the_subset_is_the_engines(box: PythonBox):
    known = [name for name in dir(builtins) if not name.startswith("_")]
    known = [name for name in known if name not in ("True", "False", "None")]
    found = [name for name in known if (await run(box, f"{name}\n1")).error is None]
    assert set(found) == set(BUILTINS)
    modules = sorted({*(n for n in sys.stdlib_module_names if not n.startswith("_")), "os.path"})
    found = [name for name in modules if (await run(box, f"import {name}")).error is None]
    assert found == sorted(MODULES)


async def test_the_engine_is_named(boxes: PythonBoxes):
    assert boxes.engine == "monty/1.4.0"


async def test_metrics(box: PythonBox):
    ran = await run(box, "x = 'a' * (30 << 20)\nn = 0\nfor i in range(200000): n += i")
    assert ran.metrics.duration_ms >= 5
    assert 30 << 20 < ran.metrics.memory_peak_bytes < 120 << 20
    assert (await run(box, "1")).metrics.memory_peak_bytes >= ran.metrics.memory_peak_bytes

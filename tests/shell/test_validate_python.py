"""Code is checked without running it: syntax, names, features, types. The real engine, the real checker."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from holdfast.contracts import Diagnostic, Severity, Span
from holdfast.errors import InternalError
from holdfast.shell.languages._python_check import binds
from holdfast.shell.languages.python import PythonBoxes

STUBS = """\
from typing import Any, Literal, NotRequired, TypedDict

class Invoice(TypedDict):
    id: int
    note: NotRequired[str | None]

class Line(TypedDict):
    item: str

def add(a: float, b: float = 2.0) -> float:
    \"\"\"Add.\"\"\"

def pick(mode: Literal['a', 'b']) -> str: ...

def total(numbers: list[float]) -> float: ...

def tag(words: list[str]) -> None: ...

def read_text(path: str) -> str: ...

async def send_invoice(customer: str, lines: list[Line]) -> Invoice:
    \"\"\"Send an invoice.\"\"\"
"""
KNOWN = frozenset(("rows", "helper"))


@pytest.fixture(scope="module")
async def boxes() -> AsyncGenerator[PythonBoxes]:
    async with PythonBoxes() as opened:
        yield opened


async def check(
    boxes: PythonBoxes, code: str, known: frozenset[str] = KNOWN
) -> tuple[Diagnostic, ...]:
    return await boxes.validate(code, stubs=STUBS, known=known)


async def errors(boxes: PythonBoxes, code: str) -> list[Diagnostic]:
    return [one for one in await check(boxes, code) if one.severity is Severity.ERROR]


def at(span: Span | None) -> tuple[int, int]:
    assert span is not None
    return span.line, span.column


@pytest.mark.parametrize(
    ("code", "expected", "place", "said"),
    [
        ("x = (1", "SYNTAX_ERROR", (1, 7), ""),
        ("x = 1\ndef f(:\n  pass", "SYNTAX_ERROR", (2, 7), ""),
        ("def f():\n  yield 1", "UNSUPPORTED_FEATURE", (2, 3), "yield"),
        ("class A(B): pass", "UNSUPPORTED_FEATURE", (1, 1), "inheritance"),
        ('open("/etc/passwd")', "UNSUPPORTED_FEATURE", (1, 1), "`open`"),
        ('with open("x") as f:\n  f.read()', "UNSUPPORTED_FEATURE", (1, 6), "`open`"),
        ('f = open\nf("x")', "UNSUPPORTED_FEATURE", (1, 5), "`open`"),
        ('__import__("os")', "UNSUPPORTED_FEATURE", (1, 1), "`__import__`"),
        ("globals()", "UNSUPPORTED_FEATURE", (1, 1), "`globals`"),
        ('import os\nos.system("x")', "UNSUPPORTED_FEATURE", (2, 1), "`os.system`"),
        ("from os import system", "UNSUPPORTED_FEATURE", (1, 16), "`os.system`"),
        ("import subprocess", "UNSUPPORTED_FEATURE", (1, 1), "'subprocess'"),
        ("def f():\n  import socket", "UNSUPPORTED_FEATURE", (2, 3), "'socket'"),
        ("from collections.abc import Mapping", "UNSUPPORTED_FEATURE", (1, 1), "collections.abc"),
        ('send_invoise("a")', "UNKNOWN_TOOL", (1, 1), "`send_invoise`"),
        ("def f():\n  return nobody(1)", "UNKNOWN_TOOL", (2, 10), "`nobody`"),
        ("é = 1; nobody(é)", "UNKNOWN_TOOL", (1, 8), "`nobody`"),
        ("nobody + 1", "TYPE_ERROR", (1, 1), "`nobody`"),
        ("[x for x in rows if y]", "TYPE_ERROR", (1, 21), "`y`"),
        ("class A:\n  z = w", "TYPE_ERROR", (2, 7), "`w`"),
        ('x = 1\nadd("x")', "TYPE_ERROR", (2, 5), "Expected `float`"),
        ("add()", "TYPE_ERROR", (1, 1), "`a`"),
        ("add(1, 2, 3)", "TYPE_ERROR", (1, 11), "Too many"),
        ("add(1, c=2)", "TYPE_ERROR", (1, 8), "`c`"),
        ('pick("c")', "TYPE_ERROR", (1, 6), "Literal"),
        ('total("abc")', "TYPE_ERROR", (1, 7), "found"),
        ('tag("abc")', "TYPE_ERROR", (1, 5), "found"),
        ('1 + "a"', "TYPE_ERROR", (1, 1), "Operator `+`"),
        ("describe_tool(5)", "TYPE_ERROR", (1, 15), "Expected `str`"),
        ('i = send_invoice("a", [])\ni["id"]', "TYPE_ERROR", (2, 1), "Coroutine"),
        ('i = send_invoice("a", [])\nprint(i)', "TYPE_ERROR", (2, 7), "not awaited"),
        ('result = send_invoice("a", [])', "TYPE_ERROR", (1, 10), "not awaited"),
        ("if send_invoice('a', []):\n  pass", "TYPE_ERROR", (1, 4), "not awaited"),
        ("i = send_invoice('a', [])\nx = f'{i}'", "TYPE_ERROR", (2, 8), "not awaited"),
        ('send_invoice("a", [])', "TYPE_ERROR", (1, 1), "not awaited"),
        ('i = await send_invoice("a", [])\ni.id', "TYPE_ERROR", (2, 1), "`id`"),
    ],
)
async def test_what_is_wrong(
    boxes: PythonBoxes, code: str, expected: str, place: tuple[int, int], said: str
):
    first = (await errors(boxes, code))[0]
    assert (first.code, at(first.span)) == (expected, place)
    assert said in first.message


@pytest.mark.parametrize(
    "code",
    [
        "",
        "add(1)",
        "add(1, b=2) + 1",
        "rows[0].anything(helper(1))",
        "rows = 5\nrows + 1",
        "numbers = [1, 2]\ntotal(numbers)",
        "numbers = []\nfor i in range(3):\n  numbers.append(i)\ntotal(numbers)",
        'import asyncio\nr = await asyncio.gather(send_invoice("a", []), send_invoice("b", []))\nr[0]["id"] + 1',
        'import asyncio\nts = [send_invoice(c, []) for c in "abc"]\nr = await asyncio.gather(*ts)',
        'p = send_invoice("a", [])\ni = await p\nprint(i["id"])',
        'line = {"item": "x"}\nawait send_invoice("a", [line])',
        'for mode in ("a", "b"):\n  pick(mode)',
        "modes = ['a', 'b']\nfor mode in modes:\n  pick(mode)",
        "try:\n  count\nexcept NameError:\n  count = 0\ncount + 1",
        "try:\n  import numpy\nexcept ImportError:\n  numpy = None",
        'try:\n  1 + "a"\nexcept TypeError:\n  pass',
        "def f():\n  return g()\ndef g():\n  return 1\nf()",
        "def f():\n  global made\n  made = 1\nf()\nmade + 1",
        "exec('a = 1')\na + 1",
        "class A:\n  pass\na = A()\na.z = 1\na.z",
        "x: Undefined = 5\ndef f(a: Undefined) -> Undefined:\n  return a",
        "import re\nm = re.match('a', 'b')\nm.group(0)",
        "d = {'a': 1}\nmax(d, key=lambda k: d[k])\nsorted(d)",
        "[list_tools(), search_tools('x'), current_policy()]",
        "def add(a, b, c):\n  return a\nadd('x', 1, 2)",
        "match rows:\n  case [first, *rest]:\n    first\n  case {'a': a, **more}:\n    a, more",
        "(lambda a, *b, c=1, **d: (a, b, c, d))(1)",
        "with helper as (a, b):\n  a + b",
        "if (n := len(rows)) > 1:\n  n",
        "import os.path\nos.path.join('a', 'b')",
        "from __future__ import annotations\n__name__",
        "\ufeffadd(1)",
        "def outer():\n  x = 1\n  def inner():\n    nonlocal x\n    x = 2\n    return x\n  return inner",
        "isinstance(rows, (list, ImportError)) and getattr(rows, 'x') or map(str, rows)",
    ],
)
async def test_what_is_right(boxes: PythonBoxes, code: str):
    assert await errors(boxes, code) == []


async def test_hints_name_what_was_meant(boxes: PythonBoxes):
    async def hint(code: str) -> str:
        return str((await errors(boxes, code))[0].hint)

    assert await hint("send_invoise('a')") == "Did you mean `send_invoice`?"
    assert await hint("hepler(1)") == "Did you mean `helper`?"
    assert await hint("prnt(1)") == "Did you mean `print`?"
    assert await hint("total_sum = 1\ntotal_sun + 1") == "Did you mean `total_sum`?"
    assert await hint("json.loads('1')") == "Write `import json` first."
    assert "def add(a: float, b: float = 2.0) -> float" in await hint("add('x')")
    assert await hint("i = send_invoice('a', [])\ni['id']") == "Await the call: `await …`."
    assert "asyncio" in await hint("import numpy")
    assert "zzzzqq" not in await hint("zzzzqq(1)")


async def test_the_span_covers_the_argument(boxes: PythonBoxes):
    (one,) = await errors(boxes, 'x = 1\n\nadd(1, "two")')
    assert one.span == Span(line=3, column=8, end_line=3, end_column=13)


async def test_doubts_are_warnings(boxes: PythonBoxes):
    for code in (
        "import re\nre.match('a', 'b').group(0)",
        'i = await send_invoice("a", [])\ni["nope"]',
        "m = str(rows)\npick(m)",
        "x: int = 'a'",
    ):
        (one,) = await check(boxes, code)
        assert (one.severity, one.code) == (Severity.WARNING, "TYPE_ERROR")


async def test_everything_wrong_is_told_in_order(boxes: PythonBoxes):
    found = await errors(boxes, "nobody(1)\nimport heapq\nadd('x')\nnothing")
    assert [(one.code, at(one.span)[0]) for one in found] == [
        ("UNKNOWN_TOOL", 1),
        ("UNSUPPORTED_FEATURE", 2),
        ("TYPE_ERROR", 3),
        ("TYPE_ERROR", 4),
    ]
    many = await check(boxes, "\n".join(f"nobody_{i}(1)" for i in range(100)))
    assert len(many) == 20


async def test_nothing_runs(boxes: PythonBoxes):
    assert await errors(boxes, "while True:\n  pass") == []
    assert await errors(boxes, "raise ValueError('x')") == []
    assert await errors(boxes, "result = 1 / 0") == []
    assert await errors(boxes, "kept = 1") == []
    assert [one.code for one in await errors(boxes, "kept")] == ["TYPE_ERROR"]


async def test_without_stubs_and_with_others(boxes: PythonBoxes):
    assert [one.code for one in await boxes.validate("add(1)")] == ["UNKNOWN_TOOL"]
    assert await boxes.validate("add(1)", known=frozenset(("add",))) == ()
    other = "def add(a: str) -> str: ...\n"
    assert [one.code for one in await boxes.validate("add(1)", stubs=other)] == ["TYPE_ERROR"]
    assert await check(boxes, "add(1)") == ()


async def test_a_session_variable_hides_the_capability_of_its_name(boxes: PythonBoxes):
    known = frozenset(("add", "send_invoice"))
    code = "add('x', 1, 2, 3)\nprint(send_invoice(1))"
    assert await boxes.validate(code, stubs=STUBS, known=known) == ()


async def test_names_that_can_not_be_told_are_not_missed(boxes: PythonBoxes):
    assert await boxes.validate("anything(1)", known=binds("exec('anything = print')")) == ()


async def test_code_that_the_host_does_not_parse_is_checked_by_the_engine(boxes: PythonBoxes):
    padding = "# " + "x" * 30_000 + "\n"
    found = await errors(boxes, f"{padding}send_invoise(1)\nimport heapq\nImportError\nadd('x')")
    assert [(one.code, at(one.span)) for one in found] == [
        ("UNKNOWN_TOOL", (2, 1)),
        ("UNSUPPORTED_FEATURE", (3, 8)),
        ("TYPE_ERROR", (5, 5)),
    ]
    assert await errors(boxes, f"{padding}rows[0] + add(1)") == []


async def test_stubs_that_are_none_are_our_mistake(boxes: PythonBoxes):
    with pytest.raises(InternalError):
        await boxes.validate("1", stubs="def (")


async def test_a_check_survives_all_texts(boxes: PythonBoxes):
    for code in (
        "(" * 5000,
        "x = " + "+".join(["1"] * 20_000),
        "[" * 200 + "]" * 200,
        "x = '\ud800'\n\ud800(1)",
        "x = 1\x00\nnobody(1)",
        "\x0c\r\rnobody(1)\r\n\u2028nobody(2)",
    ):
        await check(boxes, code)
    assert await check(boxes, "add(1)") == ()


# -- what code binds ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("", set()),
        ("a = b, (c, *d) = 1, (2, 3)", {"a", "b", "c", "d"}),
        ("a: int = 1\nb: int\nc += 1", {"a", "c"}),
        ("for a, b in []:\n  c = 1\nelse:\n  d = 1", {"a", "b", "c", "d"}),
        ("with x as (a, b), y as c: pass", {"a", "b", "c"}),
        ("import a, b.c, d as e\nfrom f import g, h as i", {"a", "b", "e", "g", "i"}),
        ("def a(b): c = 1\nasync def d(): pass\nclass e:\n  f = 1", {"a", "d", "e"}),
        ("def f():\n  def g():\n    global a\n    a = 1", {"f", "a"}),
        ("print(a := 1)\n[b := x for x in y]", {"a", "b"}),
        ("match x:\n  case [a, *b]: pass\n  case {'k': c, **d}: pass", {"a", "b", "c", "d"}),
        ("try:\n  a = 1\nexcept E as b:\n  c = 1\nfinally:\n  d = 1", {"a", "b", "c", "d"}),
        ("while 1:\n  if 1:\n    a = 1", {"a"}),
        ("a.b = 1\nc[0] = 1\nlambda d: d\n[e for e in f]", set()),
        ("exec('a = 1')", {"*"}),
    ],
)
def test_binds(code: str, names: set[str]):
    assert binds(code) == names


def test_binds_of_code_that_the_host_does_not_parse():
    code = "# " + "x" * 30_000 + "\na = 1\ndef b(): pass\nimport c\nfor d in a: pass\na == e"
    assert binds(code) == {"a", "b", "c", "d", "*"}  # what else it may bind nobody knows
    for part in ("x", "x:", "x = ", "x ", "def ", "x: y\n"):
        binds(part * 200_000)

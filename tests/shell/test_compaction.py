"""A session's state does not grow with the code it ran, and nobody who runs code in it can tell."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.shell.support import ALLOW, World, approve, elsewhere, opened, parked

import holdfast
from holdfast.contracts import SessionLimits
from holdfast.shell import contents as contents_module
from holdfast.shell.box import Ran
from holdfast.shell.languages.python import PythonBox, PythonBoxes
from holdfast.shell.snapshot import Snapshot, pack, unpack

LIMITS = SessionLimits(cpu_ms=30_000, wall_ms=60_000)
LITERAL = 2000
"""Characters of text that stay in the engine, however often the variable is set anew."""


@pytest.fixture(scope="module")
async def boxes() -> AsyncGenerator[PythonBoxes]:
    async with PythonBoxes() as opened:
        yield opened


@asynccontextmanager
async def box_with(boxes: PythonBoxes, state: bytes | None = None) -> AsyncGenerator[PythonBox]:
    one = await boxes.open(LIMITS, state)
    try:
        yield one
    finally:
        await one.close()


async def run(box: PythonBox, code: str, **inputs: Any) -> Ran:
    ran = await box.run(code, inputs=inputs, limits=LIMITS, names={})
    assert isinstance(ran, Ran)
    return ran


class Made:
    """The state that some code leaves behind, and the compacted one."""

    def __init__(self, state: bytes, small: bytes | None) -> None:
        self.state = state
        self.small = small


async def made(boxes: PythonBoxes, codes: Sequence[str]) -> Made:
    sources: dict[str, str] | None = {}
    names: frozenset[str] = frozenset()
    async with box_with(boxes) as box:
        for code in codes:
            ran = await run(box, code)
            assert ran.state_kept, ran
            names |= boxes.binds(code)
            if sources is not None:
                sources = boxes.defines(sources, code, ran.error.code if ran.error else None)
        state = await box.dump()
        if sources is None:
            return Made(state, None)
        return Made(state, await boxes.compact(state, LIMITS, names=names, sources=sources))


def told(ran: Ran) -> tuple[Any, ...]:
    """All that whoever ran the code gets to know."""
    return ran.status, ran.value, ran.stdout, ran.stderr, ran.error, ran.diagnostics


async def check_same(boxes: PythonBoxes, found: Made, then: Sequence[str]) -> None:
    """Run the same code in both states: nothing that it gives may differ."""
    assert found.small is not None
    async with box_with(boxes, found.state) as old, box_with(boxes, found.small) as new:
        for code in then:
            assert told(await run(new, code)) == told(await run(old, code)), code


# -- any program --------------------------------------------------------------------------------------

VARIABLES = "abcd"
SCALARS = [
    "None", "True", "0", "-7", "1.5", "-0.0", "float('nan')", "float('inf')", "2**62", "2**63", "-(10**30)",
    "''", "'x'", "'literal'", "'liter' + str('al')", "'é\\u2028\\n'", "b'bytes'", "1j",
    "Decimal('1.50')", "date(2024, 2, 29)", "datetime(2024, 1, 2, 3, 4, 5, 6)", "timedelta(days=1, seconds=2)",
    "datetime(2024, 1, 2, tzinfo=timezone.utc)", "time(1, 2, tzinfo=timezone(timedelta(hours=1), 'z'))",
]  # fmt: skip
scalars = st.sampled_from(SCALARS)
variables = st.sampled_from(VARIABLES)


def joined(of: st.SearchStrategy[str], form: str, most: int = 4) -> st.SearchStrategy[str]:
    return st.lists(of, min_size=1, max_size=most).map(lambda all: form % ", ".join(all))


keys = st.one_of(scalars, joined(scalars, "(%s,)", 2), joined(scalars, "frozenset([%s])", 3))
values: st.SearchStrategy[str] = st.recursive(
    st.one_of(scalars, variables, joined(keys, "{%s}"), joined(keys, "frozenset([%s])")),
    lambda inner: st.one_of(
        joined(inner, "[%s]"),
        joined(inner, "(%s,)"),
        joined(st.tuples(keys, inner).map(lambda pair: f"{pair[0]}: {pair[1]}"), "{%s}"),
    ),
    max_leaves=6,
)

BEGIN = (
    "from decimal import Decimal\nfrom datetime import date, datetime, time, timedelta, timezone\n"
    "a, b, c, d = [], {}, 'literal', (1, [2])"
)
DEFINITIONS = [
    "def f(n=1, *, m='x'):\n    return [n, m, a]",
    "x = 1\n\n\ndef f(n):\n    return n / 0",
    "f = lambda n: (n, b)",
    "async def g(): return a",
    "import json as j, math",
    "def f():\n    global a\n    a = [a]\n    return a",
]
DOUBTFUL = [
    "class C:\n    x = 1",
    "class C:\n    pass\na = C()",
    "def make():\n    n = [0]\n    def inner(): return n\n    return inner\nf = make()",
    "def f(n=[]):\n    n.append(1)\n    return n",
    "if a:\n    def f(): return 1\nelse:\n    def f(): return 2",
    "a = f",
    "b = iter([1, 2, 3])",
    "from collections import deque\nc = deque([1])",
    "import random\nrandom.seed(1)",
    "def f(): return 3\n1 / 0",
    "return 1\ndef f(): return 4",
    "exec('def f(): return 5')",
    "d = Decimal(1) / 3",
    "def f(): return 6\nfor f in [f, lambda: 7]: pass",
    "def g():\n    global f\n    f = lambda: 8\ng()",
]

data = st.one_of(
    st.tuples(variables, values).map(" = ".join),
    st.tuples(variables, variables).map(lambda two: f"{two[0]} = [{two[1]}, {two[1]}]"),
    st.tuples(variables, values).map(
        lambda two: f"if isinstance({two[0]}, list): {two[0]}.append({two[1]})"
    ),
    st.tuples(variables, values).map(
        lambda two: f"if isinstance({two[0]}, dict): {two[0]}['k'] = {two[1]}"
    ),
    variables.map(lambda one: f"if isinstance({one}, set): {one}.pop(); {one}.add(0)"),
)
anything = st.one_of(data, st.sampled_from(DEFINITIONS), st.sampled_from(DOUBTFUL))

FOLLOWING = [
    "[repr(one) for one in (a, b, c, d)]",
    "[type(one).__name__ for one in (a, b, c, d)]",
    "flat = [a, b, c, d]\nfor one in flat:\n    if isinstance(one, (list, tuple)): flat.extend(one)\n"
    "    elif isinstance(one, dict): flat.extend(one.keys()); flat.extend(one.values())\n"
    "    if len(flat) > 40: break\n"
    "result = [i for i in range(len(flat)) for k in range(i) if flat[i] is flat[k]]",
    "[one is 'literal' for one in (a, b, c, d)]",
    "for one in (a, b, c, d):\n    if isinstance(one, list): one.append(len(one))\n"
    "    elif isinstance(one, dict): one['new'] = 1\n    elif isinstance(one, set): one.add('new')\n"
    "repr((a, b, c, d))",
    "\nrepr(f())",
    "repr(f(2))",
    "import asyncio\nrepr(await g())",
    "j.dumps([math.pi])",
    "[name for name in locals() if not name.startswith('__')]",
    "import random\nrandom.random()",
    "repr(Decimal(1) / 7)",
    "undefined",
]


@settings(max_examples=40)
@given(st.lists(data, min_size=1, max_size=6), st.sampled_from(["", *DEFINITIONS]))
async def test_data_is_the_same_afterwards(
    boxes: PythonBoxes, codes: list[str], definition: str
) -> None:
    await check_same(boxes, await made(boxes, [BEGIN, definition, *codes]), FOLLOWING)


@settings(max_examples=40)
@given(st.lists(anything, min_size=1, max_size=6))
async def test_what_is_compacted_is_the_same_afterwards(
    boxes: PythonBoxes, codes: list[str]
) -> None:
    found = await made(boxes, [BEGIN, *codes])
    assume(found.small is not None)
    await check_same(boxes, found, FOLLOWING)


# -- what is not compacted ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        *DOUBTFUL[:5],
        "def f(): pass\na = f",
        *DOUBTFUL[6:9],
        "def f(): return 1\n1 / 0",
        *DOUBTFUL[11:],
        "def f(): return 1\nf = (lambda: 2) if True else f",
        "def f(): return 1\n[f := len for _ in [1]]",
        "def f(): return 1\na = {1: [f]}",
        "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int",
        "from functools import lru_cache\n@lru_cache\ndef f(n): return n",
        "from collections import defaultdict\na = defaultdict(list)",
        "from collections import Counter\na = [Counter('aab')]",
        "from collections import namedtuple\nP = namedtuple('P', 'x')\na = (P(1),)",
        "import re\na = re.compile('x')",
        "a = {'n': range(3)}",
        "a = {}.keys()",
        "a = [len]",
        "a = slice(1)",
        "try:\n    1 / 0\nexcept ZeroDivisionError as why:\n    a = why",
        "async def f(): pass\na = f()",
        "import sys\nsys.argv.append(1)",
        "from decimal import getcontext\ngetcontext().prec = 3",
        "def f():\n    global result\n    result = 1",
        "list = [1]",
        "def id(x): return 1",
        "def f(): return b'one object'",
        "a = locals()",
    ],
)
async def test_in_doubt_the_state_stays_as_it_is(boxes: PythonBoxes, code: str) -> None:
    assert (await made(boxes, [BEGIN, code])).small is None


async def test_a_capability_in_a_variable_is_not_compacted(boxes: PythonBoxes) -> None:
    async with box_with(boxes) as box:
        await box.run("a = tool", inputs={}, limits=LIMITS, names={"tool": lambda: None})
        state = await box.dump()
    assert await boxes.compact(state, LIMITS, names=frozenset("a"), sources={}) is None


async def test_an_input_hides_a_function(boxes: PythonBoxes) -> None:
    async with box_with(boxes) as box:
        await run(box, "def f(): return 1")
        sources = boxes.defines({}, "def f(): return 1", None)
        assert sources is not None
        await run(box, "1", f=2)
        state = await box.dump()
    assert await boxes.compact(state, LIMITS, names=frozenset("f"), sources=sources) is None


async def test_code_that_can_not_be_read_ends_all_knowledge(boxes: PythonBoxes) -> None:
    known = {"f": "def f(): pass"}
    assert boxes.defines(known, "def f(: pass", "SYNTAX_ERROR") == known
    assert boxes.defines(known, "def f(: pass", "RUNTIME_ERROR") is None
    assert boxes.defines(known, "f = [" + "1, " * 10_000 + "]", None) is None
    assert boxes.defines(known, "g = [" + "1, " * 10_000 + "]", None) == known
    assert boxes.defines(known, "\N{MATHEMATICAL BOLD SMALL F} = 1", None) == {}


async def test_the_name_of_a_global_is_never_certain_again(boxes: PythonBoxes) -> None:
    once = boxes.defines({}, "def g():\n    global f\n    f = 1", None)
    assert once is not None
    then = boxes.defines(once, "def f(): return 1", None)
    assert then is not None
    assert not then["f"]


async def test_what_is_too_much_stays_as_it_is(boxes: PythonBoxes) -> None:
    found = await made(boxes, ["a = [[] for _ in range(150_000)]"])
    assert found.small is None


# -- in a session -------------------------------------------------------------------------------------


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/journal.db"


@pytest.fixture
def saves_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents_module, "DEBT_RUNS", 20)


def filler(number: int) -> str:
    return f"text = {str(number) + 'x' * LITERAL!r}"


async def grow(hf: holdfast.Runtime, runs: int, session: str = "s") -> None:
    for number in range(runs):
        done = await hf.shell.run(filler(number), session=session)
        assert done.status == "ok", done.error


async def size(hf: holdfast.Runtime, session: str = "s") -> int:
    return len(await hf.shell.snapshot(session))


@pytest.mark.usefixtures("saves_often")
async def test_the_state_does_not_grow_with_the_code(url: str) -> None:
    async with holdfast.open(url) as hf:
        await hf.shell.run("seen = [1]\nalso = seen\ndef add(n): seen.append(n)", session="s")
        await grow(hf, 500)
        assert await size(hf) < 256 << 10
        await hf.shell.run("add(2)", session="s")
        done = await hf.shell.run("[seen, also is seen, text[:4]]", session="s")
        assert done.result == [[1, 2], True, "499x"]
    async with holdfast.open(url) as hf:
        assert (await hf.shell.run("add(3)\nalso", session="s")).result == [1, 2, 3]


async def test_a_session_shrinks_in_whichever_process_it_grows_too_large(url: str) -> None:
    text = (
        "for n in range(12):\n"
        f"    await hf.shell.run(f'text = {{str(n) + chr(120) * {LITERAL}!r}}', session='s')"
    )
    async with holdfast.open(url) as hf:
        await hf.shell.run("n = [0]\ndef up():\n    n[0] += 1\n    return n[0]", session="s")
    for _ in range(4):
        await elsewhere(url, text, ALLOW)
    async with holdfast.open(url) as hf:
        assert await size(hf) < 64 << 10
        assert [(await hf.shell.run("up()", session="s")).result for _ in "ab"] == [1, 2]


@pytest.mark.usefixtures("saves_often")
async def test_a_session_that_can_not_be_compacted_goes_on(url: str) -> None:
    async with holdfast.open(url) as hf:
        await hf.shell.run("class C:\n    n = 1\nc = C()", session="s")
        await grow(hf, 100)
        assert await size(hf) > 200_000
        assert (await hf.shell.run("c.n = 5\nc.n", session="s")).result == 5
    async with holdfast.open(url) as hf:
        assert (await hf.shell.run("c.n", session="s")).result == 5


@pytest.mark.usefixtures("saves_often")
async def test_what_was_defined_is_known_after_parking_and_in_a_copy(url: str) -> None:
    world = World()
    async with opened(url, world) as hf:
        await hf.shell.run("def twice(n): return 2 * n", session="s")
        run = await parked(hf, "def thrice(n): return 3 * n\nresult = pay('ann', twice(4))")
    async with opened(url, world) as hf:
        assert (await approve(hf, run)).result == "paid ann"
        await hf.shell.restore("copy", await hf.shell.snapshot("s"))
        for session in ("s", "copy"):
            await grow(hf, 60, session)
            assert await size(hf, session) < 64 << 10
            done = await hf.shell.run("[twice(5), thrice(5)]", session=session)
            assert done.result == [10, 15]
    assert world.done == ["pay ann 8"]


@pytest.mark.usefixtures("saves_often")
async def test_a_reset_session_is_compacted_again(url: str) -> None:
    async with holdfast.open(url) as hf:
        await hf.shell.run("exec('x = 1')", session="s")
        await grow(hf, 60)
        assert await size(hf) > 100_000
        await hf.shell.reset("s")
        await grow(hf, 60)
        assert await size(hf) < 64 << 10


def test_a_state_tells_whether_its_definitions_are_known() -> None:
    key = bytes(32)
    for sources in (None, {}, {"f": "def f(): pass"}):
        sealed = pack(key, Snapshot("s", "e/1", b"state", sources=sources))
        assert unpack(key, sealed, engine="e/1").sources == sources

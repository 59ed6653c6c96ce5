"""Code calls capabilities: arguments, results, errors, from wherever, and what is told about it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.shell.support import ALLOW, World, codes, delivered, opened

import holdfast
from holdfast import RunResult, capability
from holdfast.contracts import canonical_json, digest


class Odd(Exception):
    """An exception that code in a box has never heard of."""


@capability
def add(a: int, b: int = 2, *, c: int = 3) -> int:
    """Add up to three numbers."""
    return 100 * a + 10 * b + c


@capability
async def aadd(a: int, b: int = 2, *, c: int = 3) -> int:
    """Add up to three numbers, awaited."""
    await asyncio.sleep(0)
    return 100 * a + 10 * b + c


@capability
def echo(value: Any) -> Any:
    """Give back what it is given."""
    return value


FAILURES: dict[str, Exception] = {
    "value": ValueError("bad value"),
    "key": KeyError("no such key"),
    "missing": FileNotFoundError(2, "No such file", "x.txt"),
    "odd": Odd("a strange thing"),
    "plain": Exception("something"),
    "empty": ValueError(),
    "lines": ValueError("first\nsecond \x1b[31m 'quoted' ü €"),
}


@capability
def boom(why: str) -> int:
    """Fail."""
    raise FAILURES[why]


@capability
async def aboom(why: str) -> int:
    """Fail, awaited."""
    raise FAILURES[why]


TOOLS = [add, aadd, echo, boom, aboom]


async def run(code: str, url: str = "memory:", **more: Any) -> RunResult:
    async with holdfast.open(url, {}, capabilities=TOOLS) as hf:
        return await hf.shell.run(code, session="s", **more)


# -- arguments ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["add", "await aadd"])
@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ("1", 123),
        ("a=1", 123),
        ("1, 5", 153),
        ("1, b=5", 153),
        ("1, 5, c=7", 157),
        ("c=7, a=1", 127),
        ("*[1, 5]", 153),
        ("**{'a': 1, 'c': 9}", 129),
    ],
)
async def test_arguments_go_where_python_would_put_them(
    name: str, arguments: str, found: int
) -> None:
    done = await run(f"{name}({arguments})")
    assert (done.status, done.result) == ("ok", found)


@pytest.mark.parametrize("name", ["add", "await aadd"])
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("", "needs `a`"),
        ("'x'", "`a`: expected integer"),
        ("1, z=2", "no parameter `z`"),
        ("1, 2, 3, 4", "takes"),
        ("True", "`a`"),
        ("1, a=1", "`a`"),
    ],
)
async def test_arguments_that_do_not_fit_are_the_codes_mistake(
    name: str, arguments: str, says: str
) -> None:
    """Nothing is called; the code may catch it, and is told how the capability is declared."""
    done = await run(f"{name}({arguments})")
    assert codes(done) == ("runtime_error", "TOOL_ERROR")
    assert done.error is not None
    assert says in done.error.message
    assert "add(a: int, b: int = 2, c: int = 3) -> int" in str(done.error.hint)
    caught = await run(f"try:\n    {name}({arguments})\nexcept Exception as e:\n    result = 'no'")
    assert caught.result == "no"


@pytest.mark.parametrize(
    ("value", "says"), [("{1, 2}", "set"), ("b'x'", "bytes"), ("float('nan')", "nan")]
)
async def test_what_is_no_json_is_refused_as_an_argument(value: str, says: str) -> None:
    done = await run(f"echo({value})")
    assert done.status == "runtime_error"
    assert says in str(done.error and done.error.message)


# -- results ------------------------------------------------------------------------------------------

VALUES: list[Any] = [
    None,
    True,
    0,
    -7,
    2**70,
    1.5,
    -0.0,
    1e300,
    "",
    "text \x00 ü € 😀",
    [],
    {},
    [1, [2, [None, {"a": []}]]],
    {"a": {"b": [False]}, "": 1, "ü": "x"},
]


async def test_every_json_value_comes_back_as_it_is(url: str) -> None:
    code = "result = [echo(one) for one in values]"
    done = await run(code, url, inputs={"values": VALUES})
    assert canonical_json(done.result) == canonical_json(VALUES)


async def test_a_result_is_the_codes_own() -> None:
    """What code does to a result changes no other."""
    code = "one = echo([1])\none.append(2)\nresult = [one, echo([1])]"
    assert (await run(code)).result == [[1, 2], [1]]


# -- errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["boom(why)", "await aboom(why)"])
@pytest.mark.parametrize(
    ("why", "kind", "text"),
    [
        ("value", "ValueError", "bad value"),
        ("key", "KeyError", "'no such key'"),
        ("missing", "FileNotFoundError", "[Errno 2] No such file: 'x.txt'"),
        ("odd", "RuntimeError", "Odd: a strange thing"),
        ("plain", "RuntimeError", "Exception: something"),
        ("lines", "ValueError", "first\nsecond \x1b[31m 'quoted' ü €"),
    ],
)
async def test_an_error_reaches_the_code_intact(call: str, why: str, kind: str, text: str) -> None:
    code = f"""
try:
    {call}
except {kind} as error:
    result = [type(error).__name__, str(error)]
"""
    done = await run(code, inputs={"why": why})
    assert (done.status, done.result) == ("ok", [kind, text])


@pytest.mark.parametrize("call", ["boom('odd')", "await aboom('odd')"])
async def test_an_uncaught_error_is_where_the_code_called(call: str) -> None:
    head = "async " if call.startswith("await") else ""
    wait = "await " if head else ""
    code = f"x = 1\n\n{head}def inner():\n    return {call}\n\nprint('before')\n{wait}inner()\n"
    done = await run(code)
    assert codes(done) == ("runtime_error", "TOOL_ERROR")
    assert done.error is not None
    assert done.error.message == "Odd: a strange thing"
    assert done.error.span is not None
    assert done.error.span.line == 4
    assert done.stdout == "before\n"
    assert "inner" in done.stderr
    assert str(Path(holdfast.__file__).parent) not in done.stderr
    [said] = [one for one in done.diagnostics if one.severity == "error"]
    assert (said.code, said.message, said.span) == (
        done.error.code,
        done.error.message,
        done.error.span,
    )
    assert [(one.name, one.status) for one in done.external_calls] == [
        (call.removeprefix("await ").partition("(")[0], "error")
    ]


async def test_an_error_without_words_still_says_something() -> None:
    done = await run("boom('empty')")
    assert done.error is not None
    assert "ValueError" in done.error.message


async def test_an_error_raised_again_keeps_its_words() -> None:
    done = await run("try:\n    boom('value')\nexcept ValueError:\n    raise")
    assert codes(done) == ("runtime_error", "TOOL_ERROR")
    assert done.error is not None
    assert done.error.message == "bad value"


async def test_an_error_of_the_code_after_a_call_is_the_codes() -> None:
    done = await run("try:\n    boom('value')\nexcept ValueError:\n    raise KeyError('mine')")
    assert codes(done) == ("runtime_error", "RUNTIME_ERROR")


async def test_what_was_assigned_before_an_uncaught_error_stays(url: str) -> None:
    async with holdfast.open(url, {}, capabilities=TOOLS) as hf:
        await hf.shell.run("x = add(1)\nboom('odd')\nx = 0", session="s")
        assert (await hf.shell.run("x", session="s")).result == 123


# -- from wherever ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("def f(n):\n    def g(m):\n        return add(m)\n    return g(n)\nf(1)", 123),
        ("[add(n) for n in range(3)]", [23, 123, 223]),
        ("{n: add(n) for n in range(2)}[1]", 123),
        ("call = add\ncall(1)", 123),
        ("calls = {'x': [echo, add]}\ncalls['x'][1](1)", 123),
        ("(lambda n: add(n))(1)", 123),
        ("def twice(f, n):\n    return [f(n), f(n)]\ntwice(add, 1)", [123, 123]),
        ("f'{add(1)}'", "123"),
        ("123 if add(1) == 123 else 0", 123),
        ("add(add(0, 0, c=1))", 123),
        ("x = [0]\nx[0] += add(1)\nx", [123]),
        ("try:\n    1 / 0\nexcept ZeroDivisionError:\n    y = add(1)\nfinally:\n    z = add(2)\n[y, z]",
         [123, 223]),
        ("class A:\n    def go(self):\n        return add(1)\nA().go()", 123),
        ("async def f():\n    return await aadd(1) + await aadd(0)\nawait f()", 146),
    ],
)  # fmt: skip
async def test_calls_from_anywhere(code: str, found: Any) -> None:
    done = await run(code)
    assert (done.status, done.result) == ("ok", found), done.error


async def test_functions_of_an_earlier_run_call_out(url: str) -> None:
    async with holdfast.open(url, {}, capabilities=TOOLS) as hf:
        await hf.shell.run("def f(n):\n    return add(n)\nkept = add", session="s")
        done = await hf.shell.run("[f(1), kept(2)]", session="s")
        assert done.result == [123, 223]
        assert [one.name for one in done.external_calls] == ["add", "add"]


async def test_functions_of_an_earlier_process_call_out(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/journal.db"
    async with holdfast.open(url, {}, capabilities=TOOLS) as hf:
        await hf.shell.run("def f(n):\n    return add(n)\nkept = add", session="s")
    async with holdfast.open(url, {}, capabilities=TOOLS) as hf:
        assert (await hf.shell.run("[f(1), kept(2)]", session="s")).result == [123, 223]
    async with holdfast.open(url, {}) as hf:
        done = await hf.shell.run("f(1)", session="s")
        assert done.status != "ok"
        assert done.error is not None
        assert "add" in done.error.message


async def test_a_name_of_the_code_hides_a_capability_only_here() -> None:
    async with holdfast.open("memory:", {}, capabilities=TOOLS) as hf:
        done = await hf.shell.run("def add(n):\n    return -n\nadd(1)", session="s")
        assert (done.result, done.external_calls) == (-1, ())
        assert (await hf.shell.run("add(1)", session="t")).result == 123


# -- what is told -------------------------------------------------------------------------------------


async def test_discovery_tells_about_them() -> None:
    code = """
described = describe_tool('add')
result = {
    'names': [one['name'] for one in list_tools()],
    'found': search_tools('awaited numbers')[0]['name'],
    'stub': described['stub'],
    'required': described['input_schema']['required'],
    'effect': described['side_effect'],
    'may': current_policy()['capabilities'],
}
"""
    done = await run(code)
    names = ["aadd", "aboom", "add", "boom", "echo"]
    assert done.result == {
        "names": names,
        "found": "aadd",
        "stub": 'def add(a: int, b: int = 2, c: int = 3) -> int:\n    """Add up to three numbers."""\n',
        "required": ["a"],
        "effect": "none",
        "may": names,
    }


async def test_describing_what_is_not_there_is_an_error_that_helps() -> None:
    done = await run("describe_tool('ad')")
    assert done.status != "ok"
    assert done.error is not None
    assert "list_tools()" in str(done.error.hint)


async def test_calls_are_listed_in_order_with_digests(url: str) -> None:
    code = "add(1, c=4)\ntry:\n    boom('value')\nexcept ValueError:\n    pass\nlist_tools()\nawait aadd(2)"
    done = await run(code, url)
    first, failed, own, last = done.external_calls
    assert [(one.name, one.status) for one in done.external_calls] == [
        ("add", "ok"),
        ("boom", "error"),
        ("list_tools", "ok"),
        ("aadd", "ok"),
    ]
    assert first.request_digest == digest(canonical_json({"a": 1, "c": 4}))
    assert first.response_digest == digest(canonical_json(124))
    assert failed.error is not None
    assert (failed.error.code, failed.error.message) == ("TOOL_ERROR", "bad value")
    assert (failed.response_digest, own.error) == (None, None)
    assert last.response_digest == digest(canonical_json(223))
    assert done.metrics.external_calls_count == 4


async def test_what_is_told_is_what_is_on_record(url: str) -> None:
    async with holdfast.open(url, {}, capabilities=TOOLS) as hf:
        done = await hf.shell.run("[add(n) for n in range(3)]", session="s")
        effects = await hf.runs.effects(str(done.run_id))
        assert [one.name for one in effects] == ["add"] * 3
        assert {one.status for one in effects} == {"completed"}
        assert await delivered(hf, done) == [0, 1, 2]
        assert await hf.runs.result(str(done.run_id)) == done


# -- limits -------------------------------------------------------------------------------------------


async def test_max_external_calls_is_enforced_for_capabilities() -> None:
    world = World()
    code = "for n in range(10):\n    tick(str(n))"
    async with opened("memory:", world) as hf:
        done = await hf.shell.run(code, session="s", limits={"max_external_calls": 3})
        assert codes(done) == ("resource_exhausted", "EXTERNAL_CALLS_EXCEEDED")
        assert world.done == ["tick 0", "tick 1", "tick 2"]
        assert [one.status for one in done.external_calls] == ["ok"] * 3
        assert (await hf.shell.run("tick('again')", session="s")).status == "ok"


async def test_max_external_calls_counts_awaited_calls() -> None:
    world = World()
    code = "import asyncio\nawait asyncio.gather(*[look(str(n)) for n in range(10)])"
    async with opened("memory:", world) as hf:
        done = await hf.shell.run(code, session="s", limits={"max_external_calls": 3})
        assert codes(done) == ("resource_exhausted", "EXTERNAL_CALLS_EXCEEDED")
        assert len(world.done) <= 3


async def test_max_external_calls_can_not_be_caught() -> None:
    world = World()
    code = (
        "for n in range(10):\n    try:\n        tick(str(n))\n    except Exception:\n        pass"
    )
    async with opened("memory:", world, ALLOW) as hf:
        done = await hf.shell.run(code, session="s", limits={"max_external_calls": 2})
        assert codes(done) == ("resource_exhausted", "EXTERNAL_CALLS_EXCEEDED")
        assert world.done == ["tick 0", "tick 1"]

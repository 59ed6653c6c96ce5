"""A call that is awaited on the spot, at the top level, stops the engine once; nobody can tell but the clock."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast
from holdfast import Runtime, capability
from holdfast.shell.languages._python_direct import directly

pytestmark = pytest.mark.anyio
LOOK = frozenset({"look"})


@capability(side_effect="read")
async def look(i: int) -> int:
    """Look."""
    if i < 0:
        raise ValueError("nothing there")
    return i * 10


@capability(side_effect="external_system", approval="manual")
async def pay(i: int) -> int:
    """Pay."""
    return i + 1


@pytest.mark.parametrize(
    ("code", "fed"),
    [
        ("await look(1)", "1 and look(1)"),
        ("x = await look(1)", "x =       look(1)"),
        ("n += await (look(i))", "n +=       (look(i))"),
        ("if x: await look(1)", "if x: 1 and look(1)"),
        ("for i in y:\n    await look(i)", "for i in y:\n    1 and look(i)"),
        ("é = await look('é'); await look(2)", "é =       look('é'); 1 and look(2)"),
        ("x = [await look(1), await look(await look(2))]", None),
        ("await look(1) + 1 == 11 or 3", "1 and look(1) + 1 == 11 or 3"),
    ],
)
def test_what_is_fed(code: str, fed: str | None) -> None:
    text, calls = directly(code, LOOK)
    assert len(text) == len(code)
    if fed is not None:
        assert text == fed
    data = code.encode()
    assert len(calls) == code.count("await")
    for call, at in calls.items():
        assert data.startswith(b"look(", call)
        assert data.startswith(b"await", at)


@pytest.mark.parametrize(
    "code",
    [
        "async def f():\n    return await look(1)",
        "x = [await look(i) for i in y]",
        "x = f'{await look(1)}'",
        "p = look(1)\nawait p",
        "await asyncio.gather(look(1), look(2))",
        "await other(1)",
        "class A:\n    x = await look(1)",
        "await look(1",  # not Python
        "await look(1)\r\nx = 1",
        "x = 'await look(1)'",
    ],
)
def test_what_is_left_alone(code: str) -> None:
    assert directly(code, LOOK) == (code, {})


VALUES = st.recursive(
    st.sampled_from(["await look(1)", "await look(2)", "3", "x", "await look(x)"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda two: f"({two[0]} + {two[1]})"),
        st.tuples(inner, inner).map(lambda two: f"({two[0]} or {two[1]})"),
        inner.map(lambda one: f"max({one}, 1)"),
        inner.map(lambda one: f"await look({one})"),
        inner.map(lambda one: f"-{one}"),
    ),
    max_leaves=5,
)
LINES = st.one_of(
    VALUES.map(lambda value: f"x = {value}"),
    VALUES.map(lambda value: f"x += {value}"),
    VALUES,
    VALUES.map(lambda value: f"if {value}:\n    x = {value}\n    {value}"),
    VALUES.map(lambda value: f"try:\n    {value}\nexcept ValueError:\n    x = 5"),
    VALUES.map(lambda value: f"x = [{value}, x][0]  # é"),
)
PROGRAMS = st.lists(LINES, min_size=1, max_size=4).map(lambda lines: "\n".join(["x = 1", *lines]))


async def _told(hf: Runtime, code: str, session: str) -> tuple[Any, ...]:
    run = await hf.shell.run(code, session=session)
    calls = [(one.name, one.status, one.request_digest) for one in run.external_calls]
    return run.status, run.result, run.error, run.stderr, calls


@settings(max_examples=30, deadline=None)
@given(code=PROGRAMS)
def test_nobody_can_tell(code: str) -> None:
    import anyio

    async def both() -> None:
        async with holdfast.open("memory:", {}, capabilities=[look]) as hf:
            direct = await _told(hf, code, "direct")
            await hf.shell.run("exec('y = 1')", session="plain")  # it might have bound anything
            assert await _told(hf, code, "plain") == direct

    anyio.run(both)


async def test_one_stop_is_one_suspension() -> None:
    """What it is for: the engine is not asked to promise an answer first."""
    from holdfast.shell.box import AtCall, Later
    from holdfast.shell.languages.python import PythonBoxes

    async with PythonBoxes() as boxes:
        box = await boxes.open(holdfast.SessionLimits())
        stop = await box.run(
            "await look(1)",
            inputs={},
            limits=box.limits,
            names={},
            outside={"look": True},
            meant=LOOK,
        )
        assert isinstance(stop, AtCall)
        assert stop.direct
        with pytest.raises(holdfast.HoldfastError, match="put off"):
            await box.resume(Later())
        await box.close()


async def test_a_name_of_the_session_is_not_the_capability() -> None:
    async with holdfast.open("memory:", {}, capabilities=[look]) as hf:
        for session, before in (
            ("def", "async def look(i):\n    return 'mine'"),
            ("exec", "exec('async def look(i):\\n    return 5')\nlook = look"),
            ("long", f"# {'x' * 30_000}\nasync def look(i):\n    return 'mine'"),
        ):
            await hf.shell.run(before, session=session)
            run = await hf.shell.run("await look(3)", session=session)
            assert run.result in ("mine", 5), run.error
            assert run.external_calls == ()
        inside = await hf.shell.run(
            "async def look(i):\n    return 1\nx = await look(3)\nx", session="in"
        )
        assert inside.result == 1


async def test_it_goes_on_at_the_call_in_another_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/journal.db"
    code = "seen = []\nfor i in range(3):\n    seen.append(await look(i))\n    seen.append(await pay(i))\nseen"
    async with holdfast.open(url, {}, capabilities=[look, pay]) as hf:
        run = await hf.shell.run(code, session="s")
        assert run.status == "waiting_for_approval"
    for _ in range(3):
        async with holdfast.open(url, {}, capabilities=[look, pay]) as hf:
            (waiting,) = await hf.approvals.list()
            await hf.approvals.decide(waiting.id, "approved")
            run = await hf.runs.resume(str(run.run_id))
    assert run.result == [0, 1, 10, 2, 20, 3]
    with sqlite3.connect(tmp_path / "journal.db") as db:
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)


async def test_a_promise_made_before_is_under_way_meanwhile() -> None:
    async with holdfast.open("memory:", {}, capabilities=[look]) as hf:
        run = await hf.shell.run("p = look(1)\nq = await look(2)\n[q, await p]", session="s")
        assert run.result == [20, 10]


async def test_an_error_points_at_the_await() -> None:
    async with holdfast.open("memory:", {}, capabilities=[look]) as hf:
        run = await hf.shell.run("x = 1\ny = await look(-1)", session="s")
        assert run.error is not None
        assert run.error.span is not None
        assert (run.error.span.line, run.error.span.column) == (2, 5)
        assert "y = await look(-1)" in run.stderr

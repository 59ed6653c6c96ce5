"""A snapshot is sealed, versioned and bound to its capabilities; what does not match is refused and changes nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.shell.support import World, elsewhere, kinds, opened

import holdfast
from holdfast import capability
from holdfast.contracts.canonical import canonical_json, seal
from holdfast.errors import CallerError
from holdfast.shell.snapshot import MAGIC, MAX_BYTES, Snapshot, pack, unpack

KEY = b"k" * 32
ENGINE = "monty/0"


@capability(side_effect="read")
def look(at: str) -> str:
    """Look at something."""
    return at


@capability(name="look", side_effect="read")
def look_far(at: str, how: str = "far") -> str:
    """Look at something otherwise."""
    return at + how


@capability(side_effect="read")
def listen(to: str) -> str:
    """Listen to something."""
    return to


def header_of(data: bytes) -> dict[str, Any]:
    start = len(MAGIC) + 4
    size = int.from_bytes(data[len(MAGIC) : start], "big")
    return json.loads(data[start : start + size])


def forged(data: bytes, key: bytes, **changes: Any) -> bytes:
    """The snapshot with another header, sealed again with the key."""
    header = canonical_json({**header_of(data), **changes})
    start = len(MAGIC) + 4
    state = data[start + int.from_bytes(data[len(MAGIC) : start], "big") : -32]
    body = b"".join([MAGIC, len(header).to_bytes(4, "big"), header, state])
    return body + seal(key, body)


# -- there and back -----------------------------------------------------------------------------------


async def test_restored_under_another_id(url: str) -> None:
    async with holdfast.open(url, {}) as hf:
        await hf.shell.run("x = [1, {'a': 2}]\ndef f(n):\n    return n + x[0]", session="s")
        data = await hf.shell.snapshot("s")
        view = await hf.shell.restore("t", data)
        assert (view.id, view.status, view.runs) == ("t", "open", 0)
        assert (await hf.shell.run("x.append(f(2))\nx", session="t")).result == [1, {"a": 2}, 3]
        assert (await hf.shell.run("x", session="s")).result == [1, {"a": 2}]


async def test_restored_under_another_id_in_another_process(file: str, tmp_path: Path) -> None:
    async with holdfast.open(file, {}) as hf:
        await hf.shell.run("x = 41\ndef f(): return x + 1", session="s")
        (tmp_path / "kept").write_bytes(await hf.shell.snapshot("s"))
        await hf.shell.destroy("s")
    text = f"""
data = open({str(tmp_path / "kept")!r}, "rb").read()
await hf.shell.restore("t", data)
tell((await hf.shell.run("f()", session="t")).result)
"""
    assert await elsewhere(file, text, {}) == 42
    async with holdfast.open(file, {}) as hf:
        assert (await hf.shell.run("[x, f()]", session="t")).result == [41, 42]


async def test_restored_in_place_of_what_is_there(url: str) -> None:
    async with holdfast.open(url, {}) as hf:
        await hf.shell.run("x = 1", session="s")
        data = await hf.shell.snapshot("s")
        await hf.shell.run("x = 2\ny = 3", session="s")
        await hf.shell.restore("s", data)
        assert (await hf.shell.run("x", session="s")).result == 1
        assert (await hf.shell.run("y", session="s")).status == "runtime_error"


async def test_taking_one_changes_nothing(url: str) -> None:
    async with holdfast.open(url, {}) as hf:
        await hf.shell.run("x = 1", session="s")
        before = await kinds(hf, "s")
        assert await hf.shell.snapshot("s") == await hf.shell.snapshot("s")
        assert await kinds(hf, "s") == before


async def test_nothing_but_variables_is_inside() -> None:
    """Not the output of a run that is over, no secret, not the key."""
    async with holdfast.open("memory:", {}, secrets={"TOKEN": "sk-very-secret-1"}) as hf:
        code = "print('finished output ' + str(3 + 4))\nx = 1"
        await hf.shell.run(code, session="s")
        data = await hf.shell.snapshot("s")
        assert b"finished output 7" not in data
        assert b"sk-very-secret-1" not in data
        assert hf.shell.services.key not in data


async def test_loading_runs_no_code() -> None:
    world = World()
    async with opened("memory:", world) as hf:
        await hf.shell.run("x = tick('a')\ndef f():\n    return tick('b')", session="s")
        await hf.shell.restore("t", await hf.shell.snapshot("s"))
        assert world.done == ["tick a"]


# -- refused ------------------------------------------------------------------------------------------


async def refused(hf: holdfast.Runtime, data: bytes, **more: Any) -> CallerError:
    """How a restore into a new and into an old session is refused; neither is touched."""
    await hf.shell.run("old = 1", session="old")
    before = await hf.journal.last_seq()
    with pytest.raises(CallerError) as first:
        await hf.shell.restore("new", data, **more)
    with pytest.raises(CallerError) as second:
        await hf.shell.restore("old", data, **more)
    assert first.value.code == second.value.code
    await hf.journal.flush()
    assert await hf.journal.last_seq() == before
    assert (await hf.shell.run("old", session="old")).result == 1
    assert "new" not in [one.id for one in await hf.shell.list()]
    return first.value


async def test_tampered(url: str) -> None:
    async with holdfast.open(url, {}) as hf:
        await hf.shell.run("x = 1", session="s")
        data = await hf.shell.snapshot("s")
        for at in (0, 5, len(MAGIC) + 10, len(data) // 2, len(data) - 33, len(data) - 1):
            bad = bytearray(data)
            bad[at] ^= 1
            assert (await refused(hf, bytes(bad))).code == "SNAPSHOT_CORRUPT"
        for bad_ in (b"", b"HFS1", data[:-1], data + b"x", data[1:], b"\x00" * 100):
            assert (await refused(hf, bad_)).code == "SNAPSHOT_CORRUPT"


async def test_sealed_with_another_key() -> None:
    async with holdfast.open("memory:", {}) as one, holdfast.open("memory:", {}) as two:
        await one.shell.run("x = 1", session="s")
        data = await one.shell.snapshot("s")
        assert (await refused(two, data)).code == "SNAPSHOT_CORRUPT"


@pytest.mark.parametrize("changes", [{"v": 2}, {"v": 0}, {"engine": "monty/999"}])
async def test_another_version(changes: dict[str, Any]) -> None:
    async with holdfast.open("memory:", {}) as hf:
        await hf.shell.run("x = 1", session="s")
        data = forged(await hf.shell.snapshot("s"), hf.shell.services.key, **changes)
        why = await refused(hf, data)
        assert why.code == "SNAPSHOT_VERSION_MISMATCH"
        assert str(next(iter(changes.values()))) in why.message


async def test_capabilities_that_do_not_match_are_listed(file: str) -> None:
    async with holdfast.open(file, {}, capabilities=[look, listen]) as hf:
        await hf.shell.run("def f(): return look('x')", session="s")
        data = await hf.shell.snapshot("s")
        await hf.shell.restore("t", data)
        assert (await hf.shell.run("f()", session="t")).result == "x"
    async with holdfast.open(file, {}, capabilities=[look_far]) as hf:
        why = await refused(hf, data)
        assert why.code == "SNAPSHOT_CAPABILITY_MISMATCH"
        assert "listen (gone)" in why.message
        assert "look (changed)" in why.message


async def test_more_capabilities_than_it_had_are_fine(file: str) -> None:
    async with holdfast.open(file, {}, capabilities=[look]) as hf:
        await hf.shell.run("x = look('x')", session="s")
        data = await hf.shell.snapshot("s")
    async with holdfast.open(file, {}, capabilities=[look, listen]) as hf:
        await hf.shell.restore("t", data)
        assert (await hf.shell.run("listen(x)", session="t")).result == "x"


def test_larger_than_64_mib() -> None:
    whole = pack(KEY, Snapshot("s", ENGINE, b""))
    fits = MAX_BYTES - len(whole)
    assert len(pack(KEY, Snapshot("s", ENGINE, bytes(fits)))) == MAX_BYTES
    with pytest.raises(CallerError) as refused:
        pack(KEY, Snapshot("s", ENGINE, bytes(fits + 1)))
    assert refused.value.code == "CONTENT_TOO_LARGE"


async def test_larger_than_64_mib_is_refused_unread() -> None:
    async with holdfast.open("memory:", {}) as hf:
        await hf.shell.run("x = 1", session="s")
        data = await hf.shell.snapshot("s")
        body = data[:-32] + bytes(MAX_BYTES)
        assert (await refused(hf, body + seal(hf.shell.services.key, body))).code == (
            "SNAPSHOT_CORRUPT"
        )


@given(st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_refused_with_a_word(data: bytes) -> None:
    for given_ in (data, MAGIC + data, pack(KEY, Snapshot("s", ENGINE, b"x"))[:-32] + data):
        with pytest.raises(CallerError) as refused:
            unpack(KEY, given_, engine=ENGINE)
        assert refused.value.code == "SNAPSHOT_CORRUPT"


@given(st.binary(max_size=500), st.lists(st.text(max_size=5), max_size=3))
def test_what_is_packed_is_unpacked(state: bytes, names: list[str]) -> None:
    kept = Snapshot("s", ENGINE, state, {"memory_mb": 64}, tuple(names), {"look": "d"})
    assert unpack(KEY, pack(KEY, kept), engine=ENGINE) == kept


# -- limits that are built into a state ---------------------------------------------------------------


@pytest.fixture
async def wide(file: str) -> bytes:
    """A snapshot of a session with more memory than others have."""
    config = {"shell": {"limits": {"memory_mb": 128}}}
    async with holdfast.open(file, config) as hf:
        await hf.shell.run("x = 1", session="wide")
        return await hf.shell.snapshot("wide")


async def test_a_new_session_gets_the_limits_that_are_built_in(file: str, wide: bytes) -> None:
    async with holdfast.open(file, {}) as hf:
        await hf.shell.restore("t", wide)
        await hf.shell.fork("wide", "u")
        for name in ("t", "u"):
            assert (await hf.shell.show(name)).limits.memory_mb == 128
            assert (await hf.shell.run("x", session=name)).result == 1
    async with holdfast.open(file, {}) as hf:
        for name in ("t", "u"):
            assert (await hf.shell.run("x", session=name)).result == 1


async def test_other_limits_than_those_built_in_are_refused(file: str, wide: bytes) -> None:
    async with holdfast.open(file, {}) as hf:
        why = await refused(hf, wide, setup={"limits": {"memory_mb": 32}})
        assert why.code == "INVALID_ARGUMENT"
        assert "128 MiB" in why.message
        await hf.shell.restore("t", wide)
        done = await hf.shell.run("x", session="t", limits={"memory_mb": 32})
        assert done.error is not None
        assert done.error.code == "INVALID_ARGUMENT"
        assert (await hf.shell.run("x", session="t", limits={"cpu_ms": 500})).result == 1

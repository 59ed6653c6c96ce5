"""`now`, `random_bytes`, `random_int`, and which built-ins a setup grants."""

import time
from datetime import datetime
from pathlib import Path

import pytest
from tests.capabilities.support import Box

from holdfast.capabilities.builtin import builtins_of, clock, randomness
from holdfast.contracts import SideEffect
from holdfast.contracts.policy import Database, Mount, Setup
from holdfast.errors import CallerError


async def test_now_is_now():
    before = time.time_ns() // 1_000_000
    found = await Box(clock())("now")
    assert before <= found["unix_ms"] <= time.time_ns() // 1_000_000
    assert datetime.fromisoformat(found["iso"]).timestamp() * 1000 == found["unix_ms"]


async def test_random_bytes_are_hexadecimal():
    box = Box(randomness())
    one, other = await box("random_bytes", 20), await box("random_bytes", 20)
    assert len(bytes.fromhex(one)) == 20
    assert one != other
    assert len(await box("random_bytes")) == 32


@pytest.mark.parametrize("n", [0, -1, 1025])
async def test_random_bytes_are_bounded(n: int):
    with pytest.raises(CallerError):
        await Box(randomness())("random_bytes", n)


async def test_random_int_gives_both_ends():
    box = Box(randomness())
    assert {await box("random_int", -1, 1) for _ in range(200)} == {-1, 0, 1}
    assert await box("random_int", 7, 7) == 7
    with pytest.raises(ValueError, match="`low`"):
        await box("random_int", 2, 1)
    for wrong in (2**63, -(2**63) - 1):
        with pytest.raises(CallerError):
            await box("random_int", 0, wrong)


def test_what_they_gave_is_kept_like_any_read():
    for one in (*clock(), *randomness()):
        assert one.capability.side_effect == SideEffect.READ
        assert one.capability.idempotent


def test_nothing_is_granted_by_default():
    assert builtins_of(Setup()) == []


def test_a_setup_grants_what_it_says(tmp_path: Path):
    def names(setup: Setup) -> set[str]:
        return {one.capability.name for one in builtins_of(setup)}

    reads = {"read_text", "list_dir", "glob", "stat"}
    assert names(Setup(mounts=(Mount(path="/w", host=str(tmp_path)),))) == reads
    assert names(Setup(allow_hosts=("example.com",))) == {"fetch_text", "fetch_json"}
    assert names(Setup(databases=(Database(name="a", url="sqlite:///a"),))) == {"query_db"}
    assert names(Setup(clock=True)) == {"now"}
    assert names(Setup(randomness=True)) == {"random_bytes", "random_int"}

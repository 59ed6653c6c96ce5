"""A budget holds when the process is killed in the middle of using it, and another goes on."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.agent.loop_support import consistent, opened, results
from tests.agent.spender import FAN, ROOM, SESSIONS

ROOT = Path(__file__).parents[2]


def spender(mode: str, tmp_path: Path, kill: int = 0) -> int:
    """How the process ended."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.agent.spender", mode, f"sqlite:///{tmp_path}/j.db"],
        cwd=ROOT,
        env={**os.environ, "WORLD": f"{tmp_path}/world", "KILL": str(kill)},
        capture_output=True,
        timeout=100,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode


def spent(tmp_path: Path) -> list[str]:
    return (tmp_path / "world").read_text().split()


@pytest.mark.parametrize("kill", [1, 7, ROOM])
@pytest.mark.parametrize("mode", ["direct", "code"])
async def test_fifty_calls_at_once_with_room_for_ten(mode: str, kill: int, tmp_path: Path) -> None:
    assert spender(mode, tmp_path, kill) == -signal.SIGKILL
    assert spender(mode, tmp_path) == 0
    assert len(set(spent(tmp_path))) == ROOM
    async with opened(f"sqlite:///{tmp_path}/j.db") as (hf, _):
        (run,) = [r for r in await hf.journal.rows("runs") if r.value["kind"] == "agent"]
        assert run.value["status"] == "completed"
        key = f"run:{run.key}" if mode == "direct" else "s"
        row: Any = await hf.journal.row("budgets", key)
        assert (row["calls"], row["held_calls"]) == (ROOM, 0)
        shown = await results(hf, "s")
        if mode == "direct":
            assert sum(one.is_error for one in shown) == FAN - ROOM
        await consistent(hf, "s")


@pytest.mark.parametrize("kill", [1, 7, ROOM])
async def test_many_sessions_on_one_account(kill: int, tmp_path: Path) -> None:
    assert spender("account", tmp_path, kill) == -signal.SIGKILL
    assert spender("account", tmp_path) == 0
    async with opened(f"sqlite:///{tmp_path}/j.db") as (hf, _):
        row: Any = await hf.journal.row("budgets", "account:team")
        assert row["calls"] <= ROOM
        assert row["held_calls"] == 0
        effects = await hf.journal.rows("effects", limit=10_000)
        done = [
            r for r in effects if r.value["name"] == "spend" and r.value["status"] == "completed"
        ]
        assert len(done) == row["calls"]
        runs = [r.value for r in await hf.journal.rows("runs", limit=10_000)]
        assert all(one["status"] == "completed" for one in runs)
        for n in range(SESSIONS):
            if await hf.journal.row("sessions", f"s{n}"):
                await consistent(hf, f"s{n}")


async def test_processes_on_one_account_at_once(tmp_path: Path) -> None:
    """Each believes that there is room; the journal knows."""
    url = f"sqlite:///{tmp_path}/j.db"
    async with opened(url) as (hf, _):
        await hf.agents.open_account("team", {"calls": ROOM})

    async def one(name: str) -> None:
        await anyio.run_process(
            [sys.executable, "-m", "tests.agent.spender", "crowd", url],
            cwd=ROOT,
            env={**os.environ, "WORLD": f"{tmp_path}/world", "NAME": name},
        )

    async with anyio.create_task_group() as group:
        for name in ("a", "b", "c"):
            group.start_soon(one, name)
    assert len(spent(tmp_path)) == ROOM
    async with opened(url) as (hf, _):
        row: Any = await hf.journal.row("budgets", "account:team")
        assert (row["calls"], row["held_calls"]) == (ROOM, 0)
        runs = [r.value for r in await hf.journal.rows("runs", limit=10_000)]
        assert len(runs) == 3 * SESSIONS
        assert all(one["status"] == "completed" for one in runs)

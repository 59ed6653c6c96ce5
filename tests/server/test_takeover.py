"""Of two servers with one journal one is killed: the other goes on with its runs, and nothing happens twice."""

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import httpx
import pytest
from tests.server.program import server

import holdfast
from holdfast.cli.main import main
from holdfast.contracts import Draft, Language
from holdfast.contracts.payload import RunStarted, SessionCreated
from holdfast.contracts.session import SessionLimits
from holdfast.runtime import Runtime
from holdfast.server.takeover import TRIES, Takeover
from holdfast.server.work import Work

TOOLS = """
import time
from pathlib import Path
from holdfast import capability

def happened(name):
    with open("world", "a") as world:
        world.write(name + "\\n")

@capability(side_effect="write")
def once(name: str) -> str:
    "Must not happen twice."
    happened(name)
    return name

@capability(side_effect="read")
def wait() -> int:
    "Returns when it may."
    Path("waits").touch()
    while not Path("go").exists():
        time.sleep(0.01)
    return 1
"""
SETTINGS = '[policy]\ndefault = "allow"\n[shell.limits]\nwall_ms = 60000\n'
OPTIONS = ("--capabilities", "tools.py", "--no-console", "--resume-every", "1")


def test_the_other_server_finishes_what_a_killed_one_began(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "holdfast.toml").write_text(SETTINGS)
    main(("token", "create", "--scope", "admin"))
    headers = {"Authorization": f"Bearer {json.loads(capfd.readouterr().out)['token']}"}
    with server(tmp_path, *OPTIONS) as (_, other), server(tmp_path, *OPTIONS) as (running, said):
        code = {"code": "once('a')\nx = wait()\nonce('b')\nx"}
        url, params = f"{said['listening']}/v1/sessions/s/run", {"wait_ms": 0}
        told = httpx.post(url, json=code, params=params, headers=headers).json()
        until = time.monotonic() + 60
        while not (tmp_path / "waits").exists():
            assert time.monotonic() < until
            time.sleep(0.01)
        running.kill()
        running.wait(30)
        (tmp_path / "go").touch()
        while True:
            view = httpx.get(f"{other['listening']}{told['url']}", headers=headers).json()
            if view["status"] != "running" or time.monotonic() > until:
                break
            time.sleep(0.1)
        assert (view["status"], view["result"]["result"]) == ("completed", 1)
    assert (tmp_path / "world").read_text().split() == ["a", "b"]


# -- what is left behind, and what is not -------------------------------------------------------------


@pytest.fixture
async def hf() -> AsyncIterator[Runtime]:
    async with holdfast.open("memory:", config={}) as found:
        yield found


class Clock:
    ms = 2_000_000_000_000  # after every lease

    def __call__(self) -> int:
        return self.ms


async def under_way(hf: Runtime, name: str) -> str:
    """A run on record of which nothing more is heard."""
    limits = SessionLimits()
    created = SessionCreated(language=Language.PYTHON, limits=limits, engine="none")
    started = RunStarted(kind="code", language=Language.PYTHON, limits=limits)
    await hf.journal.append(name, [Draft.of(created), Draft.of(started, run_id=f"run_{name}")])
    return f"run_{name}"


async def test_a_run_is_left_behind_once_its_session_stood_still_for_two_looks(hf: Runtime):
    run_id = await under_way(hf, "s")
    async with anyio.create_task_group() as background:
        takeover = Takeover(hf.journal, Work(hf, background), now=Clock())
        assert await takeover.look() == []
        assert await takeover.look() == [run_id]


async def test_a_session_that_somebody_has_is_theirs(hf: Runtime):
    run_id, clock = await under_way(hf, "s"), Clock()
    async with anyio.create_task_group() as background:
        takeover = Takeover(hf.journal, Work(hf, background), now=clock)
        lease = await hf.journal.claim("s", "other", ttl_ms=3000)
        clock.ms = lease.until - 1
        assert [await takeover.look() for _ in range(3)] == [[], [], []]
        clock.ms = lease.until
        assert await takeover.look() == []
        lease = await hf.journal.renew(lease, ttl_ms=4000)  # it lives after all
        clock.ms = lease.until
        assert await takeover.look() == []
        assert await takeover.look() == [run_id]


async def test_one_that_can_not_go_on_is_not_tried_for_ever(hf: Runtime):
    run_id = await under_way(hf, "s")
    async with anyio.create_task_group() as background:
        takeover = Takeover(hf.journal, Work(hf, background), now=Clock())
        found = [await takeover.look() for _ in range(2 * TRIES + 6)]
        assert found.count([run_id]) == TRIES
        assert found[-1] == []

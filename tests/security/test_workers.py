"""A worker that dies or hangs costs its run an error; never the host, never another session."""

import os
import signal
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.security.support import code_of, no_process_left, parent, processes, ticks, until

import holdfast
from holdfast import RunResult, Runtime, capability
from holdfast.errors import HoldfastError

SETTINGS: dict[str, Any] = {
    "shell": {"jail": "required", "limits": {"cpu_ms": 700, "wall_ms": 1500, "memory_mb": 16}},
}
LONG: dict[str, Any] = {"cpu_ms": 20_000, "wall_ms": 20_000}
SIGNALS = [signal.SIGKILL, signal.SIGSTOP]
ENDS = {
    signal.SIGKILL: {"MEMORY_EXCEEDED", "INTERNAL_ERROR"},
    signal.SIGSTOP: {"TIMEOUT_CPU", "TIMEOUT_WALL"},
}
"""How a run ends whose worker gets a signal. Whoever is killed unasked was killed by the kernel, for want of memory."""


WORK = "for n in range(1500000): pass\n"
"""Computing by which a worker is told from the others."""


def busiest(before: dict[int, int]) -> int:
    """The process that computed most since."""
    after = ticks()
    return max(after, key=lambda pid: after[pid] - before.get(pid, 0))


def hit_all(number: signal.Signals) -> None:
    """Send a signal to every process below this one, and wait until it has had its effect on each."""
    hit(processes(), number)


def hit(pids: Iterable[int], number: signal.Signals, dying: Iterable[int] = ()) -> None:
    """Send a signal; return once each is stopped or gone, and so are those that go with them.

    A worker may answer once more in the moment before: then it is the next run that finds it hit.
    """
    found = list(pids)
    for pid in found:
        with suppress(ProcessLookupError):  # with one of them, another may go
            os.kill(pid, number)
    patience = time.monotonic() + 10
    while not all(_struck(pid) for pid in (*found, *dying)) and time.monotonic() < patience:
        time.sleep(0.001)


def _struck(pid: int) -> bool:
    """Whether a process is stopped, dead, or gone."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "TtZX"


class House:
    """A runtime, and its session `a`."""

    def __init__(self, hf: Runtime, called: anyio.Event, go: anyio.Event) -> None:
        self.hf = hf
        self.called, self.go = called, go

    async def run(self, code: str, session: str = "a", **more: Any) -> RunResult:
        """Run code, and fail if that takes too long."""
        with anyio.fail_after(30):
            return await self.hf.shell.run(code, session=session, **more)

    async def goes_on(self) -> None:
        """The session is as it was before, and others serve."""
        assert (await self.run("x", limits=LONG)).result == 1
        assert (await self.run("x = 5\nx", "b", limits=LONG)).result == 5
        assert code_of(await self.run("1 + 1", validate_only=True)) == "ok"


@asynccontextmanager
async def opened() -> AsyncGenerator[House]:
    """A runtime whose capabilities say when they are called, and wait until they may go on."""
    called, go = anyio.Event(), anyio.Event()

    async def wait(n: int = 0) -> int:
        """Wait until the test says so."""
        called.set()
        await go.wait()
        return n

    async def quick(n: int = 0) -> int:
        """Give it back."""
        return n

    before = processes()
    tools = [capability(wait), capability(quick)]
    async with holdfast.open("memory:", SETTINGS, capabilities=tools) as hf:
        house = House(hf, called, go)
        await house.run("x = 1")
        yield house
    await no_process_left(before)


async def meanwhile(house: House, code: str, number: signal.Signals, **more: Any) -> RunResult:
    """Run code in session `a` and hit its worker once a call is under way; session `b` goes on all the time."""
    found: list[RunResult] = []
    neighbour: list[RunResult] = []

    async def run() -> None:
        found.append(await house.run(WORK + code, **more))

    async def run_beside() -> None:
        neighbour.append(await house.run(
            "total = 0\nfor n in range(50): total += await quick(n)\ntotal", "neighbour",
            limits={**LONG, "max_external_calls": 100},
        ))  # fmt: skip

    before = ticks()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await house.called.wait()
        os.kill(busiest(before), number)
        tasks.start_soon(run_beside)
        await anyio.sleep(0.05)
        house.go.set()
    assert neighbour[0].result == sum(range(50)), neighbour[0].error
    return found[0]


@pytest.mark.parametrize("number", SIGNALS, ids=lambda one: one.name)
@pytest.mark.parametrize(
    "code",
    [
        "x = 2\nawait wait(1)\nx = 3",
        "x = 2\nimport asyncio\nawait asyncio.gather(wait(1), wait(2), quick(3))\nx = 3",
        "x = 2\nawait wait(1)\nwhile True: pass",
        "x = 2\ntry:\n  await wait(1)\nfinally:\n  x = 4",
    ],
    ids=["at a call", "at several", "then computing", "in finally"],
)
async def test_while_a_run_stands_at_a_call(code: str, number: signal.Signals):
    async with opened() as house:
        result = await meanwhile(house, code, number)
        assert code_of(result) in ENDS[number], result.error
        assert result.error is not None
        assert all(one.name in ("wait", "quick") for one in result.external_calls)
        await house.goes_on()


@pytest.mark.parametrize("number", SIGNALS, ids=lambda one: one.name)
async def test_while_a_run_computes(number: signal.Signals):
    async with opened() as house:
        found: list[RunResult] = []

        async def run() -> None:
            found.append(await house.run("x = 2\nwhile True: pass"))

        before = ticks()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await anyio.sleep(0.2)
            os.kill(busiest(before), number)
        assert code_of(found[0]) in ENDS[number]
        await house.goes_on()


@pytest.mark.parametrize("number", SIGNALS, ids=lambda one: one.name)
async def test_while_it_has_nothing_to_do(number: signal.Signals):
    async with opened() as house:
        hit_all(number)
        await anyio.sleep(0.05)
        # Whoever comes next may find it dead; whoever comes then does not.
        assert code_of(await house.run("x = 2")) in {"ok", *ENDS[number]}
        again = await house.run("x", limits=LONG)
        assert again.error is None
        assert (await house.run("1 + 1", "b", limits=LONG)).result == 2


@pytest.mark.parametrize("number", SIGNALS, ids=lambda one: one.name)
async def test_while_its_state_is_wanted(number: signal.Signals):
    async with opened() as house:
        hit_all(number)
        with anyio.fail_after(30):
            with pytest.raises(HoldfastError) as caught:
                await house.hf.shell.snapshot("a")
            assert caught.value.code in ENDS[number]
            assert await house.hf.shell.snapshot("a")
        await house.goes_on()


@pytest.mark.parametrize("number", SIGNALS, ids=lambda one: one.name)
async def test_while_its_session_ends(number: signal.Signals):
    async with opened() as house:
        hit_all(number)
        with anyio.fail_after(30):
            await house.hf.shell.destroy("a")
        assert code_of(await house.run("x")) == "RUNTIME_ERROR"


@pytest.mark.parametrize("number", SIGNALS, ids=lambda one: one.name)
async def test_while_the_runtime_closes(number: signal.Signals):
    with anyio.fail_after(30):
        async with opened():
            hit_all(number)


@pytest.mark.parametrize("number", SIGNALS, ids=lambda one: one.name)
async def test_while_code_is_validated(number: signal.Signals):
    async with opened() as house:
        assert code_of(await house.run("1 + 1", validate_only=True)) == "ok"
        hit_all(number)
        said = code_of(await house.run("1 + 1", validate_only=True))
        assert said in {"ok", "MEMORY_EXCEEDED", "INTERNAL_ERROR", "TIMEOUT_CPU"}
        assert code_of(await house.run("1 + 1", validate_only=True)) == "ok"


@pytest.mark.parametrize("number", SIGNALS, ids=lambda one: one.name)
async def test_every_worker_at_once(number: signal.Signals):
    async with opened() as house:
        for n in range(4):
            assert code_of(await house.run(f"x = {n}", f"s{n}")) == "ok"
        hit_all(number)
        for n in range(4):
            await house.run("x", f"s{n}")  # it may find its worker dead
        for n in range(4):
            found = await house.run("x", f"s{n}", limits=LONG)
            assert (found.result, found.error) == (n, None)


@pytest.mark.parametrize("outer", [False, True], ids=["engine", "jail"])
async def test_killed_over_and_over(outer: bool):
    """Whatever is killed, the jail or the engine in it, both go."""
    async with opened() as house:
        for n in range(4):
            await house.run("x = 1", f"s{n}")
            every = (
                processes()
            )  # the engine in a jail that was killed is no longer below us while it dies
            chosen = [pid for pid in every if is_inner(pid) is not outer]
            hit(chosen, signal.SIGKILL, dying=every)
            await until(lambda: not processes())
            await house.run("x", f"s{n}")
            assert (await house.run("x", f"s{n}", limits=LONG)).result == 1
        await house.run("x")
        await house.goes_on()


def is_inner(pid: int) -> bool:
    """Whether a process has another of ours around it."""
    return parent(pid) != os.getpid()

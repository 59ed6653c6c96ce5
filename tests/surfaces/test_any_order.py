"""Whatever happens to surfaces, in whatever order: the machine holds, calls end, no wrong tool, nothing is left open."""

from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.abc
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.surfaces.support import SPEC, World, tool

from holdfast.contracts import Setup
from holdfast.errors import ModelError
from holdfast.gate.executor import Context, Unsure
from holdfast.journal import MemoryJournal
from holdfast.machines.surface import SURFACE
from holdfast.machines.surface_types import Surface
from holdfast.runtime._surface_tool import SurfaceTool
from holdfast.runtime.surfaces import Surfaces

NAMES = ("a", "b")
DEADLINE = 5.0

# What mends comes more often than what breaks: else most lives end in the same dead state.
OPS = (
    "add add remove reload boundary boundary boundary boundary boundary fails works works hangs comes comes"
    " lose change change unlist call call call_old call_old hold let_go let_go pump later later"
).split()


@dataclass
class Stage:
    """One life of a supervisor."""

    surfaces: Surfaces
    world: World
    group: anyio.abc.TaskGroup
    now: list[int]
    seen: list[SurfaceTool] = field(default_factory=list[SurfaceTool])
    """Every tool that a session ever saw: code that knows an old one may still call it."""
    expected: dict[int, str] = field(default_factory=dict[int, str])
    """The contract that each call was written for."""
    under_way: int = 0
    calls: int = 0
    version: int = 0
    refusals: set[tuple[str, bool]] = field(default_factory=set[tuple[str, bool]])
    """The codes that calls were refused with, and whether a hint came with them."""

    async def do(self, op: str, name: str) -> None:
        done = getattr(self, op)(name)
        if done is not None:
            await done

    async def add(self, name: str) -> None:
        await self.surfaces.add(name, SPEC)

    async def remove(self, name: str) -> None:
        if name in self.surfaces.seen_by(Setup()):
            await self.surfaces.remove(name)

    async def reload(self, name: str) -> None:
        if name in self.surfaces.seen_by(Setup()):
            await self.surfaces.reload(name)

    async def boundary(self, name: str) -> None:
        await self.surfaces.boundary(Setup(), wait=False)

    def fails(self, name: str) -> None:
        self.world[name].broken = OSError("503")

    def works(self, name: str) -> None:
        self.world[name].broken = None

    def hangs(self, name: str) -> None:
        self.world[name].gate = self.world[name].gate or anyio.Event()

    def comes(self, name: str) -> None:
        gate, self.world[name].gate = self.world[name].gate, None
        if gate is not None:
            gate.set()

    def lose(self, name: str) -> None:
        self.world[name].lose()

    def change(self, name: str) -> None:
        self.version += 1
        self.world[name].change(one=tool(f"{name}_one", answer=f"v{self.version}"))

    def unlist(self, name: str) -> None:
        self.world[name].change(one=None, two=tool(f"{name}_two"))

    def call(self, name: str) -> None:
        self._call(name, -1)

    def call_old(self, name: str) -> None:
        self._call(name, 0)

    def hold(self, name: str) -> None:
        self.world[name].hold = self.world[name].hold or anyio.Event()

    def let_go(self, name: str) -> None:
        hold, self.world[name].hold = self.world[name].hold, None
        if hold is not None:
            hold.set()

    def pump(self, name: str) -> None:
        self.surfaces._upkeep.pump()

    def later(self, name: str) -> None:
        self.now[0] += 31_000
        self.surfaces._upkeep.pump()

    def look(self) -> None:
        self.seen += [one for one in self.surfaces.tools(Setup()) if one not in self.seen]

    def _call(self, name: str, which: int) -> None:
        known = [one for one in self.seen if one.surface == name]
        if known:
            self.calls += 1
            self.under_way += 1
            self.group.start_soon(self._calling, known[which], self.calls)

    async def _calling(self, one: SurfaceTool, n: int) -> None:
        self.expected[n] = one.capability.digest
        try:
            with anyio.fail_after(DEADLINE):
                found: Any = await one.execute({"n": n}, Context(f"eff_{n}", 1, "s", "r"))
            assert found == {"tool": one.tool, "n": n}
        except ModelError as why:
            self.refusals.add((why.code, bool(why.hint)))
        except Unsure as why:
            self.refusals.add((why.error.code, bool(why.error.hint)))
        finally:
            self.under_way -= 1

    def check(self) -> None:
        board = self.surfaces._board
        state = board.state
        for record in state.records.values():
            SURFACE.check(
                Surface(
                    state.phase,
                    record,
                    state.next_staged,
                    state.next_task,
                    state.epoch,
                    state.aligned,
                )
            )
        assert self.refusals <= {("SURFACE_UNAVAILABLE", True), ("SURFACE_DRAINING", True)}
        assert state.aligned == state.epoch  # what sessions see is never behind
        for name in NAMES:
            record, server = board.record(name), self.world[name]
            alive = {id(board._served[one].link) for one in record.open if one in board._served}
            assert len(server.now) <= len(alive) + (record.pending is not None)
            for called, contract, n in server.log:
                assert contract == self.expected[n], called
            if not server.hold:
                assert record.inflight == 0


async def live(steps: list[tuple[str, str]]) -> None:
    now = [0]
    world = World(relists=len(steps) % 2 == 0)
    async with anyio.create_task_group() as group:
        async with Surfaces.open(MemoryJournal(), world.make, now=lambda: now[0]) as surfaces:
            stage = Stage(surfaces, world, group, now)
            for name in NAMES:
                await stage.do("add", name)
            for op, name in [("boundary", "a"), *steps]:
                await stage.do(op, name)
                await anyio.wait_all_tasks_blocked()
                stage.look()
                stage.check()
        await anyio.wait_all_tasks_blocked()
        assert stage.under_way == 0  # a shutdown ends them
        assert world.open == 0
        tasks = {one.name for one in anyio.get_running_tasks()}
        assert len(tasks) == 1, tasks  # this one


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.sampled_from(OPS), st.sampled_from(("a", "a", "b"))), min_size=12, max_size=40
    )
)
def test_whatever_happens_holds(steps: list[tuple[str, str]]):
    anyio.run(live, steps)

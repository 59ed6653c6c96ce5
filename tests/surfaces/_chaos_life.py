"""Agents that keep calling tools of servers that come and go; then everything is checked that must hold.

Two agents work side by side, one writes code and one calls tools itself. They know what is offered now, and sometimes
call what was offered before. Of an effect in doubt a person says what became of it, who looks into the servers' logs.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import anyio
from tests.surfaces._chaos import KINDS, TIMEOUT_MS, Chaos, World, world_of
from tests.surfaces._chaos_checks import check, leaks, left_over

import holdfast
from holdfast import Agent
from holdfast.contracts import Capability, Setup
from holdfast.contracts.model import ModelRequest
from holdfast.errors import HoldfastError
from holdfast.gate.past import stored_json
from holdfast.machines.kernel import Rejected
from holdfast.machines.surface import SURFACE
from holdfast.machines.surface_types import Surface
from holdfast.runtime import _surface_board
from holdfast.runtime.agent import Run
from holdfast.testing import ScriptedModel, after, call, say, together, write_code

RUN_S = 180
"""Seconds after which a run is said to hang: it has a few calls and questions, each of them bounded."""
TRIES = 3


class Life:
    """One runtime, its agents, and what they did."""

    def __init__(self, world: World, hf: holdfast.Runtime, calls: int) -> None:
        self.world = world
        self.hf = hf
        self.wanted = calls
        self.made = 0
        self.numbers = 0
        self.said: Counter[str] = Counter()
        """What became of effects in doubt, and of runs."""
        self.sessions: dict[str, int] = {}
        """Each session, and how far its calls were counted."""
        self._known: dict[str, Capability] = {}

    async def work(self, session: str, *, code: bool) -> None:
        """Run after run, until enough calls were made."""
        self.sessions[session] = 0
        luck = random.Random(self.world.luck.random())
        while self.made < self.wanted:
            model = ScriptedModel(self._author(luck, code=code))
            agent = Agent(model, code_mode=code)
            with anyio.fail_after(RUN_S):
                run = await agent.run("go", session=session, runtime=self.hf)
                run = await self._ended(agent, run)
            self.said[f"run {run.status}"] += 1
            await self._count(session)

    def _author(self, luck: random.Random, *, code: bool) -> Any:
        turns = luck.randint(2, 6)

        async def answer(request: ModelRequest) -> Any:
            nonlocal turns
            turns -= 1
            if turns < 0 or self.made >= self.wanted:
                return say("done")
            calls = await self._calls(luck, luck.randint(1, 4))
            if not calls:
                return after(100, write_code("1") if code else say("nothing to call"))
            think = luck.choice([0, 0, 10, 60])
            if code:
                return after(think, write_code(program(calls, together=luck.random() < 0.4)))
            return after(think, together(*[call(name, **given) for name, given in calls]))

        return answer

    async def _calls(self, luck: random.Random, many: int) -> list[tuple[str, dict[str, Any]]]:
        now = {one.capability.name: one.capability for one in self.hf.surfaces.tools(Setup())}
        self._known |= now
        up = {
            tool
            for one in await self.hf.surfaces.list()
            for tool in one.tools
            if one.status == "connected"
        }
        # Most of the time it keeps to what it was not told is gone.
        match luck.random():
            case chance if chance < 0.1:
                pool = [*self._known.values()]
            case chance if chance < 0.2:
                pool = [*now.values()]
            case _:
                pool = [one for one in now.values() if one.name in up]
        return [self._call(luck, luck.choice(pool)) for _ in range(many if pool else 0)]

    def _call(self, luck: random.Random, tool: Capability) -> tuple[str, dict[str, Any]]:
        self.numbers += 1
        given: dict[str, Any] = {"n": self.numbers}
        properties: Any = tool.input_schema["properties"]
        for name in properties:
            if name == "ms":
                # Some take longer than they may.
                given[name] = luck.choice([5, 50, 200, TIMEOUT_MS + 1000])
            elif name != "n":
                given[name] = luck.choice(["x", "yy"])
        return tool.name, given

    async def _ended(self, agent: Agent[str], run: Run[str]) -> Run[str]:
        """The run with its doubts resolved; one whose tools never come back is cancelled."""
        tries = 0
        while run.status not in ("completed", "failed", "cancelled"):
            for effect in run.result.in_doubt:
                await self._resolve(run.id, effect)
            try:
                run = await agent.resume(run.id, runtime=self.hf)
            except HoldfastError as why:
                self.said[f"resume {why.code}"] += 1
                print(repr(why), flush=True)
                tries += 1
                if tries == TRIES:
                    await self.hf.runs.cancel(run.id)
                    run = await agent.resume(run.id, runtime=self.hf)
                await anyio.sleep(0.2)
        return run

    async def _resolve(self, run: str, effect: str) -> None:
        row = await self.hf.journal.row("effects", effect)
        if row is None or row["status"] != "unknown":
            return  # said before, by somebody whose resume was refused
        (intent,) = [
            one
            async for one in self.hf.journal.read(str(row["session_id"]))
            if one.kind == "effect_intent" and one.effect_id == effect
        ]
        refs: Any = intent.payload["content_refs"]
        asked: Any = await stored_json(self.hf.journal, refs[0])
        arrived = any(
            line.get("arguments", {}).get("n") == asked["n"]
            for server in self.world.servers.values()
            for line in server.log
        )
        answer = "happened" if arrived else "did_not_happen"
        self.said[f"doubt {answer}"] += 1
        await self.hf.runs.resolve(run, effect, answer, value={"n": asked["n"], "version": -1})

    async def _count(self, session: str) -> None:
        async for one in self.hf.journal.read(session, after=self.sessions[session]):
            self.sessions[session] = one.pos
            kind = one.payload.get("kind") if one.kind == "effect_intent" else None
            self.made += kind == "tool_execution"


def program(calls: list[tuple[str, dict[str, Any]]], *, together: bool) -> str:
    """Code that makes these calls: at once, or each with its own failure."""
    made = [
        f"{name}({', '.join(f'{key}={value!r}' for key, value in given.items())})"
        for name, given in calls
    ]
    lines = ["import asyncio", "out = []"]
    for at, one in enumerate(made):
        lines += [f"async def call{at}():", "    try:", f"        out.append(await {one})"]
        lines += ["    except Exception as why:", "        out.append(str(why)[:80])"]
    calls_ = [f"call{at}()" for at in range(len(made))]
    if together:
        lines.append(f"await asyncio.gather({', '.join(calls_)})")
    else:
        lines += [f"await {one}" for one in calls_]
    return "\n".join([*lines, "out"])


@contextmanager
def watched() -> Iterator[Counter[str]]:
    """Look at the machine after each of its steps; what is broken is kept, whoever catches it."""
    seen: Counter[str] = Counter()
    take = _surface_board.step

    def step(state: Any, name: str, input_: object) -> Any:
        seen["steps"] += 1
        try:
            new, emitted = take(state, name, input_)
            for one in new.records.values():
                SURFACE.check(Surface(new.phase, one, *new[2:]))
        except Rejected:
            raise
        except BaseException as why:
            seen[f"broken: {why}"] += 1
            raise
        return new, emitted

    with patch.object(_surface_board, "step", step):
        yield seen


async def live(calls: int, seed: int) -> dict[str, Any]:
    """One life, checked; what happened in it."""
    before, tasks = left_over(), asyncio.all_tasks()
    async with world_of(seed) as world:
        url = f"sqlite:///{world.folder}/journal.db"
        with watched() as steps:
            async with holdfast.open(url, world.config) as hf:
                life = Life(world, hf, calls)
                await _lived(life)
                found = await check(hf, world, [*life.sessions])
        assert [one for one in steps if one.startswith("broken")] == []
        done = dict(sorted(world.done.items()))
    await leaks(before, tasks, world)
    starts = sum("start" in line for server in world.logs.values() for line in server)
    said = dict(sorted(life.said.items()))
    return {"seed": seed, **found, "chaos": done, "starts": starts, "said": said, **steps}


async def _lived(life: Life) -> None:
    for name in KINDS:
        await life.hf.surfaces.add(name, life.world.servers[name].spec)
    await life.hf.surfaces.wait_ready()
    async with anyio.create_task_group() as group:
        group.start_soon(Chaos(life.world, life.hf, group).reign)
        async with anyio.create_task_group() as agents:
            agents.start_soon(lambda: life.work("code", code=True))
            agents.start_soon(lambda: life.work("tools", code=False))
        group.cancel_scope.cancel()

"""What must hold after any chaos, told from the journal and from what the servers wrote down."""

import asyncio
import os
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import anyio
from tests.agent.loop_support import consistent
from tests.surfaces._chaos import TIMEOUT_MS, World, alive
from tests.surfaces._chaos_server import tools

import holdfast
from holdfast.capabilities.mcp.schema import offers
from holdfast.contracts import Record
from holdfast.gate.past import stored_json

SLACK_MS = 2000
"""A bound on hanging, not on speed."""


async def check(hf: holdfast.Runtime, world: World, sessions: list[str]) -> dict[str, Any]:
    """Raise unless everything holds; the figures."""
    await hf.journal.flush()
    effects = [one for session in sessions for one in await effects_of(hf, session)]
    told = {
        "calls": len(effects),
        "executed": await no_wrong_tool(hf, world, effects),
        "longest_ms": in_time(effects),
        "ends": dict(sorted(Counter(_end(one) for one in effects).items())),
    }
    for session in sessions:
        await consistent(hf, session)
        await one_end(hf, session)
    report = await hf.journal.verify()
    assert report.bad is None, report.bad
    world.logs = {name: server.log for name, server in world.servers.items()}
    return told


Effect = tuple[Record, list[Record]]
"""An intent, and its results: of one in doubt, there is a second."""


async def effects_of(hf: holdfast.Runtime, session: str) -> list[Effect]:
    """Every call of a session."""
    intents: dict[str, Record] = {}
    results: defaultdict[str, list[Record]] = defaultdict(list)
    async for one in hf.journal.read(session):
        if one.kind == "effect_intent" and one.payload["kind"] == "tool_execution":
            intents[str(one.effect_id)] = one
        elif one.kind == "effect_result":
            results[str(one.effect_id)].append(one)
    return [(one, results[key]) for key, one in intents.items()]


def _end(effect: Effect) -> str:
    last = effect[1][-1].payload if effect[1] else {"terminal_status": "open"}
    error: Any = last.get("error")
    return f"{last['terminal_status']} {error['code']}" if error else str(last["terminal_status"])


def in_time(effects: list[Effect]) -> int:
    """No call takes longer than it may; the longest."""
    longest = 0
    for intent, results in effects:
        assert results, f"{intent.payload['name']} has no end"
        took: Any = results[0].payload.get("duration_ms")
        took = results[0].time - intent.time if took is None else took
        longest = max(longest, took)
        assert took <= TIMEOUT_MS + SLACK_MS, (intent.payload, results[0].payload)
    return longest


async def no_wrong_tool(hf: holdfast.Runtime, world: World, effects: list[Effect]) -> int:
    """Whatever reached a server was meant for it as it then was, and what must not happen twice did not."""
    meant: dict[int, tuple[Record, Any]] = {}
    for intent, _ in effects:
        refs: Any = intent.payload["content_refs"]
        asked: Any = await stored_json(hf.journal, refs[0])
        given = asked.get("kwargs", asked)  # of a call that fits no way, as it came
        meant[given["n"]] = (intent, given)
    times: Counter[int] = Counter()
    for name, server in world.servers.items():
        versions: dict[int, dict[str, str]] = {}
        for line in server.log:
            if "tool" not in line:
                continue
            version = line["version"]
            if version not in versions:
                offered = offers(name, server.spec, tools(version))
                versions[version] = {one.tool: one.capability.digest for one in offered.tools}
            arguments = line["arguments"]
            intent, asked = meant[arguments["n"]]
            times[arguments["n"]] += 1
            assert intent.payload["name"] == f"{name}_{line['tool']}", line
            assert asked == arguments, line
            assert intent.payload["capability"] == versions[version].get(line["tool"]), (
                f"{name} has version {version} of `{line['tool']}`, and was called for another",
                line,
            )
    for n, often in times.items():
        payload = meant[n][0].payload
        assert often == 1 or payload["side_effect"] == "read" or payload.get("idempotent"), payload
    return len(times)


async def one_end(hf: holdfast.Runtime, session: str) -> None:
    """Every run ended, once."""
    ends: Counter[str] = Counter()
    started: list[str] = []
    async for one in hf.journal.read(session):
        if one.kind == "run_started":
            started.append(str(one.run_id))
        elif one.kind in ("run_completed", "run_failed", "run_cancelled"):
            ends[str(one.run_id)] += 1
    assert started
    assert ends == dict.fromkeys(started, 1)


def left_over() -> set[int]:
    """The processes that are ours now."""
    found = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return {int(pid) for one in found for pid in one.read_text().split()}


async def leaks(before: set[int], tasks: set[Any], world: World) -> None:
    """Nothing is left: no child, no server, no task."""
    with anyio.move_on_after(5):
        while asyncio.all_tasks() - tasks:  # noqa: ASYNC110 - what was cancelled needs a moment
            await anyio.sleep(0.01)
    assert asyncio.all_tasks() - tasks == set()
    assert left_over() - before == set()
    pids = {line["pid"] for log in world.logs.values() for line in log}
    assert [pid for pid in pids if alive(pid)] == []

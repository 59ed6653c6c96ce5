"""A call of an MCP server's tool through the gate, against the SDK's own client plus the journal writes it needs.

Both talk with a process of the same server over stdio, in the same rounds. The call goes the whole path of one effect:
resolved, checked, decided on, recorded, made on the surface's connection, checked and recorded again. The journal's
part of the floor is that of `calls`: the same rows, written by raw SQLite before and after each call.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

import holdfast
from bench import calls
from bench._report import Report, micros, ratio
from holdfast import Runtime
from holdfast.contracts import Draft, Language, SessionLimits, Setup, new_id
from holdfast.contracts.payload import RunStarted, SessionCreated
from holdfast.gate.crossing import Crossing, Desk, Outcome
from holdfast.journal.pen import Pen

ROUNDS = 9
SERVER = {"command": sys.executable, "args": ["-m", "bench._mcp_server"]}
ROOT = str(Path(__file__).parents[1])
CONFIG: dict[str, Any] = {
    "policy": {"rules": [{"id": "bench", "then": "allow"}]},
    "surfaces": {"srv": {**SERVER, "cwd": ROOT}},
}


class Caller:
    """Makes calls at a desk of its own, as a run does."""

    def __init__(self, hf: Runtime) -> None:
        self._gate = hf.shell.services.gate
        self._journal = hf.journal
        run_id = new_id("run")
        limits = SessionLimits()
        created = SessionCreated(language=Language.PYTHON, limits=limits, engine="bench")
        started = RunStarted(kind="code", language=Language.PYTHON)
        self._desk = Desk(
            session_id="bench",
            run_id=run_id,
            pen=Pen(hf.journal, "bench", "bench"),
            toolbox=hf.shell.services.tools(Setup()),
            policy=hf.policy,
            begin=lambda: [Draft.of(created), Draft.of(started, run_id=run_id)],
        )
        self._numbers = count()

    async def calls(self, name: str) -> float:
        """Seconds a call, until all are on disk."""
        await self._desk.pen.take(monotonic() + 1)
        started = perf_counter()
        for at in range(calls.CALLS):
            crossing = Crossing(self._desk, next(self._numbers), f"srv_{name}", (), {"i": at})
            end = await self._gate.perform(crossing)
            assert isinstance(end, Outcome), end
            assert end.error is None, end.error
        await self._journal.flush()
        return (perf_counter() - started) / calls.CALLS


async def bare(client: Client, name: str, journal: calls.Floor | None = None) -> float:
    """Seconds a call with the SDK alone, or with the writes that it needs."""
    started = perf_counter()
    for at in range(calls.CALLS):
        if journal is not None:
            journal.before(at)
        await client.call_tool(name, {"i": at})
        if journal is not None:
            journal.after(at)
    if journal is not None:
        journal.flush()
    return (perf_counter() - started) / calls.CALLS


@asynccontextmanager
async def opened() -> AsyncGenerator[tuple[Caller, Path]]:
    """A runtime that is connected to the server, on a file of its own."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        async with holdfast.open(f"sqlite:///{folder}/journal.db", config=CONFIG) as hf:
            await hf.surfaces.wait_ready()
            yield Caller(hf), Path(folder)


async def measure(report: Report) -> None:
    """Every figure of this module."""
    parameters = StdioServerParameters(**SERVER, cwd=ROOT)
    async with opened() as (caller, folder), Client(parameters) as client:
        with calls.raw(folder) as db:
            for name, what in (
                ("echo", "a read"),
                ("keep", "a write that may be repeated"),
                ("send", "a write that may not"),
            ):
                await _compare(report, caller, client, db, name, what)


async def _compare(
    report: Report, caller: Caller, client: Client, db: calls.Raw, name: str, what: str
) -> None:
    sdk: list[float] = []
    apart: list[float] = []
    floors: list[float] = []
    ours: list[float] = []
    journal = calls.Floor(db, name)
    await caller.calls(name)
    await bare(client, name, journal)
    for _ in range(ROUNDS):
        sdk.append(await bare(client, name))
        apart.append(sdk[-1] + journal.alone())
        floors.append(await bare(client, name, journal))
        ours.append(await caller.calls(name))
    detail = f"SDK with SQLite {micros(floors)}, holdfast {micros(ours)}"
    report.at_most(f"MCP call, {what}", ratio(ours, floors), 1.3, "x", detail)
    detail = f"SDK {micros(sdk)}, and SQLite {micros(apart)}"
    report.note("  the same, the two measured apart", ratio(ours, apart), "x", detail)

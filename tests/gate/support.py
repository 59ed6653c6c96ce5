"""What the tests of the gate share: a world that counts what is done to it, and ways to look at the record."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio

import holdfast
from holdfast import Context, RunResult, capability
from holdfast.capabilities.declare import Declared
from holdfast.errors import JournalError
from holdfast.journal import Journal, MemoryJournal
from holdfast.testing import FaultyJournal

ASKS_NOT = {"policy": {"rules": [{"id": "all", "then": "allow"}]}}
"""A configuration in which nobody is asked."""

CAUGHT = """
try:
    result = send("ann")
except PermissionError as why:
    result = f"no: {why}"
"""
"""Code that makes one call and lives with a refusal."""


def allowing(**more: Any) -> dict[str, Any]:
    """The same, and more."""
    return {**ASKS_NOT, **more}


@dataclass
class World:
    """The outside: what was done to it, in order."""

    done: list[Any] = field(default_factory=list[Any])
    called: anyio.Event = field(default_factory=anyio.Event)
    """Set once `asend` was called."""

    def send(self, **terms: Any) -> Declared[..., Any]:
        """A write that nobody may repeat, unless `terms` say otherwise."""

        def send(to: str) -> str:
            """Send something to somebody."""
            self.done.append(to)
            return f"sent to {to}"

        return capability(send, **{"side_effect": "external_system", **terms})

    def asend(self, **terms: Any) -> Declared[..., Any]:
        """The same, awaited by the code."""

        async def asend(to: str) -> str:
            """Send something to somebody."""
            self.done.append(to)
            self.called.set()
            return f"sent to {to}"

        return capability(asend, **{"side_effect": "external_system", **terms})

    def look(self, **terms: Any) -> Declared[..., Any]:
        """A read."""

        def look(at: str = "sky") -> str:
            """Look at something."""
            self.done.append(f"look {at}")
            return f"{at} is blue"

        return capability(look, **{"side_effect": "read", **terms})

    def charge(self, costs: int | None = None, **terms: Any) -> Declared[..., Any]:
        """A read that costs money: what it declares, or `costs`."""

        def charge(what: str, context: Context) -> str:
            """Buy something."""
            self.done.append(what)
            context.cost_micros = costs
            return what

        return capability(charge, **{"side_effect": "read", **terms})


async def kinds(hf: holdfast.Runtime, run: RunResult | str) -> list[str]:
    """The kinds of a run's records in its session's stream, in order."""
    run_id = run if isinstance(run, str) else str(run.run_id)
    return [record.kind for record in await hf.runs.records(run_id)]


async def said(hf: holdfast.Runtime, run: RunResult, kind: str) -> list[dict[str, Any]]:
    """What the records of one kind say."""
    return [one.payload for one in await hf.runs.records(str(run.run_id)) if one.kind == kind]


async def answers(journal: Journal) -> list[tuple[str, str | None, str | None]]:
    """Kind, decision and reason code of all that came in as answers, from wherever."""
    found: list[tuple[str, str | None, str | None]] = []
    async for record in journal.read("holdfast:approvals"):
        decision: Any = record.payload.get("decision") or {}
        code: Any = record.payload.get("reason_code") or decision.get("reason_code")
        found.append((record.kind, decision.get("decision"), code))
    return found


async def parked(
    hf: holdfast.Runtime, code: str = "result = send('ann')", **more: Any
) -> RunResult:
    """A run that waits for a person."""
    run = await hf.shell.run(code, **{"session": "s", **more})
    assert run.status == "waiting_for_approval", run.error
    return run


async def approve(hf: holdfast.Runtime, run: RunResult, decision: str = "approved") -> RunResult:
    """Answer what a run waits for, and go on with it."""
    await hf.approvals.decide(str(run.approval_id), decision, actor="ann", via="test")
    return await hf.runs.resume(str(run.run_id))


T = TypeVar("T")


async def until(look: Callable[[], Awaitable[T]], fine: Callable[[T], bool]) -> T:
    """What `look` sees once it is `fine`."""
    while True:
        found = await look()
        if fine(found):
            return found
        await anyio.sleep(0.005)


def later(hf: holdfast.Runtime, ms: int = 2 * 86_400_000) -> None:
    """Let approvals and grants of a runtime believe that it is later than it is; default: past any deadline."""
    hf.approvals.now = lambda: time.time_ns() // 1_000_000 + ms


FAILURE = JournalError("JOURNAL_IO", "The disk is gone.")


class FailsAt(FaultyJournal):
    """Fails, from the first record of one kind on, before anything of it is written."""

    def __init__(self, journal: MemoryJournal, kind: str, nth: int = 1) -> None:
        super().__init__(journal, fail_at=0)
        self._kind, self._left = kind, nth

    async def append(self, stream: str, records: Any, **terms: Any) -> Any:
        if self._left <= 0 or self._is_it(records):
            raise FAILURE
        return await self.inner.append(stream, records, **terms)

    def post(self, stream: str, make: Callable[[], Any], **terms: Any) -> None:
        if self._left <= 0 or self._is_it(make()):
            raise FAILURE
        self.inner.post(stream, make, **terms)

    def _is_it(self, records: Any) -> bool:
        self._left -= any(draft.kind == self._kind for draft in records)
        return self._left <= 0

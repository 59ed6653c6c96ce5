"""Runs that the server has taken on. They belong to it, not to the request they came with: whoever asked may leave, and ask again.

When the server stops, no further effect begins, those under way end, and what is still running then is left as a crash
would leave it: on record, with nothing in doubt, to be taken up by the next process.
"""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from anyio.abc import TaskGroup

from holdfast.contracts import RunResult, Setup
from holdfast.contracts.agent import AgentResult
from holdfast.errors import HoldfastError, InternalError
from holdfast.server.errors import RunLeft, shutting_down

if TYPE_CHECKING:
    from holdfast.agent.agents import Definition
    from holdfast.runtime import Runtime
    from holdfast.server.agents import Served

_log = logging.getLogger(__name__)

Result = RunResult | AgentResult
T = TypeVar("T")

KEPT = 1000
"""Runs that are over and were not even recorded (they were refused, or cancelled before they began), so that whoever comes back is told."""
AT_ONCE = 8
"""Interrupted runs that are taken up at a time."""
PATIENCE_MS = 10_000
"""How long to wait for a session whose last owner died, or is at work elsewhere."""
SETTLE = 1.0
"""Seconds that runs without an effect under way get to end, when the server stops, and requests that wait for no run."""


@dataclass(slots=True, eq=False)
class Job:
    """A run under way here."""

    run_id: str
    session_id: str
    dry: bool = False
    """Whether nothing of it is on record by this name."""
    value: Result | None = None
    error: HoldfastError | None = None
    done: bool = False
    changed: anyio.Event = field(default_factory=anyio.Event)
    """It is over, or nobody should wait for it any more."""

    @property
    def recorded(self) -> bool:
        """Whether what became of it, once it is over, is to be found on record."""
        return self.error is None and (self.value is None or self.value.run_id is not None)

    async def outcome(self, seconds: float) -> Result | None:
        """What it gave; `None` if it takes longer. Raises what it raised."""
        with anyio.move_on_after(seconds):
            await self.changed.wait()
        if self.error is not None:
            raise self.error
        return self.value

    async def end(self) -> Result:
        """What it gives, however long it takes. Raises what it raised, and `SHUTTING_DOWN` when the server stops first."""
        found = await self.outcome(math.inf)
        if found is None:
            raise shutting_down() if self.dry else RunLeft(self.run_id)
        return found


class Work:
    """What is under way here."""

    def __init__(
        self, hf: Runtime, background: TaskGroup, agents: Mapping[str, Served] | None = None
    ) -> None:
        self._hf = hf
        self._background = background
        self.agents: Mapping[str, Served] = agents or {}
        """Agents by the names they are served under."""
        self._jobs: dict[str, Job] = {}
        self._refused: OrderedDict[str, Job] = OrderedDict()
        self._waiting: set[anyio.CancelScope] = set()
        """Requests that wait for something else than a run."""
        self._left = False
        """Whether nobody is waited for any more."""
        self.closing = False
        """Whether nothing new is taken on."""

    def __len__(self) -> int:
        return len(self._jobs)

    def find(self, run_id: str) -> Job | None:
        """A run that is under way here, or that was over before it was on record."""
        return self._jobs.get(run_id) or self._refused.get(run_id)

    def has(self, session_id: str, run_id: str | None = None) -> bool:
        """Whether a run of this session is under way here; with `run_id`, this one."""
        jobs = self._jobs.values() if run_id is None else [self._jobs.get(run_id)]
        return any(job is not None and job.session_id == session_id for job in jobs)

    def start(
        self,
        run_id: str,
        session_id: str,
        go: Callable[[], Awaitable[Result]],
        *,
        dry: bool = False,
    ) -> Job:
        """Take a run on; the one of this name that is under way, if there is one."""
        known = self._jobs.get(run_id)
        if known is not None:
            return known
        if self.closing:
            raise shutting_down()
        job = self._jobs[run_id] = Job(run_id, session_id, dry)
        self._background.start_soon(self._run, job, go)
        return job

    async def _run(self, job: Job, go: Callable[[], Awaitable[Result]]) -> None:
        try:
            job.value = await go()
        except HoldfastError as why:
            job.error = why
        except Exception as why:  # noqa: BLE001 - one run must not end the others
            _log.exception("Run %s failed.", job.run_id)
            job.error = InternalError(f"{type(why).__name__} in the server.")
        finally:
            job.done = True
            self._jobs.pop(job.run_id, None)
            if not job.recorded:
                self._refused[job.run_id] = job
                if len(self._refused) > KEPT:
                    self._refused.popitem(last=False)
            job.changed.set()

    # -- going on -------------------------------------------------------------------------------------

    async def resume(
        self, run_id: str, *, setup: Setup | None = None, wait_ms: int = 30_000
    ) -> Job:
        """Go on with a run, here; code that an agent wrote goes on together with the agent's run."""
        session_id = (await self._hf.runs.show(run_id)).session_id
        own = await self._hf.journal.row("runs", run_id) or {}
        parent = own.get("parent")
        if isinstance(parent, str) and (await self._hf.runs.show(parent)).ended_at is None:
            run_id = parent

        async def go() -> Result:
            agent = await self._agent(run_id, session_id)
            if agent is not None:
                return await self._hf.agents.resume(run_id, agent, setup=setup, wait_ms=wait_ms)
            return await self._hf.runs.resume_any(run_id, setup=setup, wait_ms=wait_ms)

        return self.start(run_id, session_id, go)

    async def _agent(self, run_id: str, session_id: str) -> Definition | None:
        """The agent of a run, as it is served here; `None`: as it is on record, or the run is no agent's."""
        if not self.agents or (await self._hf.runs.show(run_id)).kind != "agent":
            return None
        from holdfast.agent.history import history_of

        spec = (await history_of(self._hf.journal, session_id)).spec
        served = None if spec is None else self.agents.get(spec.name)
        if served is None:
            return None
        await served.ready(self._hf)
        return served.definition

    async def go_on(self, run_id: str) -> None:
        """Go on with a run after an answer; nobody waits for it. One that can't stands as it stood."""
        with suppress(HoldfastError):  # showing it tells, and resuming it why it can't go on
            await self.resume(run_id)

    async def take_up(self, run_id: str, room: anyio.CapacityLimiter) -> None:
        """Go on with a run that was interrupted, once there is room; one that can't stands as it stood."""
        async with room:
            with suppress(HoldfastError):
                job = await self.resume(run_id, wait_ms=PATIENCE_MS)
                await job.changed.wait()

    async def recover(self) -> list[str]:
        """Take up what was interrupted: runs that nobody has, and that need nobody to go on."""
        rows = await self._hf.journal.rows("runs", tag="active", limit=1_000_000)
        found = [row.key for row in rows if can_go_on(row.value)]
        room = anyio.CapacityLimiter(AT_ONCE)
        for run_id in found:
            self._background.start_soon(self.take_up, run_id, room)
        return found

    # -- stopping -------------------------------------------------------------------------------------

    async def answer(self, make: Callable[[], Awaitable[T]]) -> T:
        """What `make` gives, for a request that has no run to be found by later.

        Raises `SHUTTING_DOWN` when the server stops first: whoever waits is told, and not just cut off.
        """
        with anyio.CancelScope(deadline=self._deadline()) as scope:
            self._waiting.add(scope)
            try:
                return await make()
            finally:
                self._waiting.discard(scope)
        raise shutting_down()

    def _deadline(self) -> float:
        return anyio.current_time() + SETTLE if self._left else math.inf

    def shut(self) -> None:
        """From now on nothing is taken on, and no effect begins."""
        self.closing = True
        self._hf.shell.services.gate.hold.shut()

    async def close(self, seconds: float) -> list[str]:
        """Take nothing on any more, let what is under way come to rest; the runs that have not.

        Whoever waits for one of them is told where to look.
        """
        self.shut()
        hold = self._hf.shell.services.gate.hold
        with anyio.move_on_after(seconds):
            await hold.emptied()
            # What is about to end anyway, ends; what computes, or has come to the gate, is left where it is.
            with anyio.move_on_after(SETTLE):
                for job in [*self._jobs.values()]:
                    await job.changed.wait()
        for job in self._jobs.values():
            job.changed.set()
        self._left = True
        for scope in self._waiting:
            scope.deadline = self._deadline()
        return [job.run_id for job in self._jobs.values() if not job.dry]


def can_go_on(row: dict[str, Any]) -> bool:
    """Whether a run on record may go on without anybody's help. Code of an agent goes on with the agent."""
    if row.get("parent") is not None:
        return False
    return not row["pending_approvals"] and not row["in_doubt"]

"""An agent's run from the command line: told while it goes on, stopped by Ctrl-C.

The first Ctrl-C lets what is under way end, so that nothing is left half done; the second stops at once, as SIGTERM
does. What was said and done until then stays.
"""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import anyio

from holdfast.agent.events import watch
from holdfast.cli._stop import Stopped

if TYPE_CHECKING:
    from holdfast.agent.feeds import Listener
    from holdfast.cli._agent_tell import Teller
    from holdfast.contracts.agent import AgentResult
    from holdfast.runtime import Runtime

Work = Callable[[], Awaitable["AgentResult"]]
"""Runs an agent."""

STOPPING = "stopping after this step; Ctrl-C again stops now"


async def told(hf: Runtime, run_id: str, work: Work, teller: Teller | None) -> AgentResult:
    """What a run gives; meanwhile `teller` tells what happens in it."""
    if teller is None:
        return await work()
    results: list[AgentResult] = []
    failures: list[Exception] = []
    after, listener = await hf.journal.last_seq(), hf.agents.listen(run_id)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_tell, hf, run_id, after, listener, teller)
            try:
                results.append(await work())
            except Exception as why:  # noqa: BLE001 - raised below, outside of the task group
                failures.append(why)
            listener.close()  # what is on record by now is told, then the group ends
    finally:
        listener.leave()
    if failures:
        raise failures[0]
    return results[0]


async def _tell(hf: Runtime, run_id: str, after: int, listener: Listener, teller: Teller) -> None:
    events = watch(hf.journal, run_id, after=after, feed=listener, starting=True)
    async for event in events:
        teller.event(event)


async def until_cancelled(
    hf: Runtime,
    session_id: str,
    run_id: str,
    work: Work,
    note: Callable[[str], None],
) -> tuple[AgentResult, int | None]:
    """What a run gives, and the signal that stopped it; raises `Stopped` when it had not even begun."""
    results: list[AgentResult] = []
    failures: list[Exception] = []
    numbers: list[int] = []

    def stop(number: int) -> bool:
        """Whether it is to stop at once."""
        numbers.append(number)
        now = number != signal.SIGINT or len(numbers) > 1
        if not hf.shell.cancel(session_id, mode="now" if now else "after_effect", run_id=run_id):
            scope.cancel()  # it waits for its session, or is over
            return True
        if not now:
            note(STOPPING)
        return now

    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            await group.start(_watch, stop)
            try:
                results.append(await work())
            except Exception as why:  # noqa: BLE001 - raised below, outside of the task group
                failures.append(why)
        group.cancel_scope.cancel()
    if failures:
        raise failures[0]
    if not results:
        raise Stopped(numbers[0])
    stopped = results[0].status == "cancelled" and bool(numbers)
    return results[0], numbers[0] if stopped else None


async def _watch(stop: Callable[[int], bool], *, task_status: anyio.abc.TaskStatus[None]) -> None:
    # Once it stops at once there is nothing more to ask for: a further signal ends the program as if we were not there.
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for number in signals:
            if stop(number):
                return

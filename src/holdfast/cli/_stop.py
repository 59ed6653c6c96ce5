"""Ctrl-C and SIGTERM: the work is cancelled, and everything around it is closed in order; or it is left as it stands."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from holdfast.cli import _output
from holdfast.errors import HoldfastError, PersonError

if TYPE_CHECKING:
    from holdfast.runtime import Runtime

T = TypeVar("T")


class Stopped(Exception):
    """The user or the host has stopped the program."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number

    @property
    def error(self) -> HoldfastError:
        """What to say about it."""
        return PersonError(
            "CANCELLED",
            f"The run was cancelled ({self}).",
            hint="The session is as it was before; run the code again if it is still wanted.",
        )


class Interrupts:
    """Counts Ctrl-C while it is open; none of them breaks off what is being done about the one before."""

    def __init__(self) -> None:
        self.count = 0
        """How often so far."""
        self._before: Any = None

    def __enter__(self) -> Interrupts:
        self._before = signal.signal(signal.SIGINT, self._counted)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _counted(self, *_: object) -> None:
        self.count += 1


async def leave(hf: Runtime, told: str | None) -> None:
    """End here and now: what runs is on record as running, and cancelling it would be on record, too."""
    await hf.journal.flush()
    with suppress(HoldfastError):  # who comes next waits for a moment, then
        await hf.shell.let_go()
    if told is not None:
        _output.console(stderr=True).print(told)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


async def until_stopped(work: Callable[[], Awaitable[T]]) -> T:
    """What `work` gives; raises `Stopped` once it has been cancelled by a signal.

    A second signal is not caught any more: it ends the program as if we were not there.
    """
    results: list[T] = []
    failures: list[Exception] = []
    numbers: list[int] = []
    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            await group.start(_watch, scope, numbers)
            try:
                results.append(await work())
            except Exception as why:  # noqa: BLE001 - raised below, outside of the task group
                failures.append(why)
        group.cancel_scope.cancel()
    if failures:
        raise failures[0]
    if not results:
        raise Stopped(numbers[0])
    return results[0]


async def _watch(
    scope: anyio.CancelScope,
    numbers: list[int],
    *,
    task_status: anyio.abc.TaskStatus[None],
) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for number in signals:
            numbers.append(number)
            scope.cancel()
            return

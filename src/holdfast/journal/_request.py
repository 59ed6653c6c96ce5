"""What the writer is asked to do, and who is to hear of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from holdfast.errors import JournalError

log = logging.getLogger(__name__)

T = TypeVar("T")
Work = Callable[[T], object]


class Request(Generic[T]):
    """Work for the writer, and who is to hear of its outcome."""

    __slots__ = ("durable", "failure", "outcome", "work")

    def __init__(self, work: Work[T], durable: bool) -> None:
        self.work = work
        self.durable = durable
        self.outcome: object = None
        self.failure: BaseException | None = None


class Posted(Request[T]):
    """Nobody waits for it; a failure is reported."""

    __slots__ = ("failed",)

    def __init__(self, work: Work[T], failed: Callable[[BaseException], None]) -> None:
        super().__init__(work, durable=False)
        self.failed = failed


class Awaited(Request[T]):
    """A task waits for it."""

    __slots__ = ("future", "loop")

    def __init__(self, work: Work[T], durable: bool) -> None:
        # As the base does, without calling it: this is made for every append.
        self.work = work
        self.durable = durable
        self.outcome: object = None
        self.failure: BaseException | None = None
        self.loop = loop = asyncio.get_running_loop()
        self.future: asyncio.Future[object] = loop.create_future()

    def settle(self) -> None:
        """Hand the outcome to the task; runs on the task's own loop."""
        if self.future.done():
            return
        if self.failure is None:
            self.future.set_result(self.outcome)
        else:
            self.future.set_exception(self.failure)


def not_synced(why: OSError) -> JournalError:
    """The error of a disk that refuses to sync."""
    return JournalError(
        "JOURNAL_IO",
        f"What was appended last could not be synced: {why.strerror}.",
        hint="Look for disk errors in the system's log; durable appends are safe.",
    )


def report(failed: Callable[[BaseException], None], failure: BaseException) -> None:
    """Tell whoever posted. What goes wrong over there must not stop the writer, on whom all others wait."""
    try:
        failed(failure)
    except Exception:
        log.exception("The report of a failed append failed itself; the failure was: %s", failure)


def closed() -> JournalError:
    """The refusal of any use after `close`."""
    return JournalError(
        "JOURNAL_CLOSED", "The journal was closed.", hint="Open it again with `holdfast.open()`."
    )

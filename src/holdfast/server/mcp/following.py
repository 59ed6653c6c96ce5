"""A run as its client hears of it while it is under way: progress and log lines, made from its records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from mcp_types import (
    LoggingLevel,
    LoggingMessageNotification,
    LoggingMessageNotificationParams,
)

from holdfast.contracts import Record
from holdfast.journal import Journal
from holdfast.journal.log import PAGE
from holdfast.server.mcp.client import Context

LOGGER = "holdfast"
LEVELS: tuple[LoggingLevel, ...] = (
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
)
"""From the least to the most urgent."""

_FAILED = {"failed", "timed_out", "denied_before_execution", "unknown"}


class Following:
    """Reads the records of a run, and of the code that an agent's run writes, and tells each."""

    def __init__(
        self,
        journal: Journal,
        session: str,
        run_id: str,
        tell: Callable[[Record], Awaitable[None]],
        *,
        pos: int,
    ) -> None:
        """`pos` is the last record of the session's stream that is not told."""
        self._journal = journal
        self._session = session
        self._runs = {run_id}
        self._tell = tell
        self._pos = pos
        self._over = False
        self._waiting: anyio.CancelScope | None = None

    @property
    def pos(self) -> int:
        """The last record that was read."""
        return self._pos

    async def follow(self) -> None:
        """Tell records as they come, until `end`; all that were there by then are told."""
        while True:
            over, seen = self._over, await self._journal.last_seq()
            if await self._told():
                continue
            if over:
                return
            with anyio.CancelScope() as self._waiting:
                if not self._over:
                    await self._journal.wait(seen)
            self._waiting = None

    def end(self) -> None:
        """There will be no more of them."""
        self._over = True
        if self._waiting is not None:
            self._waiting.cancel()

    async def _told(self) -> int:
        """Tell those that are there; how many records were read."""
        count = 0
        while True:
            page = [r async for r in self._journal.read(self._session, after=self._pos, limit=PAGE)]
            for record in page:
                self._pos = record.pos
                count += 1
                if self._is_ours(record):
                    await self._tell(record)
            if len(page) < PAGE:
                return count

    def _is_ours(self, record: Record) -> bool:
        start: Any = record.payload.get("start") or record.payload
        if record.run_id is not None and start.get("parent") in self._runs:
            self._runs.add(record.run_id)
        return record.run_id in self._runs


class Telling:
    """Tells one client, as far as it wants to know."""

    def __init__(self, ctx: Context, level: LoggingLevel | None) -> None:
        """`level` is the least urgent that is sent; `None`: nothing is."""
        self._ctx = ctx
        self._wanted = () if level is None else LEVELS[LEVELS.index(level) :]
        self._count = 0

    async def record(self, record: Record) -> None:
        """Tell of a record."""
        line = line_of(record)
        if line is None:
            return
        level, message = line
        self._count += 1
        await self._ctx.session.report_progress(float(self._count), None, message)
        if level in self._wanted:
            data = {"message": message, "kind": record.kind, "seq": record.seq}
            await self.log(level, {**data, "run_id": record.run_id})

    async def log(self, level: LoggingLevel, data: dict[str, Any]) -> None:
        """Send a line."""
        params = LoggingMessageNotificationParams(level=level, logger=LOGGER, data=data)
        await self._ctx.session.send_notification(
            LoggingMessageNotification(params=params), related_request_id=self._ctx.request_id
        )


def line_of(record: Record) -> tuple[LoggingLevel, str] | None:
    """A record in one line, and how urgent it is; `None` for what clients need not hear of."""
    said = record.payload
    match record.kind:
        case "run_started":
            return "debug", "The run has begun."
        case "effect_intent" if said.get("kind") != "approval_dispatch":
            return "info", f"Calling `{said.get('name')}`."
        case "effect_result" if not str(said.get("effect_id", "")).endswith("_ask"):
            status = str(said.get("terminal_status"))
            level: LoggingLevel = "warning" if status in _FAILED else "info"
            return level, f"{said.get('redacted_summary') or 'The call ended.'} ({status})"
        case "approval_requested":
            return "notice", f"Waiting for a person: {said.get('summary')}"
        case "run_parked":
            return "notice", "The run waits."
        case "run_resumed":
            return "debug", "The run goes on."
        case "run_completed":
            return "debug", "The run is done."
        case "run_failed" | "run_cancelled":
            return (
                "warning",
                f"The run {'failed' if record.kind == 'run_failed' else 'was cancelled'}.",
            )
        case _:
            return None

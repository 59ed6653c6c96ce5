"""What the journal's records add up to since this process opened it, whichever process wrote them.

Counted when somebody asks, from where it was left: nothing is done for figures that nobody wants.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import anyio

from holdfast.contracts import Record
from holdfast.journal import Journal
from holdfast.server._prometheus import Counts

MOST = 100_000
"""Records that are counted for one question; the rest for the next."""

MAX_KNOWN = 10_000
"""Effects whose name is remembered until they end; of others it is looked up."""


class Counted:
    """The sums so far."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._seq = journal.found.records
        self._known: OrderedDict[str, tuple[str, str]] = OrderedDict()
        self._counting = anyio.Lock()
        self.records = Counts("family")
        self.runs = Counts("kind", "status")
        self.effects = Counts("kind", "status")
        self.approvals = Counts("status")
        self.tokens = Counts("model", "direction")
        self.cost = Counts("model")
        self.behind = 0
        """Records that are not counted yet."""

    async def catch_up(self) -> None:
        """Count what has come since."""
        async with self._counting:
            async for record in self._journal.read_all(after=self._seq, limit=MOST):
                await self._count(record)
                self._seq = record.seq
            self.behind = max(0, await self._journal.last_seq() - self._seq)

    async def _count(self, record: Record) -> None:
        kind, said = record.kind, record.payload
        self.records.add(kind.replace(".", "_").partition("_")[0])
        match kind:
            case "run_completed" | "run_failed" | "run_cancelled":
                self.runs.add(await self._run_kind(record), kind.removeprefix("run_"))
            case "effect_intent":
                self._remember(str(record.effect_id), str(said["kind"]), str(said["name"]))
            case "effect_result":
                await self._ended(str(record.effect_id), said)
            case "approval_responded":
                decision: Any = said["decision"]
                self.approvals.add(str(decision["decision"]))
            case "approval_ended":
                self.approvals.add(str(said["status"]))
            case _:
                pass

    async def _run_kind(self, record: Record) -> str:
        start: Any = record.payload.get("start")
        if start is None:
            start = await self._journal.row("runs", str(record.run_id))
        return "unknown" if start is None else str(start["kind"])

    def _remember(self, effect_id: str, kind: str, name: str) -> None:
        self._known[effect_id] = (kind, name)
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)

    # `Any`: the payload of a result, checked when it was recorded.
    async def _ended(self, effect_id: str, said: dict[str, Any]) -> None:
        status = str(said["terminal_status"])
        known = self._known.get(effect_id)
        if known is None:
            row: dict[str, Any] = await self._journal.row("effects", effect_id) or {}
            known = str(row.get("kind", "unknown")), str(row.get("name", "unknown"))
        if status != "unknown":
            self._known.pop(effect_id, None)
        kind, name = known
        self.effects.add(kind, status)
        usage: dict[str, Any] | None = said.get("usage")
        if usage is not None:
            self.tokens.add(name, "input", by=usage.get("input_tokens") or 0)
            self.tokens.add(name, "output", by=usage.get("output_tokens") or 0)
            self.cost.add(name, by=(usage.get("cost_micros") or 0) / 1e6)

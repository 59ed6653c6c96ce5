"""What other processes want of sessions and runs: one stream that everybody may write to."""

from __future__ import annotations

from holdfast.contracts import Draft, Record
from holdfast.contracts.agent import InputDropped
from holdfast.errors import CallerError, HoldfastError
from holdfast.journal import Journal
from holdfast.shell.warm import Warm

CONTROL = "holdfast:control"
"""The stream of wishes about sessions and runs that another process may have. Nobody leases it."""


class Control:
    """Hears of wishes, for the sessions at hand."""

    def __init__(self, journal: Journal, warm: Warm) -> None:
        self._journal = journal
        self._warm = warm
        self._heard = 0

    async def begin(self) -> None:
        """What was wanted up to now is not for us."""
        self._heard = (await self._journal.head(CONTROL)).pos

    async def listen(self) -> None:
        """Hear what other processes want of those who hold sessions here."""
        try:
            if not self._anybody():
                # Looked up first: whoever takes a session while we look is told of all that comes from here on.
                end = (await self._journal.head(CONTROL)).pos
                if not self._anybody():
                    self._heard = end
                    return
            async for record in self._journal.read(CONTROL, after=self._heard):
                self._heard = record.pos
                self._hear(record)
        except HoldfastError:
            pass  # the journal is in trouble; whoever runs next is told

    def nudge(self, session: str) -> None:
        """Tell whoever holds a session here that something was said to it."""
        live = self._warm.get(session)
        if live is not None and live.holder is not None:
            live.holder.nudge()

    def _anybody(self) -> bool:
        return any(one.holder is not None for one in self._warm)

    def _hear(self, record: Record) -> None:
        said = record.payload
        if record.kind == "input_queued":
            self.nudge(str(said["session_id"]))
        elif record.kind == "run_cancel_requested":
            mode = "now" if said["mode"] == "now" else "after_effect"
            reason = str(said["reason"]) if said.get("reason") else None
            for session in self._warm:
                if session.holder is not None and session.cancel(mode, str(said["run"]), reason):
                    return

    async def abandon_inputs(self, session: str) -> None:
        """Nobody will read what waits for a session that is gone."""
        for row in await self._journal.rows("inputs", tag=f"queued:{session}", limit=1_000_000):
            dropped = InputDropped(id=row.key, reason="session_destroyed")
            try:
                await self._journal.append(CONTROL, [Draft.of(dropped)])
            except CallerError as why:
                if why.code != "ILLEGAL_RECORD":
                    raise  # else it was taken back in this very moment

"""Conversations that are kept at hand, so that the next run in a session need not read all of its records."""

from __future__ import annotations

from holdfast.agent.history import history_of
from holdfast.agent.transcript import Transcript
from holdfast.contracts import check_session_id
from holdfast.journal import Journal
from holdfast.shell.session import Session

_WARM = 256
"""Conversations that are kept at hand."""


class Conversations:
    """What was said in sessions."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._warm: dict[str, tuple[int, Transcript]] = {}

    async def take(self, live: Session) -> Transcript:
        """What was said in a session before; whoever takes it goes on with it."""
        warm = self._warm.pop(live.id, None)
        if live.limits is None:
            return Transcript()
        if warm is not None and warm[0] == live.pen.pos:
            return warm[1]
        return (await history_of(self._journal, live.id)).transcript

    def keep(self, session: Session, transcript: Transcript) -> None:
        """Keep a conversation at hand, as it is now."""
        if len(self._warm) >= _WARM:
            self._warm.pop(next(iter(self._warm)))
        self._warm[session.id] = (session.pen.pos, transcript)

    async def look(self, session: str) -> Transcript:
        """A conversation as it is, to be read and not changed."""
        warm = self._warm.get(session)
        if warm is not None and warm[0] == (await self._journal.head(session)).pos:
            return warm[1]
        return (await history_of(self._journal, check_session_id(session))).transcript

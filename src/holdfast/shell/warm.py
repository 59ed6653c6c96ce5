"""The sessions that one process has at hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack

from holdfast.contracts import Language
from holdfast.shell.services import Services
from holdfast.shell.session import Session

MAX_WARM = 64
"""Sessions that keep their worker process between runs."""


class Warm:
    """Sessions by their ids; one is made when it is first met."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._sessions: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._sessions.values())

    def get(self, id_: str) -> Session | None:
        """A session, if it is at hand."""
        return self._sessions.get(id_)

    def session(self, id_: str, language: Language) -> Session:
        """A session; whoever looks at it, fills or ends it need not wait for room."""
        session = self._sessions.get(id_)
        if session is None:
            session = self._sessions[id_] = Session(id_, self._services, language)
        return session

    async def roomy(self, id_: str, language: Language) -> Session:
        """The same for whoever runs in it: when too many hold a worker, the one longest unused is closed first."""
        session = self._sessions.get(id_)
        if session is not None:
            return session
        if len(self._sessions) >= MAX_WARM:
            idle = [one for one in self._sessions.values() if not one.taken]
            if idle:
                oldest = min(idle, key=lambda one: one.used)
                del self._sessions[oldest.id]
                await oldest.close()
        return self.session(id_, language)

    def forget(self, id_: str) -> None:
        """It is made again when it is met again; whoever says so closes it."""
        self._sessions.pop(id_, None)

    async def let_go(self) -> None:
        """Give all of them back as they stand."""
        for session in self:
            await session.pen.release()

    async def close(self) -> None:
        """Close them all; raises what could not be recorded."""
        async with AsyncExitStack() as rest:
            for session in self._sessions.values():
                rest.push_async_callback(session.close)
        self._sessions.clear()

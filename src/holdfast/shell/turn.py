"""A turn in a session: one at a time in this process, by lock, and among processes, by the lease of its stream."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

import anyio

from holdfast.contracts import SessionLimits
from holdfast.errors import CallerError, LeaseHeld
from holdfast.gate.past import pasts_of
from holdfast.shell.refusals import busy
from holdfast.shell.services import setup_of
from holdfast.shell.story import interrupted

if TYPE_CHECKING:
    from holdfast.shell.session import Session


class Turn:
    """A turn in a session: if it goes wrong, box and journal may disagree, and the box is made again."""

    def __init__(
        self,
        session: Session,
        wait_ms: int,
        resumes: str | None = None,
        coming: anyio.CancelScope | None = None,
    ) -> None:
        self._session = session
        self._wait_ms = wait_ms
        self._resumes = resumes
        self._coming = coming

    async def __aenter__(self) -> None:
        """Wait for our turn in this process, and for the stream's lease among processes."""
        session, lock = self._session, self._session.lock
        deadline = monotonic() + self._wait_ms / 1000
        if lock.locked():
            with anyio.move_on_after(self._wait_ms / 1000) as scope:
                await lock.acquire()
            if scope.cancelled_caught:
                raise busy(session.id)
        else:
            lock.acquire_nowait()
        session.busy, session.coming = True, self._coming
        try:
            await take(session, deadline, self._resumes)
        except BaseException:
            self._leave()
            raise

    async def __aexit__(self, kind: type[BaseException] | None, why: object, _: object) -> None:
        session = self._session
        try:
            if kind is not None and not _harmless(why):
                with anyio.CancelScope(shield=True):
                    await session.contents.drop()
                session.pen.lose()
        finally:
            self._leave()

    def _leave(self) -> None:
        """Let the next one in."""
        session = self._session
        session.busy, session.coming = False, None
        session.used = monotonic()
        session.lock.release()


async def take(session: Session, deadline: float, resumes: str | None = None) -> None:
    """Have the lease; if somebody else had it meanwhile, what we know of the session is out of date."""
    try:
        moved = await session.pen.take(deadline)
    except LeaseHeld:
        raise busy(session.id) from None
    except BaseException:
        await session.contents.drop()
        raise
    if moved:
        await session.contents.drop()
        await _look(session, resumes)


async def _look(session: Session, resumes: str | None) -> None:
    """Learn how things stand.

    A run that died with its process and had called nobody is recorded as over, unless it is to go on now.
    """
    services, opening = session.services, session.opening
    journal = services.journal
    row = await journal.row("sessions", session.id)
    session.limits, session.open_run, session.open_agent = None, None, None
    opening.remembered = services.setup
    if row is None or row["status"] != "open":
        return
    session.limits = SessionLimits.model_validate(row["limits"])
    opening.remembered = setup_of(services, row)
    agent = row.get("open_agent")
    session.open_agent = agent if isinstance(agent, str) else None
    run_id = row.get("open_run")
    if isinstance(run_id, str):
        run = await journal.row("runs", run_id) or {}
        session.open_run = run_id
        if run.get("status") == "running" and run_id != resumes and "parent" not in run:
            after = int(str(run.get("start_pos", 1)))
            called = await pasts_of(journal, session.id, run_id, after=after)
            if not called.calls:
                await session.pen.append([interrupted(run_id)])
                session.open_run = None


def _harmless(why: object) -> bool:
    """A refusal before anything was touched."""
    return isinstance(why, CallerError) and why.code in ("RUN_OPEN", "SESSION_NOT_FOUND")

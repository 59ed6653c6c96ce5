"""What a shell does now and then: leases, expiry, wishes of other processes, sessions nobody uses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import monotonic

import anyio

from holdfast.errors import HoldfastError
from holdfast.journal.pen import renew_all
from holdfast.shell.control import Control
from holdfast.shell.services import Services
from holdfast.shell.session import COLD, Session
from holdfast.shell.warm import Warm

EXPIRE_EVERY = 15.0
"""Seconds between looking for approvals and sessions whose time has run out."""

KEEP_EVERY = 0.5
IDLE_AFTER = 1.0
"""Seconds: between two rounds of upkeep, until an idle session's lease is given back."""


class Upkeep:
    """Keeps the sessions at hand; `expire` destroys those whose time has run out."""

    def __init__(
        self,
        services: Services,
        warm: Warm,
        control: Control,
        expire: Callable[[int], Awaitable[object]],
    ) -> None:
        self._services = services
        self._warm = warm
        self._control = control
        self._expire = expire
        self._expire_at = 0.0

    async def keep(self) -> None:
        """Go on for ever."""
        while True:
            await anyio.sleep(KEEP_EVERY)
            self._services.gate.tell_slow()
            await self._expire_now_and_then()
            await self._control.listen()
            await self._renew()
            due = [one for one in self._warm if one.due(idle_after=IDLE_AFTER)]
            if not due:
                continue
            async with anyio.create_task_group() as keeping:
                for session in due:
                    keeping.start_soon(self._keep_one, session)

    async def _expire_now_and_then(self) -> None:
        if monotonic() < self._expire_at:
            return
        self._expire_at = monotonic() + EXPIRE_EVERY
        try:
            await self._services.approvals.expire()
            await self._expire(self._services.approvals.now())
        except HoldfastError:
            pass  # the journal is in trouble; whoever runs next is told

    async def _renew(self) -> None:
        """Make the leases of what is under way here last."""
        aging = [one.pen for one in self._warm if one.busy and one.pen.ages]
        try:
            await renew_all(self._services.journal, aging)
        except HoldfastError:
            pass  # the journal is in trouble; whoever runs next is told

    async def _keep_one(self, session: Session) -> None:
        try:
            await session.keep(idle_after=IDLE_AFTER)
            if not session.taken and monotonic() - session.used > COLD:
                self._warm.forget(session.id)
                await session.close()
        except HoldfastError:
            pass  # the journal is in trouble; whoever runs next is told

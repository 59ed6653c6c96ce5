"""What a caller may ask for: the scope of a method, and whether all that a request names is theirs.

Who sees only the sessions with a prefix is told of any other thing that there is no such thing, whether there is or not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel

from holdfast.contracts import Record, SessionLimits
from holdfast.errors import CallerError
from holdfast.journal.belonging import session_of
from holdfast.runtime import Runtime
from holdfast.server import params as p
from holdfast.server import views
from holdfast.server.callers import LOCAL, Caller, Scope
from holdfast.server.sight import readable, without_secrets
from holdfast.shell.services import Services

PLAN = "plan_"
"""Starts the name of a plan."""

Note = Callable[[str], Awaitable[None]]
"""Puts a refusal on record, by its code."""


class _Named(Protocol):
    @property
    def id(self) -> str: ...


_Item = TypeVar("_Item", bound=_Named)


def check_within(asked: BaseModel, caller: Caller, services: Services) -> None:
    """Refuse what reaches beyond a caller's sessions, by whichever way they came in: `FORBIDDEN`.

    What a session is opened with, greater limits than the server's, and in whose name something is done, are the
    operator's.
    """
    if caller.may("admin"):
        return
    if getattr(asked, "setup", None) is not None:
        raise _operators("`setup`")
    if getattr(asked, "actor", None) not in (None, caller.id):
        raise _operators("`actor`")
    most = services.setup.limits or services.limits
    limits: SessionLimits | None = getattr(asked, "limits", None)
    timeout: int | None = getattr(asked, "timeout_ms", None)
    over = timeout is not None and timeout > most.wall_ms
    if over or any(value > getattr(most, name) for name, value in limits or ()):
        raise _operators("More than the limits of this server")


def _operators(what: str) -> CallerError:
    return CallerError(
        "FORBIDDEN", f"{what} needs the scope `admin`.", hint="Leave it out, or ask the operator."
    )


class Rights:
    """One caller's."""

    def __init__(self, hf: Runtime, caller: Caller, note: Note | None = None) -> None:
        self.caller = caller
        """Whose they are."""
        self._journal = hf.journal
        self._services = hf.shell.services
        self._note = note

    async def check(self, scope: Scope, asked: BaseModel) -> None:
        """Raise `FORBIDDEN` or `NOT_FOUND` unless they may ask this."""
        try:
            self.caller.need(scope)
            check_within(asked, self.caller, self._services)
            if self.caller.prefix is not None:
                for session_id in await self._sessions(asked):
                    self.caller.need_session(session_id)
        except CallerError as why:
            if self._note is not None:
                await self._note(why.code)
            raise

    async def sees(self, record: Record) -> bool:
        """Whether a record is theirs to see."""
        if self.caller.prefix is None:
            return True
        return self.caller.sees(await session_of(self._journal, record))

    def shown(self, record: Record) -> Record:
        """A record as they may see it: of some, only that it is there. Whoever has the file sees all."""
        if self.caller == LOCAL:
            return record
        payload = without_secrets(record) if readable(record) else {}
        return record.model_copy(update={"payload": payload})

    async def page(
        self,
        fetch: Callable[[str, int], Awaitable[Sequence[_Item]]],
        asked: p.Page,
        session_of_item: Callable[[_Item], str | None],
    ) -> dict[str, Any]:
        """The part of a list that was asked for, without what is not theirs."""
        found: list[_Item] = []
        after, size = asked.after, asked.limit + 1
        while len(found) < size:
            part = await fetch(after, size)
            found += [one for one in part if self.caller.sees(session_of_item(one))]
            if len(part) < size:
                break
            after = part[-1].id
        return views.page(found[:size], asked.limit)

    async def _sessions(self, asked: BaseModel) -> list[str | None]:
        """The sessions of all that a request names; `None` for what there is not."""
        match asked:
            case p.Decide():
                projection = "plans" if asked.id.startswith(PLAN) else "approvals"
                return [await self._session_in(projection, asked.id)]
            case p.ResolveEffect():
                return [await self._session_in("effects", asked.effect_id)]
            case p.GetRun():
                return [await self._session_in("runs", asked.run_id)]
            case p.ForkSession():
                return [asked.session_id, asked.new_session_id]
            case p.NoParams():
                return [None]  # about the journal as a whole
            case _:
                named: str | None = getattr(asked, "session_id", None)
                return [] if named is None else [named]

    async def _session_in(self, projection: str, key: str) -> str | None:
        row = await self._journal.row(projection, key)
        found = None if row is None else row.get("session_id")
        return found if isinstance(found, str) else None

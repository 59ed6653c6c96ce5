"""Sign-ins for surfaces that never came up: an item of the inbox that no run waits for.

Of a surface that is there, a call asks for the sign-in, and goes on after it. One whose very first connection needs one
has no calls, and its tools are not even known. So it asks by itself, once, in the stream of surfaces; whoever connects it
next, in any process, finds that item and does not ask again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio

from holdfast.contracts import (
    ApprovalRequest,
    ApprovalStatus,
    Body,
    Decision,
    Draft,
    Retention,
    SideEffect,
    canonical_json,
    new_id,
)
from holdfast.contracts.surface import SURFACES
from holdfast.gate.approvals import Approvals
from holdfast.gate.executor import Question
from holdfast.journal import Journal
from holdfast.runtime._surface_board import Board

_MANY = 1_000_000


@dataclass(slots=True)
class _Asked:
    id: str
    what: tuple[str, str | None]
    """The words and the address."""
    tries: int | None = None
    """How often the surface had failed when somebody said that they had signed in."""


class SignIns:
    """Asks people to sign in for surfaces."""

    def __init__(
        self,
        journal: Journal,
        approvals: Approvals,
        *,
        timeout_ms: int,
        redact: Callable[[str], str] = str,
    ) -> None:
        self._journal = journal
        self._approvals = approvals
        self._timeout_ms = timeout_ms
        self._redact = redact
        self._asked: dict[str, _Asked] = {}
        self._up: set[str] = set()
        self._turn = anyio.Lock()

    async def look(self, board: Board) -> None:
        """Ask for the surfaces that need it, and take back what nobody need do any more."""
        asking = [name for name in board.fates if board.asks(name) and name in board.specs]
        fresh = [name for name in board.fates if self._is_fresh(board, name)]
        if not asking and not fresh and not self._asked:
            return
        async with self._turn:
            for name in asking:
                question = board.fate(name).question
                if question is not None and board.serving(name) is None:
                    await self._ask(name, question, board.fate(name).failures)
            for name in [*self._asked]:
                if board.alive(name) or name not in board.specs:
                    await self._end(self._asked.pop(name).id)
            for name in fresh:
                self._up.add(name)
                for row in await self._pending(name):  # of a process that is gone
                    await self._end(str(row["id"]))

    def _is_fresh(self, board: Board, name: str) -> bool:
        """Whether it came up here for the first time, and might have needed a sign-in."""
        spec = board.specs.get(name)
        return name not in self._up and bool(getattr(spec, "auth", None)) and board.alive(name)

    async def _ask(self, name: str, question: Question, tries: int) -> None:
        """Put it into the inbox, unless it is there, or was there and somebody said no."""
        url = None if question.url is None else self._redact(question.url)
        what = (self._redact(question.message), url)
        known = self._asked.get(name)
        if known is not None and known.what == what and not await self._again(known, tries):
            return
        found: str | None = None
        for row in await self._pending(name):
            if found is None and (row["summary"], row.get("url")) == what:
                found = str(row["id"])
            else:  # another link by now: the old one leads nowhere
                await self._end(str(row["id"]))
        self._asked[name] = _Asked(found or await self._put(name, question, what), what)

    async def _again(self, known: _Asked, tries: int) -> bool:
        """Whether it failed once more since somebody said that they had signed in."""
        if known.tries is not None:
            return tries > known.tries
        row = await self._journal.row("approvals", known.id)
        if row is not None and row["status"] == ApprovalStatus.APPROVED:
            known.tries = tries
        return False

    async def _pending(self, name: str) -> list[dict[str, Any]]:
        rows = await self._journal.rows("approvals", tag="pending", limit=_MANY)
        return [one.value for one in rows if one.value["effect_id"] == effect_of(name)]

    async def _end(self, approval_id: str) -> None:
        await self._approvals.end(approval_id, ApprovalStatus.CANCELLED, "approval.cancelled")

    async def _put(self, name: str, question: Question, what: tuple[str, str | None]) -> str:
        shown = Body.of(
            canonical_json({"surface": name}),
            role="arguments",
            mime="application/json",
            retention=Retention.DURABLE,
        )
        request = ApprovalRequest(
            id=new_id("apr"),
            effect_id=effect_of(name),
            tool=effect_of(name),
            arguments=shown.ref.digest,
            side_effect=SideEffect.NETWORK,
            summary=what[0],
            requested_by="holdfast",
            allowed=(Decision.APPROVED, Decision.DENIED),
            deadline=self._approvals.now() + self._timeout_ms,
            asks=question.asks,
            url=what[1],
            key=question.key or None,
        )
        await self._journal.append(SURFACES, [Draft.of(request, bodies=(shown,))])
        return request.id


def effect_of(name: str) -> str:
    """What stands for an effect where there is none: the surface itself."""
    return f"surface:{name}"

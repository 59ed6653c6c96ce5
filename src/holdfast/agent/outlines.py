"""Outlines on record: at the end of a run that made a long session longer, what was said is written down as steps.

Whoever goes on with the session reads those, and the records since, instead of all records. An outline is derived:
each piece holds the steps since the piece before it, and names the record it ends with by its hash. One that is not
there, of another version, or about another past is left aside, and the conversation is told from all records.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic_core import from_json

from holdfast.agent.outline import CORRECTING, TOLD, Later, Open, Outlining, Step
from holdfast.contracts import Body, Draft, Record, canonical_json
from holdfast.contracts.agent import ContextOutlined
from holdfast.errors import HoldfastError
from holdfast.journal import Journal
from holdfast.journal.pen import Pen

VERSION = 2
"""Of the layout of a piece, and of the meaning of its steps."""

EVERY = 256
"""Records that a piece stands for, at least: a session of short runs gets one now and then."""

_ABSENT = frozenset(("NOT_FOUND", "CONTENT_ERASED", "JOURNAL_DAMAGED"))
"""Why a piece can't be had; the records say the same, so nobody need hear of it here."""


@dataclass(slots=True)
class Outline:
    """A conversation up to a record, as steps."""

    digest: str
    """The newest piece."""
    upto: int
    """The position of that record."""
    head: str
    """Its hash."""
    before: Open
    """What was under way after it."""
    steps: list[Step] = field(default_factory=list[Step])
    """All of them."""

    def fits(self, since: list[Record]) -> bool:
        """Whether it is of the same past as the records after it, and these say that it is."""
        if not since or since[0].prev != self.head:
            return False
        return any(
            one.kind == "context_outlined" and one.payload["outline"] == self.digest
            for one in since
        )


async def outline_of(journal: Journal, stream: str, created: int) -> Outline | None:
    """What is written down of a session that was made at position `created`, if anything."""
    row = await journal.row("outlines", stream)
    if row is None or int(str(row["upto"])) < created:
        return None
    newest = str(row["outline"])
    found: Outline | None = None
    pieces: list[list[Step]] = []
    name: str | None = newest
    while name is not None:
        piece = await _piece(journal, name)
        if piece is None:
            return None
        if found is None:
            found = Outline(newest, piece["upto"], piece["head"], Open(**piece["open"]))
        pieces.append(piece["steps"])
        name = piece["before"]
    assert found is not None
    for steps in reversed(pieces):
        found.steps += steps
    return found


async def _piece(journal: Journal, name: str) -> dict[str, Any] | None:
    try:
        data = await journal.content(name)
    except HoldfastError as why:
        if why.code not in _ABSENT:
            raise
        return None
    try:
        piece: dict[str, Any] = {**from_json(data)}
    except (ValueError, TypeError):
        return None
    return piece if piece.get("v") == VERSION else None


async def write_outline(journal: Journal, pen: Pen) -> None:
    """Write down what a session's conversation is made of, if it has become enough longer; at the end of a run."""
    if pen.pos < EVERY:
        return
    row = await journal.row("sessions", pen.stream)
    last = await journal.row("outlines", pen.stream)
    created = int(str(row["created_pos"])) if row is not None else 1
    upto = int(str(last["upto"])) if last is not None else 0
    if pen.pos - max(upto, created - 1) < EVERY:
        return
    piece: dict[str, Any] | None = None
    if last is not None and upto >= created:
        digest = str(last["outline"])
        before = await _piece(journal, digest)
        if before is not None:
            piece = await _next_piece(journal, pen.stream, upto, digest, before)
    if piece is None:
        piece = await _next_piece(journal, pen.stream, created - 1)
    assert piece is not None
    body = Body.of(canonical_json(piece), role="outline", mime="application/json")
    said = ContextOutlined(outline=body.ref.digest, upto=piece["upto"])
    await pen.append([Draft.of(said, bodies=(body,))])


async def _next_piece(
    journal: Journal,
    stream: str,
    after: int,
    digest: str | None = None,
    before: dict[str, Any] | None = None,
    later: Later | None = None,
) -> dict[str, Any] | None:
    """The piece that follows `before`; `None` when that was of another past.

    One record at a time, for there may be many: of most of them nothing is kept.
    """
    later = later or Later({}, frozenset())
    outlining = Outlining(later, Open() if before is None else Open(**deepcopy(before["open"])))
    effects = outlining.open.effects()
    steps: list[Step] = []
    notes: list[Record] = []
    newest: Record | None = None
    async for one in journal.read(stream, after=after):
        if newest is None and before is not None and one.prev != before["head"]:
            return None
        newest = one
        if one.kind in CORRECTING:
            notes.append(one)
        elif one.kind == "effect_intent":
            effects.add(str(one.effect_id))
        step = outlining.step(one)
        if step is not None and step[0] in TOLD:
            steps.append(step)
    found = Later.of(notes)
    if newest is None or (before is not None and not found.about(effects)):
        return None
    if found != later:  # it takes a second look, with what is known now
        return await _next_piece(journal, stream, after, digest, before, found)
    return {
        "v": VERSION,
        "before": digest,
        "upto": newest.pos,
        "head": newest.hash,
        "open": asdict(outlining.open),
        "steps": steps,
    }

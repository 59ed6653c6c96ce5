"""Words that stay in a session's conversation however often it is told in short."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.contracts import Body, Draft, new_id
from holdfast.contracts.agent import TextPinned, TextUnpinned
from holdfast.errors import CallerError, NotFound
from holdfast.journal import Journal
from holdfast.shell.control import CONTROL

MAX_PIN = 8000
"""Characters of one pin: every question pays for them."""
MAX_PINS = 100
"""Pins of one session."""


class Pin(NamedTuple):
    """Words that stay."""

    id: str
    """Its name."""
    text: str
    """The words."""


async def pin(journal: Journal, session_id: str, text: str) -> str:
    """Keep `text`; its name. It is recorded beside the sessions: a run may be under way in this one."""
    if not text.strip() or len(text) > MAX_PIN:
        raise CallerError(
            "INVALID_ARGUMENT",
            f"A pin has between 1 and {MAX_PIN} characters; this one has {len(text)}.",
            hint="Pin what must be known word for word, and nothing else.",
        )
    await _created(journal, session_id)
    if len(await pins_of(journal, session_id)) >= MAX_PINS:
        raise CallerError(
            "INVALID_ARGUMENT",
            f"Session `{session_id}` has {MAX_PINS} pins, which is all it may.",
            hint="Take one back first: `hf.agents.unpin`.",
        )
    body = Body.of(text.encode(), role="pin", mime="text/plain")
    said = TextPinned(id=new_id("pin"), session_id=session_id, content=body.ref.digest)
    await journal.append(CONTROL, [Draft.of(said, bodies=(body,))])
    return said.id


async def unpin(journal: Journal, pin_id: str) -> None:
    """Let it go with the next compaction."""
    row = await journal.row("pins", pin_id)
    if row is None or "unpinned" in row:
        raise NotFound(
            "NOT_FOUND",
            f"There is no pin `{pin_id[:80]}`.",
            hint="`hf.agents.pins(session)` names those there are.",
        )
    await journal.append(CONTROL, [Draft.of(TextUnpinned(id=pin_id))])


async def pins_of(journal: Journal, session_id: str) -> list[Pin]:
    """What is pinned in a session, in the order it was."""
    rows = await journal.rows("pins", tag=session_id, limit=MAX_PINS)
    if not rows:
        return []
    since = await _created(journal, session_id)  # one that had its name before was another one
    found = [row.value for row in rows if int(str(row.value["seq"])) > since]
    texts = [(await journal.content(str(one["content"]))).decode() for one in found]
    return [Pin(str(one["id"]), text) for one, text in zip(found, texts, strict=True)]


async def _created(journal: Journal, session_id: str) -> int:
    row = await journal.row("sessions", session_id)
    if row is None or row["status"] != "open":
        raise NotFound(
            "NOT_FOUND",
            f"There is no session `{session_id[:80]}`.",
            hint="`holdfast session list` names those there are.",
        )
    return int(str(row["created_seq"]))

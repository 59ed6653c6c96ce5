"""What somebody says while a run is under way: part of this run at its next boundary, or the next run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING

from holdfast.contracts import Body, Draft, canonical_json, new_id
from holdfast.contracts.agent import InputDropped, InputQueued, Lane, RunPrompted, Waiting
from holdfast.contracts.message import UserMessage
from holdfast.errors import CallerError, NotFound
from holdfast.journal import Journal
from holdfast.journal.pen import LEASE_MS
from holdfast.shell.control import CONTROL
from holdfast.shell.refusals import not_found

if TYPE_CHECKING:
    from holdfast.agent.work import Work

_MANY = 100


def message_body(text: str, *, notice: bool = False) -> Body:
    """A message as it is recorded."""
    said = UserMessage(text=text, notice=notice)
    data = canonical_json(said.model_dump(mode="json"))
    return Body.of(data, role="message", mime="application/json")


async def queue(journal: Journal, session_id: str, text: str, lane: Lane) -> str:
    """Say something to a session; its name."""
    body = message_body(text)
    said = InputQueued(id=new_id("inp"), session_id=session_id, lane=lane, content=body.ref.digest)
    try:
        await journal.append(CONTROL, [Draft.of(said, bodies=(body,))])
    except CallerError as why:
        if why.code != "ILLEGAL_RECORD":
            raise
        raise not_found(session_id) from None  # it was destroyed
    return said.id


async def drop(journal: Journal, input_id: str, reason: str = "withdrawn") -> None:
    """Take a message back that nobody has read yet."""
    try:
        await journal.append(CONTROL, [Draft.of(InputDropped(id=input_id, reason=reason))])
    except CallerError as why:
        if why.code != "ILLEGAL_RECORD":
            raise
        raise NotFound(
            "NOT_FOUND",
            f"No message `{input_id[:80]}` waits: a run has taken it, or it was taken back.",
            hint="`hf.agents.waiting(session)` names those that wait.",
        ) from None


async def waits(journal: Journal, session_id: str) -> bool:
    """Whether anything waits for a session."""
    return bool(await journal.rows("inputs", tag=f"queued:{session_id}", limit=1))


async def waiting(journal: Journal, session_id: str) -> list[Waiting]:
    """Messages to a session that nobody has read yet, in order."""
    found: list[Waiting] = []
    after = ""
    while True:
        rows = await journal.rows("inputs", tag=f"queued:{session_id}", after=after, limit=_MANY)
        for row in rows:
            said = json.loads(await journal.content(str(row.value["content"])))
            found.append(Waiting.model_validate({**row.value, "text": said["text"]}))
        if len(rows) < _MANY:
            return found
        after = rows[-1].key


def prompted(messages: Sequence[Waiting], prompt: str | None, run_id: str) -> list[Draft]:
    """The records that make messages, and then a prompt, part of a run's conversation."""
    said: list[tuple[str, str | None]] = [(one.text, one.id) for one in messages]
    if prompt is not None:
        said.append((prompt, None))
    drafts: list[Draft] = []
    for text, input_id in said:
        body = message_body(text)
        told = RunPrompted(content=body.ref.digest, input_id=input_id)
        drafts.append(Draft.of(told, run_id=run_id, bodies=(body,)))
    return drafts


async def begin(work: Work, first: list[Draft], prompt: str | None) -> None:
    """Start a run with what waits in its session, oldest first, then with its prompt."""
    while True:
        found = await waiting(work.journal, work.session.id)
        if not found and prompt is None:
            raise nothing_waits(work.session.id)
        more = prompted(found, prompt, work.run_id)
        work.desk.begin = lambda more=more: [*first, *more]
        if await _recorded(work, []):
            break
    work.transcript.begin()
    for one in found:
        work.transcript.user(one.text)
    if prompt is not None:
        work.transcript.user(prompt)


async def _recorded(work: Work, drafts: list[Draft]) -> bool:
    """Record that messages are part of the conversation; False when one of them was taken back meanwhile."""
    pen = work.session.pen
    try:
        await work.desk.append(drafts, durable=False)
    except CallerError as why:
        if why.code != "ILLEGAL_RECORD":
            raise
        await work.journal.flush()
        pen.lose()
        await pen.take(monotonic() + LEASE_MS / 1000)
        return False
    return True


class Inbox:
    """Takes messages into one run."""

    def __init__(self, work: Work) -> None:
        self._work = work

    async def take(self) -> bool:
        """Make what steers this run part of its conversation; whether there was any."""
        work = self._work
        work.nudged = False
        while True:
            found = await waiting(work.journal, work.session.id)
            found = [one for one in found if one.lane == "steer"]
            if not found:
                return False
            await (
                work.desk.settle()
            )  # by itself: if a message was taken back, nothing else is refused with it
            if await _recorded(work, prompted(found, None, work.run_id)):
                break
        for one in found:
            work.transcript.user(one.text)
        return True


def nothing_waits(session_id: str) -> CallerError:
    """The refusal of a run that nobody asked anything."""
    return CallerError(
        "INVALID_ARGUMENT",
        f"There is no prompt, and nothing waits in session `{session_id}`.",
        hint="Give a prompt, or say something first: `hf.agents.say(session, text)`.",
    )

"""A question about which a person is asked: what they are shown of it, and whether it is still the same afterwards."""

from __future__ import annotations

from holdfast.agent.guards import Allowed
from holdfast.agent.view import cut
from holdfast.agent.work import Work
from holdfast.contracts import ApprovalStatus, Json
from holdfast.contracts._dump import dumped
from holdfast.contracts.canonical import digest_json
from holdfast.gate.broker import Settled, settlement
from holdfast.gate.crossing import Mood
from holdfast.gate.past import Past, stored_json

_SHOWN = 2000
"""Characters of the newest message that a person is shown."""


class Left(Exception):
    """A question waits for a person: it is left there."""


def leave(mood: Mood) -> None:
    """Leave a question that waits for a person, and the run with it."""
    if mood == "waiting":
        raise Left


def beside(allowed: Allowed) -> dict[str, Json]:
    """What is recorded of messages that are not the conversation as it stands, or that a person is asked about."""
    if not allowed.changed and allowed.wanted is None:
        return {}
    messages = allowed.request.messages
    found: dict[str, Json] = {"messages": digest_json([dumped(one) for one in messages])}
    if allowed.wanted is not None:
        found["newest"] = cut(messages[-1].text, _SHOWN, "the rest is in the conversation")
    return found


async def is_about(work: Work, past: Past, told: dict[str, Json]) -> bool:
    """Whether it is this question that a person was asked about; how long an answer may be does not matter."""
    then = await stored_json(work.journal, past.arguments)
    return isinstance(then, dict) and {**then, "settings": None} == {**told, "settings": None}


async def withdraw(work: Work, past: Past) -> None:
    """What was said about a question counts for no other one."""
    if past.approval is not None:
        end = Settled(ApprovalStatus.DENIED, "approval.question_changed")
        await work.desk.append(settlement(past.approval, end, work.run_id), durable=False)

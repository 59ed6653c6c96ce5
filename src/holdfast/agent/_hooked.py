"""What hooks say about an agent's run, checked and put into the agent's own words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from holdfast.agent.inbox import message_body
from holdfast.agent.output import Fault, Reading
from holdfast.contracts import Draft, Json
from holdfast.contracts._dump import dumped
from holdfast.contracts.agent import RunPrompted
from holdfast.contracts.hook_response import (
    ContextItem,
    HookResponse,
    Note,
    ProjectionChange,
    ResponseClass,
)
from holdfast.contracts.message import AssistantMessage, Message, check_messages
from holdfast.contracts.model import ModelDelta, ModelRequest
from holdfast.errors import CallerError
from holdfast.gate.hooks import Fired, HookStatus, Outcome, View, apply

_R = ResponseClass

_MESSAGES: TypeAdapter[list[Message]] = TypeAdapter(list[Message])

NOT_DONE = "You are not done: look at your work again."
"""What the model is told when a hook wants more done and does not say what."""


class Told(list[dict[str, Json]]):
    """Messages as a hook is shown them: by this they are known from those a hook gives instead."""


def refused(why: str) -> CallerError:
    """The refusal of an answer."""
    return CallerError("HOOK_INVALID", f"The hook's answer was refused: {why}.")


def as_json(messages: Sequence[Message]) -> list[dict[str, Json]]:
    """Messages as hooks see them."""
    return [dumped(one) for one in messages]


# -- words for the model ----------------------------------------------------------------------------------


def with_words(view: View, response: HookResponse) -> View:
    """The view with what the answer adds; an answer that adds nothing readable is refused."""
    if isinstance(response.payload, tuple):
        for item in response.payload:
            if isinstance(item, ContextItem) and not item.text.strip():
                raise refused("an item has no text")
    return apply(view, response)


def words_of(drafts: Sequence[Draft]) -> list[str]:
    """What an answer that is being accepted says to the model: what it adds, or why there is more to do."""
    found: list[str] = []
    for draft in drafts:
        if draft.kind != "hook" or draft.payload.get("response") is None:
            continue
        response = HookResponse.model_validate(json.loads(draft.bodies[0].data))
        said = response.payload
        if isinstance(said, tuple):
            found += [item.text for item in said if isinstance(item, ContextItem)]
        elif response.response_class is _R.REQUEST_RETRY and isinstance(said, Note):
            found.append(said.summary.strip() or NOT_DONE)
    return found


def prompts(words: Sequence[str], run_id: str) -> list[Draft]:
    """The records that make these words part of the conversation."""
    drafts: list[Draft] = []
    for text in words:
        body = message_body(text, notice=True)
        said = RunPrompted(content=body.ref.digest, purpose="hook")
        drafts.append(Draft.of(said, run_id=run_id, bodies=(body,)))
    return drafts


def notes(fired: Fired, what: ResponseClass) -> list[str]:
    """The lines of all answers in force of one class."""
    found: list[str] = []
    for one in fired.outcomes:
        said = one.response
        if one.in_force and said is not None and said.response_class is what:
            found += said.summaries
    return found


# -- messages in place of others --------------------------------------------------------------------------


def projecting(view: View, response: HookResponse) -> View:
    """The view with other messages; those that no provider would take are refused."""
    if isinstance(response.payload, ProjectionChange):
        _parsed(response.payload.messages)
    return apply(view, response)


def messages_of(view: View) -> list[Message] | None:
    """The messages that a hook gave; `None`: none did."""
    if view.messages is None or isinstance(view.messages, Told):
        return None
    return _parsed(view.messages)


def with_messages(request: ModelRequest, messages: Sequence[Message]) -> ModelRequest:
    """The same question with other messages."""
    answered = request.answered
    if answered is None:
        answered = sum(isinstance(one, AssistantMessage) for one in request.messages)
    return replace(request, messages=messages, answered=answered)


def _parsed(said: Sequence[Mapping[str, Any]]) -> list[Message]:
    try:
        found = _MESSAGES.validate_python(said)
    except ValidationError as why:
        first = why.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise refused(f"message {where}: {first['msg']}") from None
    wrong = "there are no messages" if not found else check_messages(found)
    if wrong is not None:
        raise refused(wrong)
    return found


def settings_of(request: ModelRequest) -> dict[str, Json]:
    """What goes to a model beside the messages."""
    return {
        "instructions": request.instructions,
        "tools": [one.name for one in request.tools],
        "settings": request.settings.model_dump(mode="json", exclude_defaults=True),
    }


def piece_of(piece: ModelDelta) -> dict[str, Json]:
    """A piece of an answer, as hooks see it."""
    found: dict[str, Json] = {"kind": piece.kind, "text": piece.text, "index": piece.index}
    if piece.call_id is not None:
        found["call_id"] = piece.call_id
    if piece.name is not None:
        found["name"] = piece.name
    return found


# -- what is on record ------------------------------------------------------------------------------------


def recalled(view: View, responses: Mapping[str, HookResponse]) -> Fired:
    """What the answers on record made of it, with nobody asked."""
    outcomes: list[Outcome] = []
    for hook_id, response in responses.items():
        view = apply(view, response)
        outcomes.append(Outcome(hook_id, HookStatus.RESTORED, response=response))
    return Fired(view, tuple(outcomes))


# -- compaction and output --------------------------------------------------------------------------------


def names_of(messages: Sequence[Message], first: int) -> list[str]:
    """What hooks call the messages: by their number in the conversation."""
    return [f"msg_{first + place}" for place in range(len(messages))]


def protected(view: View, response: HookResponse, ids: Sequence[str]) -> View:
    """The view with what the answer protects; what there is not can't be."""
    new = apply(view, response)
    for one in new.protected:
        if one not in ids:
            raise refused(f"there is no message `{one[:80]}`")
    return new


def faulted(reading: Reading, wanted: Sequence[str]) -> Reading:
    """The answer with a fault for each hook that wants another."""
    if not wanted:
        return reading
    more = tuple(Fault("hook", "/", one, one.removesuffix(".")) for one in map(_why, wanted))
    return replace(reading, faults=(*reading.faults, *more))


def _why(note: str) -> str:
    return note.strip() or "another answer is wanted"

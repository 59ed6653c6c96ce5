"""What an incoming item is: one pure function, for every item.

Everything later code needs to know is decided here, once: its class, whether it wakes the session, which request it
belongs to, and the text a model reads. There is no phase to be in and no way to be refused: whether an item is let in is
a question of its own (`refusal`), answered from who sent it and how full the inbox is.

Lifecycle news, supervisor commands and dismissals are kinds of their own. A request whose intent is spelled like one, or
a message that says `DISMISS`, is a request or a message. No kind is exempt from the trust check; a dismissal is refused
unless the session allows it.
"""

from __future__ import annotations

from collections.abc import Set
from enum import StrEnum
from typing import Any, NamedTuple, cast

from holdfast.machines import texts

INBOX_SIZE = 1_024
"""Items that wait, at most."""


# -- what came ----------------------------------------------------------------------------------------


class ResponseStatus(StrEnum):
    """What a response says; the values go over the wire."""

    ACCEPTED = "accepted"
    COMPLETED = "completed"
    FAILED = "failed"


class LifecycleKind(StrEnum):
    """News about peers; the values go over the wire."""

    PEER_ADDED = "mob.peer_added"
    PEER_RETIRED = "mob.peer_retired"
    PEER_UNWIRED = "mob.peer_unwired"


class Message(NamedTuple):
    """Something said."""

    body: str


class Request(NamedTuple):
    """Something asked."""

    intent: str
    params: Any


class Response(NamedTuple):
    """Something answered."""

    in_reply_to: str
    status: ResponseStatus
    result: Any


class Lifecycle(NamedTuple):
    """News about a peer."""

    kind: LifecycleKind
    params: Any


class Supervisor(NamedTuple):
    """A command of the supervisor."""

    command: str
    params: Any


class Dismiss(NamedTuple):
    """Stop listening."""


class Ack(NamedTuple):
    """It arrived."""

    in_reply_to: str


Kind = Message | Request | Response | Lifecycle | Supervisor | Dismiss | Ack


class Envelope(NamedTuple):
    """An item from a peer."""

    item_id: str
    sender: str
    """What the sender is called; for display."""
    sender_id: str
    kind: Kind


class PlainEvent(NamedTuple):
    """An item from no peer."""

    source: str
    body: str


# -- what it is ---------------------------------------------------------------------------------------


class Class(StrEnum):
    """What is done with it."""

    ACTIONABLE_MESSAGE = "ActionableMessage"
    ACTIONABLE_REQUEST = "ActionableRequest"
    SILENT_REQUEST = "SilentRequest"
    PEER_ADDED = "PeerLifecycleAdded"
    PEER_RETIRED = "PeerLifecycleRetired"
    PEER_UNWIRED = "PeerLifecycleUnwired"
    SUPERVISOR_COMMAND = "SupervisorCommand"
    DISMISS = "Dismiss"
    RESPONSE_PROGRESS = "ResponseProgress"
    RESPONSE_TERMINAL = "ResponseTerminal"
    ACK = "Ack"
    PLAIN_EVENT = "PlainEvent"


class Terminality(StrEnum):
    """Whether a response is the last one."""

    PROGRESS = "Progress"
    COMPLETED = "TerminalCompleted"
    FAILED = "TerminalFailed"


class Drop(StrEnum):
    """Why an item is not let in; the values go over the wire."""

    SESSION_CLOSED = "session_closed"
    UNTRUSTED_SENDER = "untrusted_sender"
    CLASSIFICATION_REJECTED = "classification_rejected"
    INBOX_FULL = "inbox_full"


WAKES = frozenset(
    {
        Class.ACTIONABLE_MESSAGE,
        Class.ACTIONABLE_REQUEST,
        Class.RESPONSE_PROGRESS,
        Class.RESPONSE_TERMINAL,
        Class.PLAIN_EVENT,
    }
)


class Classification(NamedTuple):
    """All there is to know about an item."""

    class_: Class
    text: str
    """What a model would read; empty when none ever does."""
    auth_required: bool = True
    lifecycle_peer: str | None = None
    request_id: str | None = None
    terminality: Terminality | None = None

    @property
    def wakes(self) -> bool:
        """Whether the pump has something to do."""
        return self.class_ in WAKES

    @property
    def for_model(self) -> bool:
        """Whether a model ever reads it; a silent request only with the next turn."""
        return self.wakes or self.class_ is Class.SILENT_REQUEST


_LIFECYCLE = {
    LifecycleKind.PEER_ADDED: Class.PEER_ADDED,
    LifecycleKind.PEER_RETIRED: Class.PEER_RETIRED,
    LifecycleKind.PEER_UNWIRED: Class.PEER_UNWIRED,
}
_RESPONSE = {
    ResponseStatus.ACCEPTED: (Class.RESPONSE_PROGRESS, Terminality.PROGRESS),
    ResponseStatus.COMPLETED: (Class.RESPONSE_TERMINAL, Terminality.COMPLETED),
    ResponseStatus.FAILED: (Class.RESPONSE_TERMINAL, Terminality.FAILED),
}


def classify(
    item: Envelope | PlainEvent,
    silent_intents: Set[str] = frozenset(),
    *,
    fence: texts.Fence | None = None,
) -> Classification:
    """What the item is. Requests with a silent intent wait for the next turn instead of starting one."""
    if isinstance(item, PlainEvent):
        text = texts.event(item.source, item.body)
        return Classification(Class.PLAIN_EVENT, text, auth_required=False)
    kind = item.kind
    if isinstance(kind, Message):
        return Classification(Class.ACTIONABLE_MESSAGE, texts.message(item.sender, kind.body))
    if isinstance(kind, Request):
        return _request(item, kind, silent_intents, fence)
    if isinstance(kind, Response):
        return _response(item, kind, fence)
    return _unread(item, kind)


def _request(
    item: Envelope, asked: Request, silent_intents: Set[str], fence: texts.Fence | None
) -> Classification:
    silent = asked.intent in silent_intents
    text = texts.request(
        item.sender_id, item.item_id, asked.intent, asked.params, item.sender, fence=fence
    )
    class_ = Class.SILENT_REQUEST if silent else Class.ACTIONABLE_REQUEST
    return Classification(class_, text, request_id=item.item_id)


def _response(item: Envelope, said: Response, fence: texts.Fence | None) -> Classification:
    class_, terminality = _RESPONSE[said.status]
    text = texts.response(item.sender, said.in_reply_to, said.status, said.result, fence=fence)
    return Classification(class_, text, request_id=said.in_reply_to, terminality=terminality)


def _unread(item: Envelope, kind: Lifecycle | Supervisor | Dismiss | Ack) -> Classification:
    """What no model reads."""
    if isinstance(kind, Lifecycle):
        peer = _peer(kind.params) or item.sender
        return Classification(_LIFECYCLE[kind.kind], "", lifecycle_peer=peer)
    if isinstance(kind, Supervisor):
        return Classification(Class.SUPERVISOR_COMMAND, "", request_id=item.item_id)
    if isinstance(kind, Dismiss):
        return Classification(Class.DISMISS, "")
    text = texts.ack(item.sender, kind.in_reply_to)
    return Classification(Class.ACK, text, request_id=kind.in_reply_to)


def _peer(params: Any) -> str | None:
    found = cast("dict[str, Any]", params).get("peer") if isinstance(params, dict) else None
    return found if isinstance(found, str) and found else None


def refusal(
    found: Classification,
    *,
    trusted: bool,
    queued: int = 0,
    closed: bool = False,
    authenticate: bool = True,
    dismissable: bool = False,
) -> Drop | None:
    """Why the item is not let in; `None`: it is. To be asked when it is queued, not when it was classified."""
    if closed:
        return Drop.SESSION_CLOSED
    if found.auth_required and authenticate and not trusted:
        return Drop.UNTRUSTED_SENDER
    if found.class_ is Class.DISMISS and not dismissable:
        return Drop.CLASSIFICATION_REJECTED
    return Drop.INBOX_FULL if queued >= INBOX_SIZE else None


def is_acknowledged(kind: Kind) -> bool:
    """Whether the sender of such an item gets an ack: all but an ack."""
    return not isinstance(kind, Ack)

"""What is behind the gate, as the gate sees it: one method to act, one to find out, and a set of such things."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from holdfast.contracts import Body, Capability, ErrorObject, Json, Privacy
from holdfast.contracts.approval import Asks
from holdfast.contracts.model import ModelUsage
from holdfast.errors import ModelError


@dataclass(frozen=True, slots=True)
class Question:
    """What a call needs from a person before it can be made, or before it can go on."""

    asks: Asks
    """`input` or `sign_in`."""
    message: str
    """One line for the person; it may be the other side's words, so it is shown as such."""
    form: dict[str, Json] | None = None
    """The JSON Schema of the answer."""
    url: str | None = None
    """Where to go."""
    key: str = ""
    """Names it among the questions of one call: the same whenever it is asked again."""
    state: Json = None
    """What its asker needs back with the answer; kept with the question, out of sight of code and model."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person said."""

    action: Literal["accept", "decline", "cancel"]
    """`cancel`: nobody answered in time."""
    content: Json = None
    """What was filled in; matches the form."""
    state: Json = None
    """That of the question."""


class NeedsAnswer(Exception):
    """Raised by `execute`: nothing was done yet, and nothing can be before somebody answers.

    The call waits as one that waits for approval does, also without a process; then it is made again, under the same
    id, with the answer in `context.answers`.
    """

    def __init__(self, question: Question) -> None:
        super().__init__(question.message)
        self.question = question


class Unsure(Exception):
    """Raised by `execute`: the call went out, and its answer is lost. `error` says why, to whoever may call again.

    Of what must not be done twice, that is no answer: as after a timeout, nobody knows what became of it.
    """

    def __init__(self, error: ModelError) -> None:
        super().__init__(error.message)
        self.error = error


KEPT_BYTES = 8 << 20
"""What one call may keep, unless the limits of its capability say otherwise."""


@dataclass(slots=True)
class Keeping:
    """What a call wants kept beside its result: it goes on record with it, and is erased with its session."""

    room: int = KEPT_BYTES
    """Bytes that may still be kept."""
    clean: Callable[[bytes], bytes] = bytes
    """Takes secrets out."""
    bodies: tuple[Body, ...] = ()
    """In order."""

    def keep(self, data: bytes, mime: str, privacy: Privacy) -> str:
        """Keep a body; the digest of what is kept. Raises `RESPONSE_TOO_LARGE` when there is no room."""
        if len(data) > self.room:
            raise ModelError(
                "RESPONSE_TOO_LARGE",
                f"The call gave a body of {len(data)} bytes, and {self.room} more can be kept.",
                hint="Ask for less: fewer parts, or smaller ones.",
            )
        self.room -= len(data)
        body = Body.of(self.clean(data), role="kept", mime=mime, privacy=privacy)
        self.bodies = (*self.bodies, body)
        return body.ref.digest


async def _nobody(question: Question) -> Answer:
    return Answer("cancel")


@dataclass(slots=True)
class Context:
    """What a capability may know about the call it serves. A parameter of this type is not shown to the code."""

    effect_id: str
    """Names this effect for ever: the idempotency key. The same on every attempt."""
    attempt: int
    """Counts executions, from 1."""
    session_id: str
    """Whose session."""
    run_id: str
    """Which run."""
    actor: str = "holdfast"
    """On whose behalf."""
    cost_micros: int | None = None
    """Set it to what the call really cost; without, the declared cost is settled."""
    external_id: str | None = None
    """Set it to the other side's name for what was done; it goes on record."""
    usage: ModelUsage | None = None
    """What a question to a model used; set by what asks it."""
    partial: Json = None
    """What came of an answer that broke off; kept with the failure."""
    answers: Mapping[str, Answer] = field(default_factory=dict[str, Answer])
    """What people answered to the questions of this call, by their keys."""
    ask: Callable[[Question], Awaitable[Answer]] = _nobody
    """Asks while the call is under way and its connection is held; its time stands still meanwhile."""
    call: object = None
    """What the gate needs to take another effect on behalf of this call: hand it back, never look into it."""
    kept: Keeping = field(default_factory=Keeping)
    """What `keep` has kept in this attempt."""

    async def keep(
        self, data: bytes, mime: str, *, privacy: Privacy = Privacy.CONTENT_REFS_ONLY
    ) -> str:
        """Keep a body beside the result, for as long as the session is there; its digest, for `content:…`.

        It is stored without the secrets in it, and only if the call gives a result.
        """
        return self.kept.keep(data, mime, privacy)

    @property
    def idempotency_key(self) -> str:
        """What to hand to the other side so that it recognises a repetition."""
        return self.effect_id


@dataclass(frozen=True, slots=True)
class Finding:
    """What a reconciler says about an effect in doubt."""

    status: Literal["completed", "failed", "not_started", "unknown"]
    """`completed`: it happened, with `value`. `failed`: it did not and will not. `not_started`: do it."""
    value: Json = None
    """The result, when `completed`."""
    error: ErrorObject | None = None
    """Why, when `failed`."""


class Executor(Protocol):
    """One capability, ready to act."""

    capability: Capability
    """What it is."""
    reconciles: bool
    """Whether `reconcile` can find out what became of an effect."""

    def bind(self, args: Sequence[Json], kwargs: Mapping[str, Json]) -> dict[str, Json]:
        """The call's arguments by name, defaults left out; raises `INVALID_ARGUMENT` for a call that fits no way."""
        ...

    def check(self, arguments: Mapping[str, Json]) -> None:
        """Raise `INVALID_ARGUMENT` unless the arguments match the input schema."""
        ...

    def check_result(self, value: Json) -> None:
        """Raise `TOOL_ERROR` unless the result matches the output schema."""
        ...

    async def execute(self, arguments: Mapping[str, Json], context: Context) -> Json:
        """Act, once, and give the result. May raise anything; cancelling it stops it as far as it can be stopped."""
        ...

    async def reconcile(self, arguments: Mapping[str, Json], context: Context) -> Finding:
        """Find out what became of an effect that has an intent and no result. Must not act."""
        ...


class Toolbox(Protocol):
    """The versioned set of what one session may call."""

    @property
    def digest(self) -> str:
        """Changes whenever a capability in it does."""
        ...

    def get(self, name: str) -> Executor | None:
        """The capability of that name."""
        ...

    def all(self) -> Sequence[Capability]:
        """Every capability, by name."""
        ...

    def stubs(self, names: Sequence[str] | None = None) -> str:
        """Python stubs, for the type check and for the model."""
        ...

    def search(self, query: str, *, limit: int = 20) -> Sequence[Capability]:
        """Capabilities that match the words of the query, best first."""
        ...


@dataclass(frozen=True, slots=True)
class NoTools:
    """The toolbox of a session that was given nothing."""

    digest: str = "none"
    _none: tuple[Capability, ...] = field(default=(), repr=False)

    def get(self, name: str) -> Executor | None:
        """Nothing."""
        return None

    def all(self) -> Sequence[Capability]:
        """Nothing."""
        return self._none

    def stubs(self, names: Sequence[str] | None = None) -> str:
        """Nothing."""
        return ""

    def search(self, query: str, *, limit: int = 20) -> Sequence[Capability]:
        """Nothing."""
        return self._none

"""What is behind the gate, as the gate sees it: one method to act, one to find out, and a set of such things."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from holdfast.contracts import Capability, ErrorObject, Json
from holdfast.contracts.model import ModelUsage


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

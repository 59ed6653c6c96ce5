"""One call on its way through the gate, the desk where its run is handled, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from holdfast.contracts import (
    ApprovalRequest,
    Body,
    CallStatus,
    Draft,
    EffectKind,
    ErrorObject,
    ExternalCallRecord,
    Json,
    PlannedEffect,
    Provenance,
    Reserved,
    Risk,
    SideEffect,
)
from holdfast.contracts._base import made
from holdfast.errors import HoldfastError
from holdfast.gate.budgets import Purse
from holdfast.gate.executor import Executor, Toolbox
from holdfast.gate.past import Past
from holdfast.gate.policy import Policy
from holdfast.journal.pen import Pen

Mood = Literal["working", "asking", "waiting", "held"]
"""What a call is doing: something; asking a person who is there; waiting for whoever looks into the inbox; or, while the
host is about to stop, nothing."""


class Plan(Protocol):
    """The effects a run was approved for as a whole."""

    def take(self, name: str, arguments: str, capability: str) -> bool:
        """Use up one planned call, by the digest of its arguments; False when there is none like it left."""
        ...


class Wish(NamedTuple):
    """That a hook wants a person asked, whatever policy says."""

    risk: Risk
    """The highest that any hook named."""
    hook: str
    """Which was the first to want it."""
    why: str
    """What it says to the person."""


@dataclass(slots=True)
class Desk:
    """Where the calls of one run are handled: whose they are, what they may do, what records them."""

    session_id: str
    run_id: str
    pen: Pen
    toolbox: Toolbox
    policy: Policy
    purses: Sequence[Purse] = ()
    """The budgets that its calls use up."""
    plan: Plan | None = None
    dry: list[PlannedEffect] | None = None
    """Where a dry run lists what it does not do; `None` when it is no dry run."""
    actor: str = "holdfast"
    begin: Callable[[], Sequence[Draft]] | None = None
    """What has to be on record before the first effect: that the run has started."""
    begun: bool = False
    """Whether that is on record."""
    runless: bool = False
    """Whether its records belong to no run: those of a dry run, whose `run_id` is its plan's."""
    responses: Mapping[tuple[str, str, str], str] = field(
        default_factory=dict[tuple[str, str, str], str]
    )
    """(subject, hook point, hook id) → digest of an answer that is on record: that hook is not asked again."""
    handed: int = 0
    """Counts results in the order in which they were handed to the journal: the order code gets them in."""
    held: list[Draft] = field(default_factory=list[Draft])
    """What is recorded together with whatever is recorded next."""
    must_sync: bool = False
    """Whether one of those must be on disk before anything else happens."""

    def hold(self, drafts: Sequence[Draft], *, durable: bool) -> None:
        """Record these together with what comes next: whoever holds something must see to it that something does."""
        self.held.extend(drafts)
        self.must_sync = self.must_sync or durable

    async def settle(self, *, durable: bool = False) -> None:
        """Record what is held."""
        if self.held or self.begin is not None:
            await self.append((), durable=durable)

    @property
    def shares(self) -> bool:
        """Whether other sessions use one of its budgets up, too."""
        return bool(self.purses) and any(purse.shared for purse in self.purses)

    @property
    def accounts(self) -> tuple[str, ...]:
        """The names of the budgets besides the session's own."""
        return tuple(purse.account for purse in self.purses if purse.account is not None)

    async def append(self, drafts: Sequence[Draft], *, durable: bool) -> None:
        """Record and wait."""
        durable, self.must_sync = durable or self.must_sync, False
        await self.pen.append(self._all(drafts), durable=durable)

    def post(self, drafts: Sequence[Draft]) -> None:
        """Record without waiting."""
        everything = [*self._all(drafts)]  # they are read a moment later
        if everything:  # what was to be said may be on record already
            self.pen.post(len(everything), lambda: everything)

    def post_made(self, count: int, make: Callable[[], list[Draft]]) -> None:
        """Record without waiting what `make` gives; it is called a moment later, perhaps in another thread."""
        if self.runless:
            self.post(make())
            return
        first = [*self._first(), *self._held()]
        self.pen.post(len(first) + count, lambda: [*first, *make()], light=True)

    def tell(self) -> None:
        """Hand in that the run has started; what goes wrong is told to whoever writes next."""
        drafts = self._first()
        if drafts:
            try:
                self.pen.post(len(drafts), lambda: drafts)
            except HoldfastError as failure:
                self.pen.fail(failure)

    def next_order(self) -> int:
        """The place of the next result."""
        self.handed += 1
        return self.handed

    def _all(self, drafts: Sequence[Draft]) -> Sequence[Draft]:
        if self.runless:
            return [draft.model_copy(update={"run_id": None}) for draft in drafts]
        if self.begin is not None:
            return [*self._first(), *self._held(), *drafts]
        return [*self._held(), *drafts] if self.held else drafts

    def _held(self) -> Sequence[Draft]:
        if not self.held:
            return ()
        held, self.held = self.held, []
        return held

    def _first(self) -> Sequence[Draft]:
        begin, self.begin = self.begin, None
        if begin is None:
            return ()
        self.begun = True
        return begin()


@dataclass(slots=True)  # not frozen: that would cost as much as all the rest of making one
class Crossing:
    """A call on its way out."""

    desk: Desk
    ordinal: int
    name: str
    args: Sequence[Json]
    kwargs: Mapping[str, Json]
    provenance: Provenance = Provenance.CODE
    past: Past | None = None
    """What is on record of it already, when its run is resumed."""
    known: bool = False
    """Whether name and arguments were read from the record itself, because the code stands at this call."""
    mood: Callable[[Mood], None] = lambda _: None
    """Told what the call is doing."""
    ordered: Callable[[int], None] = lambda _: None
    """Told the place of its result the moment that is fixed."""
    executor: Executor | None = None
    """What acts, where that is not one of the desk's capabilities."""
    kind: EffectKind = EffectKind.TOOL_EXECUTION
    """What crosses the boundary."""
    call_id: str | None = None
    """The model's call that it answers."""
    turn: int | None = None
    """Of a question to a model: which of its run it is."""
    context: str | None = None
    """Of a question to a model: the conversation it is asked with."""
    reserve: Reserved | None = None
    """What to set aside for it, where its capability can't say."""
    lazy: bool = False
    """Whether its result may be recorded together with what comes next."""
    wanted: Wish | None = None
    """That a hook wants a person asked about it; `None`: none does."""
    within_ms: int | None = None
    """No longer than this, where that is less than its capability may take."""
    beside: str | None = None
    """The effect under way on whose behalf it is made: the code did not ask for it."""
    line: int | None = None
    """The line of the code that it is at."""
    asked: ApprovalRequest | None = None
    """What a person is asked about it right now."""
    own_id: str | None = None
    """Its effect id, where that does not follow from its number, or was asked for already."""
    body: Body | None = None
    """Its arguments as they are recorded, where they are the same as those of a call before it."""

    @property
    def asks_model(self) -> bool:
        """Whether it is a question to a model."""
        return self.kind is EffectKind.PROVIDER_REQUEST

    @property
    def effect_id(self) -> str:
        """The same whenever this call is made again in its run."""
        if self.own_id is None:
            self.own_id = effect_id(self.desk.run_id, self.ordinal)
        return self.own_id

    @property
    def number(self) -> int | None:
        """Its number among the calls of its run, as it is recorded; what the code did not ask for has none."""
        return self.ordinal if self.beside is None else None


@dataclass(slots=True)
class Outcome:
    """What the code gets: a value, or an error."""

    record: ExternalCallRecord
    value: Json = None
    error: ErrorObject | None = None
    kind: str | None = None
    """The built-in exception the code sees, if the error's code does not say it."""
    fatal: bool = False
    """Whether the run ends with it, uncaught or not."""
    pretended: bool = False
    """Whether a dry run gives it in place of a call that it does not make."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """Nobody knows what became of it. The run can't go on from here before somebody says so."""

    effect_id: str
    name: str


@dataclass(frozen=True, slots=True)
class Held:
    """A hook did not do its part. Resumed, the run goes on from here, and the hook is asked again."""

    effect_id: str
    name: str
    why: HoldfastError


def effect_id(run_id: str, ordinal: int) -> str:
    """The name of a run's nth call."""
    return f"eff_{run_id.removeprefix('run_')}_{ordinal}"


def arguments_body(data: bytes) -> Body:
    """Arguments as they are recorded, of their canonical JSON."""
    return Body.of(data, role="arguments", mime="application/json")


def as_asked(crossing: Crossing, executor: Executor | None) -> dict[str, Json]:
    """The arguments by name, as the code gave them; as they came, where that fits no way."""
    try:
        if executor is not None:
            return executor.bind(crossing.args, crossing.kwargs)
    except HoldfastError:
        pass
    return {"args": [*crossing.args], "kwargs": dict(crossing.kwargs)}


STATUSES = {"PERMISSION_DENIED": CallStatus.DENIED, "TIMEOUT_TOOL": CallStatus.TIMEOUT}


def call_record(
    name: str,
    side_effect: SideEffect,
    request: str,
    *,
    took: float = 0,
    response: str | None = None,
    error: ErrorObject | None = None,
) -> ExternalCallRecord:
    """The line about a call in its run's result."""
    status = CallStatus.OK if error is None else STATUSES.get(error.code, CallStatus.ERROR)
    return made(
        ExternalCallRecord,
        {
            "name": name,
            "side_effect": side_effect,
            "duration_ms": int(took * 1000),
            "status": status,
            "request_digest": request,
            "response_digest": response,
            "error": error,
        },
    )

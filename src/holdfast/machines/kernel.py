"""Lifecycles as tables.

A machine is data: for each type of input, rows that say in which phases it may come, under which named guards,
what the next state is, and which effects follow. `Machine.apply` is the only interpreter. It is pure: no clock, no
randomness, no I/O; time and chance are fields of the inputs.

    apply(state, input) → (new state, effects)

Two refusals, never mixed up, because callers react differently to them:

* `NoTransition`: no row of this input lists the phase the state is in. Asking was a mistake.
* `GuardRejected`: rows do, but a guard of each said no. It names them. Often harmless: a duplicate, a late answer.

A refused input returns nothing and changes nothing: the caller still holds the very state object it had. Invariants
are checked on every step; a step that would break one is a bug in the table and raises `InvariantBroken`.

Rows of one input are tried in order. If two could fire in the same state the machine must say so (`ordered`), so
that nobody depends on an order by accident; the explorer checks it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from holdfast.errors import HoldfastError


class HasPhase(Protocol):
    """A state: frozen, and it knows its phase."""

    @property
    def phase(self) -> Any:  # `Any`: every machine has an enum of its own
        """Where in its lifecycle it is."""
        ...


S = TypeVar("S", bound=HasPhase)
# `Any` for inputs and effects: each row knows the type of its own input, the table holds them all.
Guard = Callable[[S, Any], bool]
Update = Callable[[S, Any], S]
Effects = Callable[[S, S, Any], tuple[Any, ...]]
Invariant = Callable[[S], bool]


class Rejected(HoldfastError):
    """The machine refused an input; the state is what it was."""

    def __init__(self, code: str, message: str, hint: str, machine: str, input_: object) -> None:
        super().__init__(code, message, hint=hint)
        self.machine = machine
        self.input = input_


class NoTransition(Rejected):
    """No row of this input lists the state's phase."""

    def __init__(self, machine: str, phase: object, input_: object) -> None:
        name = type(input_).__name__
        super().__init__(
            "NO_TRANSITION",
            f"Machine `{machine}` has no `{name}` in phase `{phase}`.",
            f"`holdfast machines show {machine}` lists what it takes in each phase.",
            machine,
            input_,
        )
        self.phase = phase


class GuardRejected(Rejected):
    """Every row that lists the phase has a guard that said no."""

    def __init__(
        self, machine: str, phase: object, input_: object, guards: tuple[str, ...]
    ) -> None:
        name = type(input_).__name__
        super().__init__(
            "GUARD_REJECTED",
            f"Machine `{machine}` refused `{name}` in phase `{phase}`: {', '.join(guards)}.",
            "The state did not allow it: it may be a duplicate, or a late answer.",
            machine,
            input_,
        )
        self.phase = phase
        self.guards = guards


class InvariantBroken(HoldfastError):
    """A step, or a loaded state, breaks an invariant of its machine."""

    def __init__(self, machine: str, invariant: str, state: object) -> None:
        super().__init__(
            "INVARIANT_BROKEN",
            f"Machine `{machine}`: `{invariant}` does not hold in {state!r}.",
            hint="Please report this with the message.",
        )
        self.machine = machine
        self.invariant = invariant


@dataclass(frozen=True, slots=True)
class Within:
    """An invariant that says something about these phases only; a step to another one need not ask it."""

    phases: frozenset[Any]
    holds: Invariant[Any]

    def __call__(self, state: HasPhase) -> bool:
        """Whether it holds in a state of any phase."""
        return state.phase not in self.phases or self.holds(state)


class Stepped(NamedTuple, Generic[S]):
    """What an accepted input gave."""

    state: S
    effects: tuple[Any, ...]


def _same(state: Any, _: Any) -> Any:
    return state


def _nothing(_old: Any, _new: Any, _input: Any) -> tuple[Any, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Row(Generic[S]):
    """One row of a table."""

    input: type
    """The input it is for."""
    phases: frozenset[Any]
    """The phases in which it may fire."""
    to: str
    """The phase it leads to, for readers: its name, `=` for unchanged, or a few words."""
    guards: tuple[tuple[str, Guard[S]], ...] = ()
    """What must hold, by name; all of it."""
    update: Update[S] = _same
    """The next state."""
    effects: Effects[S] = _nothing
    """What follows, from the old and the new state: data, for others to carry out."""
    emits: str = ""
    """The effects, for readers."""
    note: str = ""
    """A few words for readers."""


def guard(name: str, holds: Callable[[Any, Any], bool]) -> tuple[str, Guard[Any]]:
    """A named guard: `holds(state, input)`."""
    return name, holds


def row(
    input_: type,
    phases: Iterable[Any],
    to: object,
    *guards: tuple[str, Guard[Any]],
    update: Update[Any] = _same,
    effects: Effects[Any] | None = None,
    emits: str = "",
    note: str = "",
) -> Row[Any]:
    """A row, spelled shortly."""
    return Row(
        input_,
        frozenset(phases),
        str(getattr(to, "value", to)),
        guards,
        update,
        effects or _nothing,
        emits,
        note,
    )


@dataclass(frozen=True, eq=False)
class Machine(Generic[S]):
    """A lifecycle: its table, its invariants, and how to explore it."""

    name: str
    """What it is called, in a word or two: `turn`, `tool_surface`."""
    purpose: str
    """One sentence."""
    initial: S
    """Where it starts."""
    rows: tuple[Row[S], ...]
    """The table."""
    invariants: Mapping[str, Invariant[S]]
    """What always holds, by name."""
    ends: frozenset[Any]
    """The phases in which a life may end."""
    alphabet: Callable[[S], Iterable[Any]]
    """Inputs worth trying in a state: legal and illegal, fresh and stale. Bounded, for the explorer."""
    bounded: Callable[[S], bool] = field(default=lambda _: True)
    """Whether the explorer should go on from this state; keeps counters small."""
    ordered: frozenset[type] = frozenset()
    """Inputs of which several rows may be enabled at once: the first wins, on purpose."""

    def __post_init__(self) -> None:
        by_phase: dict[tuple[type, Any], list[Row[S]]] = {}
        for one in self.rows:
            for phase in one.phases:
                by_phase.setdefault((one.input, phase), []).append(one)
        table = {key: tuple(found) for key, found in by_phase.items()}
        object.__setattr__(self, "_table", table)
        object.__setattr__(self, "_checks", {one: self._checks_in(one) for one in self.phases})

    _table: Mapping[tuple[type, Any], tuple[Row[S], ...]] = field(init=False, repr=False)
    _checks: Mapping[Any, tuple[tuple[str, Invariant[S]], ...]] = field(init=False, repr=False)

    def _checks_in(self, phase: Any) -> tuple[tuple[str, Invariant[S]], ...]:
        """The invariants that can fail in a phase."""
        found: list[tuple[str, Invariant[S]]] = []
        for name, holds in self.invariants.items():
            if not isinstance(holds, Within):
                found.append((name, holds))
            elif phase in holds.phases:
                found.append((name, holds.holds))
        return tuple(found)

    @property
    def phases(self) -> tuple[Any, ...]:
        """Every phase, in the order of their enum."""
        phase: Any = self.initial.phase
        return tuple(phase.__class__)

    def rows_for(self, state: S, input_: object) -> tuple[Row[S], ...]:
        """The rows of an input that list the state's phase."""
        return self._table.get((type(input_), state.phase), ())

    def apply(self, state: S, input_: object) -> Stepped[S]:
        """Take one step; raises `NoTransition` or `GuardRejected` and changes nothing."""
        fired, new = self._step(state, input_)
        return Stepped(new, fired.effects(state, new, input_))

    def advance(self, state: S, input_: object) -> S:
        """The same step for whoever carries no effects out: the new state alone."""
        return self._step(state, input_)[1]

    def _step(self, state: S, input_: object) -> tuple[Row[S], S]:
        """The row that fires, and the new state."""
        rows = self._table.get((type(input_), state.phase))
        if rows is None:
            raise NoTransition(self.name, state.phase, input_)
        for one in rows:
            for _, holds in one.guards:
                if not holds(state, input_):
                    break
            else:
                new = one.update(state, input_)
                if new is not state:
                    for name, holds_in in self._checks[new.phase]:
                        if not holds_in(new):
                            raise InvariantBroken(self.name, name, new)
                return one, new
        raise GuardRejected(self.name, state.phase, input_, self.failed_guards(state, input_))

    def failed_guards(self, state: S, input_: object) -> tuple[str, ...]:
        """The guards that say no, of every row that lists the phase; in table order, without repeats."""
        failed = [
            name
            for one in self.rows_for(state, input_)
            for name, holds in one.guards
            if not holds(state, input_)
        ]
        return tuple(dict.fromkeys(failed))

    def enabled(self, state: S, input_: object) -> list[Row[S]]:
        """Every row that could fire."""
        return [
            one
            for one in self.rows_for(state, input_)
            if all(holds(state, input_) for _, holds in one.guards)
        ]

    def check(self, state: S) -> S:
        """`state` itself, or `InvariantBroken`: what a loaded state must pass."""
        for name, holds in self.invariants.items():
            if not holds(state):
                raise InvariantBroken(self.name, name, state)
        return state

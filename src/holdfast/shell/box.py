"""The seam between a code session and the engine that runs its code.

A box is one live interpreter with the state of one session in it. It knows nothing of journals, sessions or
capabilities: code goes in, and what it gave comes out. Whatever the code does wrong is a `Ran` with an error,
never an exception. What is raised is the caller's mistake (`CallerError`) or the operator's (`OperatorError`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, Protocol, Self, TypeAlias

from pydantic import Field, JsonValue

from holdfast.contracts import (
    Diagnostic,
    ErrorObject,
    ExternalCallRecord,
    Json,
    Metrics,
    RunStatus,
    SessionLimits,
    Span,
)
from holdfast.contracts._base import Told

Call: TypeAlias = Callable[..., Json]
"""What answers a function the code may call. It is called in a thread of the engine, not in the event loop; one
call of a box at a time; it may block, and its time counts for `wall_ms` only."""

Meanwhile: TypeAlias = Callable[[], Awaitable[None]]
"""What to do while the engine computes."""

Known: TypeAlias = Callable[[], AbstractSet[str]]
"""The variables that code of a session may have defined; asked only when it matters."""

ANYTHING = "*"
"""Stands among names for all that can't be told: code that runs text can define whatever it likes."""

Jail: TypeAlias = Literal["auto", "required", "off"]
"""Whether to jail workers: where it works, or not at all without, or never."""


# Not frozen, as all that is made for every run or call: setting the fields of one that is takes thrice the time.
@dataclass(slots=True)
class Ran:
    """What one run in a box gave."""

    status: RunStatus
    """How it ended; never a status that waits."""
    value: Json
    """The result; `None` unless `status` is `ok`."""
    stdout: str
    """What it printed, up to `max_stdout_bytes`."""
    stderr: str
    """What it printed there, within the same limit, and the traceback of its error."""
    error: ErrorObject | None
    """Present exactly when `status` is not `ok`."""
    diagnostics: tuple[Diagnostic, ...]
    """The error once more, and warnings."""
    calls: tuple[tuple[int, ExternalCallRecord], ...]
    """Every call that the box answered itself, with its number among all calls of the run. The caller knows
    about those it answered."""
    metrics: Metrics
    """What it used."""
    state_kept: bool
    """Whether what the code changed so far stays. If not, the box is dead: close it and open another."""
    refused: bool = False
    """Whether none of it was run: the box is as it was."""


@dataclass(slots=True)
class Wanted:
    """A call out of the box that only the host can answer."""

    id: int
    """Its number among all calls of this run; the same when the same code is run again with the same answers."""
    name: str
    """The capability."""
    args: tuple[Json, ...]
    """Positional arguments, as JSON."""
    kwargs: Mapping[str, Json]
    """Keyword arguments, as JSON."""
    span: Span | None
    """Where in the code."""


@dataclass(slots=True)
class AtCall:
    """The code stands at a call. Answer with `Gave` or `Raised`; if it was declared awaited, also with `Later`."""

    call: Wanted
    direct: bool = False
    """Whether it was declared awaited, and the code wants its value at once all the same: no `Later` then."""


@dataclass(frozen=True, slots=True)
class AtAwait:
    """Every branch of the code awaits a call that was answered with `Later`. Answer one of them."""

    ids: frozenset[int]
    """Every call that was answered with `Later` and not yet for good, by `Wanted.id`; also those that no branch
    awaits just now. Answering one of these is harmless: the code then stands here again."""


@dataclass(slots=True)
class Gave:
    """The call gave a value."""

    value: Json


@dataclass(frozen=True, slots=True)
class Raised:
    """The call failed: the code sees an exception, and may catch it. Uncaught, the run ends with `error`."""

    error: ErrorObject
    """A refusal and a limit of the gate end the run as what they are, any other error as `TOOL_ERROR`."""
    kind: str | None = None
    """The built-in exception the code sees; default: by the error's code, else `RuntimeError`."""


@dataclass(frozen=True, slots=True)
class Later:
    """The call is under way; the code goes on until it awaits it."""


Answer: TypeAlias = Gave | Raised | Later
Stop: TypeAlias = "AtCall | AtAwait | Ran"
"""Where a run has come to: it stands, or it has ended."""


class Progress(Told):
    """What a run has used and said up to where it stands: kept beside a dump, for `Boxes.reopen`."""

    cpu_ms: float = 0
    """Computing time used."""
    stdout: str = ""
    """What it printed."""
    stderr: str = ""
    """What it printed there."""
    calls: int = 0
    """Calls out of the box so far, of every kind."""
    own: tuple[tuple[int, ExternalCallRecord], ...] = ()
    """Calls that the box answered itself, with their numbers."""
    raised: tuple[tuple[str, ErrorObject], ...] = ()
    """What the code was told went wrong, by the message it saw."""
    engine: dict[str, JsonValue] = Field(default_factory=dict)
    """What only the engine understands."""


class Box(Protocol):
    """One live interpreter holding one session's state. One run at a time."""

    limits: SessionLimits
    """Those it was opened with."""

    def alive(self) -> bool:
        """Whether its process still runs, as far as that can be told."""
        ...

    def fits(self, limits: SessionLimits) -> bool:
        """Whether a run can have these limits here: memory and stack depth are built in, the rest is not."""
        ...

    async def run(
        self,
        code: str,
        *,
        inputs: Mapping[str, Json],
        limits: SessionLimits,
        names: Mapping[str, Call],
        outside: Mapping[str, bool] = MappingProxyType({}),
        meant: frozenset[str] = frozenset(),
        known: Known | None = None,
        meanwhile: Meanwhile | None = None,
    ) -> Stop:
        """Run code until it ends, or stands at a call that the host must answer.

        `inputs` become variables, `names` the functions the box answers itself. `outside` are the capabilities,
        and whether code awaits them; without any, the run always ends here, and faster. `meant` are those that no
        code of the session can have given another meaning: calls of these may be `direct`. With `known`, code that is
        certain to fail for what nobody has defined is refused before any of it runs. `meanwhile` is awaited
        while the engine computes, and has ended before this returns; if it raises, the run is stopped and the
        box is dead. A cancelled run kills the box's process before this raises.

        The limits are enforced over the whole run. Of `wall_ms` the box sees only the time it computes: the caller
        says with `resume` how much of it is left, and calls `stop` when it runs out while nothing computes.
        """
        ...

    async def resume(
        self, answer: Answer, *, id: int | None = None, wall_ms: float | None = None
    ) -> Stop:
        """Answer the call the code stands at or, with `id`, one of those it awaits; go on until the next stop."""
        ...

    async def stop(self, error: ErrorObject) -> Ran:
        """End a run that stands at a call, as what `error` says. The box is dead after it."""
        ...

    def progress(self) -> Progress:
        """What the run that stands has used and said so far."""
        ...

    async def dump(self) -> bytes:
        """The state, between runs (for `Boxes.open`) or while a run stands (for `Boxes.reopen`).

        Not authenticated: whoever stores it has to.

        The engine needs about as much memory again to write it down, within `memory_mb`. Where that is too
        much, this raises `MEMORY_EXCEEDED` and the box is dead.
        """
        ...

    async def close(self) -> None:
        """End its process; harmless when it is dead or closed already."""
        ...


class Boxes(Protocol):
    """Opens boxes of one language. An async context manager; leaving it ends every process it started."""

    unsupported: str
    """What its code can't use, in words for a model; from the same list that its hints come from."""
    engine: str
    """Name and version: `monty/1.4.0`. A state only fits the engine that made it."""
    jail: Literal["bubblewrap", "none"]
    """What is around the workers; known once the context is entered."""
    jail_reason: str
    """Why the jail is not there or weaker than wanted; empty when all is well."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc: object) -> None: ...

    async def open(self, limits: SessionLimits, state: bytes | None = None) -> Box:
        """An empty box, or one with `state` in it, which keeps the memory and stack limits it was made with.

        Raises `SNAPSHOT_CORRUPT` or `SNAPSHOT_VERSION_MISMATCH` for a state that can't be loaded.
        """
        ...

    async def reopen(
        self,
        limits: SessionLimits,
        state: bytes,
        progress: Progress,
        *,
        code: str,
        run_limits: SessionLimits,
        names: Mapping[str, Call],
        outside: Mapping[str, bool],
        inputs: Mapping[str, Json],
    ) -> tuple[Box, AtCall | AtAwait]:
        """A box whose run stands where it stood when `state` was dumped, in this or another process.

        Everything but `state` and `progress` is what `run` was given. Raises as `open` does.
        """
        ...

    async def validate(
        self, code: str, *, stubs: str = "", known: frozenset[str] = frozenset()
    ) -> tuple[Diagnostic, ...]:
        """What is wrong with the code, found without running any of it.

        `stubs` declare the capabilities; `known` are the variables of the session and the inputs.
        """
        ...

    def binds(self, code: str, error: str | None = None) -> frozenset[str]:
        """The top-level names that running the code may define, or may have, if it ended with the code of an `error`."""
        ...

    def defines(
        self, sources: dict[str, str], code: str, error: str | None
    ) -> dict[str, str] | None:
        """What a session defined, in words of the engine's own, after it also ran `code`; it began with nothing.

        `error` is the code of the error it ended with. `None`: that can't be told any more.
        """
        ...

    async def compact(
        self,
        state: bytes,
        limits: SessionLimits,
        *,
        names: frozenset[str],
        sources: Mapping[str, str],
    ) -> bytes | None:
        """A state in which later code finds the same as in this one, from between runs, but with less in it.

        `names` are the variables it may have, `sources` what `defines` gave. `None` where it can't be done, or not
        without a doubt.
        """
        ...

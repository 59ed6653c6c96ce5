"""One run that stands at its calls out: its feed goes on from answer to answer.

The engine stops at every call, at every name it does not know and whenever all branches wait. What the box answers
itself (discovery, the refused machine, unknown names) is answered on the way; only a call of a capability, or
nothing left to do but to wait, is a stop for the host.

A capability that code awaits is answered with `Later` first: the engine then hands the code something to await,
which it would not find in a value. The host answers one awaited call at a time, so the order in which branches go
on is the order of its answers and of nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, TypeAlias, TypeGuard

from pydantic_monty import (
    AsyncFunctionSnapshot,
    AsyncFutureSnapshot,
    MontyComplete,
    MontyError,
)

from holdfast.contracts import ErrorObject, Json
from holdfast.errors import InternalError
from holdfast.shell.box import (
    Answer,
    AtAwait,
    AtCall,
    Gave,
    Later,
    Progress,
    Ran,
    Stop,
    Wanted,
)
from holdfast.shell.languages._python_capture import Reading, recall
from holdfast.shell.languages._python_direct import directly
from holdfast.shell.languages._python_errors import Failure, Text, is_refusal
from holdfast.shell.languages._python_guard import Breach, Spent
from holdfast.shell.languages._python_outside import Unfit
from holdfast.shell.languages._python_places import Places
from holdfast.shell.languages._python_run import Run
from holdfast.shell.languages._python_values import NotJson

_Standing: TypeAlias = AsyncFunctionSnapshot | AsyncFutureSnapshot
# What the engine takes for an answer to come.
_FUTURE: Any = {"future": ...}


class Steps(Run):
    """A run of a piece of code that may call capabilities."""

    __slots__ = ("_at", "_direct", "_ids", "_places", "_stashed", "meant")

    meant: frozenset[str]
    """Awaited capabilities whose names no code has given another meaning."""
    _at: _Standing
    """Where it stands."""
    _direct: dict[int, int]
    """Where calls start whose value is wanted at once though they are declared awaited, and where their `await` was."""
    _ids: frozenset[int]
    """What it awaits there."""
    _places: Places
    _stashed: bool

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.meant = frozenset[str]()
        self._direct: dict[int, int] = {}

    async def start(self) -> Stop:
        """Run until the first stop."""
        try:
            self._stashed, at = await self._fed(self._feed_start)
            return await self._from(at)
        except (Breach, NotJson, MontyError) as why:
            return self._failed(why)
        finally:
            self._guard.end()

    async def resume(self, step: Awaitable[Any], wall_ms: float | None) -> Stop:
        """Run from an answer until the next stop."""
        guard = self._guard
        guard.go_on(wall_ms)
        try:
            return await self._from(await guard.watch(step))
        except (Breach, NotJson, MontyError) as why:
            return self._failed(why)
        finally:
            guard.end()

    def stop(self, error: ErrorObject) -> Ran:
        """End it where it stands, and its process."""
        self._guard.go_on(None)
        self._guard.end()
        self._worker.kill()
        return self._ran(None, Failure(error, kept=False))

    # -- elsewhere ------------------------------------------------------------------------------------

    def progress(self, far: bool) -> Progress:
        """What it has used and said so far, in a session in which `result` may (not) be set from `far`."""
        spent = self._guard.spent()
        stdout, stderr = self._guard.output()
        return Progress(
            cpu_ms=spent.cpu_ms,
            stdout=stdout,
            stderr=stderr,
            calls=self._outside.count,
            own=tuple(self._outside.records),
            raised=tuple(self._outside.raised.items()),
            engine={
                "took_ms": spent.took_ms,
                "room": spent.room,
                "cut": spent.cut,
                "stashed": self._stashed,
                "feeds": self._live.feeds,
                "far": far or self.far,
                "reading": self._reading.kept(),
                "direct": [[*pair] for pair in self._direct.items()],
            },
        )

    async def take_over(self, state: bytes, progress: Progress) -> AtCall | AtAwait:
        """Stand where the run stood whose `state` and `progress` these are; raises what the engine says."""
        kept: Any = progress.engine
        self._reading = recall(self._code, kept["reading"])
        self._stashed, self.far = kept["stashed"], kept["far"]
        self._live.feeds = kept["feeds"]
        # Runs of an older holdfast do not have it.
        self._direct = dict(kept.get("direct", ()))
        self._places = Places(self._reading, self._live.feeds - 1)
        spent = Spent(progress.cpu_ms, kept["took_ms"], kept["room"], kept["cut"])
        self._guard.take_over(spent, progress.stdout, progress.stderr)
        self._outside.take_over(progress)
        at = await self._session.load_snapshot(
            state,
            print_callback=self._guard.write,
            external_lookup=self._outside.lookup(self._beyond),
            os=self._outside.refuse,
        )
        if isinstance(at, AsyncFutureSnapshot):
            return self._awaiting(at)
        if not _is_call(at):
            raise RuntimeError("it does not stand at a call")
        args, kwargs = self._outside.arguments(at.function_name, at.args, at.kwargs)
        return self._calling(at, args, kwargs)

    # -- steps ----------------------------------------------------------------------------------------

    async def _feed_start(self, reading: Reading) -> Any:
        text, self._direct = directly(reading.feed, self.meant)
        try:
            return await self._feed_text(reading, text)
        except MontyError as error:
            if not self._direct or not is_refusal(error):
                raise
        self._direct = {}  # nothing of it was run: let the engine speak of what the agent wrote
        return await self._feed_text(reading, reading.feed)

    async def _feed_text(self, reading: Reading, text: str) -> Any:
        self._places = Places(reading, self._live.feeds)
        self._count(text)
        return await self._guard.watch(
            self._session.feed_start(
                text,
                inputs=self._given(reading),
                external_lookup=self._outside.lookup(self._beyond),
                print_callback=self._guard.write,
                os=self._outside.refuse,
            )
        )

    async def _from(self, at: Any) -> Stop:
        """Go on from where the engine stopped to where the host must answer, or to the end."""
        while not isinstance(at, MontyComplete):
            step: Awaitable[Any]
            if _is_call(at) and at.function_name in self._beyond:
                try:
                    args, kwargs = self._outside.wanted(at)
                except Unfit as why:
                    step = at.resume({"exc_type": "TypeError", "message": str(why)})
                else:
                    return self._calling(at, args, kwargs)
            elif isinstance(at, AsyncFutureSnapshot):
                if at.pending_call_ids:
                    return self._awaiting(at)
                step = at.resume(
                    {}
                )  # it awaits what an earlier run left behind: the engine says so
            else:
                self._outside.number = getattr(at, "call_id", None)
                step = at.resume_auto()
            at = await self._guard.watch(step)
        return self._ran(await self._concluded(self._stashed, at.output), None)

    def _calling(
        self, at: AsyncFunctionSnapshot, args: tuple[Json, ...], kwargs: dict[str, Json]
    ) -> AtCall:
        span = self._places.find(at.position)
        wanted = Wanted(at.call_id, at.function_name, args, kwargs, span)
        stop = AtCall(wanted, bool(self._direct) and self._wants_value(at))
        self._at = at
        self._guard.rest()
        return stop

    def _text(self) -> Text:
        text = super()._text()
        if not self._direct:
            return text
        place = self._places.place
        return replace(text, awaits={place(call): place(at) for call, at in self._direct.items()})

    def _wants_value(self, at: AsyncFunctionSnapshot) -> bool:
        place = at.position
        return place.start in self._direct and self._places.own(place)

    def _awaiting(self, at: AsyncFutureSnapshot) -> AtAwait:
        self._at, self._ids = at, frozenset(at.pending_call_ids)
        self._guard.rest()
        return AtAwait(self._ids)

    # -- answers --------------------------------------------------------------------------------------

    def answered(self, answer: Answer, id: int | None) -> Awaitable[Any]:
        """The engine's next step, with this answer; raises `InternalError` for one that does not fit."""
        at = self._at
        try:
            if isinstance(at, AsyncFutureSnapshot):
                if id not in self._ids or isinstance(answer, Later):
                    raise InternalError("A run was answered that awaits another call.")
                return at.resume({id: self._settled(answer)})
            if id not in (None, at.call_id):
                raise InternalError("A call was answered at which the run does not stand.")
            awaited = self._beyond.get(at.function_name)
            if awaited and self._direct and self._wants_value(at):
                awaited = False
            if isinstance(answer, Later):
                if awaited is False:
                    raise InternalError("A call was put off that the code does not await.")
                return at.resume(_FUTURE)
            if isinstance(answer, Gave) and awaited:
                raise InternalError("A call that the code awaits was not answered with `Later`.")
            return at.resume(self._settled(answer))
        except MontyError as why:
            raise InternalError(f"An answer is not JSON. {str(why)[:200]}") from None

    def _settled(self, answer: Answer) -> Any:
        """A value or an exception, as the engine wants it."""
        if isinstance(answer, Gave):
            return {"return_value": answer.value}
        assert not isinstance(answer, Later)
        kind, message = self._outside.thrown(answer.error, answer.kind)
        return {"exc_type": kind, "message": message}


def _is_call(at: Any) -> TypeGuard[AsyncFunctionSnapshot]:
    """Whether the code called a function, not the machine."""
    return isinstance(at, AsyncFunctionSnapshot) and not at.is_os_function

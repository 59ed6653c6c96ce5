"""One run, from where it stands to its end, or to where nothing can go on without somebody.

The code stands at a call, or awaits several. Each call is a task of its own that takes it through the gate, so what
is awaited together is under way together, and while one of them waits for a person the others go on.

The order in which the code gets its answers is the order in which their results were handed to the journal: an
answer is given only when every result that was handed in before it, and that the code awaits, was given. So the
journal alone tells how the run went, and a replay goes the same way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from time import monotonic
from typing import Literal, Protocol, TypeGuard, TypeVar

import anyio
from anyio.abc import TaskGroup

from holdfast.contracts import ErrorObject, ExternalCallRecord
from holdfast.errors import OperatorError
from holdfast.gate.crossing import Crossing, Desk, Doubt, Held, Mood, Outcome
from holdfast.gate.past import Pasts
from holdfast.shell.box import AtAwait, AtCall, Box, Gave, Later, Raised, Ran, Stop, Wanted
from holdfast.shell.clock import Clock, out_of_time
from holdfast.shell.errand import Errand, Parked, before_end, lines_of
from holdfast.shell.refusals import overtaken

CancelMode = Literal["now", "after_effect"]

_T = TypeVar("_T")


class Performs(Protocol):
    """What takes a call through: the gate, or, in a replay, the record."""

    async def perform(self, crossing: Crossing) -> Outcome | Doubt | Held:
        """Make a call."""
        ...


class _OutOfTime(Exception):
    """`wall_ms` has run out while nothing computed."""


class _Left(Exception):
    """A call that is alone waits for a person: nobody need wait with it."""


class CancelRequested(Exception):
    """Somebody wants the run stopped, and nothing is under way any more."""


async def _nobody(_: str) -> bool:
    return False


@dataclass(slots=True)
class Drive:
    """Takes one run on."""

    box: Box
    performs: Performs
    desk: Desk
    pasts: Pasts
    clock: Clock
    awaited: Callable[[str], bool]
    """Whether code awaits a capability."""
    decided: Callable[[str], Awaitable[bool]] = _nobody
    """Whether somebody has decided about an approval."""
    cancel: CancelMode | None = None
    errands: dict[int, Errand] = field(default_factory=dict[int, Errand])
    _live: dict[int, Errand] = field(default_factory=dict[int, Errand])
    """Those that have not ended, or of which nobody knows whether they have."""
    _unstarted: dict[int, Crossing] = field(default_factory=dict[int, Crossing])
    _beside: dict[int, Crossing] = field(default_factory=dict[int, Crossing])
    """Those with a task of their own."""
    _inline: bool = False
    _expired: bool = False
    _calls: TaskGroup | None = None
    _changed: anyio.Event = field(default_factory=anyio.Event)
    _failure: BaseException | None = None
    _scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    async def go(self, first: Awaitable[Stop], *, reopened: bool = False) -> Ran | Parked:
        """Go on from `first`; with `reopened`, take up the calls that were under way when the run was parked.

        Raises `CancelRequested`, and what is not for the code to see.
        """
        found: Ran | Parked | None = None
        failure: Exception | None = None
        # One timer for the whole run: a deadline for each call would cost more than the rest of it.
        self.clock.watch(self._expire)
        with self._scope:
            # What is raised inside a task group comes out in a group: carry it out by hand.
            async with anyio.create_task_group() as calls:
                self._calls = calls
                try:
                    stop = await self.clock.timed(first)
                    if reopened:
                        self._take_up(stop)
                    found = await self._to_the_end(stop)
                except _OutOfTime:
                    found = await self.box.stop(out_of_time(self.clock.limit_ms))
                except Exception as why:  # noqa: BLE001 - raised below
                    if _hook_failed(why):
                        found = await self.box.stop(ErrorObject.of(why))
                    else:
                        failure = why
                finally:
                    calls.cancel_scope.cancel()
                    self.clock.unwatch()
        if failure is not None:
            raise failure
        if found is None and self._expired and self.cancel is None:
            found = await self.box.stop(out_of_time(self.clock.limit_ms))
        if found is None:
            raise CancelRequested
        return found

    def request_cancel(self, mode: CancelMode) -> None:
        """Stop now, or once the calls that are under way have ended; none is started any more."""
        if self.cancel != "now":
            self.cancel = mode
        self._stop_if_due()
        self._wake()

    def _expire(self) -> None:
        self._expired = True
        self._scope.cancel()

    def _stop_if_due(self) -> None:
        """Stop the code too, which may compute for ever."""
        if self.cancel == "now" or (self.cancel is not None and not self._under_way()):
            self._scope.cancel()

    def _take_up(self, stop: Stop) -> None:
        """Go on with what was under way when the run was parked."""
        ids = stop.ids if isinstance(stop, AtAwait) else frozenset[int]()
        for past in self.pasts.open():
            self._add(past.ordinal, past.name)
        for ordinal in sorted(ids - self.errands.keys()):
            past = self.pasts.calls.get(ordinal)
            if past is not None:
                self._add(ordinal, past.name)

    # -- the way --------------------------------------------------------------------------------------

    async def _to_the_end(self, stop: Stop) -> Ran | Parked:
        while not isinstance(stop, Ran):
            answered = await self._answered(stop)
            if isinstance(answered, Parked):
                return answered
            stop = answered
        return await self._leftovers(stop)

    async def _answered(self, stop: AtCall | AtAwait) -> Stop | Parked:
        """Give the code one answer, and go on until it stands again."""
        if isinstance(stop, AtAwait):
            await self._get_going(last=None)
            errand = await self._until(lambda: self._next_of(stop.ids))
            return await self._resume(errand, id_=errand.id) if errand else self._parked()
        call = stop.call
        errand = self._errand(call)
        if self.awaited(call.name) and not stop.direct:
            # It is under way from the code's next stop on: a call that is alone then needs no task.
            self._start_all(but=errand)
            return await self.clock.timed(self.box.resume(Later(), wall_ms=self.clock.left_ms()))
        await self._get_going(last=errand)
        ready = await self._until(lambda: errand if isinstance(errand.end, Outcome) else None)
        return await self._resume(ready) if ready else self._parked()

    async def _resume(self, errand: Errand, id_: int | None = None) -> Stop:
        end = errand.end
        assert isinstance(end, Outcome)
        if end.fatal and end.error is not None:
            return await self.box.stop(end.error)
        answer = Gave(end.value) if end.error is None else Raised(end.error, end.kind)
        return await self.clock.timed(self.box.resume(answer, id=id_, wall_ms=self.clock.left_ms()))

    async def _leftovers(self, ran: Ran) -> Ran | Parked:
        """Wait for calls that the code did not wait for: what they do is part of the run."""
        self._start_all()
        try:
            await self._until(lambda: None if self._any_working() else True, alone=True)
        except _OutOfTime:
            return overtaken(ran, out_of_time(self.clock.limit_ms))
        except OperatorError as why:
            if not _hook_failed(why):
                raise
            return overtaken(ran, ErrorObject.of(why))
        hook = self._parked().hook
        return ran if hook is None or ran.error is not None else before_end(ran, hook)

    # -- waiting --------------------------------------------------------------------------------------

    async def _until(self, ready: Callable[[], _T | None], *, alone: bool = False) -> _T | None:
        """What `ready` gives, as soon as it does; `None` once nothing under way can change that."""
        while True:
            self._raise_failure()
            if self.cancel is not None:
                if not self._under_way():
                    raise CancelRequested
            elif (found := ready()) is not None:
                return found
            elif not alone and not self._moving():
                changed, heard = self._changed, await self._heard()
                if changed.is_set():
                    continue
                if not heard:
                    return None
            await self._wait()

    async def _wait(self) -> None:
        """Wait for a change; time in which a call works is the run's."""
        changed, counts, since = self._changed, self._any_working(), monotonic()
        limit = self.clock.left() if counts else None
        with anyio.move_on_after(limit) as scope:
            await changed.wait()
        if counts:
            self.clock.used += monotonic() - since
        if scope.cancelled_caught:
            raise _OutOfTime

    def _next_of(self, ids: frozenset[int]) -> Errand | None:
        """Of the calls the code awaits, the one whose result was handed in first; `None` while that is not there."""
        placed = [e for id_ in ids if (e := self.errands.get(id_)) is not None and e.order]
        if not placed:
            return None
        first = min(placed, key=lambda errand: errand.order or (0, 0))
        return first if isinstance(first.end, Outcome) else None

    def _moving(self) -> bool:
        """Whether anything may still happen by itself."""
        return any(e.end is None and e.mood != "waiting" for e in self._live.values())

    async def _heard(self) -> bool:
        """Whether a call that waits was answered a moment ago: it sees that in another, and the run need not park."""
        for ordinal, crossing in [*self._beside.items()]:
            errand = self.errands[ordinal]
            asked = crossing.asked if errand.end is None and errand.mood == "waiting" else None
            if asked is not None and await self.decided(asked.id):
                return True
        return False

    def _any_working(self) -> bool:
        return any(errand.working for errand in self._live.values())

    def _under_way(self) -> bool:
        """Whether any call has been started and works."""
        return any(e.working and e.id not in self._unstarted for e in self._live.values())

    def _parked(self) -> Parked:
        stuck = [errand for _, errand in sorted(self._live.items()) if errand.stuck]
        held = [errand.end.why for errand in stuck if isinstance(errand.end, Held)]
        return Parked(
            tuple(errand for errand in stuck if errand.end is None),
            tuple(errand for errand in stuck if isinstance(errand.end, Doubt)),
            held[0] if held else None,
        )

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _wake(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    # -- calls ----------------------------------------------------------------------------------------

    def _errand(self, call: Wanted) -> Errand:
        found = self.errands.get(call.id)
        return found or self._add(call.id, call.name, call)

    def _add(self, ordinal: int, name: str, call: Wanted | None = None) -> Errand:
        """Take a call on; nothing happens yet."""
        errand = Errand(ordinal, name)
        self.errands[ordinal] = self._live[ordinal] = errand
        past = self.pasts.calls.get(ordinal)
        if past is not None and past.answered:
            errand.order = (0, past.result_pos)

        def ordered(order: int) -> None:
            errand.order = (1, order)

        self._unstarted[ordinal] = Crossing(
            desk=self.desk,
            ordinal=ordinal,
            name=name,
            args=call.args if call else (),
            kwargs=call.kwargs if call else {},
            past=past,
            known=call is None,
            line=call.span.line if call is not None and call.span is not None else None,
            mood=lambda now: self._mood(errand, now),
            ordered=ordered,
        )
        return errand

    async def _get_going(self, *, last: Errand | None) -> None:
        """Make the calls that are not under way yet; one that is alone, right here."""
        if self.cancel is not None:
            return
        if len(self._live) == 1 and len(self._unstarted) == 1:
            ordinal, crossing = self._unstarted.popitem()
            if last is None or last.id == ordinal:
                await self._alone(self.errands[ordinal], crossing)
                return
            self._unstarted[ordinal] = crossing
        self._start_all()

    def _start_all(self, *, but: Errand | None = None) -> None:
        for ordinal in [*self._unstarted] if self.cancel is None else ():
            if but is None or ordinal != but.id:
                assert self._calls is not None
                crossing = self._beside[ordinal] = self._unstarted.pop(ordinal)
                self._calls.start_soon(self._perform, self.errands[ordinal], crossing)

    async def _alone(self, errand: Errand, crossing: Crossing) -> None:
        """Make a call that nothing else is under way beside. If it waits for a person, it is left there."""
        self._inline = True
        self.clock.start()
        try:
            self._ended(errand, await self.performs.perform(crossing))
        except _Left:
            pass
        finally:
            self._inline = False
            self.clock.stop()

    def _mood(self, errand: Errand, now: Mood) -> None:
        """A call works, asks, or waits. Of one that is alone, the clock stops meanwhile, or it is left there."""
        errand.mood = now
        if not self._inline:
            self._wake()
            return
        self.clock.stop()
        if now == "working":
            self.clock.start()
        elif now == "waiting":
            raise _Left

    def _ended(self, errand: Errand, end: Outcome | Doubt | Held) -> None:
        errand.end = end
        if isinstance(end, Outcome):
            del self._live[errand.id]
        if self.cancel is not None:
            self._stop_if_due()

    async def _perform(self, errand: Errand, crossing: Crossing) -> None:
        try:
            self._ended(errand, await self.performs.perform(crossing))
        except Exception as failure:  # noqa: BLE001 - it is raised where the run is driven
            self._failure = self._failure or failure
        finally:
            self._beside.pop(errand.id, None)
            self._wake()

    def records(
        self, own: Iterable[tuple[int, ExternalCallRecord]]
    ) -> tuple[ExternalCallRecord, ...]:
        """The line about every call of the run that was made, or waits to be, in the order the code made them."""
        return lines_of(own, self.pasts, self.errands)


def _hook_failed(why: Exception) -> TypeGuard[OperatorError]:
    """Whether a hook failed whose run fails with it."""
    return isinstance(why, OperatorError) and why.code == "HOOK_FAILED"

"""The limits of one run that the host keeps: time, output, and whoever wants it stopped.

The engine has limits of its own, but they are part of every saved state and can't differ from run to run. So
the host keeps the clock and cuts a run off by cancelling what it waits for, which kills the worker. The code can
neither catch nor delay that.

Computing time is the time the run takes without the time its calls are answered in. Both clocks start together
and computing never overtakes the wall, so which limit is hit first depends on the code alone; if they are hit
at the same moment, it is `cpu_ms`. While a run stands at a call of the host's, both clocks stand: how much of
`wall_ms` is left then is for whoever answers to say.

The engine calls `write` and everything in `Outside` from threads of its own. They only add to what the event loop
reads once the feed is over; to stop a run they ask the loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable
from contextlib import suppress
from time import monotonic
from typing import Any, Literal, NamedTuple, cast

from holdfast.contracts import SessionLimits
from holdfast.shell.box import Meanwhile
from holdfast.shell.languages._python_alarm import Alarm
from holdfast.shell.languages._python_process import Worker

FLOOD_BYTES = 1 << 20
"""Output this far beyond `max_stdout_bytes` is a flood: the run is stopped."""

_SOON = 0.001


class Breach(Exception):
    """The run was cut off; `code` says which limit it broke."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Spent(NamedTuple):
    """What a run has used, up to where it stands."""

    cpu_ms: float
    """Computing."""
    took_ms: float
    """Computing, and answering its calls in the box."""
    room: int
    """Bytes it may still print; less than none when output was cut."""
    cut: bool
    """Whether output was cut."""


class Guard:
    """Watches one run, from its first feed to its last."""

    __slots__ = (
        "_alarm",
        "_begun",
        "_call_started",
        "_cancelling",
        "_cpu",
        "_future",
        "_hosted",
        "_loop",
        "_meanwhile",
        "_rested",
        "_resting",
        "_rings",
        "_room",
        "_stderr",
        "_stdout",
        "_task",
        "_wall",
        "_worker",
        "breach",
        "cut",
        "started",
        "wrote",
    )

    def __init__(
        self, limits: SessionLimits, worker: Worker, alarm: Alarm, meanwhile: Meanwhile | None
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._worker = worker
        self._alarm = alarm
        self._meanwhile = meanwhile
        self._future: asyncio.Future[Any] | None = None
        self._room = limits.max_stdout_bytes
        self._stdout: list[str] = []
        self._stderr: list[str] = []
        self._hosted = 0.0
        self._call_started: float | None = None
        self.cut = self.wrote = False
        self.breach: str | None = None
        self.started = self._rested = monotonic()
        self._cpu = limits.cpu_ms / 1000
        self._wall = limits.wall_ms / 1000
        self._begun = self._resting = False
        self._rings = 0.0
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0

    # -- in the event loop ----------------------------------------------------------------------------

    async def watch(self, feed: Awaitable[Any]) -> Any:
        """Wait for a feed; raises `Breach` when the run was cut off."""
        # The engine's stubs call it a coroutine; it is a future, and cancelling it kills the worker.
        self._future = future = cast("asyncio.Future[Any]", feed)
        if not self._begun:
            self._begin()
        if self._meanwhile is not None:
            try:
                await self.pass_time()
            except BaseException:
                self._abandon(future)
                raise
        try:
            done = await future
        except asyncio.CancelledError:
            if self.breach is None or self._is_cancelled():
                self._abandon(future)
                raise
        except Exception:
            if self.breach is None:
                raise
        else:
            if self.breach is None:
                return done
        raise Breach(self.breach)

    def _begin(self) -> None:
        """Whatever can wait until the engine computes: it costs no time then."""
        self._begun = True
        if self._meanwhile is not None:
            # A thread of the engine must get hold of the interpreter before it can send the feed off. Once it had
            # its turn, what we do here costs no time; before that, all of it would.
            os.sched_yield()
        now = monotonic()
        took = now - self.started
        self._set_alarm(now, min(self._cpu + self._hosted, self._wall) - took)
        self._task = task = asyncio.current_task()
        self._cancelling = 0 if task is None else task.cancelling()
        self._worker.glance(now)

    def _set_alarm(self, now: float, delay: float) -> None:
        self._rings = now + delay
        self._alarm.set(delay, self._tick)

    async def pass_time(self) -> None:
        """Do what was to be done meanwhile, once."""
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            await meanwhile()

    def _is_cancelled(self) -> bool:
        """Whether the caller gave up, not only we."""
        return self._task is not None and self._task.cancelling() > self._cancelling

    def _abandon(self, future: asyncio.Future[Any]) -> None:
        self._end_worker()
        if not future.cancelled():
            future.exception()  # it ended just before; nobody will ask how

    def end(self) -> None:
        """The run is over, unless it stands: nothing stops it any more."""
        if not self._resting:
            self._alarm.put_off()
            self._future = None

    def rest(self) -> None:
        """The run stands: until `go_on`, no clock of it runs."""
        self._rested = monotonic()
        # The alarm stays set: a run that stands is mostly answered long before it rings.
        self._resting = True

    def go_on(self, wall_ms: float | None) -> None:
        """The run is answered, and may take `wall_ms` more; `None`: what is left of its own."""
        now = monotonic()
        self._resting = False
        self.started += now - self._rested
        if wall_ms is not None:
            self._wall = now - self.started + wall_ms / 1000
            # Earlier than set, the alarm is set anew; later, it finds out by itself when it rings.
            if self._begun and now + wall_ms / 1000 < self._rings:
                self._set_alarm(now, wall_ms / 1000)
        # Whoever answers may be another than whoever started.
        self._task = task = asyncio.current_task()
        self._cancelling = 0 if task is None else task.cancelling()

    def spent(self) -> Spent:
        """What a run that stands has used."""
        took = self._rested - self.started
        return Spent((took - self._hosted) * 1000, took * 1000, self._room, self.cut)

    def take_over(self, spent: Spent, stdout: str, stderr: str) -> None:
        """Go on from what the run has used and said elsewhere; it stands."""
        self.started = self._rested - spent.took_ms / 1000
        self._hosted = (spent.took_ms - spent.cpu_ms) / 1000
        self._room, self.cut = spent.room, spent.cut
        self._resting = True
        self._stdout, self._stderr = [stdout], [stderr]
        self.wrote = bool(stdout or stderr)

    def refuse(self, code: str) -> Breach:
        """End the process of a run that stands at a call it may not make; what to raise for it."""
        self.breach = code
        self._worker.kill()
        return Breach(code)

    def output(self) -> tuple[str, str]:
        """What was kept of standard output and standard error."""
        return "".join(self._stdout), "".join(self._stderr)

    def _tick(self) -> None:
        if self._resting:
            self._begun = False  # `watch` sets the alarm again
            return
        took = monotonic() - self.started
        over_cpu = took - self._waited() - self._cpu
        over_wall = took - self._wall
        if over_cpu < 0 and over_wall < 0:
            self._alarm.set(min(-over_cpu, -over_wall), self._tick)
        elif self._future is None or self._future.done():
            # The feed ended while the loop was busy elsewhere; what follows gets its chance.
            self._alarm.set(_SOON, self._tick)
        else:
            self._stop("TIMEOUT_CPU" if over_cpu >= over_wall else "TIMEOUT_WALL")

    def _waited(self) -> float:
        """Time spent on answering calls, the one under way included."""
        call_started = self._call_started
        return self._hosted + (0.0 if call_started is None else monotonic() - call_started)

    def _stop(self, code: str) -> None:
        if self.breach is None:
            self.breach = code
        self._end_worker()

    def _end_worker(self) -> None:
        if self._future is not None:
            self._future.cancel()
            self._worker.kill()

    # -- in threads of the engine ---------------------------------------------------------------------

    def stop(self, code: str) -> None:
        """Cut the run off; counts from now, even if the feed should end before the loop hears of it."""
        if self.breach is None:
            self.breach = code
        with suppress(RuntimeError):  # the loop may be gone with whoever waited
            self._loop.call_soon_threadsafe(self._stop, code)

    def write(self, stream: Literal["stdout", "stderr"], text: str) -> None:
        """Keep output as long as there is room."""
        self.wrote = True
        size = len(text) if text.isascii() else len(text.encode())
        room, self._room = self._room, self._room - size
        kept = self._stdout if stream == "stdout" else self._stderr
        if size <= room:
            kept.append(text)
            return
        self.cut = True
        if room > 0:
            kept.append(text.encode()[:room].decode(errors="ignore"))
        if self._room < -FLOOD_BYTES:
            self.stop("STDOUT_EXCEEDED")

    def call_begins(self) -> float:
        """A call is being answered: computing pauses."""
        self._call_started = now = monotonic()
        return now

    def call_ends(self) -> float:
        """Seconds it took to answer."""
        started = self._call_started
        took = 0.0 if started is None else monotonic() - started
        self._hosted += took
        self._call_started = None
        return took

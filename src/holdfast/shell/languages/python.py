"""Python in a box: the `monty` engine, one worker process for each box, a jail around each.

A worker is used for one session only: what a session left in its process can't reach another.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, Self

import anyio
from anyio import to_thread
from pydantic_monty import MontyError

from holdfast.contracts import Diagnostic, ErrorObject, Json, SessionLimits
from holdfast.errors import InternalError, ModelError
from holdfast.shell.box import (
    Answer,
    AtAwait,
    AtCall,
    Call,
    Jail,
    Known,
    Meanwhile,
    Progress,
    Ran,
    Stop,
)
from holdfast.shell.confine import Launcher, confine, remove
from holdfast.shell.languages._python_capture import Reading, read
from holdfast.shell.languages._python_check import Checker, binds
from holdfast.shell.languages._python_compact import compacted
from holdfast.shell.languages._python_definitions import defines
from holdfast.shell.languages._python_doomed import doomed
from holdfast.shell.languages._python_errors import Text, explain
from holdfast.shell.languages._python_inputs import check_inputs, rebinding
from holdfast.shell.languages._python_live import Live
from holdfast.shell.languages._python_pool import Pool, unavailable
from holdfast.shell.languages._python_run import Run
from holdfast.shell.languages._python_state import ENGINE, loaded, refusals
from holdfast.shell.languages._python_steps import Steps
from holdfast.shell.languages._python_subset import told

_DUMP_S = 1.0
"""Seconds that writing a state down may take, also in a box with less time than that."""


class PythonBoxes:
    """Opens boxes that run Python."""

    engine = ENGINE
    unsupported = told()
    jail: Literal["bubblewrap", "none"] = "none"
    jail_reason = "not started"
    binary = ""
    """What is executed to start a worker."""

    def __init__(self, *, jail: Jail = "auto", max_boxes: int = 256) -> None:
        self._wanted: Jail = jail
        self._max_boxes = max_boxes
        self._launcher: Launcher | None = None
        self._pool: Pool | None = None
        self._open: set[PythonBox] = set()
        self._checker: Checker | None = None

    async def __aenter__(self) -> Self:
        launcher = await to_thread.run_sync(confine, _engine(), self._wanted)
        self.jail, self.jail_reason, self.binary = launcher.jail, launcher.reason, launcher.program
        pool = Pool(launcher.program, self._max_boxes + 1)  # one for checking
        try:
            await pool.start()
        except BaseException:
            remove(launcher)
            raise
        self._launcher, self._pool, self._checker = launcher, pool, Checker(pool)
        return self

    async def __aexit__(self, *exc: object) -> None:
        with anyio.CancelScope(shield=True):
            for box in tuple(self._open):
                await box.close()
            if self._checker is not None:
                await self._checker.close()
            if self._pool is not None:
                await self._pool.close()
            if self._launcher is not None:
                await to_thread.run_sync(remove, self._launcher)

    @property
    def workers(self) -> int:
        """How many boxes are open, each with a process of its own."""
        return len(self._open)

    async def open(self, limits: SessionLimits, state: bytes | None = None) -> PythonBox:
        """An empty box, or one with `state` in it."""
        if self._pool is None:
            raise _not_entered()
        live = await self._pool.checkout(limits)
        try:
            far = state is not None and await loaded(live, state)
        except BaseException:
            await live.end()
            raise
        return PythonBox(live, limits, far, self._open)

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
    ) -> tuple[PythonBox, AtCall | AtAwait]:
        """A box whose run stands where it stood when `state` was dumped."""
        if self._pool is None:
            raise _not_entered()
        live = await self._pool.checkout(limits)
        run = Steps(
            live,
            code.removeprefix("\ufeff"),
            Reading(code),
            inputs=inputs,
            limits=run_limits,
            names=names,
            beyond=outside,
        )
        try:
            with refusals():
                at = await run.take_over(state, progress)
        except BaseException:
            await live.end()
            raise
        return PythonBox(live, limits, run.far, self._open, standing=run), at

    async def validate(
        self, code: str, *, stubs: str = "", known: frozenset[str] = frozenset()
    ) -> tuple[Diagnostic, ...]:
        """What is wrong with the code; nothing of it is run."""
        if self._checker is None:
            raise _not_entered()
        return await self._checker.check(code, stubs=stubs, known=known)

    def binds(self, code: str, error: str | None = None) -> frozenset[str]:
        """The top-level names that running the code may define; what the engine could not read defined none."""
        return frozenset() if error == "SYNTAX_ERROR" else binds(code)

    def defines(
        self, sources: dict[str, str], code: str, error: str | None
    ) -> dict[str, str] | None:
        """What the session defined, after it also ran this code."""
        return defines(sources, code, error)

    async def compact(
        self,
        state: bytes,
        limits: SessionLimits,
        *,
        names: frozenset[str],
        sources: Mapping[str, str],
    ) -> bytes | None:
        """A smaller state in which later code finds the same; `None` where there is a doubt."""
        if self._pool is None:
            raise _not_entered()
        if len(self._open) >= self._max_boxes:
            return None  # others need the process more
        return await compacted(self._pool, state, limits, names=names, sources=sources)


class PythonBox:
    """One live Python interpreter."""

    def __init__(
        self,
        live: Live,
        limits: SessionLimits,
        far: bool,
        siblings: set[PythonBox],
        standing: Steps | None = None,
    ) -> None:
        self.limits = limits
        self._live = live
        self._far = far
        self._siblings = siblings
        self._standing = standing
        self._usable = standing is None
        self._closed = False
        siblings.add(self)

    def alive(self) -> bool:
        """Whether its process still runs."""
        return self._live.worker.alive()

    def fits(self, limits: SessionLimits) -> bool:
        """Whether a run can have these limits here."""
        mine = self.limits
        return limits is mine or (
            limits.memory_mb == mine.memory_mb and limits.max_stack_depth == mine.max_stack_depth
        )

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
        """Run code until it ends, or stands at a call that the host must answer."""
        self._check_usable()
        if not self.fits(limits):
            raise InternalError("A run was given limits that its box can't keep.")
        code = code.removeprefix("\ufeff")
        refusal = None
        if inputs:
            check_inputs(inputs, names, outside)
            refusal = rebinding(code, inputs)
        if refusal is None and known is not None:
            refusal = doomed(code, known, names, outside, inputs)
        run = (Steps if outside else Run)(
            self._live,
            code,
            read(code, far=self._far),
            inputs=inputs,
            limits=limits,
            names=names,
            beyond=outside,
            meanwhile=meanwhile,
        )
        if isinstance(run, Steps) and not run.far:
            run.meant = meant
        self._usable = False  # until it is known what the run left behind
        stop = await (run.start() if refusal is None else run.refused(refusal))
        return self._stopped(run, stop)

    async def resume(
        self, answer: Answer, *, id: int | None = None, wall_ms: float | None = None
    ) -> Stop:
        """Answer the call the code stands at, or one of those it awaits; go on until the next stop."""
        run = self._standing
        if run is None:
            raise InternalError("A box was answered whose run stands at no call.")
        step = run.answered(answer, id)
        self._standing = None  # until it stands again
        return self._stopped(run, await run.resume(step, wall_ms))

    async def stop(self, error: ErrorObject) -> Ran:
        """End a run that stands at a call."""
        run, self._standing = self._standing, None
        if run is None:
            raise InternalError("A run was stopped that stands at no call.")
        return run.stop(error)

    def progress(self) -> Progress:
        """What the run that stands has used and said so far."""
        if self._standing is None:
            raise InternalError("A box was asked about a run that stands at no call.")
        return self._standing.progress(self._far)

    async def dump(self) -> bytes:
        """The state, between runs or while one stands."""
        if self._standing is None:
            self._check_usable()
        try:
            # A process that hangs must not hang the host; whoever writes may take as long as whoever runs.
            with anyio.fail_after(max(_DUMP_S, self.limits.wall_ms / 1000)):
                return await self._live.session.dump()
        except (MontyError, TimeoutError) as why:
            self._usable, self._standing = False, None
            if isinstance(why, TimeoutError):
                raise ModelError(
                    "TIMEOUT_WALL",
                    "The session's state can't be saved: its process does not answer.",
                ) from None
            error = explain(why, Text("", self.limits)).error
            raise ModelError(
                error.code, f"The session's state can't be saved. {error.message}", hint=error.hint
            ) from None

    async def close(self) -> None:
        """End its process."""
        if not self._closed:
            self._closed, self._usable, self._standing = True, False, None
            self._siblings.discard(self)
            await self._live.end()

    def _stopped(self, run: Run, stop: Stop) -> Stop:
        if isinstance(stop, Ran):
            self._usable = stop.state_kept
            self._far = self._far or run.far
        elif isinstance(run, Steps):
            self._standing = run
        return stop

    def _check_usable(self) -> None:
        if not self._usable:
            raise InternalError("A box was used that is closed, dead or busy.")


def _engine() -> str:
    from pydantic_monty._binary import find_monty_binary

    try:
        return find_monty_binary()
    except FileNotFoundError as why:
        raise unavailable(str(why)) from None


def _not_entered() -> InternalError:
    return InternalError("Boxes were used before they were entered.")

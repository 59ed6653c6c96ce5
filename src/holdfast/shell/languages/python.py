"""Python in a box: the `monty` engine, one worker process for each box, a jail around each.

A worker is used for one session only: what a session left in its process can't reach another.
"""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from typing import Any, Literal, Self
from unicodedata import normalize

import anyio
import pydantic_monty
from anyio import to_thread
from pydantic_monty import AsyncMontySession, MontyError

from holdfast.contracts import Diagnostic, ErrorObject, Json, SessionLimits, canonical_json
from holdfast.errors import CallerError, InternalError, ModelError
from holdfast.shell.box import Call, Jail, Meanwhile, Ran
from holdfast.shell.confine import Launcher, confine, remove
from holdfast.shell.languages._python_capture import FAR, RESULT, read, rebound
from holdfast.shell.languages._python_check import Checker
from holdfast.shell.languages._python_errors import Text, explain
from holdfast.shell.languages._python_live import Live
from holdfast.shell.languages._python_pool import Pool, unavailable
from holdfast.shell.languages._python_run import Run


class PythonBoxes:
    """Opens boxes that run Python."""

    engine = f"monty/{pydantic_monty.__version__}"
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

    async def open(self, limits: SessionLimits, state: bytes | None = None) -> PythonBox:
        """An empty box, or one with `state` in it."""
        if self._pool is None:
            raise _not_entered()
        live = await self._pool.checkout(limits)
        try:
            far = state is not None and await _loaded(live.session, state)
        except BaseException:
            await live.end()
            raise
        box = PythonBox(live, limits, far, self._open)
        self._open.add(box)
        return box

    async def validate(self, code: str) -> tuple[Diagnostic, ...]:
        """What the engine has against the code; nothing of it is run."""
        if self._checker is None:
            raise _not_entered()
        return await self._checker.check(code)


class PythonBox:
    """One live Python interpreter."""

    def __init__(
        self, live: Live, limits: SessionLimits, far: bool, siblings: set[PythonBox]
    ) -> None:
        self.limits = limits
        self._live = live
        self._far = far
        self._siblings = siblings
        self._usable = True
        self._closed = False

    def fits(self, limits: SessionLimits) -> bool:
        """Whether a run can have these limits here."""
        mine = self.limits
        return limits.memory_mb == mine.memory_mb and limits.max_stack_depth == mine.max_stack_depth

    async def run(
        self,
        code: str,
        *,
        inputs: Mapping[str, Json],
        limits: SessionLimits,
        names: Mapping[str, Call],
        meanwhile: Meanwhile | None = None,
    ) -> Ran:
        """Run code and wait for its end."""
        self._check_usable()
        if not self.fits(limits):
            raise InternalError("A run was given limits that its box can't keep.")
        code = code.removeprefix("\ufeff")
        refusal = None
        if inputs:
            _check_inputs(inputs, names)
            refusal = _rebinding(code, inputs)
        reading = read(code, far=self._far)
        run = Run(
            self._live,
            code,
            reading,
            inputs=inputs,
            limits=limits,
            names=names,
            meanwhile=meanwhile,
        )
        self._usable = False  # until it is known what the run left behind
        ran = await (run.outcome() if refusal is None else run.refused(refusal))
        self._usable = ran.state_kept
        self._far = self._far or reading.far
        return ran

    async def dump(self) -> bytes:
        """The state between runs."""
        self._check_usable()
        try:
            return await self._live.session.dump()
        except MontyError as why:
            self._usable = False
            error = explain(why, Text("", self.limits)).error
            raise ModelError(
                error.code, f"The session's state can't be saved. {error.message}", hint=error.hint
            ) from None

    async def close(self) -> None:
        """End its process."""
        if not self._closed:
            self._closed, self._usable = True, False
            self._siblings.discard(self)
            await self._live.end()

    def _check_usable(self) -> None:
        if not self._usable:
            raise InternalError("A box was used that is closed, dead or busy.")


async def _loaded(session: AsyncMontySession, state: bytes) -> bool:
    """Load a state; whether later runs may set `result` from afar."""
    try:
        await session.load_session(state)
    except (MontyError, RuntimeError) as why:
        said = str(why)
        if "format version" in said:
            raise CallerError(
                "SNAPSHOT_VERSION_MISMATCH",
                "The saved state is of another version of the engine.",
                hint=f"This is {PythonBoxes.engine}: use the version that wrote it, or replay the code.",
            ) from None
        raise CallerError(
            "SNAPSHOT_CORRUPT",
            f"The saved state can't be loaded: {said[:200]}.",
            hint="Use an undamaged copy, or replay the session's code.",
        ) from None
    try:
        return bool(await session.feed_run(FAR))
    except MontyError:
        return False  # no such name


def _engine() -> str:
    from pydantic_monty._binary import find_monty_binary

    try:
        return find_monty_binary()
    except FileNotFoundError as why:
        raise unavailable(str(why)) from None


def _not_entered() -> InternalError:
    return InternalError("Boxes were used before they were entered.")


def _check_inputs(inputs: Mapping[str, Any], names: Mapping[str, Call]) -> None:
    for name in inputs:
        why = _bad_name(name, names)
        if why is not None:
            raise CallerError(
                "INVALID_ARGUMENT",
                f"Input {name[:80]!r} {why}.",
                hint="Inputs become variables: name them like variables.",
            )
    try:
        canonical_json(dict(inputs))
    except CallerError as why:
        raise CallerError("INVALID_ARGUMENT", f"An input is not JSON. {why.message}") from None


def _bad_name(name: str, names: Mapping[str, Call]) -> str | None:
    if not name.isidentifier() or normalize("NFKC", name) != name:
        return "is not an identifier"
    if keyword.iskeyword(name):
        return "is a keyword"
    if name.startswith("__"):
        return "starts with two underscores"
    if name in names:
        return "is the name of a function the code can call"
    if name == RESULT:
        return "is where the code puts its answer"
    return None


def _rebinding(code: str, inputs: Mapping[str, Json]) -> ErrorObject | None:
    found = rebound(code, frozenset(inputs))
    if found is None:
        return None
    name, span = found
    return ErrorObject(
        code="INVALID_ARGUMENT",
        message=f"The code assigns to its input `{name}`, which is read-only.",
        hint="Assign to another name.",
        span=span,
    )

"""One hook and one question to it, with a deadline that holds."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from inspect import isawaitable, iscoroutinefunction
from time import monotonic
from typing import Any, Literal

from anyio import CapacityLimiter, from_thread, move_on_after, to_thread
from pydantic import ValidationError

from holdfast.contracts.hook import HookSpec
from holdfast.contracts.hook_response import HookResponse
from holdfast.errors import HoldfastError, OperatorError
from holdfast.gate._hook_view import HookInput

# What the function of a hook gives back is not to be trusted: it is checked when it is there.
HookFunction = Callable[[HookInput], Any]

THREADS = 16
"""Threads that one hook may have at a time, those that were given up and still run included."""

_OBSERVED = HookResponse()


@dataclass(frozen=True, slots=True)
class Hook:
    """A hook: what is fixed about it, and what answers. Calling it asks at once, without any of the rules."""

    spec: HookSpec
    """What is fixed."""
    function: HookFunction
    """What answers: a `HookResponse`, its JSON, or `None` for having looked; now or awaited."""
    limiter: CapacityLimiter = field(
        default_factory=lambda: CapacityLimiter(THREADS), compare=False, repr=False
    )
    """Its threads, if it is a plain function."""

    def __call__(self, question: HookInput) -> Any:
        """What its function says."""
        return self.function(question)

    @property
    def asynchronous(self) -> bool:
        """Whether its function is to be awaited; any other runs in a thread."""
        call = getattr(self.function, "__call__", None)  # noqa: B004  (an object may have an async one)
        return iscoroutinefunction(self.function) or iscoroutinefunction(call)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: Literal["answered", "failed", "timed_out"]
    """Whether it is an answer."""
    elapsed_ms: int
    """How long it took."""
    response: HookResponse = _OBSERVED
    """The answer."""
    summary: str = ""
    """Why there is none, without anything of the content."""
    error: Exception | None = None
    """What was raised."""


async def ask(hook: Hook, question: HookInput, ms: float) -> Answer:
    """The hook's answer, or what went wrong. Takes no longer than `ms`, unless the hook blocks the event loop.

    The thread of a plain function can't be stopped: it is left to itself, and its answer is not heard.
    """
    began = monotonic()
    said: object = None
    error: Exception | None = None
    with move_on_after(ms / 1000) as scope:
        try:
            said = await _call(hook, question)
        except Exception as why:  # noqa: BLE001  (whatever a hook raises, its failure policy decides)
            error = why
    elapsed = round((monotonic() - began) * 1000)
    if scope.cancelled_caught or elapsed > ms:
        # Also when it answered too late because it did not let go of the event loop.
        return Answer("timed_out", elapsed, summary=f"It took longer than {ms:.0f} ms.")
    if error is None:
        try:
            return Answer("answered", elapsed, response=_parsed(said))
        except (ValidationError, HoldfastError) as why:
            error = OperatorError("HOOK_FAILED", "Its answer is no hook response.")
            error.__cause__ = why
    return Answer("failed", elapsed, summary=_summary(error), error=error)


async def _call(hook: Hook, question: HookInput) -> object:
    if hook.asynchronous:
        said = hook.function(question)
    else:
        said = await _Thread(hook, question).answer()
    return await _awaited(said) if isawaitable(said) else said


class _Thread:
    """One call of a plain function, which holds its place until it is over, also when nobody listens any more."""

    def __init__(self, hook: Hook, question: HookInput) -> None:
        self._hook = hook
        self._question = question
        self._lock = threading.Lock()
        self._state: Literal["new", "running", "given_up"] = "new"

    async def answer(self) -> object:
        """What the function says; when cancelled, it is left to itself."""
        await self._hook.limiter.acquire_on_behalf_of(self)
        try:
            return await to_thread.run_sync(
                self._work, abandon_on_cancel=True, limiter=CapacityLimiter(1)
            )
        except BaseException:
            if self._became("given_up"):
                self._hook.limiter.release_on_behalf_of(self)
            raise

    def _work(self) -> object:
        return self._run() if self._became("running") else None

    def _run(self) -> object:
        try:
            return self._hook.function(self._question)
        finally:
            # The event loop may be gone by now, and its count of places with it.
            with suppress(RuntimeError):
                from_thread.run_sync(self._hook.limiter.release_on_behalf_of, self)

    def _became(self, state: Literal["running", "given_up"]) -> bool:
        """Whether it was still new: the thread and whoever gives it up may both come first."""
        with self._lock:
            if self._state != "new":
                return False
            self._state = state
            return True


async def _awaited(said: Awaitable[object]) -> object:
    return await said


def _parsed(said: object) -> HookResponse:
    """A copy that its maker can't change any more; what is applied is then what is on record."""
    if said is None:
        return _OBSERVED
    if isinstance(said, HookResponse):
        said = said.model_dump_json()
    if isinstance(said, str | bytes):
        return HookResponse.model_validate_json(said) if said.strip() else _OBSERVED
    return HookResponse.model_validate(said)


def _summary(error: Exception) -> str:
    # The text of an exception may hold arguments; that of this code never does.
    if isinstance(error, HoldfastError) and error.code == "HOOK_FAILED":
        return error.message
    return f"It raised {type(error).__name__}."

"""One run: its feeds, under its limits, to what it gave."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from time import monotonic
from typing import Any

from pydantic_monty import MontyError

from holdfast.contracts import (
    Diagnostic,
    ErrorObject,
    Json,
    Metrics,
    RunStatus,
    SessionLimits,
    Severity,
)
from holdfast.errors import CODES
from holdfast.shell.box import Call, Meanwhile, Ran, Stop
from holdfast.shell.languages._python_capture import (
    ASK,
    ASK_FIRST,
    FAR,
    RESULT,
    SET,
    STASH,
    Reading,
    last_expression,
)
from holdfast.shell.languages._python_errors import Failure, Text, breached, explain, is_refusal
from holdfast.shell.languages._python_guard import Breach, Guard
from holdfast.shell.languages._python_live import Live
from holdfast.shell.languages._python_values import Doubt, NotJson, disguised, hint_for, to_json

BARRIER = "0/0\n"
"""Put before code, this is all of it that runs: the engine reads everything before it runs anything."""

_SHORT = 0.001
_CHECK = "import json as __holdfast_json\n__holdfast_json.dumps({}) and None"


class Run:
    """One run of a piece of code."""

    __slots__ = (
        "_beyond",
        "_code",
        "_guard",
        "_inputs",
        "_limits",
        "_live",
        "_names",
        "_outside",
        "_reading",
        "_session",
        "_skipped",
        "_worker",
        "far",
    )

    def __init__(
        self,
        live: Live,
        code: str,
        reading: Reading,
        *,
        inputs: Mapping[str, Json],
        limits: SessionLimits,
        names: Mapping[str, Call],
        beyond: Mapping[str, bool],
        meanwhile: Meanwhile | None = None,
    ) -> None:
        self._live, self._session, self._worker = live, live.session, live.worker
        self._code = code
        self._reading = reading
        self._inputs = inputs
        self._limits = limits
        self._names: Mapping[str, Any] = {**names, **beyond} if beyond else names
        self._beyond = beyond
        self.far = reading.far
        """Whether later runs may set `result` from afar."""
        self._guard = Guard(limits, live.worker, live.alarm, meanwhile)
        self._outside = live.outside
        self._outside.begin(self._guard, names, limits.max_external_calls)
        self._skipped = 0

    async def start(self) -> Stop:
        """Run it. Whatever the code does wrong is in what it returns."""
        try:
            stashed, output = await self._fed(self._feed)
            return self._ran(await self._concluded(stashed, output), None)
        except (Breach, NotJson, MontyError) as why:
            return self._failed(why)
        finally:
            self._guard.end()

    async def refused(self, error: ErrorObject) -> Ran:
        """What a run gives whose code is not fed at all."""
        self._guard.end()
        await self._guard.pass_time()
        return replace(self._ran(None, Failure(error)), refused=True)

    # -- feeds ----------------------------------------------------------------------------------------

    async def _fed(self, feed: Callable[[Reading], Awaitable[Any]]) -> tuple[bool, Any]:
        """Feed the code: whether there was a `result` before, and what the feed gave."""
        reading = self._reading
        stashed = bool(reading.watched and await self._answer(STASH))
        try:
            return stashed, await feed(reading)
        except MontyError as error:
            if reading.feed == self._code or not is_refusal(error):
                raise
            await self._diagnose()
            # What was put behind the code broke it: go without.
            self._reading = Reading(self._code, watched=True)
            return await self._fed(feed)

    async def _concluded(self, stashed: bool, output: Any) -> Json:
        """The run's value, now that its code has ended with `output`."""
        reading = self._reading
        if reading.named:
            return await self._as_json(output, RESULT)
        if reading.watched:
            answer = await self._answer(ASK if stashed else ASK_FIRST)
            if answer is not None and (answer[0] or reading.surely):
                return await self._as_json(answer[1], RESULT)
        return await self._as_json(output, None)

    def _feed(self, reading: Reading) -> Awaitable[Any]:
        self._count(reading.feed)
        return self._guard.watch(
            self._session.feed_run(
                reading.feed,
                inputs=self._given(reading),
                external_lookup=self._outside.lookup(),
                print_callback=self._guard.write,
                os=self._outside.refuse,
            )
        )

    def _given(self, reading: Reading) -> dict[str, Any] | None:
        """The variables that the code starts with."""
        inputs: dict[str, Any] | None = dict(self._inputs) if self._inputs else None
        if reading.watched or reading.far:
            inputs = {**(inputs or {}), SET: False}
            if reading.far:
                inputs[FAR] = True
        return inputs

    def _count(self, text: str) -> None:
        """Count a feed as the engine does, which passes over nothing at all."""
        if text:
            self._live.feeds += 1

    async def _aside(self, text: str) -> Any:
        """Feed something of ours."""
        self._count(text)
        return await self._guard.watch(
            self._session.feed_run(text, print_callback=self._guard.write, os=self._outside.refuse)
        )

    async def _answer(self, question: str) -> Any:
        """What the engine says; `None` when evaluating it raises."""
        try:
            return await self._aside(question)
        except MontyError as error:
            self._check_alive(error)
            return None

    def _check_alive(self, error: MontyError) -> None:
        """Raise an error after which the session is no good: out of memory, a dead process."""
        if not explain(error, self._text()).kept:
            raise error

    async def _diagnose(self) -> None:
        """Raise what the engine has against the code as the agent wrote it; nothing of it is run."""
        self._reading, self._skipped = Reading(self._code), 1
        try:
            await self._aside(barred(self._code))
        except MontyError as error:
            if is_refusal(error):
                raise
        self._skipped = 0

    async def _as_json(self, output: Any, expression: str | None) -> Json:
        value = to_json(output, self._names)
        if value.doubt:
            again = expression or last_expression(self._code)
            if again is not None:
                await self._check(again)
            elif value.doubt is Doubt.LIKELY:
                raise NotJson(*disguised(value.of))
        return value.json

    async def _check(self, expression: str) -> None:
        """Let the engine say whether a value is JSON."""
        try:
            await self._aside(_CHECK.format(expression))
        except MontyError as error:
            self._check_alive(error)
            raise NotJson(*_unserialisable(error)) from None

    # -- what it gave ---------------------------------------------------------------------------------

    def _text(self) -> Text:
        return Text(
            self._code,
            self._limits,
            self._reading,
            self._skipped,
            self._names,
            self._outside.raised,
        )

    def _failed(self, why: Breach | NotJson | MontyError) -> Ran:
        if isinstance(why, Breach):
            return self._ran(None, Failure(breached(why.code, self._limits), kept=False))
        if isinstance(why, NotJson):
            return self._ran(None, Failure(_not_json(why)))
        return self._ran(None, explain(why, self._text()))

    def _ran(self, value: Json, failure: Failure | None) -> Ran:
        guard = self._guard
        took = monotonic() - guard.started
        stdout, stderr = guard.output() if guard.wrote else ("", "")
        calls = self._outside.unanswered()
        # Looking costs as much as a short run; such a run's share is seen when the next one starts.
        peak = self._worker.last_peak if took < _SHORT else self._worker.peak()
        metrics = _metrics(int(took * 1000), peak, self._outside.made())
        warnings = (_truncated(self._limits),) if guard.cut else ()
        if failure is None:
            return Ran(RunStatus.OK, value, stdout, stderr, None, warnings, calls, metrics, True)
        error, trace, kept = failure
        status = RunStatus(CODES[error.code].status or "runtime_error")
        found = (Diagnostic.error(error), *warnings)
        return Ran(status, None, stdout, stderr + trace, error, found, calls, metrics, kept)


@lru_cache(maxsize=64)
def _metrics(duration_ms: int, peak: int, calls: int) -> Metrics:
    return Metrics(duration_ms=duration_ms, memory_peak_bytes=peak, external_calls_count=calls)


def barred(code: str) -> str:
    """Code that the engine reads to its end but does not run."""
    return BARRIER + code.removeprefix("\ufeff")


def _truncated(limits: SessionLimits) -> Diagnostic:
    return Diagnostic(
        severity=Severity.WARNING,
        code="OUTPUT_TRUNCATED",
        message=f"Output beyond {limits.max_stdout_bytes} bytes was cut.",
        hint="Print a summary; give data back as `result`.",
    )


def _not_json(why: NotJson) -> ErrorObject:
    return ErrorObject(
        code="RESULT_NOT_SERIALIZABLE",
        message=f"The result is not JSON: {why.kind}.",
        hint=f"Type: {why.kind}. {why.hint}",
    )


def _unserialisable(error: MontyError) -> tuple[str, str]:
    said = str(error)
    before, found, _ = said.partition(" is not JSON serializable")
    if found:
        kind = before.rpartition(" ")[2]
        return kind, hint_for(kind)
    return "a value that holds itself", "Give a copy without the cycle."

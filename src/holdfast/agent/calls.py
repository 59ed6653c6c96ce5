"""The calls of one answer: made side by side, answered in order; parked when all that is left waits for somebody.

Code runs one program at a time, because each sees what the one before left in the session. Calls of capabilities are
made at once, through the same gate that code goes through.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import anyio
from anyio.abc import TaskGroup

from holdfast.agent.pictures import pictures_in
from holdfast.agent.tools import DESCRIBE, READ_RESULT, RUN_CODE, SEARCH
from holdfast.agent.view import cut, error_view, in_order, run_view, value_view
from holdfast.agent.work import Work
from holdfast.contracts import (
    Body,
    Draft,
    ErrorObject,
    Json,
    Provenance,
    RunRequest,
    RunResult,
    RunStatus,
)
from holdfast.contracts.agent import ToolAnswered
from holdfast.contracts.message import ToolCallPart
from holdfast.errors import HoldfastError, ModelError, OperatorError
from holdfast.gate.crossing import Crossing, Held, Mood, Outcome
from holdfast.journal.pen import LOST
from holdfast.shell.discovery import discovery
from holdfast.shell.requests import check_request

_STANDING = (RunStatus.WAITING_FOR_APPROVAL, RunStatus.INTERRUPTED)


_ASKS = {SEARCH: "query", DESCRIBE: "name"}
"""What each of these is asked with."""


class _Left(Exception):
    """A call that is alone waits for a person: it is left there."""


def _leave_alone(now: Mood) -> None:
    if now == "waiting":
        raise _Left


@dataclass(slots=True)
class Calls:
    """Makes the calls of one answer."""

    work: Work
    standing: bool = False
    """Whether one of them waits, or nobody knows what became of it."""
    hook: HoldfastError | None = None
    """Why one of them can't go on where a hook failed."""
    left_out: bool = False
    """Whether one was not made, because the run is to stop."""
    # Of several calls; one that is alone waits for nobody.
    _waiting: dict[str, Crossing] = field(init=False)
    _under_way: set[str] = field(init=False)
    _group: TaskGroup | None = None

    async def make(self, calls: Sequence[ToolCallPart]) -> None:
        """Make them; afterwards each has its result in the conversation, or `standing` is set."""
        if len(calls) == 1:
            try:
                await self._one(calls[0], alone=True)
            except _Left:
                self.standing = True
            return
        programs = [call for call in calls if self._is_code(call)]
        failures: list[Exception] = []

        async def guarded(these: Sequence[ToolCallPart]) -> None:
            try:
                for call in these:
                    if self.work.stopping:
                        self.left_out = True
                        self._under_way.difference_update(one.id for one in these)
                        self._stop_if_stuck()
                        return
                    await self._one(call, alone=False)
                    self._under_way.discard(call.id)
                    self._stop_if_stuck()
            except Exception as why:  # noqa: BLE001 - raised below, out of its group
                failures.append(why)
                self._under_way.difference_update(call.id for call in these)
                if self.work.desk.pen.pos == LOST:  # what the others do could not be recorded
                    group.cancel_scope.cancel()
                self._stop_if_stuck()

        self._waiting, self._under_way = {}, {call.id for call in calls}
        async with anyio.create_task_group() as group:
            self._group = group
            if programs:
                group.start_soon(guarded, programs)
            for call in calls:
                if not self._is_code(call):
                    group.start_soon(guarded, [call])
        if failures:
            raise failures[0]

    def _is_code(self, call: ToolCallPart) -> bool:
        return self.work.spec.mode == "code" and call.name == RUN_CODE

    def _stop_if_stuck(self) -> None:
        """Once all that is left waits for a person, nobody waits with it."""
        if self._stuck and self._group is not None:
            self._group.start_soon(self._leave)

    @property
    def _stuck(self) -> bool:
        return bool(self._waiting) and self._waiting.keys() >= self._under_way

    async def _leave(self) -> None:
        """Leave what waits, unless it was answered a moment ago: it sees that in another, and the run need not park."""
        approvals = self.work.session.services.approvals
        with suppress(HoldfastError):  # whoever writes next meets the same journal, and says so
            for crossing in [*self._waiting.values()]:
                if crossing.asked is not None and await approvals.ended(crossing.asked.id):
                    return
        if self._stuck and self._group is not None:
            self.standing = True
            self._group.cancel_scope.cancel()

    async def _one(self, call: ToolCallPart, *, alone: bool) -> None:
        work = self.work
        if call.malformed is not None:
            await self._refuse(call, _malformed(call))
        elif self._is_code(call):
            await self._code(call)
        elif call.name == READ_RESULT and work.spec.mode == "tools":
            await self._read(call)
        elif work.spec.mode == "code":
            await self._look(call)
        else:
            await self._direct(call, alone=alone)

    # -- code -----------------------------------------------------------------------------------------

    async def _code(self, call: ToolCallPart) -> None:
        """Run a program of the model's, or go on with it where it stands."""
        work = self.work
        runner = work.session.runner
        await work.desk.settle()
        child = work.children.pop(call.id, None)
        try:
            if child is not None:
                result = await runner.resume(child, durable=False)
            else:
                result = await runner.run(
                    self._request(call),
                    durable=False,
                    actor=work.desk.actor,
                    parent=work.run_id,
                    call_id=call.id,
                )
        except HoldfastError as why:
            if why.status is None or why.code in ("INTERNAL_ERROR", "REPLAY_MISMATCH"):
                raise
            await self._refuse(call, why)
            return
        failed = result.error is not None and result.error.code == "HOOK_FAILED"
        if result.status in _STANDING and work.session.open_run is not None:
            self.standing = True
            if failed:
                self.hook = self.hook or _hook_failed(result)
            return
        await self._ran(call, result)
        if failed:  # what a hook may not fail at stops the run, not only the program
            raise _hook_failed(result)

    def _request(self, call: ToolCallPart) -> RunRequest:
        code = call.arguments.get("code")
        if not isinstance(code, str) or set(call.arguments) - {"code"}:
            raise ModelError(
                "SYNTAX_ERROR",
                "`run_code` takes one argument, `code`, and that is a string.",
                hint="Call it with the whole program as `code`.",
            )
        request = RunRequest(session_id=self.work.session.id, code=code)
        check_request(self.work.gate.redactor, request)
        return request

    async def _ran(self, call: ToolCallPart, result: RunResult) -> None:
        metrics = result.metrics
        self.work.use(duration_ms=metrics.duration_ms, external_calls=metrics.external_calls_count)
        text, wrong = run_view(result, limit=self.work.spec.view_bytes)
        if result.run_id is None:  # refused before anything ran: nothing is on record yet
            await self._say(call, text, is_error=wrong)
        else:
            shown = pictures_in(result.result)
            self.work.transcript.result(call.id, call.name, text, is_error=wrong, pictures=shown)

    # -- a capability ---------------------------------------------------------------------------------

    async def _direct(self, call: ToolCallPart, *, alone: bool) -> None:
        work = self.work
        past = work.pasts.pop(call.id, None)
        if past is None and work.session.toolbox.get(call.name) is None:
            await self._refuse(call, _unknown(call.name))
            return

        crossing = Crossing(
            desk=work.desk,
            ordinal=past.ordinal if past is not None else work.next_ordinal(),
            name=call.name,
            args=(),
            kwargs=call.arguments,
            provenance=Provenance.TOOL_CALL,
            past=past,
            known=past is not None,
            call_id=call.id,
            mood=_leave_alone,
            # Beside others its result would wait for them, and be lost with the process meanwhile.
            lazy=alone and not work.desk.shares,
        )
        if not alone:
            crossing.mood = partial(self._waits, crossing)
        end = await work.gate.perform(crossing)
        if not isinstance(end, Outcome):
            self.standing = True
            if isinstance(end, Held):
                self.hook = self.hook or end.why
            return
        text, wrong = direct_view(end.value, end.error, crossing.effect_id, work.spec.view_bytes)
        work.transcript.result(
            call.id, call.name, text, is_error=wrong, pictures=pictures_in(end.value)
        )

    def _waits(self, crossing: Crossing, now: Mood) -> None:
        """One call of several waits for a person, or does not any more."""
        call_id = crossing.call_id or ""
        if now == "waiting":
            self._waiting[call_id] = crossing
            self._stop_if_stuck()
        else:
            self._waiting.pop(call_id, None)

    # -- what holdfast answers itself -----------------------------------------------------------------

    async def _look(self, call: ToolCallPart) -> None:
        """Of an agent that writes code: what can its code call?"""
        session = self.work.session
        names = discovery(session.toolbox, session.policy, session.limits_of(RunRequest()))
        if call.name not in (SEARCH, DESCRIBE):
            known = session.toolbox.get(call.name) is not None
            await self._refuse(call, _not_a_tool(call.name, known=known))
            return
        wanted = _ASKS[call.name]
        asked = call.arguments.get(wanted)
        if not isinstance(asked, str) or len(call.arguments) > 1:
            await self._refuse(call, _takes_one(call.name, wanted))
            return
        try:
            found: Json = names[call.name](asked)
        except HoldfastError as why:
            await self._refuse(call, why)
            return
        if call.name == DESCRIBE and isinstance(found, dict):
            found = found["stub"]
        handle = "search for something narrower"
        text = value_view(found, limit=self.work.spec.view_bytes, handle=handle)
        await self._say(call, text)

    async def _read(self, call: ToolCallPart) -> None:
        """More of a result that was shown in part."""
        said = call.arguments
        offset, length = said.get("offset", 0), said.get("length", self.work.spec.view_bytes)
        text = await self._whole(str(said.get("id")))
        if text is None or not isinstance(offset, int) or not isinstance(length, int):
            await self._refuse(call, _no_result(str(said.get("id"))[:80]))
            return
        length = min(max(1, length), self.work.spec.view_bytes)
        part = text[max(0, offset) : max(0, offset) + length]
        await self._say(call, f"{part}\n({len(text)} characters in all)")

    async def _whole(self, effect_id: str) -> str | None:
        """The text of a result of this session, by its effect."""
        work = self.work
        row = await work.journal.row("effects", effect_id)
        if row is None or row["session_id"] != work.session.id:
            return None
        digest = row.get("result")
        if not isinstance(digest, str):
            return None
        value = json.loads(await work.journal.content(digest))
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    async def _refuse(self, call: ToolCallPart, why: Exception) -> None:
        error = why if isinstance(why, HoldfastError) else ModelError("TYPE_ERROR", f"{why}.")
        await self._say(call, error_view(ErrorObject.of(error)), is_error=True)

    async def _say(self, call: ToolCallPart, text: str, *, is_error: bool = False) -> None:
        work = self.work
        text = work.gate.redactor.text(text)
        body = Body.of(text.encode(), role="result", mime="text/plain")
        said = ToolAnswered(
            call_id=call.id, name=call.name, content=body.ref.digest, is_error=is_error
        )
        work.desk.hold([Draft.of(said, run_id=work.run_id, bodies=(body,))], durable=False)
        work.transcript.result(call.id, call.name, text, is_error=is_error)


def _hook_failed(result: RunResult) -> OperatorError:
    """The failure of a hook that stopped a program."""
    error = result.error
    assert error is not None
    return OperatorError(error.code, error.message, hint=error.hint, effect_id=error.effect_id)


def direct_view(
    value: Json, error: ErrorObject | None, effect_id: str, limit: int
) -> tuple[str, bool]:
    """What a model is shown of a capability's result, and whether it went wrong."""
    if error is not None:
        return error_view(error), True
    text = value if isinstance(value, str) else in_order(value)
    return cut(text, limit, f'`{READ_RESULT}` with id "{effect_id}" gives more'), False


def _malformed(call: ToolCallPart) -> ModelError:
    wrote = cut(call.malformed or "", 200, "")
    return ModelError(
        "SYNTAX_ERROR",
        f"The arguments of `{call.name}` are not a JSON object: {wrote}",
        hint="Call it again with one JSON object.",
    )


def _not_a_tool(name: str, *, known: bool) -> ModelError:
    hint = "Call it inside a program, with run_code." if known else "search_tools finds functions."
    return ModelError("UNKNOWN_TOOL", f"There is no tool `{name[:80]}`.", hint=hint)


def _unknown(name: str) -> ModelError:
    return ModelError(
        "UNKNOWN_TOOL", f"There is no tool `{name[:80]}`.", hint="Call one of those you were given."
    )


def _takes_one(name: str, wanted: str) -> ModelError:
    return ModelError(
        "TYPE_ERROR",
        f"`{name}` takes one argument, `{wanted}`, and that is a string.",
        hint=f'Call it with {{"{wanted}": "…"}}.',
    )


def _no_result(effect_id: str) -> ModelError:
    return ModelError(
        "UNKNOWN_TOOL",
        f"There is no result `{effect_id}` to read from.",
        hint="Use the id that the shown part of a result names, and whole numbers.",
    )

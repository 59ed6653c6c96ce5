"""Runs as the journal has them: list, show, resume, cancel, and say what became of an effect in doubt."""

from __future__ import annotations

from time import monotonic
from typing import Any, Protocol, get_args

import anyio

from holdfast.contracts import (
    Body,
    Draft,
    EffectResult,
    EffectStatus,
    EffectView,
    ErrorObject,
    Json,
    Record,
    RunResult,
    RunView,
    canonical_json,
    parse,
)
from holdfast.contracts.agent import AgentResult
from holdfast.contracts.effect import EffectReleased
from holdfast.contracts.payload import RunCancelRequested
from holdfast.contracts.view import RunFilter
from holdfast.errors import CallerError, Conflict, InternalError, ModelError, NotFound
from holdfast.journal import Journal
from holdfast.shell.control import CONTROL
from holdfast.shell.drive import CancelMode
from holdfast.shell.shell import Shell
from holdfast.shell.standing import recorded_agent, recorded_result

_POLL = 0.05
_FILTERS: tuple[str, ...] = get_args(RunFilter)


class Resumes(Protocol):
    """Goes on with runs of agents."""

    async def resume(self, run_id: str, *, setup: Any = None, wait_ms: int = 30_000) -> AgentResult:
        """Go on with one."""
        ...


class Runs:
    """The runs of all sessions: `hf.runs` of an open runtime."""

    def __init__(
        self, journal: Journal, shell: Shell | None = None, agents: Resumes | None = None
    ) -> None:
        """Without a shell, only to look at; `agents` goes on with runs of agents."""
        self._journal = journal
        self._live = shell
        self._agents = agents

    @property
    def _shell(self) -> Shell:
        if self._live is None:
            raise InternalError("Runs were opened only to look at.")
        return self._live

    async def list(
        self,
        *,
        status: str | None = None,
        session: str | None = None,
        after: str = "",
        limit: int = 100,
        newest: bool = False,
    ) -> list[RunView]:
        """Runs by id, and so by time, with `newest` back in time; those that are not over with `status="active"`."""
        if status is not None and status not in _FILTERS:
            raise CallerError(
                "INVALID_ARGUMENT",
                f"`{status[:80]}` is no status of a run.",
                hint=f"There are: {', '.join(_FILTERS)}.",
            )
        tag = status if status in ("active", "ended") else None
        found: list[RunView] = []
        while len(found) < limit:
            rows = await self._journal.rows(
                "runs", tag=tag, after=after, limit=limit, newest=newest
            )
            for row in rows:
                after = row.key
                same = session is None or row.value["session_id"] == session
                if same and (status in (None, tag) or row.value["status"] == status):
                    found.append(RunView.model_validate(row.value))
            if len(rows) < limit:
                break
        return found[:limit]

    async def show(self, run_id: str) -> RunView:
        """One of them."""
        return RunView.model_validate(await self._row(run_id))

    async def result(self, run_id: str) -> RunResult:
        """What the caller of a run of code got; raises `RUN_OPEN` while it is under way."""
        found = await self.result_any(run_id)
        if isinstance(found, AgentResult):
            raise _is_an_agents(run_id)
        return found

    async def result_any(self, run_id: str) -> RunResult | AgentResult:
        """The same, also for a run of an agent."""
        row = await self._row(run_id)
        over = row["ended_at"] is not None
        if not over and (row["parked_pos"] is None or row["status"] == "running"):
            raise Conflict("RUN_OPEN", f"Run `{run_id}` is not over.", hint="Wait, or resume it.")
        if row["kind"] == "agent":
            return await recorded_agent(self._journal, row)
        if over:
            return await recorded_result(self._journal, str(row["session_id"]), row)
        after = int(str(row["parked_pos"])) - 1
        record = await anext(self._journal.read(str(row["session_id"]), after=after, limit=1))
        data = await self._journal.content(str(record.payload["result"]))
        return RunResult.model_validate_json(data)

    async def effects(self, run_id: str) -> list[EffectView]:
        """Every call it made, in order; of an agent's run, also those of its code."""
        row = await self._row(run_id)
        stream, after = str(row["session_id"]), int(row["start_pos"]) - 1
        found: list[EffectView] = []
        runs = {run_id}
        async for record in self._journal.read(stream, after=after):
            if record.kind == "run_started" and record.payload.get("parent") == run_id:
                runs.add(str(record.run_id))
            if record.run_id in runs and record.kind == "effect_intent":
                effect = await self._journal.row("effects", str(record.effect_id))
                if effect is not None:
                    found.append(EffectView.model_validate(effect))
        return found

    async def records(self, run_id: str) -> list[Record]:
        """Everything on record about it in its session's stream."""
        row = await self._row(run_id)
        stream, after = str(row["session_id"]), int(row["start_pos"]) - 1
        return [
            record
            async for record in self._journal.read(stream, after=after)
            if record.run_id == run_id
        ]

    async def resume(
        self, run_id: str, *, wait_ms: int = 30_000, durable: bool = True, setup: Any = None
    ) -> RunResult:
        """Go on with a run of code, here. One that still waits is left as it is; one that is over gives its result.

        A run of an agent, and code that an agent wrote, go on with `hf.agents.resume`, or `resume_any`.
        """
        row = await self._row(run_id)
        if await self._agent_of(row) is not None:
            raise _is_an_agents(run_id)
        return await self._shell.resume(
            str(row["session_id"]), run_id, wait_ms=wait_ms, durable=durable, setup=setup
        )

    async def resume_any(
        self, run_id: str, *, wait_ms: int = 30_000, setup: Any = None
    ) -> RunResult | AgentResult:
        """Go on with any run; code that an agent wrote goes on together with the agent's run."""
        agent = await self._agent_of(await self._row(run_id))
        if agent is None:
            return await self.resume(run_id, wait_ms=wait_ms, setup=setup)
        if self._agents is None:
            raise InternalError("Nobody here goes on with runs of agents.")
        return await self._agents.resume(agent, setup=setup, wait_ms=wait_ms)

    async def _agent_of(self, row: dict[str, Any]) -> str | None:
        """The agent's run that a run is, or that wants its result."""
        if row["kind"] == "agent":
            return str(row["id"])
        parent = row.get("parent")
        over = parent is None or (await self._row(parent))["ended_at"] is not None
        return None if over else str(parent)

    async def cancel(
        self,
        run_id: str,
        *,
        mode: CancelMode = "now",
        reason: str | None = None,
        wait_ms: int = 30_000,
    ) -> RunView:
        """Stop it: where it stands, or in the process that has it, which hears of it in a moment."""
        row = await self._row(run_id)
        asked = {"run": run_id, "mode": mode, "reason": reason}
        said = parse(RunCancelRequested, asked, hint='`mode` is "now" or "after_effect".')
        if row["ended_at"] is not None:
            return RunView.model_validate(row)
        session = str(row["session_id"])
        try:
            await self._journal.append(CONTROL, [Draft.of(said)])
        except CallerError as why:
            if why.code != "ILLEGAL_RECORD":
                raise
            return await self.show(run_id)  # it has ended meanwhile
        if not self._shell.cancel(session, mode=mode, run_id=run_id, reason=reason):
            await self._abandon(session, run_id, wait_ms, reason)
        return await self.show(run_id)

    async def _abandon(self, session: str, run_id: str, wait_ms: int, reason: str | None) -> None:
        """Cancel it once nobody else has its session; or see that whoever has it did."""
        deadline = monotonic() + wait_ms / 1000
        while True:
            try:
                await self._shell.abandon(session, run_id, wait_ms=0, reason=reason)
                return
            except Conflict as why:
                if why.code != "SESSION_BUSY" or monotonic() >= deadline:
                    raise
            if (await self._row(run_id))["ended_at"] is not None:
                return  # its process may go on with another one
            await anyio.sleep(_POLL)

    async def resolve(
        self,
        run_id: str,
        effect_id: str,
        answer: str,
        *,
        value: Json = None,
        actor: str = "operator",
        wait_ms: int = 30_000,
    ) -> EffectView:
        """Say what became of an effect in doubt: `happened` with `value`, `did_not_happen`, or `retry`.

        It is the run's own, or that of the code of an agent's run.
        """
        effect = await self._journal.row("effects", effect_id)
        # Who may not know of another run does not learn of it here: that of the effect is looked at, not the named one.
        owner = None if effect is None else effect.get("run_id")
        row = await self._row(run_id if owner is None else str(owner))
        ours = owner is not None and run_id in (owner, row.get("parent"))
        if effect is None or not ours or effect["status"] != "unknown":
            raise CallerError(
                "EFFECT_NOT_IN_DOUBT",
                f"Effect `{effect_id[:80]}` of run `{run_id[:80]}` is not in doubt.",
                hint="`holdfast runs show` names the effects in doubt.",
            )
        session = str(row["session_id"])
        if answer == "happened":
            value = await self._held(session, str(effect["name"]), value)
        draft = _resolution(str(row["id"]), effect, answer, value, actor)
        await self._shell.record(session, [draft], wait_ms=wait_ms)
        found = await self._journal.row("effects", effect_id)
        return EffectView.model_validate(found)

    async def _held(self, session: str, name: str, value: Json) -> Json:
        """What a person says a call gave, as it goes on record; raises `INVALID_ARGUMENT` for what it can't give."""
        executor = await self._shell.executor(session, name)
        try:
            if executor is not None:
                executor.check_result(value)
        except ModelError as why:
            raise CallerError(
                "INVALID_ARGUMENT",
                f"That can't be what it gave; nothing was recorded. {why.message}",
                hint="Give the result as its output schema says, in JSON: `holdfast tools describe` shows that.",
            ) from None
        return self._shell.services.gate.redactor.json(value)

    async def _row(self, run_id: str) -> dict[str, Any]:
        row = await self._journal.row("runs", run_id)
        if row is None:
            raise NotFound(
                "NOT_FOUND",
                f"There is no run `{run_id[:80]}`.",
                hint="`holdfast runs list` names those there are.",
            )
        return row


def _is_an_agents(run_id: str) -> CallerError:
    return CallerError(
        "INVALID_ARGUMENT",
        f"Run `{run_id}` is an agent's, or code that an agent wrote.",
        hint="Use `hf.agents.resume`, or `resume_any` and `result_any` for runs of either kind.",
    )


def _resolution(run_id: str, effect: dict[str, Any], answer: str, value: Json, actor: str) -> Draft:
    """The record of a person's word."""
    key, name = str(effect["id"]), str(effect["name"])
    if answer == "retry":
        attempt = int(effect.get("attempt", 1)) + 1
        said = EffectReleased(effect_id=key, attempt=attempt, actor=actor)
        return Draft.of(said, run_id=run_id, actor=actor)
    if answer == "happened":
        body = Body.of(canonical_json(value), role="result", mime="application/json")
        result = EffectResult(
            effect_id=key,
            terminal_status=EffectStatus.COMPLETED,
            resolved="happened",
            content_refs=(body.ref.digest,),
            redacted_summary=f"{name} happened, a person says",
        )
        return Draft.of(result, run_id=run_id, actor=actor, bodies=(body,))
    if answer == "did_not_happen":
        error = ErrorObject(
            code="TOOL_ERROR",
            message=f"`{name}` did not happen: a person looked.",
            hint="Try again, do it another way, or go without.",
        )
        result = EffectResult(
            effect_id=key,
            terminal_status=EffectStatus.FAILED,
            resolved="did_not_happen",
            error=error,
            redacted_summary=f"{name} did not happen, a person says",
        )
        return Draft.of(result, run_id=run_id, actor=actor)
    raise CallerError(
        "INVALID_ARGUMENT",
        f"`{answer[:80]}` is no answer about an effect in doubt.",
        hint="Answers: happened (with its result), did_not_happen, retry.",
    )

"""The methods of JSON-RPC over an open runtime. `Methods.table` is the whole list."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from anyio.abc import TaskGroup

from holdfast.contracts import (
    ApprovalView,
    RunResult,
    RunView,
    SessionLimits,
    SessionView,
    Setup,
    new_id,
)
from holdfast.errors import CallerError, HoldfastError, NotFound
from holdfast.gate.executor import Toolbox
from holdfast.runtime import Runtime
from holdfast.server import params as p
from holdfast.server import views
from holdfast.server.callers import LOCAL, Caller, Scope
from holdfast.server.cancelling import cancel_session
from holdfast.server.deciding import check_own
from holdfast.server.journal_methods import JournalMethods
from holdfast.server.rights import PLAN, Note, Rights
from holdfast.server.rpc import Call, Method
from holdfast.server.work import Work
from holdfast.shell.services import setup_of


class Methods:
    """What one caller can ask of a runtime. `background` outlives their connections."""

    def __init__(
        self,
        hf: Runtime,
        background: TaskGroup,
        *,
        caller: Caller | None = None,
        actor: str = LOCAL.id,
        via: str = LOCAL.via,
        events: str | None = None,
        note: Note | None = None,
        work: Work | None = None,
    ) -> None:
        """Without `caller` it is this machine's user, called `actor`, who came in by `via`.

        `events`: where records can be had as they come, if not from here; `note` records refusals; `work` is what
        runs belong to, where that is not the request.
        """
        self._hf = hf
        self._rights = Rights(hf, caller or LOCAL, note)
        self._actor = actor if caller is None else caller.id
        self._via = via if caller is None else caller.via
        self._journal = JournalMethods(hf.journal, self._rights, events)
        self._work = work
        go_on = self._go_on if work is None else work.go_on
        self._goes_on = partial(background.start_soon, go_on)

    @property
    def table(self) -> Mapping[str, Method]:
        """Every method by name."""
        run, read, approve = self._needs("run"), self._needs("read"), self._needs("approve")
        return {
            "session.create": run(p.CreateSession, self._create, _one),
            "session.run": run(p.RunCode, self._run, _one),
            "session.validate": run(p.RunCode, self._validate, _one),
            "session.cancel": run(p.CancelSession, self._cancel),
            "session.snapshot": run(p.InSession, self._snapshot, _one),
            "session.restore": run(p.RestoreSession, self._restore, _one),
            "session.fork": run(p.ForkSession, self._fork, _both),
            "session.reset": run(p.InSession, self._reset, _one),
            "session.destroy": run(p.InSession, self._destroy, _one),
            "session.list": read(p.Page, self._sessions),
            "tools.list": read(p.OfSession, self._tools),
            "tools.describe": read(p.DescribeTool, self._describe),
            "tools.search": read(p.SearchTools, self._search),
            "policy.get": read(p.OfSession, self._policy),
            "run.get": read(p.GetRun, self._get_run),
            "run.list": read(p.ListRuns, self._runs),
            "run.resume": run(p.ResumeRun, self._resume),
            "run.cancel": run(p.CancelRun, self._cancel_run),
            "effect.resolve": approve(p.ResolveEffect, self._resolve),
            "approvals.list": read(p.ListApprovals, self._approvals),
            "approvals.decide": approve(p.Decide, self._decide),
            "journal.read": read(p.ReadJournal, self._journal.read),
            "journal.subscribe": read(p.Subscribe, self._journal.subscribe),
            "journal.unsubscribe": read(p.Unsubscribe, self._journal.unsubscribe),
            "journal.verify": read(p.NoParams, self._journal.verify),
        }

    def _needs(self, scope: Scope) -> Callable[..., Method]:
        """Makes methods that need a scope, and that all they name is the caller's."""

        def method(
            params: type[Any],
            call: Callable[[Any, Call], Awaitable[Any]],
            order: Callable[[Any], Sequence[str]] | None = None,
        ) -> Method:
            async def checked(asked: Any, of: Call) -> Any:
                if isinstance(asked, p.Decide):
                    await self._check_own(asked)
                await self._rights.check(scope, asked)
                if self._work is None:
                    return await call(asked, of)
                return await self._work.answer(partial(call, asked, of))

            return Method(params, checked, order, scope)

        return method

    # -- sessions -------------------------------------------------------------------------------------

    async def _create(self, asked: p.CreateSession, _: Call) -> SessionView:
        name = asked.session_id or (self._rights.caller.prefix or "") + new_id("ses")
        return await self._hf.shell.create(name, language=asked.language, setup=asked.setup)

    async def _run(self, asked: p.RunCode, _: Call) -> RunResult:
        run = partial(
            self._hf.shell.run,
            asked.code,
            session=asked.session_id,
            inputs=asked.inputs,
            limits=asked.limits,
            timeout_ms=asked.timeout_ms,
            language=asked.language,
            return_snapshot=asked.return_snapshot,
            validate_only=asked.validate_only,
            dry_run=asked.dry_run,
            plan=asked.plan_id,
            setup=asked.setup,
            actor=self._actor,
            wait_ms=asked.wait_ms,
            durable=True,
        )
        if self._work is None or asked.validate_only or asked.dry_run:
            return await run()
        run_id = new_id("run")
        job = self._work.start(run_id, asked.session_id, partial(run, run_id=run_id))
        found = await job.end()
        assert isinstance(found, RunResult)  # it is code
        return found

    async def _validate(self, asked: p.RunCode, call: Call) -> RunResult:
        return await self._run(asked.model_copy(update={"validate_only": True}), call)

    async def _cancel(self, asked: p.CancelSession, _: Call) -> dict[str, Any]:
        done = await cancel_session(
            self._hf, self._work, asked.session_id, mode=asked.mode, run_id=asked.run_id
        )
        return {"session_id": asked.session_id, "cancelled": done}

    async def _snapshot(self, asked: p.InSession, _: Call) -> dict[str, Any]:
        data = await self._hf.shell.snapshot(asked.session_id, wait_ms=asked.wait_ms)
        return views.snapshot(asked.session_id, data)

    async def _restore(self, asked: p.RestoreSession, _: Call) -> SessionView:
        data = views.snapshot_bytes(asked.snapshot)
        return await self._hf.shell.restore(
            asked.session_id, data, setup=asked.setup, wait_ms=asked.wait_ms
        )

    async def _fork(self, asked: p.ForkSession, _: Call) -> SessionView:
        return await self._hf.shell.fork(
            asked.session_id, asked.new_session_id, at=asked.at, wait_ms=asked.wait_ms
        )

    async def _reset(self, asked: p.InSession, _: Call) -> SessionView:
        return await self._hf.shell.reset(asked.session_id, wait_ms=asked.wait_ms)

    async def _destroy(self, asked: p.InSession, _: Call) -> SessionView:
        await self._hf.shell.destroy(asked.session_id, wait_ms=asked.wait_ms)
        return await self._hf.shell.show(asked.session_id)

    async def _sessions(self, asked: p.Page, _: Call) -> dict[str, Any]:
        async def fetch(after: str, limit: int) -> Sequence[SessionView]:
            return await self._hf.shell.list(after=after, limit=limit)

        return await self._rights.page(fetch, asked, lambda one: one.id)

    # -- what a session may do ------------------------------------------------------------------------

    async def _tools(self, asked: p.OfSession, _: Call) -> dict[str, Any]:
        toolbox, _setup, _limits = await self._opened(asked.session_id)
        return views.tool_lines(toolbox, toolbox.all())

    async def _describe(self, asked: p.DescribeTool, _: Call) -> dict[str, Any]:
        toolbox, _setup, _limits = await self._opened(asked.session_id)
        return views.tool(toolbox, asked.name)

    async def _search(self, asked: p.SearchTools, _: Call) -> dict[str, Any]:
        toolbox, _setup, _limits = await self._opened(asked.session_id)
        return views.tool_lines(toolbox, toolbox.search(asked.query, limit=asked.limit))

    async def _policy(self, asked: p.OfSession, _: Call) -> dict[str, Any]:
        toolbox, setup, limits = await self._opened(asked.session_id)
        rules = self._hf.policy.within(setup.rules)
        return views.policy(toolbox, rules, limits, setup, whole=self._rights.caller.prefix is None)

    async def _opened(self, session_id: str | None) -> tuple[Toolbox, Setup, SessionLimits]:
        services, row = self._hf.shell.services, None
        limits = services.setup.limits or services.limits
        if session_id is not None:
            limits = (await self._hf.shell.show(session_id)).limits
            row = await self._hf.journal.row("sessions", session_id)
        setup = setup_of(services, row)
        return await services.toolbox(setup), setup, limits

    # -- runs -----------------------------------------------------------------------------------------

    async def _get_run(self, asked: p.GetRun, _: Call) -> dict[str, Any]:
        return await views.run_details(self._hf.runs, asked.run_id)

    async def _runs(self, asked: p.ListRuns, _: Call) -> dict[str, Any]:
        async def fetch(after: str, limit: int) -> Sequence[RunView]:
            return await self._hf.runs.list(
                status=asked.status, session=asked.session_id, after=after, limit=limit
            )

        return await self._rights.page(fetch, asked, lambda one: one.session_id)

    async def _resume(self, asked: p.ResumeRun, _: Call) -> RunResult | dict[str, Any]:
        key, setup, wait_ms = asked.run_id, asked.setup, asked.wait_ms
        if self._work is None:
            found = await self._hf.runs.resume_any(key, setup=setup, wait_ms=wait_ms)
        else:
            found = await (await self._work.resume(key, setup=setup, wait_ms=wait_ms)).end()
        return views.result_of(found)

    async def _cancel_run(self, asked: p.CancelRun, _: Call) -> Any:
        return await self._hf.runs.cancel(
            asked.run_id, mode=asked.mode, reason=asked.reason, wait_ms=asked.wait_ms
        )

    async def _resolve(self, asked: p.ResolveEffect, _: Call) -> Any:
        run_id = asked.run_id
        if run_id is None:
            row = await self._hf.journal.row("effects", asked.effect_id)
            if row is None:
                raise NotFound("NOT_FOUND", f"There is no effect `{asked.effect_id[:80]}`.")
            run_id = str(row["run_id"])
        return await self._hf.runs.resolve(
            run_id,
            asked.effect_id,
            asked.answer,
            value=asked.value,
            actor=asked.actor or self._actor,
            wait_ms=asked.wait_ms,
        )

    # -- approvals ------------------------------------------------------------------------------------

    async def _approvals(self, asked: p.ListApprovals, _: Call) -> dict[str, Any]:
        async def fetch(after: str, limit: int) -> Sequence[ApprovalView]:
            return await self._hf.approvals.list(status=asked.status, after=after, limit=limit)

        return await self._rights.page(fetch, asked, lambda one: one.session_id)

    async def _check_own(self, asked: p.Decide) -> None:
        """Whoever may answer at all, and does so in their own name: to what is another's, it is on record as an answer."""
        caller = self._rights.caller
        if caller.may("admin" if asked.actor is not None else "approve"):
            await check_own(self._hf.journal, caller, asked.id, asked.decision, asked.reason)

    async def _decide(self, asked: p.Decide, _: Call) -> Any:
        actor, inbox = asked.actor or self._actor, self._hf.approvals
        if asked.id.startswith(PLAN):
            if asked.content is not None:
                raise CallerError("INVALID_ARGUMENT", "A plan takes no `content`.")
            return await inbox.decide_plan(
                asked.id, asked.decision, actor=actor, reason=asked.reason, via=self._via
            )
        content: Any = asked.content
        view = await inbox.decide(
            asked.id,
            asked.decision,
            actor=actor,
            reason_code=asked.reason_code,
            reason=asked.reason,
            via=self._via,
            content=content,
        )
        if asked.resume and view.run_id is not None:
            self._goes_on(view.run_id)
        return view

    async def _go_on(self, run_id: str) -> None:
        try:
            await self._hf.runs.resume_any(run_id)
        except HoldfastError:
            pass  # it stands as it stood; `run.get` tells, and `run.resume` why it can't go on


def _one(asked: p.CreateSession | p.RunCode | p.InSession) -> list[str]:
    return [] if asked.session_id is None else [asked.session_id]


def _both(asked: p.ForkSession) -> list[str]:
    return [asked.session_id, asked.new_session_id]

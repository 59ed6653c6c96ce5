"""A run on behalf of a client: begun or gone on with, told while it is under way, and its questions asked of the client.

The run is the server's, not the request's. It is cancelled when the client says so; when the client is just gone, it
goes on, or stays parked, and whoever asks for it by its id gets what it gave.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
from anyio.abc import TaskGroup
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp_types import (
    ElicitRequest,
    ElicitResult,
    InputRequiredResult,
    InputResponseRequestParams,
    LoggingLevel,
)

from holdfast.contracts import ApprovalStatus, ApprovalView, Record, RunResult
from holdfast.contracts.agent import AgentResult
from holdfast.errors import CallerError, Conflict, HoldfastError, NotFound
from holdfast.runtime import Runtime
from holdfast.server.errors import shutting_down
from holdfast.server.mcp.client import Client
from holdfast.server.mcp.following import Following, Telling
from holdfast.server.mcp.questions import Said, can_be_asked, form_of, request_of, said_in
from holdfast.server.work import Job, Work

Result = RunResult | AgentResult

TRIES = 3
"""How often a person is asked again whose answer does not fit the form."""
_LOOK = 0.05


@dataclass(frozen=True, slots=True)
class Asked:
    """A run that is wanted."""

    run_id: str
    session: str
    begin: Callable[[], Awaitable[Job]]
    """Begins it, or goes on with it."""


class Errand:
    """One request that needs a run."""

    def __init__(
        self,
        hf: Runtime,
        work: Work,
        ctx: ServerRequestContext[Any, Any],
        client: Client,
        level: LoggingLevel | None,
        note: Callable[[str], None],
    ) -> None:
        """`note` is told which run it is about."""
        self._note = note
        self._hf = hf
        self._work = work
        self._ctx = ctx
        self._client = client
        self._telling = Telling(ctx, level)
        self._pos = 0
        self._asked: set[str] = set()
        self._beside: TaskGroup | None = None
        self._waiting = anyio.CancelScope()
        self._question: ApprovalView | None = None

    async def do(
        self, asked: Asked, params: InputResponseRequestParams | None = None
    ) -> Result | InputRequiredResult:
        """What the run gave, once it is over or waits for what this client is not asked, or can't answer."""
        state = None if params is None else params.request_state
        if params is not None and state is not None:
            asked, unfit = await self._came_back(state, params)
            if unfit:
                return _required(asked, unfit)
        self._note(asked.run_id)
        self._pos = (await self._hf.journal.head(asked.session)).pos
        try:
            result = await self._followed(asked, asked.begin)
            while True:
                if isinstance(result, ApprovalView):
                    return _required(asked, {result.id: request_of(result)})
                pending = await self._pending(result)
                if not pending:
                    return result
                if self._client.modern:
                    return _required(asked, {one.id: request_of(one) for one in pending})
                if not await self._ask_all(pending):
                    return result
                result = await self._followed(asked, partial(self._work.resume, asked.run_id))
        except anyio.get_cancelled_exc_class():
            if self._client.modern and self._client.over_http and not self._work.closing:
                # The only way to cancel there is to leave.
                with anyio.CancelScope(shield=True):
                    await cancel(self._hf, self._work, asked.run_id)
            raise

    # -- the run --------------------------------------------------------------------------------------

    async def _followed(
        self, asked: Asked, begin: Callable[[], Awaitable[Job]]
    ) -> Result | ApprovalView:
        """Wait for a run, and tell its client about it meanwhile; or until it asks what is answered by coming back."""
        result: Result | HoldfastError = shutting_down()
        self._waiting = anyio.CancelScope()
        told = anyio.Event()
        following = Following(
            self._hf.journal, asked.session, asked.run_id, self._hear, pos=self._pos
        )

        async def follow() -> None:
            try:
                await following.follow()
            except HoldfastError:
                pass  # the journal is in trouble; the run's own end tells
            told.set()

        async with anyio.create_task_group() as self._beside:
            beside = self._beside
            beside.start_soon(follow)
            with self._waiting:
                try:
                    result = await (await begin()).end()
                except HoldfastError as why:
                    result = why
            following.end()
            await told.wait()
            beside.cancel_scope.cancel()
        self._pos = following.pos
        if self._question is not None:
            return self._question
        if isinstance(result, HoldfastError):
            raise result
        return result

    async def _hear(self, record: Record) -> None:
        await self._telling.record(record)
        during = record.kind == "approval_requested" and record.payload.get("during")
        if not during or not self._may_ask():
            return
        # The call is under way, and waits for an answer: nothing will park.
        assert self._beside is not None
        if not self._client.modern:
            self._beside.start_soon(self._ask_by_id, str(record.payload["id"]))
            return
        view = await self._hf.approvals.show(str(record.payload["id"]))
        if view.status is ApprovalStatus.PENDING and can_be_asked(view):
            self._question = view
            self._waiting.cancel()

    # -- its questions --------------------------------------------------------------------------------

    def _may_ask(self) -> bool:
        """Whether the person at the client can be asked, and may answer."""
        return self._client.fills_forms and self._client.caller.may("approve")

    async def _pending(self, result: Result) -> list[ApprovalView]:
        """The questions of a parked run that its client is asked."""
        if not self._may_ask():
            return []
        found = [await self._hf.approvals.show(one) for one in pending_of(result)]
        waits = [
            one
            for one in found
            if one.status is ApprovalStatus.PENDING and one.id not in self._asked
        ]
        return waits if all(can_be_asked(one) for one in waits) else []

    async def _ask_all(self, pending: list[ApprovalView]) -> bool:
        """Ask one after the other; False when one was left without an answer."""
        for view in pending:
            if not await self._ask(view):
                return False
        return True

    async def _ask_by_id(self, approval_id: str) -> None:
        try:
            view = await self._hf.approvals.show(approval_id)
            if view.status is ApprovalStatus.PENDING and can_be_asked(view):
                await self._ask(view)
        except HoldfastError:
            pass  # the question stays in the inbox

    async def _ask(self, view: ApprovalView) -> bool:
        """Ask the client's person, unless somebody else answers first; whether there is an answer now."""
        if view.id in self._asked:
            return False  # they were asked, and said nothing
        self._asked.add(view.id)
        failure: HoldfastError | None = None

        async def here() -> None:
            nonlocal failure
            try:
                await self._elicit(view)
            except HoldfastError as why:
                failure = why
            asking.cancel_scope.cancel()

        async def elsewhere() -> None:
            nonlocal failure
            try:
                await self._hf.approvals.wait(view.id)
            except HoldfastError as why:
                failure = why
            asking.cancel_scope.cancel()

        async with anyio.create_task_group() as asking:
            asking.start_soon(elsewhere)
            asking.start_soon(here)
        if failure is not None:
            raise failure
        return (await self._hf.approvals.show(view.id)).status is not ApprovalStatus.PENDING

    async def _elicit(self, view: ApprovalView) -> None:
        problem: str | None = None
        for _ in range(TRIES):
            form = form_of(view, problem)
            try:
                result = await self._ctx.session.elicit_form(
                    form.message, form.requested_schema, related_request_id=self._ctx.request_id
                )
            except (MCPError, NoBackChannelError, ValueError):
                return  # it can't be asked after all: the question stays in the inbox
            said = said_in(view, result)
            if said == "nothing":
                return
            try:
                await decide(self._hf, self._client, view.id, said)
                return
            except CallerError as why:
                if why.code not in ("INVALID_ARGUMENT", "DECISION_REFUSED"):
                    raise
                problem = why.message

    async def _came_back(
        self, state: str, params: InputResponseRequestParams
    ) -> tuple[Asked, dict[str, ElicitRequest]]:
        """Take the answers that a client came back with; what to go on with, and what has to be asked again."""
        found = json.loads(state)  # sealed by us, so it is what we wrote
        run_id, session = str(found["run"]), str(found["session"])
        self._client.caller.need_session(session)
        self._client.caller.need("approve")
        again: dict[str, ElicitRequest] = {}
        for key, answer in (params.input_responses or {}).items():
            view = await self._hf.approvals.show(key)
            # The state is sealed, the names of the questions are not: they must be of the same session.
            self._client.caller.need_session(view.session_id)
            pending = view.status is ApprovalStatus.PENDING and view.session_id == session
            if not pending or not isinstance(answer, ElicitResult):
                continue  # answered elsewhere meanwhile
            said = said_in(view, answer)
            if said == "nothing":
                self._asked.add(key)
                continue
            try:
                await decide(self._hf, self._client, key, said)
            except CallerError as why:
                if why.code not in ("INVALID_ARGUMENT", "DECISION_REFUSED"):
                    raise
                again[key] = request_of(view, why.message)
        return Asked(run_id, session, partial(self._work.resume, run_id)), again


def _required(asked: Asked, questions: Mapping[str, ElicitRequest]) -> InputRequiredResult:
    """What makes a client ask its person, and come back."""
    return InputRequiredResult(
        input_requests=dict(questions),
        request_state=json.dumps({"run": asked.run_id, "session": asked.session}),
    )


async def decide(hf: Runtime, client: Client, approval_id: str, said: Said) -> None:
    """Put an answer on record; one that comes too late changes nothing."""
    content: Any = None if said.content is None else dict(said.content)
    try:
        await hf.approvals.decide(
            approval_id,
            said.decision,
            actor=client.caller.id,
            reason_code=said.reason_code,
            reason=said.reason,
            via=client.via,
            content=content,
        )
    except Conflict as why:
        if why.code != "APPROVAL_CLOSED":
            raise


def pending_of(result: Result) -> tuple[str, ...]:
    """The questions that a run waits for."""
    if isinstance(result, AgentResult):
        return result.approvals
    return () if result.approval_id is None else (result.approval_id,)


async def cancel(hf: Runtime, work: Work, run_id: str) -> None:
    """Cancel a run whose client wants it no more; it may not even be on record yet."""
    while True:
        try:
            await hf.runs.cancel(run_id, reason="the client cancelled its request")
            return
        except NotFound:
            job = work.find(run_id)
            if job is None or job.done:
                return
        except HoldfastError:
            return  # it stays as it is, on record
        await anyio.sleep(_LOOK)

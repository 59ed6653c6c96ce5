"""The gate's side of the hooks: what they are shown, and what their answers do to a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from holdfast.contracts import Draft, ErrorObject, Json, Risk
from holdfast.contracts.hook import HookPoint, HookPrivacy
from holdfast.contracts.hook_response import (
    ApprovalWanted,
    HookResponse,
    Note,
    Refusal,
    ResponseClass,
)
from holdfast.errors import CallerError, ModelError
from holdfast.gate._hook_firing import Consider, Fired, Record
from holdfast.gate._hook_view import View, apply, guard
from holdfast.gate._refusals import hook_denied, redacted, try_again, withheld
from holdfast.gate.broker import Settled
from holdfast.gate.crossing import Crossing, Desk, Wish
from holdfast.gate.executor import Executor
from holdfast.gate.hooks import Hooks
from holdfast.gate.limits import check_request, check_response
from holdfast.gate.past import stored_json
from holdfast.gate.redact import Redactor
from holdfast.journal import Journal

_P = HookPoint
_RUNS = (_P.RUN_STARTING, _P.ON_RUN_CANCEL_REQUESTED, _P.BEFORE_RUN_COMPLETE, _P.AFTER_RUN_TERMINAL)

_AGENTS = (
    _P.RUN_STARTING,
    _P.BEFORE_CONTEXT_ASSEMBLY,
    _P.AFTER_CONTEXT_ASSEMBLY,
    _P.BEFORE_PROVIDER_PROJECTION,
    _P.BEFORE_MODEL_CALL,
    _P.ON_MODEL_DELTA,
    _P.AFTER_MODEL_CALL,
    _P.BEFORE_STRUCTURED_OUTPUT_VALIDATION,
    _P.AFTER_STRUCTURED_OUTPUT_VALIDATION,
    _P.BEFORE_RUN_COMPLETE,
    _P.BEFORE_COMPACTION,
    _P.AFTER_COMPACTION,
)

HOOKS = "holdfast:hooks"
"""The stream of what hooks did after a run was over. Nobody leases it."""


class Guards:
    """Asks the hooks at each point of the gate."""

    def __init__(self, journal: Journal, hooks: Hooks, redactor: Redactor) -> None:
        self._journal = journal
        self._hooks = hooks
        self._redactor = redactor
        self.agents: bool = any(hooks.any(point) for point in _AGENTS)
        """Whether hooks look at agents' runs, beyond their calls."""
        self.changes_calls: bool = hooks.any(_P.BEFORE_TOOL_CALL)
        """Whether hooks look at calls at all."""
        self.changes_results: bool = hooks.any(_P.AFTER_TOOL_CALL)
        """Whether hooks look at results at all."""

    async def before(
        self, crossing: Crossing, executor: Executor, arguments: dict[str, Json]
    ) -> tuple[dict[str, Json], Wish | None]:
        """The arguments as hooks leave them, and whether one wants a person asked."""
        capability = executor.capability

        def consider(view: View, response: HookResponse) -> View:
            guard(view, response)
            new = apply(view, response)
            if new.arguments is not view.arguments and new.arguments is not None:
                executor.check(new.arguments)
                check_request(capability.name, dict(new.arguments), capability.limits)
            return new

        view = View(
            summary=f"before tool call: {capability.name}",
            effect_id=crossing.effect_id,
            tool=capability.name,
            side_effect=capability.side_effect,
            risk=capability.harm,
            arguments=arguments,
        )
        fired = await self._fire(crossing, _P.BEFORE_TOOL_CALL, view, consider)
        final = dict(fired.view.arguments or {})
        return final, wish_of(fired, capability.harm)

    async def after(
        self, crossing: Crossing, executor: Executor, value: Json
    ) -> tuple[Json, ErrorObject | None]:
        """What the code is given in place of the result.

        An error when a hook wants the call made again, or when the result is withheld because one failed.
        """
        capability = executor.capability

        def consider(view: View, response: HookResponse) -> View:
            guard(view, response)
            new = apply(view, response)
            executor.check_result(new.result)
            check_response(capability.name, new.result, capability.limits)
            return new

        view = View(
            summary=f"after tool call: {capability.name}",
            effect_id=crossing.effect_id,
            tool=capability.name,
            side_effect=capability.side_effect,
            result=value,
        )
        try:
            fired = await self._fire(crossing, _P.AFTER_TOOL_CALL, view, consider)
        except ModelError as why:
            if why.code != "PERMISSION_DENIED":
                raise
            return None, redacted(self._redactor, withheld(crossing.name, why.message))
        if fired.wants_retry is not None:
            said = fired.wants_retry.payload
            summary = said.summary if isinstance(said, Note) else ""
            return None, try_again(crossing.name, summary)
        return fired.view.result, None

    async def before_asking(self, crossing: Crossing, view: View) -> View:
        """The question as hooks leave it. They raise the risk, never lower it."""
        if not self._hooks.any(_P.BEFORE_APPROVAL_REQUEST):
            return view
        fired = await self._fire(crossing, _P.BEFORE_APPROVAL_REQUEST, view, None)
        return fired.view

    async def after_asking(self, crossing: Crossing, view: View, settled: Settled) -> None:
        """Tell observers how asking ended."""
        if self._hooks.any(_P.AFTER_APPROVAL_DECISION):
            told = replace(view, summary=f"approval {settled.status.value}", terminal=True)
            await self._fire(crossing, _P.AFTER_APPROVAL_DECISION, told, None)

    # -- points of a run ------------------------------------------------------------------------------

    @property
    def runs(self) -> bool:
        """Whether hooks look at runs as such."""
        return any(self._hooks.any(point) for point in _RUNS)

    async def run_starts(self, desk: Desk) -> None:
        """Raises `PERMISSION_DENIED` when a hook does not let the run start."""
        await self._fire_run(desk, _P.RUN_STARTING, "run starting")

    async def run_cancelled(self, desk: Desk) -> None:
        """Tell hooks that the run is to be cancelled; they can't prevent it."""
        await self._fire_run(desk, _P.ON_RUN_CANCEL_REQUESTED, "run cancel requested")

    async def run_completes(self, desk: Desk) -> None:
        """Raises when a hook does not let the run complete."""
        await self._fire_run(desk, _P.BEFORE_RUN_COMPLETE, "before run complete")

    async def run_over(
        self,
        session_id: str,
        run_id: str,
        status: str,
        result: Callable[[], Json] | None = None,
    ) -> None:
        """Tell observers that a run is over; `result` gives those who may see it what came of it."""
        if not self._hooks.any(_P.AFTER_RUN_TERMINAL):
            return
        shown = result() if result is not None and self.sees(_P.AFTER_RUN_TERMINAL) else None
        await self._hooks.fire(
            _P.AFTER_RUN_TERMINAL,
            View(summary=f"run over: {status}", terminal=True, result=shown),
            run_id=run_id,
            session_id=session_id,
            subject=run_id,
            record=self._aside,
        )

    async def _aside(self, drafts: list[Draft]) -> None:
        """A run that is over takes no more records: what its observers did goes elsewhere."""
        rest = [draft.model_copy(update={"run_id": None}) for draft in drafts]
        await self._journal.append(HOOKS, rest, durable=False)

    async def _fire_run(self, desk: Desk, point: HookPoint, summary: str) -> None:
        if not self._hooks.any(point):
            return
        fired = await self.fire(desk, point, View(summary=summary), subject=desk.run_id)
        why = stopped(fired)
        if why is not None:
            raise why

    # -- any point ------------------------------------------------------------------------------------

    def any(self, point: HookPoint) -> bool:
        """Whether any hook is asked there."""
        return self._hooks.any(point)

    def sees(self, point: HookPoint) -> bool:
        """Whether any hook there is shown content."""
        shown = HookPrivacy.CONTENT_CAPTURE_ALLOWED
        return any(hook.spec.privacy is shown for hook in self._hooks.at(point))

    async def fire(
        self,
        desk: Desk,
        point: HookPoint,
        view: View,
        *,
        subject: str,
        consider: Consider | None = None,
        record: Record | None = None,
    ) -> Fired:
        """Ask the hooks of a point; who has answered on record about this subject is not asked again.

        `record` appends their records in place of the desk, where something else has to be recorded with them.
        """

        async def at_the_desk(drafts: list[Draft]) -> None:
            await desk.append(drafts, durable=False)

        return await self._hooks.fire(
            point,
            view,
            run_id=desk.run_id,
            session_id=desk.session_id,
            subject=subject,
            record=record or at_the_desk,
            consider=self._considered(consider),
            restored=await self.recorded(desk, point, subject),
        )

    def offer(self, desk: Desk, point: HookPoint, view: View, *, subject: str) -> None:
        """Tell the observers of a point without waiting for anybody."""
        drafts = self._hooks.offer(
            point, view, run_id=desk.run_id, session_id=desk.session_id, subject=subject
        )
        if drafts:
            desk.post(drafts)

    async def left_open(self, run_id: str) -> list[str]:
        """What a run would leave behind: questions nobody has answered, effects nobody knows the end of."""
        row: dict[str, Any] = await self._journal.row("runs", run_id) or {}
        return [*(row.get("pending_approvals") or ()), *(row.get("in_doubt") or ())]

    async def recorded(
        self, desk: Desk, point: HookPoint, subject: str
    ) -> Mapping[str, HookResponse]:
        """The answers about this subject that are on record, by hook, in their order."""
        found: dict[str, HookResponse] = {}
        for (about, at, hook_id), digest in desk.responses.items():
            if about == subject and at == point.value:
                said = await stored_json(self._journal, digest)
                found[hook_id] = HookResponse.model_validate(said)
        return found

    async def _fire(
        self, crossing: Crossing, point: HookPoint, view: View, consider: Consider | None
    ) -> Fired:
        subject = crossing.effect_id
        fired = await self.fire(crossing.desk, point, view, subject=subject, consider=consider)
        refusal = fired.denied
        if refusal is not None:
            said = refusal.payload
            code, summary = "hook.denied", ""
            if isinstance(said, Refusal):
                code, summary = said.code, said.summary
            raise hook_denied(crossing.name, fired.denied_by or "", code, summary)
        return fired

    def _considered(self, consider: Consider | None) -> Consider:
        """Answers are recorded, so one that holds a secret is refused before anything else is looked at."""

        def considered(view: View, response: HookResponse) -> View:
            said = response.model_dump(mode="json")
            if self._redactor.json(said) != said:
                raise CallerError(
                    "HOOK_INVALID",
                    "The hook's answer was refused: it holds the value of a secret.",
                    hint="Give the secret to the capability that needs it.",
                )
            return (consider or apply)(view, response)

        return considered


def wish_of(fired: Fired, least: Risk) -> Wish | None:
    """That a hook wants a person asked; `None`: none does. It is at `least` so risky."""
    found = fired.first(ResponseClass.REQUEST_APPROVAL)
    if found is None or found.response is None:
        return None
    said = found.response.payload
    why = said.summary if isinstance(said, ApprovalWanted) else ""
    return Wish(fired.view.risk or least, found.hook_id, why)


def stopped(fired: Fired) -> ModelError | None:
    """What the run ends with when a hook stopped it."""
    if fired.denied is None:
        return None
    said = fired.denied.payload
    why = said.summary or said.code if isinstance(said, Refusal) else ""
    return ModelError(
        "PERMISSION_DENIED",
        f"Hook `{fired.denied_by}` stopped the run: {why.removesuffix('.')}.",
        hint="Ask whoever runs this holdfast.",
    )

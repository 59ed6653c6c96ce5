"""When policy wants a person asked: a grant that makes it unnecessary, or the question."""

from __future__ import annotations

from holdfast.contracts import (
    ApprovalRequest,
    Body,
    Capability,
    Decision,
    Grant,
    Risk,
    Scope,
    Verdict,
    new_id,
)
from holdfast.gate._hook_view import View
from holdfast.gate.approvals import Approvals
from holdfast.gate.broker import Broker, Settled
from holdfast.gate.crossing import Crossing, Wish
from holdfast.gate.guards import Guards
from holdfast.gate.policy import Ruling

DAY_MS = 86_400_000

_RISKS = list(Risk)


class Asking:
    """Asks, unless somebody said before that it need not."""

    def __init__(
        self, approvals: Approvals, broker: Broker, guards: Guards, *, timeout_ms: int = DAY_MS
    ) -> None:
        self.approvals = approvals
        self.broker = broker
        self._guards = guards
        self.timeout_ms = timeout_ms
        """How long people have, where no rule says otherwise."""

    async def granted(
        self, crossing: Crossing, risk: Risk, capability: Capability, body: Body
    ) -> Grant | None:
        """The grant that covers this call, if there is one. A grant for what has changed is ended."""
        if risk is Risk.CRITICAL:
            return None
        now = self.approvals.now()
        for grant in await self.approvals.grants(crossing.desk.session_id):
            if grant.tool != tool_of(crossing, capability):
                continue
            if grant.capability != capability.digest:
                await self._end(crossing, grant, "capability_changed")
            elif grant.expires_at is not None and grant.expires_at <= now:
                await self._end(crossing, grant, "expired")
            elif _covers(grant, risk, body.ref.digest):
                return grant
        return None

    async def _end(self, crossing: Crossing, grant: Grant, reason: str) -> None:
        await self.approvals.revoke(grant.id, reason=reason, pen=crossing.desk.pen)

    async def ask(
        self,
        crossing: Crossing,
        ruling: Ruling,
        capability: Capability,
        body: Body,
        request: str,
        *,
        risk: Risk,
        wanted: Wish | None = None,
    ) -> Settled:
        """Ask a person, and wait; or go on waiting where this was asked before."""
        timeout = ruling.timeout_ms or self.timeout_ms
        summary = _summary(capability, ruling, wanted)
        view = View(
            summary=summary,
            effect_id=crossing.effect_id,
            tool=capability.name,
            side_effect=capability.side_effect,
            risk=risk,
            timeout_ms=timeout,
            refs=(body.ref.digest,),
        )
        if crossing.past is None or crossing.past.approval is None:
            view = await self._guards.before_asking(crossing, view)
        said = view.risk or risk
        question = ApprovalRequest(
            id=new_id("apr"),
            effect_id=crossing.effect_id,
            dispatch_id=f"{crossing.effect_id}_ask",
            tool=tool_of(crossing, capability),
            arguments=body.ref.digest,
            request=request,
            ordinal=crossing.number,
            line=crossing.line,
            call_id=crossing.call_id,
            beside=crossing.beside,
            capability=capability.digest,
            side_effect=capability.side_effect,
            risk=said,
            summary=view.message or summary,
            rule=ruling.rule_id,
            requested_by=crossing.desk.actor,
            allowed=_offered(said),
            deadline=self.approvals.now() + (view.timeout_ms or timeout),
        )
        settled = await self.broker.ask(crossing, question, body)
        await self._guards.after_asking(crossing, view, settled)
        return settled


def tool_of(crossing: Crossing, capability: Capability) -> str:
    """What a person is asked about; consent to what one surface wants is none to what another does."""
    return capability.name if crossing.beside is None else crossing.name


def _offered(risk: Risk) -> tuple[Decision, ...]:
    """What is critical is asked about each time."""
    if risk is Risk.CRITICAL:
        return (Decision.APPROVED, Decision.DENIED)
    return (Decision.APPROVED, Decision.APPROVED_FOR_SESSION, Decision.DENIED)


def _covers(grant: Grant, risk: Risk, arguments: str) -> bool:
    if _RISKS.index(risk) > _RISKS.index(grant.risk):
        return False
    return grant.scope is Scope.ANY or grant.arguments == arguments


def _summary(capability: Capability, ruling: Ruling, wanted: Wish | None) -> str:
    """One line without the arguments, which are shown beside it: what it does, and who wants it asked, and why."""
    about = capability.description.strip().split("\n", 1)[0]
    line = f"{capability.name}: {about}" if about else capability.name
    asks = [ruling.reason[:200]] if wanted is None or ruling.verdict is Verdict.ASK else []
    if wanted is not None:
        asks.append(f"Hook `{wanted.hook}` asks: {wanted.why[:200]}")
    return f"{line[:200]} ({capability.side_effect.value}; {' '.join(asks)})"

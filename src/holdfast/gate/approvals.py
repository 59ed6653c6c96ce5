"""The inbox: what waits for a person, and the answers.

A request is recorded in its session's stream by whoever runs the session. An answer may come from any process, at
any time: it is recorded in a stream of its own, and the journal refuses it, in the transaction that would record it,
unless the request is pending, in time, and allows that answer. An answer that does not count is recorded as such.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import anyio

from holdfast.contracts import (
    ApprovalDecision,
    ApprovalStatus,
    ApprovalView,
    Body,
    Decision,
    Draft,
    Grant,
    Json,
    Privacy,
    Retention,
    parse,
)
from holdfast.contracts.payload import (
    ApprovalEnded,
    ApprovalRefused,
    ApprovalResponded,
    GrantRevoked,
    PlanDecided,
)
from holdfast.errors import CallerError, Conflict, NotFound
from holdfast.gate.forms import check_content, required
from holdfast.gate.past import stored_json
from holdfast.journal import Journal
from holdfast.journal.pen import Pen

ANSWERS = "holdfast:approvals"
"""The stream of answers. Nobody leases it, so answering never waits for a run."""

_POLL = 0.05
_SHOWN = 80


class Approvals:
    """What waits for a person. `hf.approvals` of an open runtime."""

    def __init__(
        self,
        journal: Journal,
        *,
        now: Callable[[], int] | None = None,
        redact: Callable[[str], str] = str,
    ) -> None:
        """`redact` takes secrets out of what people write."""
        self._journal = journal
        self.now = now or _now
        self._redact = redact

    async def list(
        self,
        *,
        status: str = "pending",
        after: str = "",
        limit: int = 100,
        newest: bool = False,
    ) -> list[ApprovalView]:
        """Those that are `pending`, `decided`, or `all`, by id, with `newest` back in time; ids sort by time."""
        await self.expire()
        tag = None if status == "all" else status
        rows = await self._journal.rows(
            "approvals", tag=tag, after=after, limit=limit, newest=newest
        )
        return [await self._view(row.value) for row in rows]

    async def show(self, approval_id: str) -> ApprovalView:
        """One of them."""
        return await self._view(await self._row(approval_id))

    async def decide(
        self,
        approval_id: str,
        decision: Decision | str,
        *,
        actor: str = "operator",
        reason_code: str | None = None,
        reason: str | None = None,
        via: str | None = None,
        content: Json = None,
    ) -> ApprovalView:
        """Answer; `content` is what was filled in, where there is a form.

        Raises `APPROVAL_CLOSED` or `DECISION_REFUSED`, which is on record then, and `INVALID_ARGUMENT` for content
        that does not fit the form, which is not.
        """
        said = parse(
            ApprovalDecision,
            {
                "decision": decision,
                "reason_code": reason_code,
                "reason": self._redact(reason) if reason else reason,
                "actor": actor,
                "via": via,
            },
        )
        try:
            row = await self._row(approval_id)
        except NotFound:
            await self._refuse(approval_id[:_SHOWN], said, "approval.unknown_request")
            raise
        if _answers_itself(row, actor):
            await self._refuse(approval_id, said, "approval.extension_self_response")
            raise CallerError(
                "DECISION_REFUSED",
                f"`{actor}` asked for approval `{approval_id}` and can't answer it.",
                hint="Somebody else has to.",
            )
        try:
            await self._journal.append(ANSWERS, [self._answer(row, said, content)])
        except CallerError as why:
            if why.code != "ILLEGAL_RECORD":
                raise
            raise await self._does_not_count(approval_id, said, why) from None
        return await self.show(approval_id)

    def _answer(self, row: dict[str, Any], said: ApprovalDecision, content: Json) -> Draft:
        """The record of an answer. What was filled in is for nobody but who asked."""
        body: Body | None = None
        if row["status"] == "pending":
            body = _filled(row, said.decision, _cleaned(content, self._redact))
        actor = said.actor or "holdfast"
        if body is None:
            return Draft.of(ApprovalResponded(id=row["id"], decision=said), actor=actor)
        said = said.model_copy(update={"answer": body.ref.digest})
        answer = ApprovalResponded(id=row["id"], decision=said)
        return Draft.of(answer, run_id=row["run_id"], actor=actor, bodies=(body,))

    async def end(self, approval_id: str, status: ApprovalStatus, reason_code: str) -> bool:
        """End a request without an answer; False when it was answered or ended before."""
        said = ApprovalEnded(id=approval_id, status=status, reason_code=reason_code)
        try:
            await self._journal.append(ANSWERS, [Draft.of(said)])
        except CallerError as why:
            if why.code != "ILLEGAL_RECORD":
                raise
            return False
        return True

    async def expire(self) -> int:
        """End every request whose time has run out; how many."""
        now, count = self.now(), 0
        for row in await self._journal.rows("approvals", tag="pending", limit=1_000_000):
            deadline = row.value["deadline"]
            if isinstance(deadline, int) and deadline < now:
                count += await self.end(row.key, ApprovalStatus.TIMED_OUT, "approval.timeout")
        return count

    async def status(self, approval_id: str) -> dict[str, Any]:
        """Where a request stands now; one whose time has run out is ended first."""
        row = await self._row(approval_id)
        deadline = row["deadline"]
        if row["status"] == "pending" and isinstance(deadline, int) and deadline < self.now():
            await self.end(approval_id, ApprovalStatus.TIMED_OUT, "approval.timeout")
            row = await self._row(approval_id)
        return row

    async def ended(self, approval_id: str) -> bool:
        """Whether it is not pending any more."""
        return (await self.status(approval_id))["status"] != "pending"

    async def wait(self, approval_id: str) -> dict[str, Any]:
        """Return once it is not pending any more."""
        while True:
            row = await self.status(approval_id)
            if row["status"] != "pending":
                return row
            await anyio.sleep(_POLL)

    async def decide_plan(
        self,
        plan_id: str,
        decision: Decision | str,
        *,
        actor: str = "operator",
        reason: str | None = None,
        via: str | None = None,
    ) -> dict[str, Any]:
        """Approve or deny a plan as a whole; an approved one is good for one run of its code."""
        words = self._redact(reason) if reason else reason
        said = parse(
            ApprovalDecision, {"decision": decision, "reason": words, "actor": actor, "via": via}
        )
        if said.decision is Decision.APPROVED_FOR_SESSION:
            raise CallerError(
                "DECISION_REFUSED",
                "A plan is approved for one run, not for a session.",
                hint="Answers that count: approved, denied.",
            )
        draft = Draft.of(PlanDecided(id=plan_id, decision=said), actor=actor)
        try:
            await self._journal.append(ANSWERS, [draft])
        except CallerError as why:
            if why.code != "ILLEGAL_RECORD":
                raise
            raise await self._plan_closed(plan_id) from None
        return await self._journal.row("plans", plan_id) or {}

    async def plans(self, *, after: str = "", limit: int = 100) -> list[dict[str, Any]]:
        """Plans that wait for a decision, by id."""
        rows = await self._journal.rows("plans", tag="pending", after=after, limit=limit)
        return [row.value for row in rows]

    async def _plan_closed(self, plan_id: str) -> CallerError:
        row = await self._journal.row("plans", plan_id)
        if row is None:
            return NotFound(
                "NOT_FOUND", f"There is no plan `{plan_id[:80]}`.", hint="A dry run makes one."
            )
        return Conflict(
            "APPROVAL_CLOSED",
            f"Plan `{plan_id}` is `{row['status']}` already{_by(row)}; your answer does not count.",
            hint="A new dry run makes a new plan.",
        )

    # -- grants ---------------------------------------------------------------------------------------

    async def grants(self, session_id: str) -> list[Grant]:
        """The grants in force in a session."""
        rows = await self._journal.rows("grants", tag=f"active:{session_id}", limit=10_000)
        return [Grant.model_validate(row.value) for row in rows]

    async def in_force(self, grant_id: str) -> bool:
        """Whether a grant is neither revoked nor expired."""
        row = await self._journal.row("grants", grant_id)
        if row is None or row["status"] != "active":
            return False
        expires = Grant.model_validate(row).expires_at
        return expires is None or expires > self.now()

    async def revoke(
        self, grant_id: str, *, reason: str = "revoked", pen: Pen | None = None
    ) -> None:
        """End a grant, at once and everywhere."""
        draft = Draft.of(GrantRevoked(id=grant_id, reason=reason))
        try:
            if pen is not None:
                await pen.append([draft], durable=True)
            else:
                await self._journal.append(ANSWERS, [draft])
        except CallerError as why:
            if why.code != "ILLEGAL_RECORD":
                raise
            raise NotFound(
                "NOT_FOUND",
                f"There is no grant `{grant_id}` in force.",
                hint="`holdfast approvals grants SESSION` lists those there are.",
            ) from None

    # -- inside ---------------------------------------------------------------------------------------

    async def _row(self, approval_id: str) -> dict[str, Any]:
        row = await self._journal.row("approvals", approval_id)
        if row is None:
            raise NotFound(
                "NOT_FOUND",
                f"There is no approval `{approval_id[:_SHOWN]}`.",
                hint="`holdfast approvals list` shows what waits.",
            )
        return row

    async def _view(self, row: dict[str, Any]) -> ApprovalView:
        try:
            arguments = await stored_json(self._journal, str(row["arguments"]))
        except CallerError:
            arguments = None  # the body was erased with its session
        digest = row["arguments"]
        return ApprovalView.model_validate(
            {**row, "arguments": arguments, "arguments_digest": digest}
        )

    async def _does_not_count(
        self, approval_id: str, said: ApprovalDecision, why: CallerError
    ) -> CallerError:
        """Record an answer that does not count; the refusal for whoever gave it."""
        row = await self.status(approval_id)
        if row["status"] != "pending":
            await self._refuse(approval_id, said, "approval.late_response")
            return Conflict(
                "APPROVAL_CLOSED",
                f"Approval `{approval_id}` is `{row['status']}` already{_by(row)};"
                " your answer does not count.",
                hint="`holdfast approvals show` tells who decided, and when.",
            )
        await self._refuse(approval_id, said, "approval.decision_not_allowed")
        allowed = ", ".join(map(str, row["allowed"]))
        return CallerError(
            "DECISION_REFUSED",
            f"Approval `{approval_id}` can't be `{said.decision.value}`; it is still pending.",
            hint=f"Answers that count: {allowed}.",
        )

    async def _refuse(self, approval_id: str, said: ApprovalDecision, code: str) -> None:
        refused = ApprovalRefused(id=approval_id, decision=said, reason_code=code)
        await self._journal.append(ANSWERS, [Draft.of(refused, actor=said.actor or "holdfast")])


def _by(row: dict[str, Any]) -> str:
    """Who has decided, where somebody has, and how they were known."""
    said = row.get("decision")
    if said is None or said.get("actor") is None:
        return ""
    return f", by {said['actor']}" + (f" ({said['via']})" if said.get("via") else "")


def _filled(row: dict[str, Any], decision: Decision, content: Json) -> Body | None:
    """What was filled in, if it is wanted and fits; raises `INVALID_ARGUMENT`."""
    form: dict[str, Json] | None = row.get("form")
    if decision is not Decision.APPROVED or form is None:
        if content is None:
            return None
        raise CallerError(
            "INVALID_ARGUMENT",
            f"Approval `{row['id']}` takes no content with `{decision.value}`.",
            hint="Only `approved` to a question that has a form does.",
        )
    if content is None and (missing := required(form)):
        raise CallerError(
            "INVALID_ARGUMENT",
            f"Approval `{row['id']}` is a question, and needs: {', '.join(missing)[:200]}.",
            hint="Give them as `content`; on the command line, with `--field name=value`.",
        )
    # Kept here until its run is over; the run keeps it for as long as its session is there.
    return Body.of(
        check_content(form, {} if content is None else content),
        role="answer",
        mime="application/json",
        privacy=Privacy.SENSITIVE,
        retention=Retention.RUN_SCOPED,
    )


def _cleaned(content: Json, redact: Callable[[str], str]) -> Json:
    if isinstance(content, str):
        return redact(content)
    if isinstance(content, list):
        return [_cleaned(one, redact) for one in content]
    if isinstance(content, dict):
        return {name: _cleaned(value, redact) for name, value in content.items()}
    return content


def _answers_itself(row: dict[str, Any], actor: str) -> bool:
    asked_by = row.get("requested_by")
    return isinstance(asked_by, str) and asked_by.startswith("extension:") and asked_by == actor


def _now() -> int:
    return time.time_ns() // 1_000_000

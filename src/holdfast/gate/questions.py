"""What a call asks people once it was let through: before it is made (`NeedsAnswer`), or while it is under way.

A question is an item of the inbox like any request for consent, with a form or an address, and it is on disk before
anybody is asked. Of one that is asked before anything was done, the run parks, and the answer is settled in one append
with the next attempt: it is used once or not at all. While one is asked of a call under way, the call's time stands
still. If its process dies, the question stays in the inbox, and the answer is there for whoever makes the call again.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.contracts import (
    ApprovalRequest,
    ApprovalStatus,
    Body,
    CapabilityLimits,
    Draft,
    EffectResult,
    EffectStatus,
    ErrorObject,
    Privacy,
    Reserved,
    canonical_json,
    digest_json,
)
from holdfast.contracts.approval import Asks
from holdfast.contracts.payload import ApprovalSettled
from holdfast.errors import InternalError, ModelError
from holdfast.gate._refusals import cancelled
from holdfast.gate.approvals import Approvals
from holdfast.gate.asking import Asking
from holdfast.gate.broker import Settled, ended, settlement
from holdfast.gate.budgets import settle_all
from holdfast.gate.crossing import Desk
from holdfast.gate.executor import Answer, Keeping, Question
from holdfast.gate.forms import BadForm, check_form
from holdfast.gate.past import Past, stored_json
from holdfast.gate.redact import Redactor
from holdfast.journal import Journal

MAX_MESSAGE = 2000
"""Characters of a question that a person is shown."""

MAX_STATE = 1 << 20
"""Bytes of what an asker gets back with the answer."""

KEPT_ROOM = 8
"""So many times as long as its result may be is what a call may keep beside it."""

_KEY = 200
_URL = 2000
_S = ApprovalStatus


class Questions:
    """Asks on behalf of calls. One for a gate."""

    def __init__(self, journal: Journal, asking: Asking, redactor: Redactor) -> None:
        self._journal = journal
        self._redactor = redactor
        self.approvals: Approvals = asking.approvals
        self.broker = asking.broker
        self.timeout_ms = asking.timeout_ms

    def shown(self, question: Question) -> Question:
        """A question as people are shown it, and as it is recorded: without secrets, and not too long."""
        clean = self._redactor
        message = clean.text(question.message)[:MAX_MESSAGE]
        form = clean.json(question.form) if question.form is not None else None
        url = clean.text(question.url) if question.url is not None else None
        return Question(question.asks, message, form if isinstance(form, dict) else None, url)

    def keeping(self, limits: CapabilityLimits) -> Keeping:
        """What one attempt may keep beside its result."""
        return Keeping(limits.max_response_bytes * KEPT_ROOM, self._redactor.bytes_)

    def check(self, name: str, question: Question) -> tuple[Body, ...]:
        """What its asker needs back, as a body; raises what the capability is told when it can't be asked."""
        if question.asks is Asks.CONSENT:
            raise InternalError(f"`{name}` asks for consent, which is the gate's to ask for.")
        if len(question.key) > _KEY:
            raise unaskable(name, f"its key is longer than {_KEY} characters")
        url = question.url
        if url is not None and (len(url) > _URL or not url.startswith(("https://", "http://"))):
            raise unaskable(name, "its address is not one of the web, or too long")
        if question.form is not None:
            try:
                check_form(question.form)
            except BadForm as why:
                if why.secret:
                    raise _asks_secret(name, str(why)) from None
                raise unaskable(name, f"its form can't be used: {why}") from None
        if question.state is None:
            return ()
        data = canonical_json(question.state)
        if len(data) > MAX_STATE:
            raise unaskable(name, f"what it needs back is longer than {MAX_STATE} bytes")
        if self._redactor.json(question.state) != question.state:
            raise _asks_secret(name, "what it needs back holds the value of a secret")
        mime, kind = "application/json", Privacy.SENSITIVE
        return (Body.of(data, role="question_state", mime=mime, privacy=kind),)

    async def answer(
        self, request: ApprovalRequest, end: Settled
    ) -> tuple[Answer, tuple[Body, ...]]:
        """What a person said, as the capability gets it, and what was filled in as a body."""
        state = await stored_json(self._journal, request.state) if request.state else None
        said = end.decision
        if not end.releases:
            # Who could not be asked, or did not answer in time, has not said no.
            no = end.status is _S.DENIED and said is not None
            return Answer("decline" if no else "cancel", None, state), ()
        if said is None or said.answer is None:
            return Answer("accept", None, state), ()
        data = await self._journal.content(said.answer)
        body = Body.of(data, role="answer", mime="application/json", privacy=Privacy.SENSITIVE)
        return Answer("accept", await stored_json(self._journal, said.answer), state), (body,)

    async def let_go(
        self, desk: Desk, requests: Sequence[ApprovalRequest], besides: Sequence[Past] = ()
    ) -> None:
        """Nobody need answer these any more, and nobody waits for what was made on behalf of a call."""
        asked = [*requests, *(one for past in besides for one in past.unanswered)]
        drafts = await withdrawn(self.approvals, asked, desk.run_id)
        for past in besides:
            drafts += left_behind(past, desk.run_id)
            held = past.intent.reserved if past.intent is not None else None
            if held is not None:
                settle_all(desk.purses, held, held)
        await desk.append(drafts, durable=False)


def settled_in(drafts: Sequence[Draft]) -> ApprovalSettled:
    """The settlement among these records."""
    return ApprovalSettled.model_validate(drafts[-1].payload)


async def withdrawn(
    approvals: Approvals, requests: Sequence[ApprovalRequest], run_id: str
) -> list[Draft]:
    """End requests that nobody need answer any more; the records that say so."""
    drafts: list[Draft] = []
    for one in requests:
        await approvals.end(one.id, _S.CANCELLED, "approval.cancelled")
        drafts += settlement(one, ended(await approvals.status(one.id)), run_id)
    return drafts


def left_behind(past: Past, run_id: str) -> list[Draft]:
    """The end of an effect that nobody takes up: what was set aside for it counts as used."""
    if past.intent is None or past.answered:
        return []
    return [_cancelled(past, f"{past.name} was left behind", run_id)]


def never_heard(past: Past, run_id: str) -> list[Draft]:
    """The end of a question to a model whose process died when its run ended: it may have been answered."""
    return left_behind(past, run_id) if past.asks_model else []


def never_made(past: Past, run_id: str) -> list[Draft]:
    """The end of a call that waited for an answer when its run ended: nothing was done."""
    if past.question is None or past.intent is None or past.answered:
        return []
    return [_cancelled(past, f"{past.name} was not made", run_id, spent=Reserved(calls=0))]


def _cancelled(past: Past, summary: str, run_id: str, spent: Reserved | None = None) -> Draft:
    result = EffectResult(
        effect_id=past.effect_id,
        terminal_status=EffectStatus.CANCELLED,
        error=ErrorObject.of(cancelled(past.name)),
        attempt=past.attempt if past.attempt > 1 else None,
        spent=spent,
        redacted_summary=summary,
    )
    return Draft.of(result, run_id=run_id)


def same_for(shown: Question) -> str:
    """The same for the same question."""
    return digest_json([shown.asks.value, shown.message, shown.form, shown.url])


def unaskable(name: str, why: str) -> ModelError:
    """The refusal of a question that can't be shown to anybody."""
    return ModelError(
        "TOOL_ERROR",
        f"`{name}` has a question that nobody can be asked: {why}.",
        hint="Do it another way, or go without.",
    )


def _asks_secret(name: str, why: str) -> ModelError:
    return ModelError(
        "PERMISSION_DENIED",
        f"`{name}` asks a person for a secret in a form: {why}.",
        hint="What is filled in goes on record. Secrets are given by signing in (`holdfast auth login`) or in the"
        " configuration of the tool, never in a form.",
    )

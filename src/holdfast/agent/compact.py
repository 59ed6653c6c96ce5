"""A conversation that gets too long is told in short from some point back. The originals stay in the journal.

What must not be forgotten is not left to the summary: the instructions are sent with every question anyway; the goal
of the run, the effects and approvals that are open, and what somebody pinned are put beside the summary word for word.
A call and its result are never split: the part that stays begins with an answer of the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.agent.history import history_of
from holdfast.agent.keeping import as_kept, as_text, kept_before
from holdfast.agent.pins import pins_of
from holdfast.agent.transcript import COMPACTED, Transcript
from holdfast.agent.view import cut
from holdfast.agent.work import Work
from holdfast.contracts import Body, Draft
from holdfast.contracts.agent import ContextCompacted, ContextRestored
from holdfast.contracts.message import AssistantMessage, Message, UserMessage
from holdfast.contracts.model import ModelRequest, ModelSettings
from holdfast.errors import HoldfastError, OperatorError
from holdfast.shell.session import Session

if TYPE_CHECKING:
    from holdfast.agent.model_call import Asker

DEFAULT_TOKENS = 100_000
"""From how many tokens on, when nobody knows how many the model takes."""

_SHARE = 0.8
_GOAL = 4000
"""Characters of the goal that are kept word for word."""
_TOO_LONG = "\0"
"""In place of a summary: what is to be summed up does not fit into the model."""
_PIECE = 2000
"""Bytes of each message that go into a summary of a conversation that is too long to be sent."""

PROMPT = (
    "Summarise the conversation so far for yourself: you will go on from your summary alone. Keep the task, what was"
    " decided and why, what was done (with names, ids, numbers and file paths word for word), what failed, what is"
    " still to do. Do not answer the user. Do not invent anything."
)
"""What the model is told when it is to sum up."""


class Compaction:
    """Of one run."""

    def __init__(self, work: Work, asker: Asker) -> None:
        self._work = work
        self._asker = asker
        self._tried: int | None = None

    async def check(
        self, *, left_ms: int | None, force: bool = False, wanted: bool = False
    ) -> bool:
        """Shorten the conversation if it is due, or `wanted`; whether it was. A failure leaves it as it is.

        With `force` because the model says that it is too long: then less of it stays.
        """
        work = self._work
        how = work.spec.compact
        if how is None or not (force or wanted or self.due()):
            return False
        keep = _tail(work.transcript.messages, 1 if force else how.keep_turns)
        if keep is None:
            return False
        self._tried = work.transcript.answers  # also when it fails: not at every question again
        told = work.transcript.messages[: len(work.transcript.messages) - keep]
        kept = await self._kept(told)
        summary = await self._told([_cut(one) for one in told] if force else told, left_ms)
        if not summary:
            return False
        summary = f"{summary}\n\n{await self._pinned()}".strip()
        await self._apply(f"{summary}\n\n{kept}".strip(), keep)
        if work.guards.active and await self._audited():
            raise OperatorError(
                "REPLAY_MISMATCH",
                "The shortened conversation is not what the journal says it is.",
                hint="Run `holdfast journal verify`; resumed, the run goes on from the journal.",
            )
        return True

    async def _kept(self, told: Sequence[Message]) -> str:
        """What hooks want kept word for word, now or when it was shortened before."""
        work = self._work
        texts = kept_before(told)
        if work.guards.active:
            # An earlier summary is nobody's words; what was kept in it is kept anyway.
            skip = int(work.transcript.shortened)
            first = work.transcript.count - len(work.transcript.messages) + 1 + skip
            said, context = told[skip:], work.transcript.digest
            for place in sorted(await work.guards.before_compaction(context, said, first)):
                texts.append(work.gate.redactor.text(as_text(said[place])))
        return as_kept(texts)

    async def _audited(self) -> bool:
        """Whether a hook wants it held against the journal, and it is something else there."""
        work = self._work
        if not await work.guards.after_compaction(work.transcript.digest, work.transcript.messages):
            return False
        await work.desk.settle()
        found = await history_of(work.journal, work.session.id)
        return found.transcript.digest != work.transcript.digest

    def due(self) -> bool:
        """Whether it has become too long."""
        transcript, how = self._work.transcript, self._work.spec.compact
        if how is None:
            return False
        if max(transcript.tokens, transcript.reported) < (how.at_tokens or self._threshold()):
            return False
        since = self._tried if self._tried is not None else transcript.settled_at
        return transcript.answers > 0 and transcript.answers - since >= how.min_turns_between

    def _threshold(self) -> int:
        window = self._work.model.profile.context_tokens
        return int(window * _SHARE) if window else DEFAULT_TOKENS

    async def _told(
        self, told: Sequence[Message], left_ms: int | None, halves: int = 3
    ) -> str | None:
        """A summary; of what is too long for one, a summary of its first half and of the rest."""
        found = await self._summary(told, left_ms)
        middle = _middle(told)
        if found is not _TOO_LONG or middle is None or not halves:
            return None if found is _TOO_LONG else found
        first = await self._told(told[:middle], left_ms, halves - 1)
        if not first:
            return None
        so_far = UserMessage(text=f"{COMPACTED}\n{first}", notice=True)
        return await self._told([so_far, *told[middle:]], left_ms, halves - 1)

    async def _summary(self, told: Sequence[Message], left_ms: int | None) -> str | None:
        work, how = self._work, self._work.spec.compact
        assert how is not None
        request = ModelRequest(
            messages=[*told, UserMessage(text=PROMPT, notice=True)],
            instructions=work.spec.instructions.strip(),
            settings=ModelSettings(max_tokens=how.max_summary_tokens),
        )
        question, outcome = await self._asker.aside(request, left_ms=left_ms)
        if isinstance(outcome, HoldfastError):
            return None
        if outcome.error is not None:
            return _TOO_LONG if outcome.error.code == "MODEL_CONTEXT_EXCEEDED" else None
        answer = question.answer
        if answer is None or (question.lowered and answer.finish == "length"):
            return None  # a budget that is nearly used up is no reason to forget half of it
        return answer.message.text.strip()

    async def _pinned(self) -> str:
        """What must not be forgotten, word for word."""
        work = self._work
        lines = [f"The user asked: {goal[:_GOAL]}" for goal in work.transcript.goals]
        run = await work.journal.row("runs", work.run_id) or {}
        for approval in run.get("pending_approvals") or ():  # type: ignore[union-attr]
            lines.append(f"Waiting for approval: {approval}")
        for effect in run.get("in_doubt") or ():  # type: ignore[union-attr]
            lines.append(f"Nobody knows whether this happened: {effect}")
        for pin in await pins_of(work.journal, work.session.id):
            lines.append(f"Pinned: {pin.text}")
        return "\n".join(lines)

    async def _apply(self, summary: str, keep: int) -> None:
        work = self._work
        transcript = work.transcript
        before, tokens = transcript.digest, transcript.tokens
        summary = work.gate.redactor.text(summary)
        body = Body.of(summary.encode(), role="summary", mime="text/plain")
        upto = transcript.count - keep
        transcript.compact(summary, keep)
        said = ContextCompacted(
            summary=body.ref.digest,
            upto=upto,
            before=before,
            after=transcript.digest,
            tokens_before=tokens,
            tokens_after=transcript.tokens,
        )
        await work.desk.append([Draft.of(said, run_id=work.run_id, bodies=(body,))], durable=False)


def _tail(messages: list[Message], turns: int) -> int | None:
    """How many messages at the end stay: so many answers with their results. `None`: there is nothing to shorten."""
    starts = [i for i, one in enumerate(messages) if isinstance(one, AssistantMessage)]
    if len(starts) <= turns:
        return None
    keep = len(messages) - starts[-turns]
    # A question that came after the last answer that goes must stay where it is said.
    return keep if keep < len(messages) - 1 else None


def _middle(messages: Sequence[Message]) -> int | None:
    """A place in the middle where an answer begins: no call is split from its result there."""
    starts = [i for i, one in enumerate(messages) if i and isinstance(one, AssistantMessage)]
    return min(starts, key=lambda i: abs(i - len(messages) // 2), default=None)


def _cut(message: Message) -> Message:
    """A message as a model is shown it that can't take all of the conversation in."""
    if isinstance(message, AssistantMessage):
        return message
    return message.model_copy(update={"text": cut(message.text, _PIECE, "too long to repeat")})


async def restore(session: Session, *, wait_ms: int) -> Transcript:
    """Tell a session's conversation at length again; one that is told at length already stays as it is."""
    history = await history_of(session.services.journal, session.id)
    transcript = history.transcript
    if not transcript.shortened:
        return transcript
    before = transcript.digest
    transcript.restore(history.originals)
    said = ContextRestored(before=before, after=transcript.digest)
    await session.record([Draft.of(said)], wait_ms=wait_ms)
    return transcript

"""The questions of one call, and what is made on its behalf while it is under way."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic

import anyio

from holdfast.contracts import (
    ApprovalRequest,
    ApprovalStatus,
    Body,
    Decision,
    Draft,
    EffectKind,
    Json,
    Provenance,
    Reserved,
    digest_json,
    new_id,
)
from holdfast.errors import HoldfastError, ModelError
from holdfast.gate._refusals import cancelled
from holdfast.gate.asking import tool_of
from holdfast.gate.broker import Settled, settlement
from holdfast.gate.crossing import Crossing, Mood
from holdfast.gate.executor import Answer, Context, Executor, Question
from holdfast.gate.passing import Passing
from holdfast.gate.past import Asked, Past
from holdfast.gate.questions import Questions, same_for, settled_in, unaskable

MAX_QUESTIONS = 10
"""Questions that one call may have."""

MAX_BESIDE = 100
"""Effects that may be made on behalf of one call."""

_TAKEN = (ApprovalStatus.APPROVED, ApprovalStatus.DENIED)
"""Ends that are an answer, for whoever asks the same again."""


@dataclass(slots=True)
class Pause:
    """Lets the time of a call stand still while a person is asked on its behalf."""

    mood: Callable[[Mood], None]
    """Told that the call asks, or works again."""
    scope: anyio.CancelScope | None
    """What ends the call when its time is up."""
    waited: float = 0.0
    """Seconds that do not count."""
    _depth: int = 0
    _left: float = math.inf
    _since: float = 0.0

    def stop(self) -> None:
        """Somebody is asked."""
        self._depth += 1
        if self._depth == 1:
            self._since = monotonic()
            if self.scope is not None:
                self._left = self.scope.deadline - anyio.current_time()
                self.scope.deadline = math.inf
            self.mood("asking")

    def go(self) -> None:
        """Somebody has answered, or need not."""
        self._depth -= 1
        if self._depth == 0:
            self.waited += monotonic() - self._since
            if self.scope is not None:
                self.scope.deadline = anyio.current_time() + self._left
            self.mood("working")


@dataclass(slots=True)
class Inquiry:
    """The questions of one call. To its capability this is `Context.call`, which it hands back unopened.

    Every call has one and hardly any asks, so it is made of what costs nothing. It does not know the attempt that it
    belongs to: an attempt knows it, and two that know each other are left to the garbage collector.
    """

    questions: Questions
    crossing: Crossing
    passing: Passing
    scope: anyio.CancelScope | None = None
    """What ends the attempt under way when its time is up."""
    pause: Pause | None = None
    """Lets that time stand still; `None`: nobody was asked in this attempt."""
    asked: Sequence[Asked] = ()
    """All of them, those of earlier processes included."""
    answers: dict[str, Answer] | None = None
    """By key, of those that had to be answered before anything was done."""
    failure: HoldfastError | None = None
    """Why asking was not possible, where that is not for the capability to see."""
    over: bool = False
    """Whether the call has ended: nobody is asked on its behalf any more."""
    made: int = 0
    """How many effects were made on its behalf."""
    busy: dict[anyio.CancelScope, anyio.Event] | None = None
    """What is done on its behalf right now, perhaps by another task: what ends it, and that it has ended."""
    _again: Sequence[Asked] = ()
    """Of this attempt: earlier questions that may be asked again."""
    _taken: AbstractSet[str] = frozenset()
    """Earlier effects on its behalf that were taken up."""

    # -- before it is made ----------------------------------------------------------------------------

    def context(self, attempt: int) -> Context:
        """What the capability may know in its next attempt."""
        desk = self.crossing.desk
        return Context(
            self.crossing.effect_id,
            attempt,
            desk.session_id,
            desk.run_id,
            actor=desk.actor,
            answers=self.answers or {},
            ask=self.ask,
            call=self,
            kept=self.questions.keeping(self.passing.limits),
        )

    def begin(self, scope: anyio.CancelScope) -> None:
        """An attempt begins."""
        self.over, self.scope, self.pause = False, scope, None
        if self.asked:
            self._again = [one for one in self.asked if one.request.during]

    async def stop(self) -> None:
        """End what is done on its behalf: an attempt is `over`, and something else is to be recorded about the call."""
        busy = self.busy or {}
        ended = [*busy.values()]
        for scope in [*busy]:
            scope.cancel()
        with anyio.CancelScope(shield=True):
            for one in ended:
                await one.wait()

    @property
    def waited(self) -> float:
        """Seconds of this attempt that do not count, because somebody was asked."""
        return 0.0 if self.pause is None else self.pause.waited

    def _pause(self) -> Pause:
        if self.pause is None:
            self.pause = Pause(self.crossing.mood, self.scope)
        return self.pause

    @contextmanager
    def within(self) -> Generator[None]:
        """What is done in here is done on behalf of the call, and is left when the call ends."""
        if self.busy is None:
            self.busy = {}
        busy = self.busy
        with anyio.CancelScope() as scope:
            busy[scope] = ended = anyio.Event()
            try:
                yield
            finally:
                del busy[scope]
                ended.set()

    def raise_failure(self) -> None:
        """Raise why asking was not possible, where that is not for the code to see."""
        if self.failure is not None:
            raise self.failure

    async def put(self, question: Question, *, during: bool = False) -> Asked:
        """Record a question. Raises what the capability is told when it can't be asked."""
        request, bodies = self._request(question, during=during)
        await self.questions.broker.record(
            self.crossing,
            request,
            (self.passing.body, *bodies),
            self.passing.first(self.crossing.desk.run_id),
        )
        asked = Asked(request)
        self.asked = (*self.asked, asked)
        return asked

    async def answered(
        self, asked: Asked, mood: Callable[[Mood], None]
    ) -> tuple[Answer, list[Draft]]:
        """Wait for the end of a question; the answer, and the records that it was taken note of."""
        done = asked.settled
        if done is not None:
            end = Settled(done.status, done.reason_code, done.decision)
        else:
            end = await self.questions.broker.wait(asked.request, mood)
        answer, bodies = await self.questions.answer(asked.request, end)
        if done is not None or asked.settled is not None:
            return answer, []
        return answer, settlement(asked.request, end, self.crossing.desk.run_id, bodies)

    async def recall(self) -> None:
        """Take over what was asked and answered in earlier processes."""
        past = self.crossing.past
        if past is None:
            return
        self.asked, self.made = tuple(past.questions), len(past.besides)
        for one in past.questions:
            done, request = one.settled, one.request
            if done is not None and not request.during:
                end = Settled(done.status, done.reason_code, done.decision)
                answer, _ = await self.questions.answer(request, end)
                self.learn(request, answer)

    def learn(self, request: ApprovalRequest, answer: Answer) -> None:
        """Let the next attempt know what somebody answered; those before it keep what they knew."""
        self.answers = {**(self.answers or {}), request.key or "": answer}

    # -- while it is under way ------------------------------------------------------------------------

    async def ask(self, question: Question) -> Answer:
        """Ask a person while the call is under way; `Context.ask`."""
        desk = self.crossing.desk
        if self.over or desk.dry is not None:
            return Answer("cancel")
        with self.within():
            return await self._asked(question)
        return Answer("cancel")

    async def _asked(self, question: Question) -> Answer:
        desk = self.crossing.desk
        try:
            asked = self._before(question) or await self.put(question, during=True)
            pause = self._pause()
            pause.stop()
            try:
                answer, drafts = await self.answered(asked, _quietly)
                if drafts and asked.settled is None:
                    await desk.append(drafts, durable=False)
                    asked.settled = settled_in(drafts)
            finally:
                pause.go()
        except ModelError:
            raise
        except HoldfastError as why:
            self.failure = self.failure or why
            raise
        return answer

    def beside(
        self,
        executor: Executor,
        arguments: Mapping[str, Json],
        *,
        name: str,
        reserve: Reserved | None,
        within_ms: int | None,
    ) -> Crossing:
        """A question to a model on behalf of this call; one that was under way in an earlier process is taken up."""
        crossing = self.crossing
        if self.over:
            raise cancelled(name)
        past = self._made_before(name, digest_json(executor.bind((), arguments)))
        if past is None and self.made >= MAX_BESIDE:
            raise ModelError(
                "RATE_LIMITED",
                f"On behalf of one call of `{crossing.name}`, {MAX_BESIDE} calls were made already.",
                hint="Call it again.",
            )
        self.made += past is None
        return Crossing(
            desk=crossing.desk,
            ordinal=crossing.ordinal,
            name=name,
            args=(),
            kwargs=arguments,
            provenance=Provenance.MODEL,
            past=past,
            known=True,
            mood=_Pausing(self._pause()),
            executor=executor,
            kind=EffectKind.PROVIDER_REQUEST,
            reserve=reserve,
            within_ms=within_ms,
            beside=crossing.effect_id,
            own_id=past.effect_id if past else f"{crossing.effect_id}_s{self.made}",
        )

    async def close(self) -> None:
        """The call has ended: nobody need answer any more, and what was left of earlier attempts is over."""
        past, desk = self.crossing.past, self.crossing.desk
        left = [one.request for one in self.asked if one.settled is None]
        besides = past.besides if past is not None else ()
        open_ = [one for one in besides if one.effect_id not in self._taken and not one.answered]
        if left or open_:
            await self.questions.let_go(desk, left, open_)

    def _before(self, question: Question) -> Asked | None:
        """The same question, asked in an earlier attempt, if it was answered or still can be."""
        key, wanted = question.key, same_for(self.questions.shown(question))
        for one in self._again:
            done = one.settled
            same = (one.request.key or "") == key and one.request.question == wanted
            if same and (done is None or done.status in _TAKEN):
                self._again = [other for other in self._again if other is not one]
                return one
        return None

    def _made_before(self, name: str, request: str) -> Past | None:
        past = self.crossing.past
        for one in past.besides if past is not None else ():
            if one.effect_id not in self._taken and (one.name, one.request) == (name, request):
                self._taken = {*self._taken, one.effect_id}
                return one
        return None

    def _request(
        self, question: Question, *, during: bool
    ) -> tuple[ApprovalRequest, tuple[Body, ...]]:
        crossing, passing, questions = self.crossing, self.passing, self.questions
        if len(self.asked) >= MAX_QUESTIONS:
            raise unaskable(crossing.name, f"it has asked {MAX_QUESTIONS} times already")
        shown = questions.shown(question)
        bodies = questions.check(crossing.name, question)
        capability, timeout = passing.capability, passing.ruling.timeout_ms
        request = ApprovalRequest(
            id=new_id("apr"),
            effect_id=crossing.effect_id,
            dispatch_id=f"{crossing.effect_id}_q{len(self.asked) + 1}",
            tool=tool_of(crossing, capability),
            arguments=passing.body.ref.digest,
            request=passing.request,
            ordinal=crossing.number,
            call_id=crossing.call_id,
            capability=capability.digest,
            side_effect=capability.side_effect,
            risk=passing.ruling.risk,
            summary=shown.message,
            requested_by=crossing.desk.actor,
            allowed=(Decision.APPROVED, Decision.DENIED),
            deadline=questions.approvals.now() + (timeout or questions.timeout_ms),
            asks=question.asks,
            form=shown.form,
            url=shown.url,
            key=question.key,
            question=same_for(shown),
            state=bodies[0].ref.digest if bodies else None,
            during=during,
            beside=crossing.beside,
        )
        return request, bodies


class _Pausing:
    """The mood of an effect that is made on behalf of a call: while it waits for a person, so does the call."""

    def __init__(self, pause: Pause) -> None:
        self._pause = pause
        self._stopped = False

    def __call__(self, now: Mood) -> None:
        if now != "working" and not self._stopped:
            self._stopped = True
            self._pause.stop()
        elif now == "working" and self._stopped:
            self._stopped = False
            self._pause.go()


def _quietly(_: Mood) -> None:
    """The call itself says that it asks."""

"""The agent's side of the hooks: the points of a run, its context, its model calls, its output and compaction.

What a hook wants is on record before anything follows from it, and where it puts words into the conversation, the
words are recorded in the same append: so a run that goes on in another process neither asks that hook again nor says
the words twice. Points of a turn are about `run:turn`, those of an answer about its effect, those that look at messages
also about the conversation as it then is, so that an answer on record is never taken for one about something else.

A hook that stops the run, or failed where it may not, is `HookStop`: the loop ends the run with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from holdfast.agent import _hooked as h
from holdfast.agent.output import Reading
from holdfast.contracts import Draft, Json, Risk, SideEffect
from holdfast.contracts._dump import dumped
from holdfast.contracts.hook import HookPoint
from holdfast.contracts.hook_response import HookResponse, ResponseClass
from holdfast.contracts.message import Message
from holdfast.contracts.model import ModelAnswer, ModelDelta, ModelRequest
from holdfast.errors import HoldfastError, OperatorError
from holdfast.gate.crossing import Desk, Wish
from holdfast.gate.guards import Guards, stopped, wish_of
from holdfast.gate.hooks import Consider, Fired, Record, View
from holdfast.machines.outcome import Cause

_P, _R = HookPoint, ResponseClass

_CAUSES = {"PERMISSION_DENIED": Cause.HOOK_DENIED, "HOOK_FAILED": Cause.HOOK_FAILURE}

_NAMED = 16
"""Characters of a digest that name a conversation: what a hook said about its messages counts for these only."""

MORE_TURNS = 1
"""How often hooks may send one run back to work when it would complete."""


class HookStop(Exception):
    """A hook ends the run."""

    def __init__(self, cause: Cause, why: HoldfastError) -> None:
        super().__init__(why.message)
        self.cause = cause
        self.why = why


class Calling(NamedTuple):
    """A question to a model, as hooks are told of it."""

    turn: str
    """What its messages are about: the same for every attempt."""
    effect_id: str
    """This attempt."""
    name: str
    """`model:` and which."""
    context: str = ""
    """The conversation it is asked with."""
    asked: bool = False
    """Whether it is on record already, with what hooks said."""


class Allowed(NamedTuple):
    """A question as hooks leave it."""

    request: ModelRequest
    """What is sent."""
    changed: bool = False
    """Whether they changed its messages."""
    wanted: Wish | None = None
    """That one wants a person asked."""


class AgentGuards:
    """Asks the hooks at each point of an agent's run. Without hooks, `active` is false and nobody need ask."""

    def __init__(self, guards: Guards, desk: Desk) -> None:
        self._guards = guards
        self._desk = desk
        self.active: bool = guards.agents
        """Whether hooks have, or had, a say in this run at all. Whoever asks them looks at this first."""
        self._projected: tuple[str, Sequence[Message] | None] = ("", None)
        self._more_turns = 0

    def resumed(self) -> None:
        """The desk knows what hooks said before: that counts, also where these hooks are gone."""
        self.active = self.active or bool(self._desk.responses)

    # -- a run ----------------------------------------------------------------------------------------

    async def starts(self) -> list[str]:
        """What hooks say before anything else; on record."""
        return await self._speak(_P.RUN_STARTING, View("agent run starting"), self._desk.run_id)

    async def completes(self, turn: int, text: str) -> list[str]:
        """What hooks say that want more done; on record. Nothing: the run may complete."""
        point, subject = _P.BEFORE_RUN_COMPLETE, self._turn(turn)
        if not self._guards.any(point):
            return []
        before = await self._sent_back(subject)

        def consider(view: View, response: HookResponse) -> View:
            if response.response_class is _R.REQUEST_RETRY and before >= MORE_TURNS:
                raise h.refused("the run was sent back to work before")
            return view

        view = View("before run complete", result=text)
        said: list[str] = []
        fired = await self._speak_at(point, view, subject, said, consider)
        if fired.first(_R.VALIDATE_DETACH) is not None:
            await self._nothing_left()
        return said

    async def _sent_back(self, subject: str) -> int:
        """How often hooks did that at another turn."""
        point, others = _P.BEFORE_RUN_COMPLETE, set[str]()
        for about, at, _ in self._desk.responses:
            if at == point.value and about != subject:
                others.add(about)
        times = self._more_turns
        for about in others:
            found = await self._guards.recorded(self._desk, point, about)
            times += any(one.response_class is _R.REQUEST_RETRY for one in found.values())
        return times

    async def _nothing_left(self) -> None:
        await self._desk.settle()
        left = await self._guards.left_open(self._desk.run_id)
        if left:
            why = OperatorError(
                "HOOK_FAILED",
                f"A hook wants nothing left open, and the run leaves {', '.join(left[:5])}.",
                hint="Decide or resolve it, then ask again.",
            )
            raise HookStop(Cause.HOOK_FAILURE, why)

    # -- its context ----------------------------------------------------------------------------------

    async def before_context(self, turn: int, messages: Sequence[Message]) -> list[str]:
        """What hooks add before a question; on record."""
        point = _P.BEFORE_CONTEXT_ASSEMBLY
        view = View("before context assembly", messages=self._shown(point, messages))
        return await self._speak(point, view, self._turn(turn))

    async def after_context(self, turn: int, messages: Sequence[Message], tokens: int) -> bool:
        """Whether a hook wants the conversation told in short."""
        point = _P.AFTER_CONTEXT_ASSEMBLY
        if not self._guards.any(point):
            return False
        summary = f"context assembled: {len(messages)} messages, about {tokens} tokens"
        view = View(summary, messages=self._shown(point, messages))
        fired = await self._fire(point, view, self._turn(turn))
        return fired.first(_R.REQUEST_COMPACTION) is not None

    async def before_compaction(
        self, context: str, messages: Sequence[Message], first: int
    ) -> set[int]:
        """Which of the messages hooks want kept word for word; `first` is the number of the first."""
        point = _P.BEFORE_COMPACTION
        if not self._guards.any(point):
            return set()
        ids = h.names_of(messages, first)

        def consider(view: View, response: HookResponse) -> View:
            return h.protected(view, response, ids)

        shown = self._shown(point, messages)
        if shown is not None:
            shown = [{"id": id_, **one} for id_, one in zip(ids, shown, strict=True)]
        summary = f"before compaction: {len(messages)} messages"
        subject = f"{self._desk.run_id}:{context[:_NAMED]}"
        fired = await self._fire(point, View(summary, messages=shown), subject, consider)
        return {ids.index(one) for one in fired.view.protected}

    async def after_compaction(self, context: str, messages: Sequence[Message]) -> bool:
        """Whether a hook wants what is left held against the journal."""
        point = _P.AFTER_COMPACTION
        if not self._guards.any(point):
            return False
        summary = f"after compaction: {len(messages)} messages"
        view = View(summary, messages=self._shown(point, messages))
        fired = await self._fire(point, view, f"{self._desk.run_id}:{context[:_NAMED]}")
        return fired.first(_R.REQUEST_PROJECTION_AUDIT_REPAIR) is not None

    # -- its model calls ------------------------------------------------------------------------------

    async def before_model(self, request: ModelRequest, call: Calling) -> Allowed:
        """The question as hooks leave it. One that is on record is asked as it was, and nobody is asked about it."""
        known, messages = self._projected
        about = f"{call.turn}:{call.context[:_NAMED]}"
        if known != about:
            fired = await self._project(_P.BEFORE_PROVIDER_PROJECTION, request, call, about)
            messages = h.messages_of(fired.view)
            self._projected = (about, messages)
        changed = messages is not None
        if messages is not None:
            request = h.with_messages(request, messages)
        about = f"{call.effect_id}:{call.context[:_NAMED]}"
        fired = await self._project(_P.BEFORE_MODEL_CALL, request, call, about)
        messages = h.messages_of(fired.view)
        if messages is not None:
            request, changed = h.with_messages(request, messages), True
        return Allowed(request, changed, wish_of(fired, Risk.LOW))

    async def _project(
        self, point: HookPoint, request: ModelRequest, call: Calling, subject: str
    ) -> Fired:
        view = View(
            summary=f"{point.value.replace('_', ' ')}: {call.name}",
            effect_id=call.effect_id,
            tool=call.name,
            side_effect=SideEffect.NETWORK,
        )
        if call.asked:
            return h.recalled(view, await self._guards.recorded(self._desk, point, subject))
        if not self._guards.any(point):
            return Fired(view)
        if self._guards.sees(point):
            told = h.Told(h.as_json(request.messages))
            view = replace(view, messages=told, arguments=h.settings_of(request))
        return await self._fire(point, view, subject, h.projecting)

    def listener(self, effect_id: str) -> Callable[[ModelDelta | None], None] | None:
        """Who is to be told of each piece of an answer, and with `None` of its end; nobody, where no hook listens."""
        point = _P.ON_MODEL_DELTA
        if not self._guards.any(point):
            return None

        def tell(piece: ModelDelta | None) -> None:
            view = View("model answer over", effect_id=effect_id, terminal=True)
            if piece is not None:
                summary = f"model delta: {piece.kind}, {len(piece.text)} characters"
                view = View(summary, effect_id=effect_id, result=h.piece_of(piece))
            self._guards.offer(self._desk, point, view, subject=effect_id)

        return tell

    async def after_model(
        self, answer: ModelAnswer, call: Calling, body: str, *, may_retry: bool
    ) -> bool:
        """Whether the answer does not count, and the model is asked again."""
        point = _P.AFTER_MODEL_CALL
        if not self._guards.any(point):
            return False

        def consider(view: View, response: HookResponse) -> View:
            if response.response_class is _R.REQUEST_RETRY and not may_retry:
                raise h.refused("the model was asked again as often as it may be")
            return view

        view = View(
            summary=f"after model call: {call.name} {answer.finish}",
            effect_id=call.effect_id,
            tool=call.name,
            side_effect=SideEffect.NETWORK,
            result=dumped(answer) if self._guards.sees(point) else None,
            refs=(body,) if body else (),
        )
        fired = await self._fire(point, view, call.effect_id, consider)
        return fired.wants_retry is not None

    @property
    def hears_answers(self) -> bool:
        """Whether hooks look at answers."""
        return self._guards.any(_P.AFTER_MODEL_CALL)

    # -- its output -----------------------------------------------------------------------------------

    async def before_validation(self, text: str, attempt: int, *, told: bool) -> list[str]:
        """What hooks have to say to the model if the answer does not fit; `told`: the verdict is on record."""
        point = _P.BEFORE_STRUCTURED_OUTPUT_VALIDATION
        view = View(f"before structured output validation: attempt {attempt}", result=text)
        fired = await self._check(point, view, attempt, told=told)
        return h.notes(fired, _R.MODIFY_VALIDATION_HINTS)

    async def after_validation(self, reading: Reading, attempt: int, *, told: bool) -> Reading:
        """An answer that was held against its shape: with one more fault where a hook wants another."""
        point = _P.AFTER_STRUCTURED_OUTPUT_VALIDATION
        found = "it fits" if reading.ok else f"{len(reading.faults)} faults"
        summary = f"after structured output validation: attempt {attempt}, {found}"
        fired = await self._check(point, View(summary, result=reading.json), attempt, told=told)
        return h.faulted(reading, h.notes(fired, _R.REQUEST_RETRY))

    async def _check(self, point: HookPoint, view: View, attempt: int, *, told: bool) -> Fired:
        subject = f"{self._desk.run_id}:output:{attempt}"
        if told:
            return h.recalled(view, await self._guards.recorded(self._desk, point, subject))
        if not self._guards.any(point):
            return Fired(view)
        return await self._fire(point, view, subject)

    # -- parts ----------------------------------------------------------------------------------------

    def _turn(self, turn: int) -> str:
        return f"{self._desk.run_id}:{turn}"

    def _shown(self, point: HookPoint, messages: Sequence[Message]) -> list[dict[str, Json]] | None:
        return h.as_json(messages) if self._guards.sees(point) else None

    async def _speak(self, point: HookPoint, view: View, subject: str) -> list[str]:
        said: list[str] = []
        if self._guards.any(point):
            await self._speak_at(point, view, subject, said, h.with_words)
        return said

    async def _speak_at(
        self, point: HookPoint, view: View, subject: str, said: list[str], consider: Consider
    ) -> Fired:
        """Ask; what accepted answers say to the model is recorded with them, and added to `said`."""
        desk = self._desk

        async def record(drafts: list[Draft]) -> None:
            words = h.words_of(drafts)
            await desk.append([*drafts, *h.prompts(words, desk.run_id)], durable=False)
            said.extend(words)

        fired = await self._fire(point, view, subject, consider, record)
        if point is _P.BEFORE_RUN_COMPLETE and said:
            self._more_turns += 1
        return fired

    async def _fire(
        self,
        point: HookPoint,
        view: View,
        subject: str,
        consider: Consider | None = None,
        record: Record | None = None,
    ) -> Fired:
        try:
            fired = await self._guards.fire(
                self._desk, point, view, subject=subject, consider=consider, record=record
            )
        except HoldfastError as why:
            cause = _CAUSES.get(why.code)
            if cause is None:
                raise
            raise HookStop(cause, why) from why
        why = stopped(fired)
        if why is not None:
            raise HookStop(Cause.HOOK_DENIED, why)
        return fired

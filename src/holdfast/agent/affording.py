"""What a question may cost: what is set aside for it, and how long its answer may be so that no budget is overrun."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from holdfast.agent.prices import estimated
from holdfast.agent.transcript import estimate as message_tokens
from holdfast.agent.work import Work
from holdfast.contracts import Draft, Reserved
from holdfast.contracts.agent import BudgetWarned
from holdfast.contracts.model import ModelRequest, ModelUsage
from holdfast.gate.budgets import Purse

ANSWER_TOKENS = 4096
"""Set aside for an answer when nobody says how long it may be."""

LEAST_TOKENS = 16
"""An answer that may not be longer than this is not worth asking for."""


class Afforded(NamedTuple):
    """A question as it is asked."""

    request: ModelRequest
    """With no longer an answer than there is room for."""
    reserved: Reserved
    """What to set aside."""
    lowered: bool
    """Whether a budget made the answer shorter than it might have been."""


class Affording:
    """Of one run."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._bounded: tuple[ModelRequest, ModelRequest] | None = None
        self._asked = 0
        self._more = 1.0  # tokens the provider counts for one of ours; never less than ours

    async def fit(self, request: ModelRequest, *, held: Reserved | None = None) -> Afforded:
        """What to ask and what to set aside, where there is a budget; `held`: what is set aside for it already."""
        work = self._work
        purses = work.desk.purses
        for purse in purses:
            if purse.shared:  # others use it up, too
                purse.refresh(await work.journal.row("budgets", purse.account or ""))
        sent = self._asked = self._sent(request)
        sent = int(sent * self._more)
        wanted = request.settings.max_tokens or work.model.profile.max_output_tokens
        wanted = wanted or ANSWER_TOKENS
        if held is not None:
            room = held.tokens - sent if _limits_answers(purses) else wanted
        else:
            room = min([wanted, *(self._room(purse, sent, wanted) for purse in purses)])
        allowed = max(min(wanted, room), min(wanted, LEAST_TOKENS))
        if _limits_answers(purses):
            request = self._with(request, allowed)
        cost = self._price(sent, allowed)
        reserved = Reserved(calls=0, tokens=sent + allowed, cost_micros=cost)
        return Afforded(request, reserved, allowed < wanted)

    def learn(self, usage: ModelUsage) -> None:
        """A provider has counted what we guessed: guess better next time."""
        if self._asked and usage.input_tokens and not usage.estimated:
            self._more = max(1.0, usage.input_tokens / self._asked)

    def warn(self) -> None:
        """Tell once when most of a budget is used."""
        desk = self._work.desk
        for purse in desk.purses:
            for unit, used, limit in purse.warnings():
                said = BudgetWarned(of=purse.name, unit=unit, used=used, limit=limit)
                desk.hold([Draft.of(said, run_id=desk.run_id)], durable=False)

    def _room(self, purse: Purse, sent: int, wanted: int) -> int:
        """How long the answer may be, as far as this purse goes."""
        tokens, money = purse.left("tokens"), purse.left("cost_micros")
        room = wanted if tokens is None else min(wanted, tokens - sent)
        if money is None or self._price(sent, max(0, room)) <= money:
            return room
        low, high = 0, max(0, room)
        while low < high:
            middle = (low + high + 1) // 2
            if self._price(sent, middle) <= money:
                low = middle
            else:
                high = middle - 1
        return low

    def _price(self, sent: int, answer: int) -> int:
        work = self._work
        return estimated(work.spec.prices, work.model, sent, answer) or 0

    def _sent(self, request: ModelRequest) -> int:
        transcript = self._work.transcript
        if request.messages is transcript.messages:
            sent = transcript.tokens
        else:
            sent = sum(message_tokens(one) for one in request.messages)
        sent += (len(request.instructions.encode("utf-8", "surrogatepass")) + 3) // 4
        sent += sum(
            len(str(one.schema)) // 4 + len(one.description) // 4 + 16 for one in request.tools
        )
        return sent if request.output is None else sent + len(str(request.output.schema)) // 4

    def _with(self, request: ModelRequest, allowed: int) -> ModelRequest:
        """The request with this bound; the same object as long as both are the same."""
        if request.settings.max_tokens == allowed:
            return request
        known = self._bounded
        if known is not None and known[0] is request and known[1].settings.max_tokens == allowed:
            return known[1]
        settings = request.settings.model_copy(update={"max_tokens": allowed})
        bounded = replace(request, settings=settings)
        self._bounded = (request, bounded)
        return bounded


def _limits_answers(purses: Sequence[Purse]) -> bool:
    return any(purse.limits("tokens") or purse.limits("cost_micros") for purse in purses)

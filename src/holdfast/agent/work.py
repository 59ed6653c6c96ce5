"""What one run of an agent works with: its session, its desk, its conversation. Phases and calls share it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from holdfast.agent.feeds import Feed
from holdfast.agent.guards import AgentGuards
from holdfast.agent.output import Output
from holdfast.agent.tools import Tools
from holdfast.agent.transcript import Transcript
from holdfast.contracts.agent import AgentSpec
from holdfast.gate.crossing import Desk
from holdfast.gate.gate import Gate
from holdfast.gate.past import Past
from holdfast.journal import Journal
from holdfast.models.base import Model
from holdfast.shell.session import Session

Sleep = Callable[[float], Awaitable[None]]
"""Waits so many seconds."""


@dataclass(slots=True)
class Work:
    """Of one run."""

    spec: AgentSpec
    session: Session
    desk: Desk
    transcript: Transcript
    models: list[Model]
    """The one that is asked, and those to go on with, in order."""
    guards: AgentGuards
    sleep: Sleep
    output: Output | None = None
    """The shape of what it must give."""
    feed: Feed | None = None
    """Those who are told each piece of an answer as it comes."""
    tools: Tools | None = None
    """What the model is told it can do; made when it is first asked."""
    turn_no: int = 0
    """Questions asked so far, of those that are part of the conversation."""
    ordinal: int = 0
    """Effects so far."""
    tries: int = 0
    """Attempts at the next answer that failed in another process."""
    open_question: Past | None = None
    """A question that was asked before the process died, and has no answer."""
    asides: list[Past] = field(default_factory=list[Past])
    """Questions beside the conversation that were asked before the process died, and have no answer."""
    asked: Past | None = None
    """A question about which a person was asked, and that nobody has put to the model yet."""
    unheard: Past | None = None
    """A question whose answer is the last thing on record: hooks may not have seen it."""
    pasts: dict[str, Past] = field(default_factory=dict[str, Past])
    """What is on record of calls that are open, by the model's call."""
    children: dict[str, str] = field(default_factory=dict[str, str])
    """Runs of code that stand, by the model's call."""
    used: dict[str, int] = field(default_factory=dict[str, int])
    """What it used so far, by unit."""
    main_text: str | None = None
    """What the run itself answered, once it is asked for its structured output."""
    stopping: bool = False
    """Whether somebody wants the run stopped: no call is made any more."""
    nudged: bool = True
    """Whether messages may be waiting."""

    @property
    def run_id(self) -> str:
        """The run."""
        return self.desk.run_id

    @property
    def journal(self) -> Journal:
        """Where it is told."""
        return self.session.services.journal

    @property
    def gate(self) -> Gate:
        """The door."""
        return self.session.services.gate

    @property
    def model(self) -> Model:
        """The one that is asked."""
        return self.models[0]

    @property
    def unsettled(self) -> bool:
        """Whether a question of a process that died was not asked again."""
        return self.open_question is not None or bool(self.asides)

    def use(self, **used: int) -> None:
        """Add to what it used."""
        for unit, more in used.items():
            self.used[unit] = self.used.get(unit, 0) + more

    def next_ordinal(self) -> int:
        """The number of the next effect."""
        self.ordinal += 1
        return self.ordinal

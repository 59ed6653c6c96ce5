"""A recorded run of an agent once more, offline: the same, or with one thing changed; where does it go another way?

The agent's own loop runs again, and its programs really run, in a box. But the journal is a copy in memory, the
capabilities are contracts without functions, and the gate answers from the record (`_replay_gate.py`). Another model
is asked, if one is given; nobody else is.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace as changed
from typing import Any

from holdfast.agent._beats import beats_of
from holdfast.agent._difference import Both, Changes, Difference, first_difference, stopped_at
from holdfast.agent._replay_gate import Halt, ReplayGate
from holdfast.agent._standins import StandIns, TapedBoundaries, TapedModel, taped_hooks
from holdfast.agent._tape import Tape, TapedCall
from holdfast.agent._tape_reading import copied, read_tape
from holdfast.agent.agents import Agents
from holdfast.agent.definition import Definition
from holdfast.agent.history import models_of
from holdfast.agent.inbox import queue
from holdfast.agent.output import Output
from holdfast.agent.recording import Recording, recorded
from holdfast.contracts import Capability, Draft, Setup
from holdfast.contracts._base import Told, optional
from holdfast.contracts.agent import AgentResult
from holdfast.errors import CallerError, HoldfastError, InternalError
from holdfast.gate.approvals import Approvals
from holdfast.gate.asking import Asking
from holdfast.gate.broker import Broker
from holdfast.gate.guards import HOOKS, Guards
from holdfast.gate.hooks import Hooks
from holdfast.gate.limits import Limiter
from holdfast.gate.policy import Policy
from holdfast.gate.redact import Redactor
from holdfast.journal import MemoryJournal
from holdfast.models.base import Model
from holdfast.shell.services import Services, setup_of
from holdfast.shell.shell import Shell
from holdfast.shell.standing import recorded_agent

_STANDING = ("waiting_for_approval", "needs_attention", "interrupted")


class Replay(Told):
    """What came of a run the second time."""

    run_id: str
    """Which run."""
    same: bool
    """Whether everything was said, called and shown again as it was, to the end of the record."""
    difference: Difference | None = optional()
    """The first thing that was not."""
    stopped_at: Difference | None = optional()
    """What is asked for and not on record: there it goes no further; may be long after the first difference."""
    before: AgentResult | None = optional()
    """What the run gave, or how it stood."""
    result: AgentResult | None = optional()
    """What it gives now, or how it stands; absent where it could not go on."""
    turns: int = 0
    """Questions that were answered this time."""
    calls: int = 0
    """Calls that were answered from the record."""

    def check(self) -> Replay:
        """Itself, if it went the same way; raises `AssertionError` that shows the first difference."""
        if not self.same:
            raise AssertionError(str(self))
        return self

    def __str__(self) -> str:
        """For people."""
        if self.same:
            return f"{self.run_id} is the same: {self.turns} turns, {self.calls} calls."
        said = f"{self.run_id} goes another way: {self.difference}"
        if self.stopped_at is None or self.stopped_at == self.difference:
            return said
        return f"{said}\nand stops: {self.stopped_at}"


async def replay(
    services: Services, find: Callable[[str], Model], run: str | Recording, changes: Changes
) -> Replay:
    """Replay a run of the services' journal, or one that was saved; `find` gives a model by its id."""
    recording = run if isinstance(run, Recording) else await recorded(services.journal, run)
    tape = await read_tape(recording)
    tools = await _tools(services, recording, tape, changes)
    acted = await _act(services, find, recording, tape, tools, changes)
    row: dict[str, Any] = await tape.journal.row("runs", tape.run_id) or {}
    before = await recorded_agent(tape.journal, row) if _told(row) else None
    difference = first_difference(acted, tape, changes, known=tools.known)
    return Replay(
        run_id=tape.run_id,
        same=difference is None,
        difference=difference,
        stopped_at=stopped_at(acted),
        before=before,
        result=acted.result,
        turns=tape.answers,
        calls=sum(one.used for one in tape.calls),
    )


def _told(row: Mapping[str, Any]) -> bool:
    """Whether it is on record what the caller of a run got."""
    return row["ended_at"] is not None or row.get("parked_pos") is not None


# -- the second time --------------------------------------------------------------------------------------


async def _act(
    services: Services,
    find: Callable[[str], Model],
    recording: Recording,
    tape: Tape,
    tools: StandIns,
    changes: Changes,
) -> Both:
    policy = _policy(changes.get("policy"))
    journal = await copied(recording, before_run=True)
    definition, models = _definition(tape, changes, find)
    inside = changed(services, policy=policy or services.policy, tools=tools, setup=Setup())
    async with _stage(inside, journal, tape) as (shell, gate):
        gate.replays(tape, models)
        gate.asks, gate.judges = not models, policy is not None
        gate.strict = gate.asks or gate.judges or changes.get("capabilities") is not None
        prompt = changes.get("prompt") or tape.prompt
        gate.prompted = prompt != tape.prompt
        gate.nudge = lambda: shell.nudge(tape.session_id)
        for text in tape.steers.get(0, ()):
            await queue(journal, tape.session_id, text, "queue")
        agents = Agents(shell, model=_nobody, sleep=_at_once)
        try:
            result, halt = await _go(agents, definition, prompt, tape)
        finally:
            await agents.close()
        then, now = None, None
        if policy is not None:
            then, now = _verdict_then, _verdict_now(gate)
        return Both(
            await beats_of(tape.journal, tape.session_id, tape.run_id, verdict=then),
            await beats_of(journal, tape.session_id, tape.run_id, verdict=now),
            result,
            halt,
            left=tape.left,
            over=_over(tape, result, halt),
        )


def _over(tape: Tape, result: AgentResult | None, halt: Halt | None) -> bool:
    """Whether it came to where the run was stopped from outside, or stands."""
    if halt is not None:
        return halt.why == "over"
    return result is not None and result.status in _STANDING and tape.stopped_from_outside


async def _go(
    agents: Agents, definition: Definition, prompt: str | None, tape: Tape
) -> tuple[AgentResult | None, Halt | None]:
    """To its end, or to where the record does not lead any further."""
    try:
        found = await agents.run(
            definition, prompt, session=tape.session_id, run_id=tape.run_id, actor=tape.actor
        )
        while found.status in _STANDING and tape.left:
            left = len(tape.questions)  # it stood there, and somebody let it go on
            found = await agents.resume(tape.run_id, definition)
            if len(tape.questions) == left:
                break
    except Halt as why:
        return None, why
    return found, None


@asynccontextmanager
async def _stage(
    services: Services, journal: MemoryJournal, tape: Tape
) -> AsyncGenerator[tuple[Shell, ReplayGate]]:
    """A shell on a journal in memory, whose gate has nothing behind it."""

    async def aside(drafts: list[Draft]) -> None:
        await journal.append(HOOKS, drafts, durable=False)

    approvals, redactor = Approvals(journal), Redactor()
    async with Hooks(await taped_hooks(tape), aside=aside) as hooks:
        guards = Guards(journal, hooks, redactor)
        asking = Asking(approvals, Broker(approvals, None), guards)
        limiter = Limiter(approvals.now)
        gate = ReplayGate(journal, asking=asking, guards=guards, limiter=limiter, redactor=redactor)
        inside = changed(
            services,
            journal=journal,
            gate=gate,
            approvals=approvals,
            surfaces=TapedBoundaries(tape),
        )
        async with Shell.open(inside) as shell:
            yield shell, gate


def _definition(
    tape: Tape, changes: Changes, find: Callable[[str], Model]
) -> tuple[Definition, list[TapedModel]]:
    """The agent, with the models that are asked; and those of them that repeat what was said."""
    # How long things take, the record says; a replay is as fast as it can be.
    spec = tape.spec.model_copy(update={"timeout_ms": None})
    told = changes.get("instructions")
    if told is not None:
        spec = spec.model_copy(update={"instructions": told})
    output = Output.restored(spec.output) if spec.output is not None else None
    other = changes.get("model")
    if other is None:
        ids = models_of(spec)
        taped = [TapedModel(one, tape, first=one == ids[0]) for one in ids]
        return Definition(spec, tuple(taped), output=output), taped
    model = find(other) if isinstance(other, str) else other
    spec = spec.model_copy(update={"model": model.id, "fallbacks": ()})
    return Definition(spec, (model,), output=output), []


async def contracts_of(
    services: Services, recording: Recording, brought: Iterable[object] = ()
) -> tuple[Capability, ...] | None:
    """What a run could call, `brought` by its agent beside what its session has; `None` when that is not all of it."""
    tape = await read_tape(recording)
    found = await _around(services, recording, tape, brought)
    return tuple(found) if StandIns(tape, found, given=False).known else None


async def _tools(
    services: Services, recording: Recording, tape: Tape, changes: Changes
) -> StandIns:
    """What the run may call: as it is now, where that is given; else as it is known."""
    given = changes.get("capabilities")
    found = await _around(services, recording, tape, given or ())
    called = {one.past.name for one in tape.calls if one.verdict != "refused"}
    return StandIns(tape, found, given=given is not None and called <= {one.name for one in found})


async def _around(
    services: Services, recording: Recording, tape: Tape, more: Iterable[object]
) -> list[Capability]:
    """The capabilities of a session as they are known, and more."""
    base = recording.capabilities
    if base is None:
        row = await tape.journal.row("sessions", tape.session_id)
        base = _here(services, setup_of(services, row))
    found = {one.name: one for one in base}
    found.update({one.name: one for one in _contracts(more)})
    return [*found.values()]


def _here(services: Services, setup: Setup) -> Sequence[Capability]:
    """What a session that is opened like this may call in this process."""
    try:
        return services.tools(setup).all()
    except HoldfastError:  # its modules or folders are those of another machine
        return ()


def _contracts(given: Iterable[object]) -> list[Capability]:
    found: list[Capability] = []
    for one in given:
        capability = one if isinstance(one, Capability) else getattr(one, "capability", None)
        if not isinstance(capability, Capability):
            raise CallerError(
                "INVALID_ARGUMENT",
                f"`{one!r:.80}` is no capability.",
                hint="Give functions of `@capability`, or their contracts.",
            )
        found.append(capability)
    return found


def _policy(given: Policy | Sequence[Any] | Mapping[str, Any] | None) -> Policy | None:
    if given is None or isinstance(given, Policy):
        return given
    return Policy.load(given if isinstance(given, Mapping) else {"rules": [*given]})


def _nobody(id_: str) -> Model:
    raise InternalError(f"A replay looked for the model `{id_}`.")


async def _at_once(seconds: float) -> None:
    """Time that a run waited is not waited again."""


# -- where it differs -------------------------------------------------------------------------------------


def _verdict_then(call: TapedCall) -> tuple[str, str]:
    intent, asked = call.past.intent, call.past.approval
    rules = intent.policy_refs if intent is not None else ()
    if not rules and asked is not None and asked.rule:
        rules = (asked.rule,)
    return call.verdict, ", ".join(rules)


def _verdict_now(gate: ReplayGate) -> Callable[[TapedCall], tuple[str, str]]:
    def verdict(call: TapedCall) -> tuple[str, str]:
        ruling = gate.rulings.get(call.past.effect_id)
        if ruling is None:
            return _verdict_then(call)
        return ruling.verdict.value, ruling.rule_id

    return verdict

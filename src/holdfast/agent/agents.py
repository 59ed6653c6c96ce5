"""Runs of agents: started, parked where they wait, resumed in any process, ended. `hf.agents` of an open runtime."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

import anyio
import anyio.lowlevel

from holdfast.agent import inbox, pins
from holdfast.agent.accounts import open_account, purses_of
from holdfast.agent.cancelling import on_record, stopped
from holdfast.agent.compact import restore
from holdfast.agent.connections import Connections, meet
from holdfast.agent.ending import cause_of, error_of, records_of, status_of
from holdfast.agent.feeds import Feeds, Listener
from holdfast.agent.guards import AgentGuards
from holdfast.agent.history import History, history_of, models_of
from holdfast.agent.holding import Holding
from holdfast.agent.loop import Loop
from holdfast.agent.output import Output
from holdfast.agent.prices import check_prices
from holdfast.agent.standing import (
    check_capabilities,
    give_up,
    park,
    reason_of,
    spent_run,
    still_waits,
    turn_of,
)
from holdfast.agent.transcript import Transcript
from holdfast.agent.work import Sleep, Work
from holdfast.contracts import Body, Draft, Setup, canonical_json, check_session_id, new_id
from holdfast.contracts.agent import AgentResult, AgentSpec, Lane, Waiting
from holdfast.contracts.payload import RunResumed, RunStarted
from holdfast.contracts.policy import Budget
from holdfast.contracts.view import Usage
from holdfast.errors import CallerError, NotFound
from holdfast.gate.crossing import Desk
from holdfast.machines.outcome import Cause, TurnPhase
from holdfast.machines.turn_inputs import ContentShape, Turn
from holdfast.models.base import Model
from holdfast.shell.refusals import not_found
from holdfast.shell.session import Session
from holdfast.shell.shell import Shell
from holdfast.shell.standing import recorded_agent

if TYPE_CHECKING:  # only those who watch or replay need them
    from holdfast.agent.events import Until
    from holdfast.agent.recording import Recording
    from holdfast.agent.replay import Changes, Replay
    from holdfast.contracts.agent_event import AgentEvent

_WARM = 256
"""Conversations that are kept at hand."""


@dataclass(frozen=True, slots=True)
class Definition:
    """An agent with all it takes to run it here."""

    spec: AgentSpec
    models: tuple[str | Model, ...]
    """The one to ask, and those to go on with; one that is named by its id is found where it runs."""
    capabilities: tuple[object, ...] = ()
    """Of its own, beside those of the session."""
    setup: Setup | None = None
    """What its sessions are opened with."""
    output: Output | None = None
    """The shape of what it must give."""


class Agents:
    """Runs agents in the sessions of a shell."""

    def __init__(
        self,
        shell: Shell,
        *,
        model: Callable[[str], Model],
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        """`model` finds a model by its id; `sleep` waits before a model is asked again."""
        self._shell = shell
        self._journal = shell.services.journal
        self._connections = Connections(model, shell.services.gate.redactor)
        self._sleep: Sleep = sleep
        self._feeds = Feeds()
        self._working: dict[str, Work] = {}
        self._warm: dict[str, tuple[int, Transcript]] = {}

    # -- operations -----------------------------------------------------------------------------------

    async def run(
        self,
        agent: Definition,
        prompt: str | None,
        *,
        session: str,
        run_id: str | None = None,
        actor: str | None = None,
        account: str | None = None,
        wait_ms: int = 30_000,
    ) -> AgentResult:
        """Run an agent until it is done, must stop, or waits for somebody.

        It begins with what waits in the session, oldest first, then its prompt; without one, with what waits alone.
        """
        check_session_id(session)
        models = self._connections.models(agent.models)
        self._check(agent, prompt)
        await meet(models[0])  # before the session is held: a lease is shorter than a slow import
        holding = Holding(run_id or new_id("run"))
        spent = await spent_run(self._journal, session)
        live = await self._shell.live(session)  # and take it at once: what nobody has may be closed
        async with live.hold(
            holding, wait_ms=wait_ms, setup=agent.setup, more=agent.capabilities, resumes=spent
        ):
            if spent is not None:
                await give_up(live, spent)
            transcript = await self._conversation(live)
            work = await self._work(
                agent, models, live, holding.run_id, transcript, actor=actor, account=account
            )
            await self._begin(agent, work, prompt, actor, account)
            turn = Turn(
                TurnPhase.APPLYING_PRIMITIVE, holding.run_id, shape=ContentShape.CONVERSATION
            )
            return await self._drive(Loop(work, turn), holding)

    async def resume(
        self,
        run_id: str,
        agent: Definition | None = None,
        *,
        setup: Setup | None = None,
        wait_ms: int = 30_000,
    ) -> AgentResult:
        """Go on with a run, here; one that still waits is left as it is, one that is over gives its result.

        Without `agent`, as it is on record; with it, as it is now (a greater budget, another model).
        """
        row = await self._row(run_id)
        if row["ended_at"] is not None:
            return await recorded_agent(self._journal, row)
        live = await self._shell.live(str(row["session_id"]))
        holding = Holding(run_id)
        more = agent.capabilities if agent is not None else ()
        setup = setup or (agent.setup if agent is not None else None)
        async with live.hold(holding, wait_ms=wait_ms, setup=setup, more=more, resumes=run_id):
            row = await self._row(run_id)
            if row["ended_at"] is not None:
                return await recorded_agent(self._journal, row)
            history = await history_of(self._journal, live.id)
            if await still_waits(live, row, history):
                return await recorded_agent(self._journal, row)
            await check_capabilities(live, history, recorded=agent is None)
            agent = agent or self._recorded(history)
            return await self._go_on(agent, live, holding, history, row)

    async def say(self, session: str, text: str, *, lane: Lane = "steer") -> str:
        """Say something to a session; the name of the message.

        With `steer`, the run that is under way takes it at its next boundary, and goes on with it instead of
        completing; a run that stands takes it once it is resumed. With `queue`, and when there is no run, it waits
        for the next run in the session, which begins with it.
        """
        self._check_said(text)
        row = await self._journal.row("sessions", check_session_id(session))
        if (row is None or row["status"] != "open") and not self._shell.held(session):
            raise not_found(session)
        found = await inbox.queue(self._journal, session, text, lane)
        self._shell.nudge(session)
        return found

    async def waiting(self, session: str) -> list[Waiting]:
        """The messages to a session that no run has taken yet, oldest first."""
        return await inbox.waiting(self._journal, check_session_id(session))

    async def take_back(self, message: str) -> None:
        """Take a message back; raises `NOT_FOUND` when a run has taken it already."""
        await inbox.drop(self._journal, message)

    async def events(
        self, run_id: str, *, after: int | None = None, until: Until = "ended"
    ) -> AsyncGenerator[AgentEvent]:
        """What happens in a run, here or in another process, after seq `after`; from its start without that.

        Every event comes once, in order, until the run is over; with `until="parked"` also until it stands, and with
        `"now"` until those on record are told. Pieces of answers come too while the run is under way in this process.
        """
        from holdfast.agent.events import watch

        listener = self.listen(run_id)
        try:
            events = watch(self._journal, run_id, after=after, feed=listener, until=until)
            async for event in events:
                yield event
        finally:
            listener.leave()

    def listen(self, run_id: str) -> Listener:
        """A listener to the answers of a run while it is under way here; `leave` it when done."""
        return self._feeds.of(run_id).listen()

    def working(self, session: str) -> Work | None:
        """What the agent works with that has this session here; `None`: none has."""
        return self._working.get(session)

    def model(self, id_: str) -> Model:
        """A model by its id; from here on its keys appear nowhere, and it is closed with the runtime."""
        return self._connections.models([id_])[0]

    async def open_account(self, account: str, budget: Budget | Mapping[str, Any]) -> None:
        """Let runs that name this account use it up together; opened again, it has these limits instead."""
        await open_account(self._journal, account, budget)

    async def pin(self, session: str, text: str) -> str:
        """Keep `text` word for word in a session's conversation whenever that is told in short; its name."""
        redactor = self._shell.services.gate.redactor
        return await pins.pin(self._journal, check_session_id(session), redactor.text(text))

    async def unpin(self, pin_id: str) -> None:
        """Let go what was pinned."""
        await pins.unpin(self._journal, pin_id)

    async def pins(self, session: str) -> list[pins.Pin]:
        """What is pinned in a session, in order."""
        return await pins.pins_of(self._journal, check_session_id(session))

    async def restore_context(self, session: str, *, wait_ms: int = 30_000) -> Transcript:
        """Undo the compactions of a session's conversation; as a model will be sent it from now on."""
        live = await self._shell.live(check_session_id(session))
        return await restore(live, wait_ms=wait_ms)

    async def replay(self, run: str | Recording, **changes: Unpack[Changes]) -> Replay:
        """A recorded run once more, offline, with what is another in `changes`: where does it go another way?

        Programs run again, in a box; nothing else happens: every call is answered from the record, and so is every
        question, unless another `model` is given, which is then asked.
        """
        from holdfast.agent.replay import replay

        return await replay(self._shell.services, self.model, run, changes)

    async def close(self) -> None:
        """End the connections to models; whoever made this object calls it, once no run is under way."""
        await self._connections.close()

    async def messages(self, session: str) -> Transcript:
        """A session's conversation as a model would be sent it now. Read it, and change nothing in it."""
        warm = self._warm.get(session)
        if warm is not None and warm[0] == (await self._journal.head(session)).pos:
            return warm[1]
        return (await history_of(self._journal, check_session_id(session))).transcript

    # -- one run --------------------------------------------------------------------------------------

    async def _begin(
        self,
        agent: Definition,
        work: Work,
        prompt: str | None,
        actor: str | None,
        account: str | None,
    ) -> None:
        """Make what was asked part of the conversation, and see to it that the run's start will be on record."""
        live = work.session
        if prompt is not None and not await inbox.waits(self._journal, live.id):
            start = _started(work, agent, prompt, actor, account)
            work.desk.begin = lambda: [*live.created(), start]
            work.transcript.prompt(prompt)
        else:
            created = live.created()
            first = [*created, _started(work, agent, None, actor, account)]
            try:
                await inbox.begin(work, first, prompt)
            except BaseException:
                if created:
                    live.limits = None  # it is not on record
                raise
        work.nudged = False

    async def _go_on(
        self,
        agent: Definition,
        live: Session,
        holding: Holding,
        history: History,
        row: dict[str, Any],
    ) -> AgentResult:
        work = await self._work(
            agent,
            self._connections.models(agent.models),
            live,
            holding.run_id,
            history.transcript,
            actor=history.actor,
            account=history.account,
        )
        _restore(work, history, row)
        await meet(work.model)
        spec = None
        if agent.spec != history.spec:
            spec = _spec_body(agent.spec)
        resumed = RunResumed(
            how="replay",
            reason=reason_of(row),
            agent=spec.ref.digest if spec else None,
        )
        live.open_agent = holding.run_id
        bodies = (spec,) if spec else ()
        await work.desk.append(
            [Draft.of(resumed, run_id=work.run_id, bodies=bodies)], durable=False
        )
        turn = turn_of(history, work)
        loop = Loop(work, turn, used_ms=history.active_ms)
        asked = turn.extraction
        # The newest answer may be still to be judged: twice would be once too often.
        judged = history.candidates[: -1 if asked is not None and asked.answered else None]
        await loop.extracting.restore(judged)
        if row.get("cancel") is not None:  # whoever had it did not hear of that any more
            holding.cancel("now" if row["cancel"] == "now" else "after_effect", None, None)
        return await self._drive(loop, holding)

    async def _drive(self, loop: Loop, holding: Holding) -> AgentResult:
        session = loop.work.session.id
        self._working[session] = loop.work
        try:
            with _heard(loop.work):
                return await self._driven(loop, holding)
        finally:
            del self._working[session]

    async def _driven(self, loop: Loop, holding: Holding) -> AgentResult:
        holding.begin(loop)
        try:
            await loop.go()
        except anyio.get_cancelled_exc_class():
            await self._gave_up(loop)
            raise
        if loop.parked:
            found = await self._parked(loop, holding)
            if found is not None:
                return found
        result: AgentResult | None = None
        holding.over = True
        with anyio.CancelScope(shield=True):
            result = await self._ended(loop)
        assert result is not None
        return result

    async def _parked(self, loop: Loop, holding: Holding) -> AgentResult | None:
        """Leave it where it stands; `None` when somebody wanted it stopped meanwhile."""
        work = loop.work
        found: AgentResult | None = None
        with anyio.CancelScope(shield=True):
            found = await park(work, loop.end.error)
        try:
            await anyio.lowlevel.checkpoint_if_cancelled()
        except anyio.get_cancelled_exc_class():
            await self._gave_up(loop)
            raise
        if loop.cancel_wanted:
            loop.cancelled()
            return None
        holding.over = True
        self._keep(work.session, work.transcript)
        return found

    async def _gave_up(self, loop: Loop) -> None:
        """Whoever waited for the run was cancelled, and so is the run."""
        with anyio.CancelScope(shield=True):
            loop.cancelled()
            if await on_record(loop.work):
                await self._ended(loop)

    async def _ended(self, loop: Loop) -> AgentResult:
        """Record how it ended."""
        work, session = loop.work, loop.work.session
        status = status_of(loop.turn)
        doubts: tuple[str, ...] = ()
        if status == "cancelled":
            await self._withdraw(work)
            doubts = await stopped(work)
        elif loop.turn.cause in (Cause.HOOK_DENIED, Cause.HOOK_FAILURE):
            await work.desk.settle()
            await session.withdraw(work.run_id)
        work.transcript.close()
        result = self._result(loop, status, doubts)
        session.pen.raise_failure()
        await work.desk.append([records_of(result)], durable=True)
        session.open_agent = None
        self._keep(session, work.transcript)
        await work.gate.guards.run_over(
            session.id, work.run_id, status, lambda: result.model_dump(mode="json")
        )
        return result

    async def _withdraw(self, work: Work) -> None:
        """Nobody need answer any more what the run asked."""
        session = work.session
        await work.gate.guards.run_cancelled(work.desk)
        await work.desk.settle()
        await session.withdraw(work.run_id)

    def _result(self, loop: Loop, status: str, doubts: tuple[str, ...]) -> AgentResult:
        work, extracting = loop.work, loop.extracting
        text = work.transcript.last_text if work.main_text is None else work.main_text
        fits = work.output is not None and extracting.reading is not None
        result = AgentResult(
            run_id=work.run_id,
            session_id=work.session.id,
            status=status,
            text=text,
            output=extracting.value if work.output is not None else text,
            output_error=None if work.output is None or fits else extracting.error,
            partial=extracting.partial,
            cause=cause_of(loop.turn),
            error=error_of(loop.turn, loop.end),
            usage=Usage(runs=1, **work.used),
            turns=work.turn_no,
            in_doubt=doubts,
        )
        redactor = work.gate.redactor
        if not redactor.names:
            return result
        return AgentResult.model_validate(redactor.json(result.model_dump(mode="json")))

    # -- parts ----------------------------------------------------------------------------------------

    async def _work(
        self,
        agent: Definition,
        models: list[Model],
        live: Session,
        run_id: str,
        transcript: Transcript,
        *,
        actor: str | None,
        account: str | None,
    ) -> Work:
        live.shared = await purses_of(self._journal, run_id, agent.spec.budget, account)
        purses = await live.purses()
        check_prices(agent.spec.prices, models, purses)
        desk = Desk(
            session_id=live.id,
            run_id=run_id,
            pen=live.pen,
            toolbox=live.toolbox,
            policy=live.policy,
            purses=purses,
            actor=actor or "holdfast",
        )
        return Work(
            spec=agent.spec,
            session=live,
            desk=desk,
            transcript=transcript,
            models=models,
            guards=AgentGuards(live.services.gate.guards, desk),
            sleep=self._sleep,
            output=agent.output,
            feed=self._feeds.of(run_id),
        )

    async def _conversation(self, live: Session) -> Transcript:
        """What was said in the session before."""
        warm = self._warm.pop(live.id, None)
        if live.limits is None:
            return Transcript()
        if warm is not None and warm[0] == live.pen.pos:
            return warm[1]
        return (await history_of(self._journal, live.id)).transcript

    def _keep(self, session: Session, transcript: Transcript) -> None:
        if len(self._warm) >= _WARM:
            self._warm.pop(next(iter(self._warm)))
        self._warm[session.id] = (session.pen.pos, transcript)

    def _recorded(self, history: History) -> Definition:
        """The agent as it is on record."""
        spec = history.spec
        if spec is None:
            raise NotFound("NOT_FOUND", "The run's agent is not on record.")
        output = Output.restored(spec.output) if spec.output is not None else None
        return Definition(spec, (spec.model, *spec.fallbacks), output=output)

    def _check(self, agent: Definition, prompt: str | None) -> None:
        if prompt is not None:
            self._check_said(prompt)
        self._check_secrets(agent.spec.instructions, "The instructions hold")

    def _check_said(self, text: str) -> None:
        if not text.strip():
            raise CallerError("INVALID_ARGUMENT", "The prompt is empty.", hint="Say what to do.")
        self._check_secrets(text, "The prompt holds")

    def _check_secrets(self, text: str, what: str) -> None:
        if self._shell.services.gate.redactor.text(text) != text:
            raise CallerError(
                "INVALID_ARGUMENT",
                f"{what} the value of a secret.",
                hint="Secrets do not go to models: give them to the capability that needs them.",
            )

    async def _row(self, run_id: str) -> dict[str, Any]:
        row: dict[str, Any] | None = await self._journal.row("runs", run_id)
        if row is None or row["kind"] != "agent":
            raise NotFound(
                "NOT_FOUND",
                f"There is no agent's run `{run_id[:80]}`.",
                hint="`holdfast runs list` names the runs there are.",
            )
        return row


@contextmanager
def _heard(work: Work) -> Generator[None]:
    """Let those who watch a run here hear of each of its records."""
    feed, pen = work.feed, work.session.pen
    if feed is not None:
        pen.heard, feed.live = feed.stir, True
        feed.stir()
    try:
        yield
    finally:
        pen.heard = None
        if feed is not None:
            feed.live = False
            feed.stir()


def _spec_body(spec: AgentSpec) -> Body:
    data = canonical_json(spec.model_dump(mode="json"))
    return Body.of(data, role="agent", mime="application/json")


def _started(
    work: Work, agent: Definition, prompt: str | None, actor: str | None, account: str | None
) -> Draft:
    spec = _spec_body(agent.spec)
    said_first = () if prompt is None else (inbox.message_body(prompt),)
    said = RunStarted(
        kind="agent",
        language=work.session.language,
        agent=spec.ref.digest,
        prompt=said_first[0].ref.digest if said_first else None,
        toolbox=work.session.toolbox.digest,
        actor=actor,
        account=account,
    )
    return Draft.of(said, run_id=work.run_id, bodies=(spec, *said_first))


def _restore(work: Work, history: History, row: dict[str, Any]) -> None:
    """Put a run's work where its records end."""
    # A question that failed is asked again under its number.
    answered = min(history.turn_no, history.answers)
    work.turn_no = history.turn_no if history.open_question is not None else answered
    work.tries = history.tries
    work.ordinal = max(history.pasts.calls, default=0)
    work.desk.responses = history.pasts.responses
    work.guards.resumed()
    work.desk.begun = True
    work.open_question = history.open_question
    work.main_text = history.main_text
    work.asked = history.asked
    if work.guards.hears_answers:
        work.unheard = history.unheard
    work.children = history.children
    for past in history.pasts.calls.values():
        if past.call_id is not None and not past.answered:
            work.pasts[past.call_id] = past
    work.used = {unit: n for unit, n in row["usage"].items() if unit != "runs"}
    if history.model is not None and models_of(work.spec) == models_of(history.spec):
        ids = [one.id for one in work.models]
        if history.model in ids:
            work.models = work.models[ids.index(history.model) :]

"""Runs of agents: started, parked where they wait, resumed in any process, ended. `hf.agents` of an open runtime."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Unpack, get_args

import anyio

from holdfast.agent import inbox, pins
from holdfast.agent.accounts import open_account, purses_of
from holdfast.agent.compact import restore
from holdfast.agent.connections import Connections, meet
from holdfast.agent.conversations import Conversations
from holdfast.agent.definition import Definition
from holdfast.agent.driving import drive
from holdfast.agent.feeds import Feeds, Listener
from holdfast.agent.guards import AgentGuards
from holdfast.agent.history import History, history_of
from holdfast.agent.holding import Holding
from holdfast.agent.loop import Loop
from holdfast.agent.prices import check_prices
from holdfast.agent.standing import (
    check_capabilities,
    give_up,
    refusal,
    spent_run,
    still_waits,
    turn_of,
)
from holdfast.agent.starting import begin, catch_up, resumed
from holdfast.agent.transcript import Transcript
from holdfast.agent.work import Sleep, Work
from holdfast.contracts import Setup, check_session_id, new_id
from holdfast.contracts.agent import AgentResult, Lane, Waiting
from holdfast.contracts.policy import Budget
from holdfast.errors import CallerError, Conflict, NotFound
from holdfast.gate.crossing import Desk
from holdfast.machines.outcome import TurnPhase
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
        self._conversations = Conversations(self._journal)

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
        async with AsyncExitStack() as held:
            hold = live.hold(
                holding, wait_ms=wait_ms, setup=agent.setup, more=agent.capabilities, resumes=spent
            )
            try:
                await held.enter_async_context(hold)
            except Conflict as why:
                raise await refusal(self._journal, session, why) from None
            if spent is not None:
                await give_up(live, spent)
            transcript = await self._conversations.take(live)
            work = await self._work(
                agent, models, live, holding.run_id, transcript, actor=actor, account=account
            )
            await begin(agent, work, prompt, actor, account)
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
            agent = agent or Definition.recorded(history.spec)
            return await self._go_on(agent, live, holding, history, row)

    async def say(self, session: str, text: str, *, lane: Lane = "steer") -> str:
        """Say something to a session; the name of the message.

        With `steer`, the run that is under way takes it at its next boundary, and goes on with it instead of
        completing; a run that stands takes it once it is resumed. With `queue`, and when there is no run, it waits
        for the next run in the session, which begins with it.
        """
        self._check_said(text)
        if lane not in get_args(Lane):
            raise CallerError(
                "INVALID_ARGUMENT",
                f"There is no lane {str(lane)[:40]!r}.",
                hint='`lane="steer"` is for the run under way, `lane="queue"` for the next one.',
            )
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
        return await self._conversations.look(session)

    # -- one run --------------------------------------------------------------------------------------

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
        catch_up(work, history, row)
        await meet(work.model)
        live.open_agent = holding.run_id
        await work.desk.append([resumed(agent, work, history, row)], durable=False)
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
            return await drive(loop, holding, self._conversations)
        finally:
            del self._working[session]

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

    def _check(self, agent: Definition, prompt: str | None) -> None:
        if prompt is not None:
            self._check_said(prompt)
        self._check_secrets(agent.spec.instructions, "The instructions hold")

    def _check_said(self, text: str) -> None:
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            kind = type(text).__name__
            raise CallerError(
                "INVALID_ARGUMENT", f"The prompt is no text, but `{kind}`.", hint="Give a string."
            )
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

"""The loop of `holdfast chat`. The runtime lives in a thread of its own, so the keyboard is heard while it works."""

from __future__ import annotations

import signal
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future, wait
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from holdfast import runtime
from holdfast.cli import _exit, _output
from holdfast.cli._agent_flags import agent_again, agent_of
from holdfast.cli._agent_go import STOPPING, told
from holdfast.cli._agent_result import show
from holdfast.cli._agent_tell import Teller, used
from holdfast.cli._inbox import ANSWERS, ASKED, filled, show_approval
from holdfast.cli._keyboard import Keyboard, Meanwhile
from holdfast.cli._screen import screen
from holdfast.cli._setup import setup_for
from holdfast.cli._stop import Interrupts, Stopped
from holdfast.cli._work import user
from holdfast.contracts import Json, new_id
from holdfast.contracts.view import Usage
from holdfast.errors import HoldfastError
from holdfast.server.views import agent_result

if TYPE_CHECKING:
    from holdfast.cli._screen import Screen
    from holdfast.contracts.agent import AgentResult
    from holdfast.runtime import Runtime
    from holdfast.shell.drive import CancelMode

T = TypeVar("T")

FIRST, NEXT = "you › ", "… "
COMMANDS = {
    "/help": "this",
    "/cost": "what the conversation used so far",
    "/tools": "what it may call here",
    "/sessions": "conversations there are; go on with one: holdfast chat --session-id S",
    "/resume": "go on with a run that waits",
    "/quit": "leave; the conversation stays (also Ctrl-D)",
}
HELP = (
    "\n".join(f"{name:<11}{what}" for name, what in COMMANDS.items())
    + """
A line that ends with \\ goes on. What you type while it works reaches it at its next step.
Ctrl-C stops it after the step it is at, Ctrl-C again at once."""
)

_POLL = 0.1
"""Seconds from one look to the next whether a run is over."""


class Chat:
    """One conversation with an agent."""

    def __init__(
        self, session: str, setup: dict[str, Any], agent: dict[str, Any], *, as_json: bool
    ) -> None:
        self._session = session
        self._setup = setup
        self._agent = agent
        self._as_json = as_json
        self._typed = sys.stdin.isatty() and sys.stdout.isatty() and not as_json
        self._code = 0
        self._before = Usage()
        self._begun = ""
        """What was typed of the next line when a run ended."""
        self._stops = 0
        """How often the run was to stop."""
        self._later: list[str] = []
        """Commands that were typed while it worked."""

    def talk(self) -> int:
        """Until there is no more to say; what to exit with."""
        with (
            start_blocking_portal() as portal,
            portal.wrap_async_context_manager(runtime.open()) as hf,
        ):
            self._portal: BlockingPortal = portal
            self._hf: Runtime = hf
            # A model that can't be had is said now, and not after the first question.
            made = agent_of(hf.settings, self._agent, None)
            self._before = self._call(self._total)
            if self._typed:
                self._greet(made.spec.model)
                self._typing()
            else:
                self._piped()
        return self._code

    # -- where words come from ------------------------------------------------------------------------

    def _piped(self) -> None:
        for line in sys.stdin:
            if line.strip() and not self._said(line.strip()):
                return

    def _typing(self) -> None:
        lines: list[str] = []
        with Keyboard(self._hf.settings.folder / "chat_history", lambda: COMMANDS) as keyboard:
            while True:
                while self._later:
                    if not self._said(self._later.pop(0)):
                        return
                begun, self._begun = self._begun, ""
                try:
                    line = keyboard.ask(NEXT if lines else FIRST, begun)
                except KeyboardInterrupt:
                    print()
                    lines.clear()
                    continue
                except EOFError:
                    print()
                    return
                lines.append(line.removesuffix("\\"))
                if line.endswith("\\"):
                    continue
                text = "\n".join(lines).strip()
                lines.clear()
                if text and not self._said(text):
                    return

    def _greet(self, model: str) -> None:
        out = _output.console()
        out.print(f"holdfast · {model} · session {self._session} · /help", style="dim")
        spent = used(self._before)
        if spent:
            out.print(f"so far: {spent}", style="dim")
        if self._call(self._standing) is not None:
            out.print("A run stands here; `/resume` goes on with it.", style="yellow")

    # -- what is done with them -----------------------------------------------------------------------

    def _said(self, text: str) -> bool:
        """Do what somebody says; whether there can be more."""
        try:
            if text.startswith("/") and not self._as_json:
                return self._command(text.split()[0])
            return self._answer(self._run(new_id("run"), lambda run_id: self._ran(run_id, text)))
        except HoldfastError as why:
            self._code = why.exit_code
            _output.tell_error(why, as_json=self._as_json)
            return self._typed

    def _command(self, name: str) -> bool:
        out = _output.console()
        match name:
            case "/help":
                out.print(HELP)
            case "/cost":
                out.print(used(self._call(self._total)) or "Nothing yet.")
            case "/tools":
                out.print(_output.visible(self._call(self._stubs)) or "Nothing.")
            case "/sessions":
                self._sessions()
            case "/resume":
                return self._resume()
            case "/quit" | "/exit":
                return False
            case _:
                out.print(f"There is no `{_output.visible(name)}`; `/help` lists what there is.")
        return True

    def _sessions(self) -> None:
        for one in self._call(lambda: self._hf.sessions.list()):
            here = "  (this one)" if one.id == self._session else ""
            told = f"{one.id}  {_output.clock(one.last_used_at)}  {one.runs} runs{here}"
            _output.console().print(told)

    def _resume(self) -> bool:
        standing = self._call(self._standing)
        if standing is None:
            _output.console().print("No run stands here.")
            return True
        return self._answer(self._run(standing, self._resumed))

    def _answer(self, result: AgentResult) -> bool:
        """Print what a run gave, after asking about what it waits for; whether there can be more."""
        while self._typed and result.status == "waiting_for_approval":
            if not self._decide(result):
                break
            result = self._run(result.run_id, self._resumed)
        self._code = _exit.of_agent(result)
        if self._as_json:
            _output.print_json(agent_result(result))
        else:
            total = used(self._call(self._total))
            show(result, heard=True, total=f"total {total}" if total else "")
        if self._stops and not self._typed:
            self._code = _output.INTERRUPTED
            return False
        return self._typed or result.status not in ("waiting_for_approval", "needs_attention")

    def _decide(self, result: AgentResult) -> bool:
        """Ask about each call that a run waits at; whether any of them was decided."""
        decided = False
        for approval in result.approvals:
            view = self._call(partial(self._hf.approvals.show, approval))
            show_approval(view, here=True)
            try:
                said = input(ASKED).strip()
                content = filled(view, ANSWERS.get(said[:1].lower()))
            except (KeyboardInterrupt, EOFError):
                print()
                return decided
            decision, reason = ANSWERS.get(said[:1].lower()), said.partition(" ")[2].strip()
            if decision is not None:
                self._decided(approval, decision, reason or None, content)
                decided = True
        return decided

    def _decided(self, approval: str, decision: str, reason: str | None, content: Json) -> None:
        inbox = self._hf.approvals
        try:
            self._call(
                lambda: inbox.decide(
                    approval, decision, actor=user(), reason=reason, via="cli", content=content
                )
            )
        except HoldfastError as why:
            _output.tell_error(why, as_json=False)  # too late, or not allowed: the run knows

    # -- in the runtime's thread ----------------------------------------------------------------------

    async def _ran(self, run_id: str, text: str) -> AgentResult:
        setup = await setup_for(self._hf, self._session, self._setup)
        agent = agent_of(self._hf.settings, self._agent, setup)
        return await self._hf.agents.run(
            agent, text, session=self._session, run_id=run_id, actor=user()
        )

    async def _resumed(self, run_id: str) -> AgentResult:
        setup = await setup_for(self._hf, self._session, self._setup)
        agent = await agent_again(self._hf, self._session, self._agent, setup)
        return await self._hf.agents.resume(run_id, agent, setup=setup)

    async def _standing(self) -> str | None:
        row = await self._hf.journal.row("sessions", self._session) or {}
        found = row.get("open_agent")
        return found if isinstance(found, str) else None

    async def _total(self) -> Usage:
        runs = await self._hf.runs.list(session=self._session, limit=10_000)
        units = [one.usage.model_dump() for one in runs if one.kind == "agent"]
        return Usage(**{name: sum(one[name] for one in units) for name in Usage.model_fields})

    async def _stubs(self) -> str:
        from holdfast.shell.services import setup_of

        setup = await setup_for(self._hf, self._session, self._setup)
        if setup is None:
            row = await self._hf.journal.row("sessions", self._session)
            setup = setup_of(self._hf.shell.services, row)
        return (await self._hf.shell.services.toolbox(setup)).stubs()

    def _call(self, work: Callable[[], Awaitable[T]]) -> T:
        return self._portal.call(work)

    # -- while it works -------------------------------------------------------------------------------

    def _run(self, run_id: str, work: Callable[[str], Awaitable[AgentResult]]) -> AgentResult:
        """A run, told while it goes on; what is typed meanwhile reaches it, and Ctrl-C stops it."""
        shown = None if self._as_json else screen()
        with ExitStack() as stack:
            interrupts = stack.enter_context(Interrupts())
            teller, keys = None, None
            if shown is not None:
                stack.enter_context(shown)
                teller = Teller(shown)
                if self._typed:
                    keys = stack.enter_context(Meanwhile(quiet=shown.moves))
            running = self._portal.start_task_soon(
                lambda: told(self._hf, run_id, lambda: work(run_id), teller)
            )
            self._stops = 0
            while not running.done():
                if interrupts.count > self._stops:
                    self._stops += 1
                    self._stop(run_id, running, teller)
                if keys is None or shown is None:
                    wait([running], timeout=_POLL)
                else:
                    self._hear(keys, shown)
            self._begun = keys.line if keys is not None else ""
        try:
            return running.result()
        except CancelledError:
            raise Stopped(signal.SIGINT).error from None

    def _hear(self, keys: Meanwhile, shown: Screen) -> None:
        for line in map(str.strip, keys.wait(_POLL)):
            when = "at its next step"
            if line.startswith("/"):
                self._later.append(line)
                when = "when it is done"
            else:
                self._portal.call(self._hf.agents.say, self._session, line)
            shown.block(f"  › {_output.visible(line)}  ({when})", "dim")
        shown.typed(keys.line)

    def _stop(self, run_id: str, running: Future[AgentResult], teller: Teller | None) -> None:
        """Stop a run: after the step it is at; asked for again, at once."""
        now = self._stops > 1
        mode = "now" if now else "after_effect"
        if not self._portal.call(self._cancel, mode, run_id):
            running.cancel()  # it waits for its session: nothing has begun
        elif teller is not None and not now:
            teller.note(STOPPING)

    async def _cancel(self, mode: CancelMode, run_id: str) -> bool:
        return self._hf.shell.cancel(self._session, mode=mode, run_id=run_id)

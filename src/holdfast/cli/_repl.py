"""The loop of `holdfast repl`. The runtime lives in a thread of its own, so it goes on while somebody types."""

from __future__ import annotations

import keyword
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from holdfast import runtime
from holdfast.cli import _exit, _output
from holdfast.cli._blocks import Blocks
from holdfast.cli._inbox import ANSWERS, ASKED, filled, show_approval
from holdfast.cli._keyboard import Keyboard
from holdfast.cli._result import show
from holdfast.cli._setup import setup_for
from holdfast.cli._work import user, without_result
from holdfast.contracts import RunResult, RunStatus
from holdfast.errors import CallerError, HoldfastError

if TYPE_CHECKING:
    from holdfast.runtime import Runtime

T = TypeVar("T")

FIRST, NEXT = ">>> ", "... "
HELP = """\
:help      this
:tools     what code may call here
:names     variables and functions of this session
:resume    go on with a run that waits
:reset     forget all variables and functions
:quit      leave; the session stays (also Ctrl-D)
An empty line ends a block. Ctrl-C stops a run, or drops what was typed."""

_KNOWN = ("current_policy", "describe_tool", "list_tools", "search_tools", "print", "len", "range")


class Repl:
    """One conversation with a session."""

    def __init__(
        self, session: str, fields: dict[str, Any], limits: dict[str, int], *, as_json: bool
    ) -> None:
        self._session = session
        self._fields = fields
        self._limits = limits
        self._as_json = as_json
        self._typed = sys.stdin.isatty()
        self._code = 0
        self._words: set[str] = set()

    def talk(self) -> int:
        """Until there is no more to say; what to exit with."""
        with (
            start_blocking_portal() as portal,
            portal.wrap_async_context_manager(runtime.open()) as hf,
        ):
            self._portal: BlockingPortal = portal
            self._hf: Runtime = hf
            if self._typed:
                self._greet()
                self._typing()
            else:
                self._piped()
        return self._code

    # -- where code comes from ------------------------------------------------------------------------

    def _piped(self) -> None:
        blocks = Blocks()
        for line in sys.stdin:
            for block in blocks.add(line.rstrip("\r\n")):
                if not self._said(block):
                    return
        if rest := blocks.rest():
            self._said(rest)

    def _typing(self) -> None:
        blocks = Blocks()
        with Keyboard(self._hf.settings.folder / "history", self._known):
            while True:
                try:
                    line = input(NEXT if blocks.pending else FIRST)
                except KeyboardInterrupt:
                    print()
                    blocks.drop()
                    continue
                except EOFError:
                    print()
                    return
                for block in blocks.add(line):
                    if block.strip() in (":quit", ":q"):
                        return
                    self._said(block)

    def _greet(self) -> None:
        self._learn()
        out = _output.console()
        out.print(f"holdfast · session {self._session} · :help", style="dim")
        with suppress(HoldfastError):
            standing = self._call(self._standing)
            if standing is not None:
                out.print(f"Run {standing} stands here; `:resume` goes on with it.", style="yellow")

    # -- what is done with it -------------------------------------------------------------------------

    def _said(self, block: str) -> bool:
        """Do what a block says; whether there can be another one."""
        text = block.strip()
        try:
            if text.startswith(":"):
                return self._command(text)
            result = self._run(lambda: self._ran(block))
        except HoldfastError as why:
            self._code = why.exit_code
            _output.tell_error(why, as_json=self._as_json)
            return self._typed
        return self._told(result, block)

    def _command(self, text: str) -> bool:
        out = _output.console()
        match text.split()[0]:
            case ":help" | ":h":
                out.print(HELP)
            case ":tools":
                out.print(_output.visible(self._call(self._stubs)) or "Nothing.")
            case ":names":
                out.print("  ".join(sorted(self._call(self._names))) or "None yet.")
            case ":reset":
                self._call(lambda: self._hf.shell.reset(self._session))
            case ":resume":
                return self._resumed()
            case ":quit" | ":q":
                return False
            case other:
                out.print(f"There is no `{_output.visible(other)}`; `:help` lists what there is.")
        return True

    def _resumed(self) -> bool:
        standing = self._call(self._standing)
        if standing is None:
            _output.console().print("No run stands here.")
            return True
        return self._told(self._run(lambda: self._again(standing)), "")

    def _told(self, result: RunResult, code: str) -> bool:
        while self._typed and not self._as_json and _waits(result):
            answered = self._asked(result)
            if answered is None:
                break
            result = answered
        self._code = _exit.of_result(result)
        if self._as_json:
            _output.print_json(result)
        else:
            show(result, code, self._session, footer=not self._typed)
        if self._typed:
            self._learn()
        stands = result.status in (RunStatus.WAITING_FOR_APPROVAL, RunStatus.INTERRUPTED)
        return self._typed or not stands

    def _asked(self, result: RunResult) -> RunResult | None:
        """Ask about the call a run waits at, and go on with it; `None`: later."""
        approval, run = str(result.approval_id), str(result.run_id)
        view = self._call(lambda: self._hf.approvals.show(approval))
        show_approval(view, here=True)
        try:
            answer = input(ASKED).strip().lower()[:1]
            content = filled(view, ANSWERS.get(answer))
        except (KeyboardInterrupt, EOFError):
            print()
            return None
        decision = ANSWERS.get(answer)
        if decision is None:
            return None
        try:
            self._call(
                lambda: self._hf.approvals.decide(
                    approval, decision, actor=user(), via="cli", content=content
                )
            )
        except HoldfastError as why:
            _output.tell_error(why, as_json=False)  # too late, or not allowed: the run knows
        return self._run(lambda: self._again(run))

    # -- in the runtime's thread ----------------------------------------------------------------------

    async def _ran(self, code: str) -> RunResult:
        setup = await setup_for(self._hf, self._session, self._fields)
        return await self._hf.shell.run(
            code, session=self._session, limits=self._limits, setup=setup, actor=user()
        )

    async def _again(self, run: str) -> RunResult:
        row = await self._hf.journal.row("runs", run) or {}
        found = None if row.get("parent") else await self._hf.runs.resume(run)
        if isinstance(found, RunResult):
            return found
        raise CallerError(
            "RUN_OPEN",
            "The code that stands here is an agent's.",
            hint=f"Go on with both: `holdfast chat --session-id {self._session}`, then `/resume`.",
        )

    async def _standing(self) -> str | None:
        row = await self._hf.journal.row("sessions", self._session) or {}
        found = row.get("open_run")
        return found if isinstance(found, str) else None

    async def _names(self) -> set[str]:
        return await self._hf.shell.names(self._session)

    async def _stubs(self) -> str:
        from holdfast.shell.services import setup_of

        setup = await setup_for(self._hf, self._session, self._fields)
        if setup is None:
            row = await self._hf.journal.row("sessions", self._session)
            setup = setup_of(self._hf.shell.services, row)
        toolbox = await self._hf.shell.services.toolbox(setup)
        self._words |= {one.name for one in toolbox.all()}
        return toolbox.stubs()

    def _learn(self) -> None:
        """What can be completed now."""
        with suppress(HoldfastError):
            self._call(self._stubs)
            self._words |= self._call(self._names)

    def _known(self) -> Iterable[str]:
        return {*self._words, *keyword.kwlist, *_KNOWN}

    def _call(self, work: Callable[[], Awaitable[T]]) -> T:
        return self._portal.call(work)

    def _run(self, work: Callable[[], Awaitable[RunResult]]) -> RunResult:
        """A run, which Ctrl-C stops."""
        running = self._portal.start_task_soon(work)
        while True:
            try:
                return running.result()
            except KeyboardInterrupt:
                self._portal.call(self._hf.shell.cancel, self._session)
            except HoldfastError as why:
                if why.status is None:
                    raise
                return without_result(why)


def _waits(result: RunResult) -> bool:
    return result.status is RunStatus.WAITING_FOR_APPROVAL and result.approval_id is not None

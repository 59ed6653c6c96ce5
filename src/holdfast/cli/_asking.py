"""One question to an agent, from the options to what is printed."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.cli import _exit, _output
from holdfast.cli._agent_flags import agent_of
from holdfast.cli._agent_go import told, until_cancelled
from holdfast.cli._agent_result import show
from holdfast.cli._agent_tell import Teller
from holdfast.cli._screen import screen
from holdfast.cli._setup import setup_for
from holdfast.cli._work import on_runtime, user
from holdfast.contracts import new_id
from holdfast.server.views import agent_result

if TYPE_CHECKING:
    from holdfast.contracts.agent import AgentResult
    from holdfast.runtime import Runtime


@dataclass(frozen=True, slots=True)
class Asking:
    """A question, checked as far as that needs nothing opened."""

    prompt: str
    session_id: str
    setup: dict[str, Any]
    """The parts of a `Setup` that were given."""
    agent: dict[str, Any]
    """The parts of an `AgentSpec` that were given."""
    output: dict[str, Any] | None
    """JSON Schema."""
    wait_ms: int

    def tell(self, *, as_json: bool) -> int:
        """Ask, tell what happens, print what came of it; what to exit with."""
        shown = None if as_json else screen()
        with shown or nullcontext():
            teller = None if shown is None else Teller(shown)
            result, number = on_runtime(lambda hf: self._ask(hf, teller), watched=False)
        if as_json:
            _output.print_json(agent_result(result))
        else:
            show(result, heard=True)
        return _exit.of_agent(result) if number is None else 128 + number

    async def _ask(self, hf: Runtime, teller: Teller | None) -> tuple[AgentResult, int | None]:
        setup = await setup_for(hf, self.session_id, self.setup)
        agent = agent_of(hf.settings, self.agent, setup, self.output)
        run_id = new_id("run")

        async def run() -> AgentResult:
            return await hf.agents.run(
                agent,
                self.prompt,
                session=self.session_id,
                run_id=run_id,
                actor=user(),
                wait_ms=self.wait_ms,
            )

        note = teller.note if teller is not None else _silent
        return await until_cancelled(
            hf, self.session_id, run_id, lambda: told(hf, run_id, run, teller), note
        )


def _silent(_: str) -> None:
    pass

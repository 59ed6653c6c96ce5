"""What the tests of an agent's hooks share: hooks that answer by a function, and ways to look at the record."""

from collections.abc import Callable
from typing import Any

import holdfast
from holdfast import Agent, hook
from holdfast.agent.history import history_of
from holdfast.contracts.hook_response import HookResponse
from holdfast.contracts.message import check_messages
from holdfast.contracts.model import ModelRequest
from holdfast.gate.hooks import Hook, HookInput
from holdfast.models.script import Step
from holdfast.models.scripted import Scripted
from holdfast.runtime.agent import Run

SEES = "content_capture_allowed"
ASKS_NOT = {"policy": {"rules": [{"id": "all", "then": "allow"}]}}

Answer = Callable[[HookInput], HookResponse | None]


def at(
    point: str,
    answer: Answer = lambda _: None,
    *rights: str,
    asked: list[HookInput] | None = None,
    **terms: Any,
) -> Hook:
    """A hook that answers by a function, with a deadline that no busy machine misses."""

    async def says(question: HookInput) -> HookResponse | None:
        if asked is not None:
            asked.append(question)
        return answer(question)

    fixed: dict[str, Any] = {"id": point, "rights": rights, "privacy": SEES, "timeout_ms": 60_000}
    if rights:
        fixed["failure"] = "deny"
    return hook(point, **{**fixed, **terms})(says)


def once(answer: Answer) -> Answer:
    """The answer to the first question; then none."""
    left = [answer]
    return lambda question: left.pop()(question) if left else None


def model(*script: Step, **terms: Any) -> Scripted:
    """A scripted model that keeps what it was asked."""
    return Scripted(list(script), keep_requests=True, **terms)


def texts(request: ModelRequest) -> list[str]:
    """What the model was sent, in words."""
    return [str(getattr(one, "text", "")) for one in request.messages]


async def decisions(hf: holdfast.Runtime, run: Run[Any]) -> list[tuple[str, str]]:
    """Point and outcome of every hook record of a run."""
    found: list[tuple[str, str]] = []
    async for record in hf.journal.read(run.session_id):
        if record.kind == "hook" and record.run_id == run.id:
            said: Any = record.payload["payload"]
            outcome = said.get("decision") or said["type"]
            found.append((str(record.payload["point"]), outcome.split("_")[0]))
    return found


async def check(hf: holdfast.Runtime, run: Run[Any]) -> None:
    """The conversation is valid, and the same when it is folded from the record."""
    live = await hf.agents.messages(run.session_id)
    folded = (await history_of(hf.journal, run.session_id)).transcript
    assert (live.messages, live.digest) == (folded.messages, folded.digest)
    if run.status in (
        "completed",
        "failed",
        "cancelled",
    ):  # one that stands has calls without results
        assert check_messages(live.messages) is None


async def ran(hf: holdfast.Runtime, agent: Agent[Any], prompt: str = "go") -> Run[Any]:
    """A run in a session of that name, whose record and conversation are in order."""
    run = await agent.run(prompt, session="s", runtime=hf)
    await check(hf, run)
    return run

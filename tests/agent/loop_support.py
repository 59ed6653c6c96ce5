"""What the tests of the loop share: a runtime whose waits are only noted, and ways to look at the record."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import holdfast
from holdfast import Agent
from holdfast.agent.agents import Agents
from holdfast.agent.compact import PROMPT
from holdfast.agent.history import history_of
from holdfast.contracts import Record
from holdfast.contracts.message import ToolMessage, check_messages
from holdfast.contracts.model import ModelRequest, ModelUsage
from holdfast.models.catalog import model
from holdfast.runtime.embedded import Thinking
from holdfast.testing import ScriptedModel

ASKS_NOT = {"policy": {"rules": [{"id": "all", "then": "allow"}]}}
"""A configuration in which nobody is asked."""


class Naps:
    """Waits that take no time."""

    def __init__(self) -> None:
        self.ms: list[int] = []
        """How long each would have been."""

    async def __call__(self, seconds: float) -> None:
        self.ms.append(round(seconds * 1000))


@asynccontextmanager
async def opened(
    url: Any = "memory:", config: Any = None, **more: Any
) -> AsyncGenerator[tuple[holdfast.Runtime, Naps]]:
    """A runtime that does not wait before it asks a model again."""
    async with holdfast.open(url, ASKS_NOT if config is None else config, **more) as hf:
        naps = Naps()
        yield (
            replace(hf, _thinking=Thinking(hf.shell, Agents(hf.shell, model=model, sleep=naps))),
            naps,
        )


def scripted(*lines: Any, **more: Any) -> ScriptedModel:
    """A model that says this, and remembers what it was asked."""
    return ScriptedModel([*lines], keep_requests=True, **more)


def written(author: Callable[[ModelRequest], Any], **more: Any) -> ScriptedModel:
    """A model that decides on each answer itself."""
    return ScriptedModel(author, keep_requests=True, **more)


def tools(model: Any, *capabilities: Any, **more: Any) -> Agent[str]:
    """An agent that calls each tool itself."""
    return Agent(model, capabilities=capabilities, code_mode=False, **more)


def used(tokens_in: int, tokens_out: int = 0, cost: int | None = None) -> ModelUsage:
    """What an answer used."""
    return ModelUsage(input_tokens=tokens_in, output_tokens=tokens_out, cost_micros=cost)


def sums_up(request: ModelRequest) -> bool:
    """Whether a question is for a summary."""
    last = request.messages[-1]
    return last.role == "user" and last.text == PROMPT


async def records(hf: holdfast.Runtime, session: str, kind: str | None = None) -> list[Record]:
    """A session's records, or those of a kind."""
    return [one async for one in hf.journal.read(session) if kind in (None, one.kind)]


async def said(hf: holdfast.Runtime, session: str, kind: str) -> list[dict[str, Any]]:
    """What the records of a kind say."""
    return [dict(one.payload) for one in await records(hf, session, kind)]


async def questions(hf: holdfast.Runtime, session: str) -> list[tuple[str, str]]:
    """Each question to a model: which one, and how it ended."""
    ends = {one.effect_id: one.payload for one in await records(hf, session, "effect_result")}
    return [
        (str(one.payload["name"]), str(ends[one.effect_id]["terminal_status"]))
        for one in await records(hf, session, "effect_intent")
        if one.payload["kind"] == "provider_request"
    ]


async def consistent(hf: holdfast.Runtime, session: str) -> None:
    """What each question was asked with is what its records fold to, and a provider would take it."""
    for one in await records(hf, session, "effect_intent"):
        if one.payload["kind"] != "provider_request":
            continue
        found = await history_of(hf.journal, session, upto=one.pos)
        assert found.transcript.digest == one.payload["context"], one.pos
        assert check_messages(found.transcript.messages) is None
    whole = await hf.agents.messages(session)
    assert check_messages(whole.messages) is None


async def results(hf: holdfast.Runtime, session: str) -> list[ToolMessage]:
    """What the model was shown of its calls."""
    found = await hf.agents.messages(session)
    return [one for one in found.messages if isinstance(one, ToolMessage)]

"""Hooks when a conversation is told in short: what they protect stays, also the next time."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.agent.hooks_support import at, decisions, ran, texts

import holdfast
from holdfast import Agent
from holdfast.agent.keeping import as_kept, kept_before
from holdfast.agent.transcript import COMPACTED
from holdfast.contracts.message import UserMessage
from holdfast.contracts.model import ModelRequest
from holdfast.gate.hooks import HookInput
from holdfast.models.script import Step, say
from holdfast.models.scripted import Scripted

OFTEN: dict[str, Any] = {"at_tokens": 1, "keep_turns": 1, "min_turns_between": 1}


def says(request: ModelRequest) -> Step:
    return say("SUMMARY" if "Summarise" in texts(request)[-1] else "fine")


def named(question: HookInput, word: str) -> list[str]:
    """The messages that have a word in them."""
    return [str(one["id"]) for one in question.messages or () if word in str(one.get("text"))]


async def talk(hf: holdfast.Runtime, agent: Agent[str], *prompts: str) -> Any:
    run: Any = None
    for prompt in prompts:
        run = await ran(hf, agent, prompt)
        assert run.status == "completed", run.error
    return run


async def test_what_a_hook_protects_is_kept_word_for_word_for_good() -> None:
    asks = Scripted(says, keep_requests=True)

    def keeps(question: HookInput) -> Any:
        found = named(question, "purple")
        return question.protect(*found) if found else None

    one = at("before_compaction", keeps, "mark_protected_context")
    prompts = ("one", "The code is purple 7.", "two", "three", "four", "five", "six")
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        await talk(hf, Agent(asks, compact=OFTEN), *prompts)
        kinds = [r.kind async for r in hf.journal.read("s")]
        assert kinds.count("context_compacted") >= 2
    last = texts(asks.requests[-1])
    assert last[0].startswith(COMPACTED)
    assert last[0].count("The code is purple 7.") == 1


async def test_what_there_is_not_can_not_be_protected() -> None:
    one = at("before_compaction", lambda q: q.protect("msg_999"), "mark_protected_context")
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        agent = Agent(Scripted(says), compact=OFTEN)
        run: Any = None
        for prompt in ("one", "two", "three"):
            run = await ran(hf, agent, prompt)
        assert (run.status, run.result.cause) == ("failed", "HookDenied")
        assert await decisions(hf, run) == [("before_compaction", "rejected")]


async def test_after_compaction_is_told_and_may_want_an_audit() -> None:
    asked = list[HookInput]()
    one = at(
        "after_compaction",
        lambda q: q.request("request_projection_audit_repair", "sure?"),
        "request_projection_audit_repair",
        asked=asked,
    )
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await talk(hf, Agent(Scripted(says), compact=OFTEN), "one", "two", "three")
        assert ("after_compaction", "accepted") in await decisions(hf, run)
    assert str((asked[0].messages or ({},))[0]["text"]).startswith(COMPACTED)


async def test_the_question_for_a_summary_passes_the_same_guards() -> None:
    """Who masks what goes to the provider masks it there, too."""
    asks = Scripted(says, keep_requests=True)

    def mask(question: HookInput) -> Any:
        clean = [
            {**one, "text": str(one["text"]).replace("1234", "[masked]")} if "text" in one else one
            for one in question.messages or ()
        ]
        return question.project(clean, "masked")

    one = at("before_model_call", mask, "modify_projection")
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        await talk(hf, Agent(asks, compact=OFTEN), "My pin is 1234.", "two", "three", "four")
    assert any("Summarise" in texts(one)[-1] for one in asks.requests)
    assert "1234" not in str([texts(one) for one in asks.requests])


@given(st.lists(st.text(), min_size=1), st.text())
def test_what_was_kept_is_found_again(kept: list[str], summary: str) -> None:
    text = f"{COMPACTED}\n{summary}\n\n{as_kept(kept)}"
    assert kept_before([UserMessage(text=text, notice=True)]) == kept

"""Hooks when a conversation is told in short: what they protect stays, also the next time."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.agent.hooks_support import at, check, decisions, ran, texts

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


async def test_the_summary_is_shown_to_the_hooks_that_look_at_answers() -> None:
    """One that is refused does not count; asked again as often as it may be, it does not come back for more."""
    asked = list[HookInput]()

    def judge(question: HookInput) -> Any:
        return question.retry("too short") if "SUMMARY" in str(question.result) else None

    one = at("after_model_call", judge, "request_retry", asked=asked)
    model = Scripted(says, keep_requests=True)
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        agent = Agent(model, compact=OFTEN, retry={"max_retries": 1, "initial_delay_ms": 0})
        run: Any = None
        for prompt in ("one", "two", "three"):
            run = await ran(hf, agent, prompt)
        summed = [texts(one)[-1] for one in model.requests if "Summarise" in texts(one)[-1]]
        seen = [one for one in asked if "SUMMARY" in str(one.result)]
        assert len(asked) == len(model.requests)
        assert len(summed) == len(seen) == 2
        assert len({one.effect_id for one in seen}) == 2
        # It asked a third time: that answer was refused, and it may not fail open.
        assert (run.status, run.result.cause) == ("failed", "HookDenied")
        assert await decisions(hf, run) == [
            ("after_model_call", "accepted"),
            ("after_model_call", "rejected"),
        ]


async def test_a_summary_that_is_refused_once_is_asked_for_again() -> None:
    def judge(question: HookInput) -> Any:
        return question.retry("too short") if "SUMMARY" in str(question.result) else None

    one = at("after_model_call", once_of(judge), "request_retry")
    model = Scripted(says, keep_requests=True)
    async with holdfast.open("memory:", {}, hooks=[one]) as hf:
        run = await talk(hf, Agent(model, compact=OFTEN), "one", "two", "three")
        assert ("after_model_call", "accepted") in await decisions(hf, run)
        assert run.messages[0].text.startswith(COMPACTED)
        await check(hf, run)
        replayed = await hf.agents.replay(run.id)
        assert replayed.same, replayed


async def test_a_hook_that_stops_the_run_over_a_summary_stops_it() -> None:
    def judge(question: HookInput) -> Any:
        return question.stop_run("no", "no") if "SUMMARY" in str(question.result) else None

    async with holdfast.open(
        "memory:", {}, hooks=[at("after_model_call", judge, "stop_run")]
    ) as hf:
        run: Any = None
        for prompt in ("one", "two", "three"):
            run = await ran(hf, Agent(Scripted(says), compact=OFTEN), prompt)
        assert (run.status, run.result.cause) == ("failed", "HookDenied")
        await check(hf, run)


def once_of(judge: Any) -> Any:
    """The first answer that is not none; then none."""
    said: list[Any] = []

    def answer(question: HookInput) -> Any:
        if not said and (found := judge(question)) is not None:
            said.append(found)
            return found
        return None

    return answer


@given(st.lists(st.text(), min_size=1), st.text())
def test_what_was_kept_is_found_again(kept: list[str], summary: str) -> None:
    text = f"{COMPACTED}\n{summary}\n\n{as_kept(kept)}"
    assert kept_before([UserMessage(text=text, notice=True)]) == kept

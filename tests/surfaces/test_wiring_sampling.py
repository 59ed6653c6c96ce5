"""What a real server wants a model asked: through the gate, on the budget of the run that called it."""

from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.gate.support import until
from tests.mcp.support import npm

import holdfast
from holdfast import Agent
from holdfast.contracts import Budget, Setup
from holdfast.contracts.message import TextPart
from holdfast.contracts.model import ModelAnswer, ModelProfile, ModelRequest, ModelUsage
from holdfast.errors import ModelError
from holdfast.runtime.sampling import MAX_TOKENS, request_of
from holdfast.testing import ScriptedModel, call, say, write_code

CODE = 'result = await all_trigger_sampling_request("Tell me", {tokens})'
EVERYTHING = npm("everything", sampling=True, connect_timeout_ms=30_000)
TOOL: dict[str, Any] = {"id": "tool", "tool": "all_*", "then": "allow"}
MODELS: dict[str, Any] = {"id": "models", "tool": "sampling:all", "then": "allow"}


def config(*rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"policy": {"rules": [*rules]}, "surfaces": {"all": EVERYTHING}, **more}


USED = ModelUsage(input_tokens=70, output_tokens=30)


def is_the_servers(request: ModelRequest) -> bool:
    """Whether it is a server that asks, with nothing but its own words."""
    return not request.tools


def model(asked: list[ModelRequest], first: Any) -> ScriptedModel:
    """A model that makes one call, tells a tale when the server asks, and says what came of it."""

    def answer(request: ModelRequest) -> Any:
        asked.append(request)
        if is_the_servers(request):
            return ModelAnswer(parts=(TextPart(text="A tale of two bits."),), usage=USED)
        return first if len(request.messages) == 1 else say("done")

    return ScriptedModel(answer)


async def results(hf: holdfast.Runtime, session: str, name: str) -> list[dict[str, Any]]:
    """What is on record of the effects of that name, which may have `*` in it."""
    named: set[str] = set()
    found: list[dict[str, Any]] = []
    async for one in hf.journal.read(session):
        if one.kind == "effect_intent" and fnmatch(str(one.payload["name"]), name):
            named.add(str(one.effect_id))
        if one.kind == "effect_result" and one.effect_id in named:
            found.append(dict(one.payload))
    return found


@pytest.mark.parametrize("code_mode", [True, False])
async def test_an_agents_model_is_asked_on_the_runs_budget(*, code_mode: bool):
    asked: list[ModelRequest] = []
    wanted = {"prompt": "Tell me", "maxTokens": 77}
    first = (
        write_code(CODE.format(tokens=77))
        if code_mode
        else call("all_trigger_sampling_request", **wanted)
    )
    agent = Agent(model(asked, first), code_mode=code_mode, budget={"tokens": 100_000})
    async with holdfast.open("memory:", config(TOOL, MODELS)) as hf:
        run = await agent.run("Go.", session="s", runtime=hf)
        assert run.status == "completed", run
        told = [one for one in asked if is_the_servers(one)]
        assert len(told) == 1
        assert (told[0].settings.max_tokens, told[0].tools) == (77, ())
        # The server's answer holds the model's words.
        assert "A tale of two bits." in str(asked[-1].messages)
        (done,) = await results(hf, "s", "sampling:all")
        assert done["terminal_status"] == "completed"
        assert done["spent"]["tokens"] == 100
        spent = await hf.journal.row("budgets", f"run:{run.id}")
        assert spent is not None
        used = sum([one["spent"]["tokens"] for one in await results(hf, "s", "model:*")], 100)
        assert (spent["tokens"], spent["held_tokens"]) == (used, 0)


async def test_a_person_is_asked_and_may_say_no():
    asked: list[ModelRequest] = []
    for decision, words in (("approved", "A tale of two bits."), ("denied", "not asked")):
        found: list[Any] = []
        agent = Agent(
            model(asked, call("all_trigger_sampling_request", prompt="Tell me")), code_mode=False
        )
        async with holdfast.open("memory:", config(TOOL)) as hf:

            async def go(
                hf: holdfast.Runtime = hf, found: list[Any] = found, agent: Agent[str] = agent
            ) -> None:
                found.append(await agent.run("Go.", session="s", runtime=hf))

            async with anyio.create_task_group() as group:
                group.start_soon(go)
                (view,) = await until(hf.approvals.list, lambda views: len(views) == 1)
                assert (view.tool, view.rule) == ("sampling:all", "default.sampling")
                assert isinstance(view.arguments, dict)
                assert "Tell me" in str(view.arguments["messages"])
                await hf.approvals.decide(view.id, decision, actor="ann")
            assert found[0].status == "completed"
            assert words in str(asked[-1].messages)


async def test_no_budget_no_question():
    asked: list[ModelRequest] = []
    agent = Agent(
        model(asked, call("all_trigger_sampling_request", prompt="Tell me", maxTokens=5000)),
        code_mode=False,
        budget={"tokens": 4000},
        settings={"max_tokens": 50},
    )
    async with holdfast.open("memory:", config(TOOL, MODELS)) as hf:
        await agent.run("Go.", session="s", runtime=hf)
        assert not any(is_the_servers(one) for one in asked)
        (done,) = await results(hf, "s", "sampling:all")
        assert done["error"]["code"] == "BUDGET_EXCEEDED"
        assert "not asked" in str(asked[-1].messages)


async def test_without_an_agent_the_settings_name_the_model(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(
        "from holdfast.testing import ScriptedModel, say\n"
        "tale = ScriptedModel(lambda request: say(f'It is {request.messages[-1].text}'))\n"
    )
    rules = (TOOL, MODELS)
    named = config(*rules, agent={"model": f"scripted:{script}:tale"})
    async with holdfast.open("memory:", named) as hf:
        run = await hf.shell.run(CODE.format(tokens=10))
        assert "It is Resource" in str(run.result), run
    async with holdfast.open("memory:", config(*rules)) as hf:
        run = await hf.shell.run(CODE.format(tokens=10))
        assert (run.status, run.error is not None and run.error.code) == (
            "runtime_error",
            "TOOL_ERROR",
        )


async def test_money_that_is_limited_is_not_spent_on_what_has_no_price(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(
        "from holdfast.testing import ScriptedModel, say\nclass Unpriced(ScriptedModel):\n    def estimate(self, sent, answer): return None\n"
        "tale = Unpriced([say('x')])\n"
    )
    named = config(TOOL, MODELS, agent={"model": f"scripted:{script}:tale"})
    async with holdfast.open("memory:", named) as hf:
        setup = Setup(budget=Budget(cost_micros=1000))
        run = await hf.shell.run(CODE.format(tokens=10), session="s", setup=setup)
        assert run.error is not None
        assert await results(hf, "s", "sampling:all") == []


# -- what is asked ------------------------------------------------------------------------------------


class Small:
    """A model of which only the profile is looked at."""

    id = "small:1"
    profile = ModelProfile(max_output_tokens=500)


def text(words: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": {"type": "text", "text": words}}


def requested(messages: Sequence[Any], **more: Any) -> tuple[ModelRequest, tuple[str, ...]]:
    asked = {"messages": messages, "maxTokens": 100, **more}
    return request_of("srv", asked, Small())  # type: ignore[arg-type]  # only its profile counts


def test_a_request_is_mapped():
    talk = [
        text("hi"),
        text("hello", "assistant"),
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    ]
    request, stops = requested(
        talk, systemPrompt="Be brief.", temperature=0.5, stopSequences=["\n"]
    )
    assert [(one.role, one.text) for one in request.messages] == [
        ("user", "hi"),
        ("assistant", "hello"),
        ("user", "a\nb"),
    ]
    assert (request.instructions, request.settings.temperature, stops) == (
        "Be brief.",
        0.5,
        ("\n",),
    )


@pytest.mark.parametrize(
    ("wanted", "most"), [(100, 100), (10**9, 500), (0, 1), (-5, 1), (None, 500)]
)
def test_the_answer_is_bounded(wanted: int | None, most: int):
    request, _ = requested([text("hi")], maxTokens=wanted)
    assert request.settings.max_tokens == most
    assert most <= MAX_TOKENS


@pytest.mark.parametrize(
    ("messages", "more", "words"),
    [
        (
            [{"role": "user", "content": {"type": "image", "data": "", "mimeType": "image/png"}}],
            {},
            "no text, but image",
        ),
        ([{"role": "user", "content": {"type": "tool_result"}}], {}, "no text, but tool_result"),
        ([text("hi")], {"tools": [{"name": "x"}]}, "tools of its own"),
        ([text("hi"), text("you", "assistant")], {}, "does not end with a question"),
        ([], {}, "does not end with a question"),
    ],
)
def test_what_cant_be_asked_is_refused_clearly(messages: Any, more: Any, words: str):
    with pytest.raises(ModelError, match=words):
        requested(messages, **more)

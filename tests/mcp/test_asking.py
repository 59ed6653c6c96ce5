"""What a server asks in the middle of a call, as it did until 2025."""

import json
from typing import Any

import anyio
import pytest
from tests.mcp.support import context, odd, opened, until

from holdfast.capabilities.mcp import LogLine, Services
from holdfast.contracts.approval import Asks
from holdfast.errors import ModelError
from holdfast.gate.executor import Answer, NeedsAnswer, Question

LOCKED = [{"name": "locked", "inputSchema": {"type": "object"}}]


async def asked(params: dict[str, Any] | None, answer: Answer) -> tuple[list[Question], Any]:
    """The questions that were put, and what the server was told."""
    questions: list[Question] = []

    def ask(question: Question) -> Answer:
        questions.append(question)
        return answer

    async with opened(odd()) as server:
        arguments: dict[str, Any] = {} if params is None else {"params": params}
        found = await server.call("ask", arguments, context(ask=ask))
        assert await server.call("echo", {}, context()) == "{}"
    return questions, json.loads(str(found))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            Answer("accept", {"city": "Rome"}),
            {"action": "accept", "content": {"city": "Rome"}},
        ),
        (Answer("decline"), {"action": "decline"}),
        (Answer("cancel"), {"action": "cancel"}),
        (Answer("accept", {"city": {"deep": 1}}), {"action": "cancel"}),
    ],
)
async def test_a_person_is_asked_and_the_server_is_told(answer: Answer, told: dict[str, Any]):
    (question,), found = await asked(None, answer)
    assert question.asks is Asks.INPUT
    assert question.message == "Which city?[2J"
    assert question.form is not None
    assert question.form["required"] == ["city"]
    assert found == told


async def test_what_is_left_out_of_a_form_is_what_the_form_has_there():
    properties = {"city": {"type": "string", "default": "Rome"}, "n": {"type": "integer"}}
    form = {"type": "object", "properties": properties}
    _, found = await asked({"message": "?", "requestedSchema": form}, Answer("accept", {"n": 2}))
    assert found["content"] == {"city": "Rome", "n": 2}


async def test_questions_have_the_same_keys_in_another_attempt():
    keys: list[str] = []

    def ask(question: Question) -> Answer:
        keys.append(question.key)
        return Answer("decline")

    async with opened(odd()) as server:
        await server.call("ask", {}, context("e1", ask=ask))
        await server.call("ask", {}, context("e1", ask=ask))
    assert keys == ["during-1", "during-1"]


async def test_that_nobody_can_be_asked_is_told_without_why():
    def ask(question: Question) -> Answer:
        raise ModelError("RATE_LIMITED", "The reason.")

    async with opened(odd()) as server:
        found = await server.call("ask", {}, context(ask=ask))
    assert "Nobody can be asked." in str(found)
    assert "reason" not in str(found)


async def test_a_person_is_sent_to_an_address():
    params = {"mode": "url", "message": "Go", "url": "https://x.y/z", "elicitationId": "1"}
    (question,), found = await asked(params, Answer("accept"))
    assert question.url == "https://x.y/z"
    assert question.form is None
    assert found == {"action": "accept"}


@pytest.mark.parametrize(
    "params",
    [
        {"mode": "url", "message": "Go", "url": "javascript:alert(1)", "elicitationId": "1"},
        {"mode": "url", "message": "Go", "url": "https://x/" + "y" * 3000, "elicitationId": "1"},
        {
            "message": "Fill",
            "requestedSchema": {"type": "object", "properties": {"a": "x" * 70_000}},
        },
    ],
)
async def test_what_can_not_be_asked_is_refused(params: dict[str, Any]):
    questions, found = await asked(params, Answer("accept"))
    assert not questions
    assert found.get("action") != "accept"


async def test_a_question_that_could_be_anybodys_is_declined_rather_than_guessed():
    lines: list[LogLine] = []
    found = None
    async with (
        opened(odd(), Services(log=lines.append)) as server,
        anyio.create_task_group() as group,
    ):
        group.start_soon(server.call, "hang", {}, context("other"))
        await until(lambda: len(server.calls.under_way) == 1)
        found = await server.call("ask", {}, context("mine"))
        group.cancel_scope.cancel()
    assert json.loads(str(found)) == {"action": "decline"}
    assert any("can't be told for which call" in one.text for one in lines)


async def test_an_address_to_go_to_first_is_a_question_and_then_the_call_is_made_again():
    async with opened(odd({"tools": LOCKED})) as server:
        with pytest.raises(NeedsAnswer) as why:
            await server.call("locked", {}, context())
        question = why.value.question
        assert question.url == "https://sign.in/here"
        assert question.message == "Sign in"
        accepted = {question.key: Answer("accept", None, question.state)}
        with pytest.raises(NeedsAnswer) as again:  # the server still says no: it is asked once more
            await server.call("locked", {}, context(answers=accepted))
        assert again.value.question.key != question.key
        declined = {question.key: Answer("decline", None, question.state)}
        with pytest.raises(ModelError, match="said decline"):
            await server.call("locked", {}, context(answers=declined))

"""Estimates of tokens."""

import json

from hypothesis import given
from hypothesis import strategies as st

from holdfast.contracts.message import AssistantMessage, TextPart, ToolCallPart, UserMessage
from holdfast.contracts.model import ModelRequest, OutputSpec, ToolSpec
from holdfast.models import by_bytes, message_tokens, request_tokens


@given(st.text())
def test_default_is_a_quarter_of_the_bytes(text: str):
    length = len(text.encode("utf-8", "surrogatepass"))
    assert by_bytes(text) == (max(1, length // 4) if text else 0)


def test_everything_a_model_reads_is_counted():
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    said = [
        UserMessage(text="four"),
        AssistantMessage(
            parts=(
                TextPart(text="eight by"),
                ToolCallPart(id="c", name="tool", arguments={"x": 1}),
                ToolCallPart(id="d", name="tool", malformed="{{{{"),
            )
        ),
    ]
    assert [message_tokens(one) for one in said] == [1, 2 + 1 + by_bytes('{"x": 1}') + 1 + 1]
    request = ModelRequest(
        said, "four", [ToolSpec("tool", "four", schema)], OutputSpec("o", schema)
    )
    conversation = sum(message_tokens(one) for one in said)
    about_tools = by_bytes("tool") + by_bytes("four") + by_bytes(json.dumps(schema))
    shape = by_bytes(json.dumps(schema))
    assert request_tokens(request) == by_bytes("four") + about_tools + shape + conversation


def test_another_counter_can_be_given():
    request = ModelRequest([UserMessage(text="two words")])
    assert request_tokens(request, lambda text: len(text.split())) == 2

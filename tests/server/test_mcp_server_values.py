"""Values, templates and answers on their way between capabilities, people and MCP clients."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import ElicitResult, ImageContent, TextContent

from holdfast import capability
from holdfast.contracts import ApprovalView, Decision
from holdfast.contracts.approval import Asks
from holdfast.errors import ModelError
from holdfast.server.mcp.content import contents_of, messages_of, parts_of, result_of
from holdfast.server.mcp.offers import Offered
from holdfast.server.mcp.questions import MAX_SHOWN, can_be_asked, form_of, said_in

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
PARTS = st.sampled_from(
    [{"type": "text", "text": "a"}, {"type": "image", "mime": "image/png", "data": "AA=="}]
)


@given(JSON)
def test_every_value_has_a_result_that_tells_it(value: Any):
    result = result_of(value, structured=True)
    assert (result.content == []) == (value is None)
    assert result.structured_content is None or result.structured_content == value
    assert contents_of("x://y", value).uri == "x://y"


@given(st.lists(PARTS, min_size=1))
def test_parts_stay_parts(parts: list[Any]):
    found = parts_of(parts)
    assert found is not None
    assert [one.type for one in found] == [one["type"] for one in parts]
    assert all(isinstance(one, TextContent | ImageContent) for one in found)


@given(JSON.filter(lambda value: not isinstance(value, str | list | dict)))
def test_what_is_no_message_is_refused(value: Any):
    with pytest.raises(ModelError, match="no message"):
        messages_of("p", value)


@capability
def thing(a: str, b: str) -> str:
    """A thing."""
    return a + b


@given(st.text(min_size=1), st.text(min_size=1))
def test_what_fills_a_template_is_found_in_its_uri(a: str, b: str):
    template = Offered("shop://{a}/x/{b}", thing.capability)
    assert template.variables == ["a", "b"]
    assert template.arguments(template.filled({"a": a, "b": b})) == {"a": a, "b": b}
    assert template.arguments("shop://a/x/b/c") is None
    assert template.arguments("other://a/x/b") is None


def question(**more: Any) -> ApprovalView:
    fields = {
        "id": "apr_1",
        "status": "pending",
        "tool": "pay",
        "side_effect": "write",
        "risk": "high",
        "summary": "Pay",
        "effect_id": "e",
        "requested_at": 1,
    }
    return ApprovalView.model_validate({**fields, **more})


@given(st.dictionaries(st.sampled_from(["decision", "reason", "x"]), st.text() | st.booleans()))
def test_only_the_exact_word_is_a_yes(content: dict[str, Any]):
    said = said_in(question(), ElicitResult(action="accept", content=content))
    assert said != "nothing"
    word = content.get("decision")
    assert (said.decision is Decision.APPROVED) == (word == "approve")


def test_a_person_is_offered_only_what_counts_and_told_what_is_cut():
    form = form_of(question(allowed=("approved", "denied"), arguments={"to": "x" * 10_000}))
    assert form.requested_schema["properties"]["decision"]["enum"] == ["approve", "deny"]
    assert len(form.message) < MAX_SHOWN + 1000
    assert "more characters (`holdfast approvals show apr_1`)" in form.message


@pytest.mark.parametrize(
    ("form", "fits"),
    [
        ({"type": "object", "properties": {"a": {"type": "string"}}}, True),
        (
            {"type": "object", "properties": {"a": {"type": "array", "items": {"enum": ["x"]}}}},
            True,
        ),
        ({"type": "object", "properties": {"a": {"type": "object"}}}, False),
        ({"type": "object", "properties": {"a": {"type": "array", "items": {}}}}, False),
        ({"type": "object", "properties": {"a": True}}, False),
        ({"type": "object", "properties": []}, False),
    ],
)
def test_forms_that_clients_can_not_show_are_not_sent(form: Any, fits: bool):
    assert can_be_asked(question(asks=Asks.INPUT, form=form)) == fits
    assert not can_be_asked(question(asks=Asks.SIGN_IN, url="https://x"))

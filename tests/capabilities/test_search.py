"""Search over capabilities."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.capabilities import Index
from holdfast.contracts import Capability


def tool(name: str, description: str = "", **parameters: str) -> Capability:
    properties: dict[str, Any] = {
        key: {"type": "string", "description": value} for key, value in parameters.items()
    }
    return Capability(
        name=name,
        description=description,
        input_schema={"type": "object", "properties": properties},
    )


TOOLS = [
    tool("send_invoice", "Send a bill to a customer.", customer="Who pays"),
    tool("list_customers", "Every customer there is."),
    tool("readText", "The text of a file.", path="Where it is mounted"),
    tool("fetch_json", "Get a document from a web server.", url="The address"),
    tool("write_text", "Write a file.", path="Where", text="What"),
]
INDEX = Index(TOOLS)


def found(query: str, limit: int = 20) -> list[str]:
    return [one.name for one in INDEX.search(query, limit=limit)]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("send_invoice", "send_invoice"),
        ("sendInvoice", "send_invoice"),
        ("read text", "readText"),
        ("bill", "send_invoice"),
        ("customer", "list_customers"),
        ("mounted", "readText"),
        ("address", "fetch_json"),
        ("url", "fetch_json"),
        ("inv", "send_invoice"),
        ("invoise", "send_invoice"),
        ("CUSTOMERS", "list_customers"),
    ],
)
def test_best_first(query: str, first: str):
    assert found(query)[0] == first


def test_no_words_list_all():
    assert found("") == sorted(one.name for one in TOOLS)
    assert found(" ?! ") == found("")


def test_nothing_matches():
    assert found("zebra") == []


def test_more_words_rank_higher():
    assert found("text file write")[0] == "write_text"


def test_limit():
    assert len(found("", limit=2)) == 2
    assert found("text", limit=1) == ["write_text"]
    assert found("", limit=0) == []


def test_nearest():
    assert INDEX.nearest("send_invoise") == "send_invoice"
    assert INDEX.nearest("zzz") is None


@given(st.text(), st.permutations(TOOLS))
def test_order_does_not_depend_on_how_they_were_given(query: str, tools: list[Capability]):
    assert [one.name for one in Index(tools).search(query)] == found(query)


def test_an_empty_index():
    assert Index([]).search("x") == []
    assert Index([]).search("") == []

"""What calls cost."""

import math

import pytest
from genai_prices import Usage, calc_price

from holdfast.contracts.message import UserMessage
from holdfast.contracts.model import ModelRequest, ModelUsage
from holdfast.models import estimate, model
from holdfast.models._providers import PROVIDERS
from holdfast.models.access import Access
from holdfast.models.price import Listing, context_tokens, cost_micros
from holdfast.models.pydantic_ai import ProviderModel
from holdfast.testing import ProviderServer, say


def listed(name: str, provider: str, **usage: int) -> int:
    """The library's own price, in micros, rounded up."""
    price = calc_price(Usage(**usage), name, provider_id=provider).total_price
    return math.ceil(price * 1_000_000)


@pytest.mark.parametrize(
    ("name", "provider"),
    [("gpt-5.2", "openai"), ("claude-opus-4-6", "anthropic"), ("gemini-2.5-pro", "google")],
)
def test_cost_is_that_of_the_list(name: str, provider: str):
    usage = ModelUsage(input_tokens=1_001, output_tokens=77, cache_read_tokens=500)
    cost = cost_micros(Listing((name,), provider), usage)
    assert cost == listed(
        name, provider, input_tokens=1_001, output_tokens=77, cache_read_tokens=500
    )
    assert cost


def test_estimate_takes_nothing_for_cached():
    known = estimate("openai:gpt-5.2", 1_000, 100)
    assert known == listed("gpt-5.2", "openai", input_tokens=1_000, output_tokens=100)
    cached = ModelUsage(input_tokens=1_000, output_tokens=100, cache_read_tokens=900)
    spent = cost_micros(Listing(("gpt-5.2",), "openai"), cached)
    assert known is not None
    assert spent is not None
    assert known > spent


@pytest.mark.parametrize(
    "id",
    [
        "openai:no-such-model",
        "ollama:llama3.2",
        "openai:gpt-5.2@http://127.0.0.1:1/v1",
        "scripted:any:thing",
        "mine:of-my-own",
    ],
)
def test_what_nobody_knows_has_no_price(id: str):
    assert estimate(id, 1_000, 100) is None


def test_another_address_has_no_price(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    assert estimate("openai:gpt-5.2", 1_000, 100) is None


def test_first_name_that_is_listed_counts():
    usage = ModelUsage(input_tokens=1_000)
    assert cost_micros(Listing(("gpt-5.2-new", "gpt-5.2"), "openai"), usage) == listed(
        "gpt-5.2", "openai", input_tokens=1_000
    )


def test_context_is_known_where_the_list_has_it():
    assert context_tokens(Listing(("gpt-5.2",), "openai")) == 400_000
    assert context_tokens(Listing(("nothing",), "openai")) is None
    profile = model("openai:gpt-5.2").profile
    assert profile.context_tokens == 400_000
    assert profile.structured


class AtHome(Access):
    """A server that counts as the provider itself."""

    @property
    def listing(self) -> Listing:
        return Listing((self.name,), "openai")


async def test_answer_says_what_it_cost():
    usage = ModelUsage(input_tokens=1_000, output_tokens=100, cache_read_tokens=400)
    with ProviderServer([say("Hello.", usage=usage)]) as server:
        access = AtHome("openai:gpt-5.2", PROVIDERS["openai"], "gpt-5.2", f"{server.url}/v1")
        async with ProviderModel(access) as asked:
            answer = await asked.request(ModelRequest([UserMessage(text="Hi.")]))
            assert asked.estimate(1_000, 100) == estimate("openai:gpt-5.2", 1_000, 100)
    assert answer.usage == usage.model_copy(
        update={
            "cost_micros": listed(
                "gpt-5.2", "openai", input_tokens=1_000, output_tokens=100, cache_read_tokens=400
            )
        }
    )

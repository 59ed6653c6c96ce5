"""The providers: where their keys and addresses are, and how their clients are made. Imports none before it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic_ai.models import Model as Inner

NO_KEY = "no-key"
"""What a server that wants no key is given: client libraries insist on one."""


@dataclass(frozen=True, slots=True)
class Provider:
    """One provider, as far as it differs from the others."""

    name: str
    """As in `name:model`."""
    key_variables: tuple[str, ...]
    """Environment variables that may hold the key; the first that is set counts."""
    url_variable: str
    """Environment variable that may hold another address."""
    make: Callable[[str, str | None, str], Inner[Any]]
    """A client: of a model's name, an address (`None`: the provider's own) and a key."""
    facts: Callable[[str], Mapping[str, Any] | None]
    """What is known about a model by its name."""
    listed_as: str | None
    """The provider in the price list."""
    needs_key: bool = True
    """Whether its own address answers nobody without one."""
    default_url: str | None = None
    """Where it is, for those whose client library does not know."""
    pictures: bool = True
    """Whether the models at its own address see pictures."""
    says_the_end: bool = True
    """Whether an answer that ends without a reason is one that was cut off."""


def _openai_chat(name: str, url: str | None, key: str) -> Inner[Any]:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai import OpenAIProvider

    # A stream that stops without a reason is not an answer.
    whole = OpenAIModelProfile(openai_chat_streaming_requires_finish_reason=True)
    provider = OpenAIProvider(base_url=url, api_key=key)
    return OpenAIChatModel(name, provider=provider, profile=whole)


def _openai_responses(name: str, url: str | None, key: str) -> Inner[Any]:
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    return OpenAIResponsesModel(name, provider=OpenAIProvider(base_url=url, api_key=key))


def _openai_facts(name: str) -> Mapping[str, Any] | None:
    from pydantic_ai.providers.openai import OpenAIProvider

    return OpenAIProvider.model_profile(name)


def _anthropic(name: str, url: str | None, key: str) -> Inner[Any]:
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    return AnthropicModel(name, provider=AnthropicProvider(base_url=url, api_key=key))


def _anthropic_facts(name: str) -> Mapping[str, Any] | None:
    from pydantic_ai.providers.anthropic import AnthropicProvider

    return AnthropicProvider.model_profile(name)


def _google(name: str, url: str | None, key: str) -> Inner[Any]:
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider

    return GoogleModel(name, provider=GoogleProvider(base_url=url, api_key=key))


def _google_facts(name: str) -> Mapping[str, Any] | None:
    from pydantic_ai.providers.google import GoogleProvider

    return GoogleProvider.model_profile(name)


def _ollama(name: str, url: str | None, key: str) -> Inner[Any]:
    from pydantic_ai.models.ollama import OllamaModel
    from pydantic_ai.providers.ollama import OllamaProvider

    return OllamaModel(name, provider=OllamaProvider(base_url=url, api_key=key))


def _ollama_facts(name: str) -> Mapping[str, Any] | None:
    from pydantic_ai.providers.ollama import OllamaProvider

    return OllamaProvider.model_profile(name)


PROVIDERS: dict[str, Provider] = {
    one.name: one
    for one in (
        Provider(
            "openai",
            ("OPENAI_API_KEY",),
            "OPENAI_BASE_URL",
            _openai_chat,
            _openai_facts,
            listed_as="openai",
        ),
        Provider(
            "openai-responses",
            ("OPENAI_API_KEY",),
            "OPENAI_BASE_URL",
            _openai_responses,
            _openai_facts,
            listed_as="openai",
        ),
        Provider(
            "anthropic",
            ("ANTHROPIC_API_KEY",),
            "ANTHROPIC_BASE_URL",
            _anthropic,
            _anthropic_facts,
            listed_as="anthropic",
        ),
        Provider(
            "google",
            ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
            "GOOGLE_GEMINI_BASE_URL",
            _google,
            _google_facts,
            listed_as="google",
        ),
        Provider(
            "ollama",
            ("OLLAMA_API_KEY",),
            "OLLAMA_BASE_URL",
            _ollama,
            _ollama_facts,
            listed_as=None,
            needs_key=False,
            pictures=False,
            default_url="http://127.0.0.1:11434/v1",
            says_the_end=False,
        ),
    )
}
"""Every provider, by the name that comes before the colon."""

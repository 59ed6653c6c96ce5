"""Every model there is passes the suite: the scripted one, and each provider's real client against a real server."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import pytest

from holdfast.models import Model, close, model
from holdfast.models.script import Step
from holdfast.testing import ModelConformance, ProviderServer, ScriptedModel


class TestScripted(ModelConformance):
    @asynccontextmanager
    async def model(self, script: Sequence[Step]) -> AsyncGenerator[Model]:
        yield ScriptedModel(script)


class OverHttp(ModelConformance):
    """A provider's client, and a server that speaks its protocol."""

    id: str
    path = ""

    @asynccontextmanager
    async def model(self, script: Sequence[Step]) -> AsyncGenerator[Model]:
        with ProviderServer(script) as server:
            found = model(f"{self.id}@{server.url}{self.path}")
            try:
                yield found
            finally:
                await close(found)


class TestOpenAIChat(OverHttp):
    id = "openai:gpt-5.2"
    path = "/v1"


class TestOpenAIResponses(OverHttp):
    id = "openai-responses:gpt-5.2"
    path = "/v1"


class TestAnthropic(OverHttp):
    id = "anthropic:claude-opus-4-6"


class TestGoogle(OverHttp):
    id = "google:gemini-2.5-pro"
    garbles = False


class TestOllama(OverHttp):
    id = "ollama:llama3.2"
    path = "/v1"


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)

"""Models by their ids: which there are, where they are, and whose key they get."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.contracts.message import UserMessage
from holdfast.contracts.model import ModelRequest
from holdfast.errors import ModelFailure
from holdfast.models import Model, Scripted, close, model
from holdfast.models.access import access
from holdfast.testing import ProviderServer

ASK = ModelRequest([UserMessage(text="Hi.")])
SCRIPT = ["Hello."]

KEYS = {
    "openai:gpt-5.2": "OPENAI_API_KEY",
    "openai-responses:gpt-5.2": "OPENAI_API_KEY",
    "anthropic:claude-opus-4-6": "ANTHROPIC_API_KEY",
    "google:gemini-2.5-pro": "GOOGLE_API_KEY",
}
HEADERS = {"anthropic": "authorization", "google": "x-goog-api-key"}


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*KEYS.values(), "GEMINI_API_KEY", "OPENAI_BASE_URL", "OLLAMA_API_KEY"):
        monkeypatch.delenv(name, raising=False)


async def ask(id: str, **more: Any) -> str:
    found = model(id, **more)
    try:
        return (await found.request(ASK)).message.text
    finally:
        await close(found)


def header(id: str) -> str:
    return HEADERS.get(id.partition(":")[0], "authorization")


def path(id: str) -> str:
    return "" if id.partition(":")[0] in HEADERS else "/v1"


@pytest.mark.parametrize("id", KEYS)
def test_nothing_is_imported_before_it_is_asked(id: str):
    program = f"""
import sys
from holdfast.models import model
found = model({id!r})
assert found.id == {id!r}
heavy = {{"pydantic_ai", "openai", "anthropic", "google", "httpx2", "genai_prices"}}
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"


@pytest.mark.parametrize("id", KEYS)
async def test_no_key_is_said_before_anything_is_sent(id: str):
    for asked in (id, f"{id}@http://127.0.0.1:1/v1#MY_OWN_KEY"):
        found = model(asked)
        with pytest.raises(ModelFailure) as caught:
            await found.request(ASK)
        assert caught.value.code == "MODEL_AUTH"
        assert (KEYS[id] if asked == id else "MY_OWN_KEY") in (caught.value.hint or "")
        with pytest.raises(ModelFailure) as caught:
            async for _ in found.stream(ASK):
                pass
        assert caught.value.code == "MODEL_AUTH"


@pytest.mark.parametrize("id", KEYS)
async def test_key_of_the_provider_is_not_sent_elsewhere(id: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(KEYS[id], "sk-very-secret")
    with ProviderServer(SCRIPT) as server:
        assert await ask(f"{id}@{server.url}{path(id)}") == "Hello."
    assert "sk-very-secret" not in str(server.requests)
    assert server.requests[0].headers[header(id)]


@pytest.mark.parametrize("id", KEYS)
async def test_key_that_is_named_is_sent(id: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MY_OWN_KEY", "sk-mine")
    with ProviderServer(SCRIPT, key="sk-mine") as server:
        assert await ask(f"{id}@{server.url}{path(id)}#MY_OWN_KEY") == "Hello."
        assert await ask(id, base_url=f"{server.url}{path(id)}", api_key_env="MY_OWN_KEY")
        assert await ask(id, base_url=f"{server.url}{path(id)}", api_key="sk-mine")
    assert all("sk-mine" in one.headers[header(id)] for one in server.requests)


@pytest.mark.parametrize("id", KEYS)
async def test_wrong_key_is_refused_by_the_server(id: str):
    with ProviderServer(SCRIPT, key="sk-right") as server, pytest.raises(ModelFailure) as caught:
        await ask(id, base_url=f"{server.url}{path(id)}", api_key="sk-wrong")
    assert caught.value.code == "MODEL_AUTH"
    assert "sk-wrong" not in str(caught.value)


async def test_environment_may_name_another_address(monkeypatch: pytest.MonkeyPatch):
    with ProviderServer(SCRIPT, key="sk-theirs") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-theirs")
        assert await ask("openai:gpt-5.2") == "Hello."


async def test_ollama_needs_no_key(monkeypatch: pytest.MonkeyPatch):
    assert access("ollama:llama3.2").url == "http://127.0.0.1:11434/v1"
    with ProviderServer(SCRIPT) as server:
        monkeypatch.setenv("OLLAMA_BASE_URL", f"{server.url}/v1")
        assert await ask("ollama:llama3.2") == "Hello."


@pytest.mark.parametrize("id", KEYS)
def test_secrets_are_told_to_whoever_redacts(id: str, monkeypatch: pytest.MonkeyPatch):
    assert access(id).secrets() == {}
    monkeypatch.setenv(KEYS[id], "sk-1")
    assert access(id).secrets() == {KEYS[id]: "sk-1"}
    assert access(id, api_key="sk-2").secrets() == {"api_key": "sk-2"}
    assert access(f"{id}@http://127.0.0.1:1").secrets() == {}


@pytest.mark.parametrize(
    "id",
    [
        "",
        "gpt-5.2",
        "openai:",
        "openai:@http://127.0.0.1/v1",
        "nobody:gpt-5.2",
        "openai:gpt@http://",
        "openai:gpt@ftp://example.com/v1",
        "openai:gpt@https://me:secret@example.com/v1",
        "scripted:",
        "scripted:no_such_module:script",
        "scripted:nothing.json",
        "scripted:json:no_such_attribute",
        "scripted:json:__name__",
        "scripted:nothing.py:script",
    ],
)
def test_id_that_names_no_model_is_refused_with_what_there_is(id: str):
    with pytest.raises(ModelFailure) as caught:
        model(id)
    assert caught.value.code == "MODEL_UNKNOWN"
    assert caught.value.exit_code == 2
    assert caught.value.hint
    assert "secret" not in str(caught.value)


def test_name_may_have_an_at_sign_and_colons():
    found = access("ollama:library/qwen3:8b@q4@http://127.0.0.1:8000/v1")
    assert found.name == "library/qwen3:8b@q4"
    assert found.base_url == "http://127.0.0.1:8000/v1"


async def test_script_by_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "answers.json").write_text('["From a file."]')
    (tmp_path / "my_script.py").write_text(
        "from holdfast.testing import ScriptedModel\n"
        "lines = ['From a list.']\n"
        "def decide(request): return 'From a function.'\n"
        "whole = ScriptedModel(['From a model.'], id='scripted:mine')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    said: dict[str, str] = {}
    for where in ("answers.json", "my_script:lines", "my_script.py:decide", "my_script:whole"):
        found = model(f"scripted:{where}")
        assert isinstance(found, Model)
        assert isinstance(found, Scripted)
        said[found.id] = (await found.request(ASK)).message.text
    assert said == {
        "scripted:answers.json": "From a file.",
        "scripted:my_script:lines": "From a list.",
        "scripted:my_script.py:decide": "From a function.",
        "scripted:mine": "From a model.",
    }

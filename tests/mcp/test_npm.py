"""Against real servers, as people run them."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.mcp.support import context, npm, opened, until

from holdfast.capabilities.mcp import Root, Services, Step
from holdfast.contracts import Json
from holdfast.errors import ModelError
from holdfast.gate.executor import Answer, Context, Question


async def sampled(request: Any, context: Context) -> dict[str, Json]:
    assert "Tell me" in str(request["messages"])
    return {"role": "assistant", "content": {"type": "text", "text": "A tale."}, "model": "m"}


async def test_everything(tmp_path: Path):
    steps: list[Step] = []
    questions: list[Question] = []

    def ask(question: Question) -> Answer:
        questions.append(question)
        return Answer("accept", {"name": "Ann", "check": True})

    services = Services(
        progress=steps.append, sample=sampled, roots=lambda: [Root(tmp_path.as_uri(), "data")]
    )
    async with opened(npm("everything", sampling=True), services, name="all") as server:
        assert server.protocol == "2025-11-25"
        assert not server.offers.refused
        by_name = {one.capability.name: one for one in server.offers.tools}
        assert by_name["all_get_sum"].tool == "get-sum"
        assert by_name["all_get_sum"].capability.side_effect == "read"
        await server.check()

        assert await server.call("echo", {"message": "hi"}, context()) == "Echo: hi"
        found: Any = await server.call("get-structured-content", {"location": "Chicago"}, context())
        assert set(found) == {"temperature", "conditions", "humidity"}
        found = await server.call("get-tiny-image", {}, context())
        assert [one["type"] for one in found] == ["text", "image", "text"]
        found = await server.call("get-resource-links", {"count": 2}, context())
        assert [one["type"] for one in found] == ["text", "resource_link", "resource_link"]
        with pytest.raises(ModelError, match=r"(?i)invalid") as why:
            await server.call("get-sum", {"a": "no number"}, context())
        assert why.value.code == "TOOL_ERROR"

        slow = {"duration": 0.2, "steps": 2}
        await server.call("trigger-long-running-operation", slow, context("e5"))
        await until(lambda: len(steps) == 2)
        assert {(one.effect_id, one.total) for one in steps} == {("e5", 2)}

        text = str(await server.call("trigger-elicitation-request", {}, context(ask=ask)))
        assert "Ann" in text
        assert questions[0].form is not None
        asked = {"prompt": "Tell me", "maxTokens": 10}
        assert "A tale." in str(await server.call("trigger-sampling-request", asked, context()))
        assert tmp_path.as_uri() in str(await server.call("get-roots-list", {}, context()))

        lines = await server.resources()
        assert {one.template for one in lines} == {True, False}
        body = await server.read("demo://resource/dynamic/text/1")
        assert body[0][1] == "text/plain"
        assert b"Resource 1" in body[0][0]
        assert "args-prompt" in {one.name for one in await server.prompts()}
        prompt: Any = await server.get_prompt("args-prompt", {"city": "Rome"})
        assert "Rome" in prompt[0]["content"]["text"]


async def test_a_cancelled_call_leaves_everything_as_it_was():
    async with opened(npm("everything")) as server:
        with anyio.move_on_after(0.2) as scope:
            slow = {"duration": 1000, "steps": 2}
            await server.call("trigger-long-running-operation", slow, context())
        assert scope.cancelled_caught
        assert await server.call("echo", {"message": "hi"}, context()) == "Echo: hi"


async def test_filesystem(tmp_path: Path):
    folder = tmp_path
    (folder / "note.txt").write_text("hello")
    async with opened(npm("filesystem", str(folder)), name="fs") as server:
        path = str(folder / "note.txt")
        read: Any = await server.call("read_text_file", {"path": path}, context())
        assert read == {"content": "hello"}
        more = {"path": str(folder / "new.txt"), "content": "new"}
        await server.call("write_file", more, context())
        assert (folder / "new.txt").read_text() == "new"
        with pytest.raises(ModelError, match="outside allowed"):
            await server.call("read_text_file", {"path": "/etc/passwd"}, context())
        effects = {one.tool: one.capability.side_effect.value for one in server.offers.tools}
        assert effects["read_text_file"] == "read"
        assert effects["write_file"] == "external_system"  # it says that it destroys


async def test_memory(tmp_path: Path):
    spec = npm("memory", env={"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")})
    async with opened(spec, name="mem") as server:
        ann = {"name": "Ann", "entityType": "person", "observations": ["likes tea"]}
        await server.call("create_entities", {"entities": [ann]}, context())
    async with opened(spec, name="mem") as server:
        found: Any = await server.call("search_nodes", {"query": "tea"}, context())
        assert [one["name"] for one in found["entities"]] == ["Ann"]

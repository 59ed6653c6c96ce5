"""Operations behind the gate: asked about, on record, and never made twice by accident."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.openapi.support import Opened, Web, document, get, opened, operation

import holdfast
from holdfast.capabilities import Foreign
from holdfast.contracts import Json
from holdfast.gate.executor import Context

BOTH = document(
    {"/x": {"get": operation(operationId="look"), "post": operation(operationId="make")}}
)
ALLOW = {"policy": {"rules": [{"id": "pets", "tool": "pets_*", "then": "allow"}]}}


def executors(api: Opened) -> list[Any]:
    """The tools, as a surface hands them to the gate."""

    def one(tool: str) -> Foreign:
        async def act(arguments: Mapping[str, Json], context: Context) -> Json:
            return await api.connection.call(tool, arguments, context)

        return Foreign(api[tool], act)

    return [one(tool) for tool in api.tools]


async def test_operations_ask_unless_a_rule_says_otherwise(web: Web, tmp_path: Path):
    async with opened(BOTH, tmp_path, base_url=web.url) as api:
        tools: Any = executors(api)
        async with holdfast.open("memory:", {}, capabilities=tools) as hf:
            for tool in ("pets_look", "pets_make"):
                run = await hf.shell.run(f"await {tool}()", session=tool)
                assert run.status == "waiting_for_approval"
        assert web.asked == []
    reads = {"GET *": "read"}
    async with opened(get(), tmp_path, base_url=web.url, side_effects=reads) as api:
        tools = executors(api)
        async with holdfast.open("memory:", {}, capabilities=tools) as hf:
            assert (await hf.shell.run("result = await pets_op()")).result == {}


async def test_a_lost_answer_of_what_must_not_happen_twice_is_a_doubt(web: Web, tmp_path: Path):
    web.answers = lambda _: (200, {"content-length": "9"}, b"x")  # and then it hangs up
    async with opened(BOTH, tmp_path, base_url=web.url) as api:
        tools: Any = executors(api)
        async with holdfast.open("memory:", ALLOW, capabilities=tools) as hf:
            made = await hf.shell.run("await pets_make()", session="a")
            look = await hf.shell.run("await pets_look()", session="b")
    assert (made.status, len(web.asked)) == ("interrupted", 2)
    assert look.error
    assert look.error.message.startswith("SURFACE_UNAVAILABLE: `look` got no answer")
    assert look.status == "runtime_error"


async def test_what_a_server_says_is_an_exception_that_code_can_catch(web: Web, tmp_path: Path):
    web.answers = lambda _: (409, {"content-type": "text/plain"}, b"taken")
    code = "try:\n    await pets_make()\nexcept RuntimeError as why:\n    result = str(why)\nresult"
    async with opened(BOTH, tmp_path, base_url=web.url) as api:
        tools: Any = executors(api)
        async with holdfast.open("memory:", ALLOW, capabilities=tools) as hf:
            run = await hf.shell.run(code)
    assert "409 Conflict: taken" in str(run.result)

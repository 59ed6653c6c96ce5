"""Calls that are made and read by hand: the same as those that the SDK makes and reads."""

from copy import deepcopy
from typing import Any

import pytest
from mcp_types import (
    CallToolResult,
    DiscoverResult,
    Implementation,
    InitializeResult,
    InputRequiredResult,
    ServerCapabilities,
)
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from holdfast.capabilities.mcp.answers import Answers
from holdfast.capabilities.mcp.content import Plain, plain, value_of
from holdfast.capabilities.mcp.session import Session
from holdfast.capabilities.mcp.wire import Wire
from holdfast.errors import ModelError

TEXT = {"type": "text", "text": "one"}
PLAIN: list[dict[str, Any]] = [
    {"content": [TEXT]},
    {"content": [TEXT, {"type": "text", "text": ""}]},
    {"content": [TEXT], "isError": False},
    {"content": [TEXT], "structuredContent": {"a": [1, None]}},
    {"content": [TEXT], "_meta": {"x": 1}},
]
OTHER: list[dict[str, Any]] = [
    {},
    {"content": []},
    {"content": [], "structuredContent": {"a": 1}},
    {"content": None},
    {"content": {}},
    {"content": ["one"]},
    {"content": [TEXT], "isError": True},
    {"content": [TEXT], "isError": None},
    {"content": [TEXT], "isError": "false"},
    {"content": [TEXT], "isError": 0},
    {"content": [TEXT], "structuredContent": None},
    {"content": [TEXT], "structuredContent": [1]},
    {"content": [TEXT], "_meta": None},
    {"content": [TEXT], "_meta": 7},
    {"content": [TEXT], "more": 1},
    {"content": [{**TEXT, "annotations": {"priority": 1}}]},
    {"content": [{**TEXT, "annotations": {"priority": 2}}]},
    {"content": [{**TEXT, "_meta": {}}]},
    {"content": [{"type": "text", "text": 7}]},
    {"content": [{"type": "text"}]},
    {"content": [{"type": "smell", "text": "x"}]},
    {"content": [TEXT, {"type": "image", "data": "AAAA", "mimeType": "image/png"}]},
    {"content": [TEXT], "requestState": "s"},
    {"requestState": "s"},
]
KINDS: list[dict[str, Any]] = [
    {},
    {"resultType": "complete"},
    {"resultType": "input_required"},
    {"resultType": "other"},
    {"resultType": None},
    {"resultType": 7},
]


class Told(Wire):
    """Answers every call with the same."""

    def __init__(self, result: dict[str, Any]) -> None:
        super().__init__(None, None, str, Answers())
        self.said: list[object] = []
        self._result = result

    @property
    def direct(self) -> bool:
        return True

    async def _called(self, answers: object, params: Any, on_progress: object) -> dict[str, Any]:
        self.said.append(params)
        return deepcopy(self._result)

    async def send_raw_request(
        self, method: str, params: Any, opts: Any = None, **more: Any
    ) -> dict[str, Any]:
        if method == "tools/call":
            return await super().send_raw_request(method, params, opts, **more)
        tools = [{"name": "t", "inputSchema": {"type": "object"}}]
        return {"tools": tools, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


def opened(wire: Wire, version: str) -> Session:
    session = Session(dispatcher=wire, log_level="info")
    can, server = ServerCapabilities(), Implementation(name="s", version="1")
    if version in MODERN_PROTOCOL_VERSIONS:
        session.adopt(DiscoverResult(supported_versions=[version], capabilities=can))
    else:
        session.adopt(
            InitializeResult(protocol_version=version, capabilities=can, server_info=server)
        )
    return session


async def given(wire: Told, version: str, *, by_hand: bool) -> object:
    session, arguments = opened(wire, version), {"a": None, "b": {"c": [1.5, "ä"]}}
    try:
        if by_hand:
            found = await session.call(wire, "t", arguments, None)
        else:
            found = await session.call_tool("t", arguments, allow_input_required=True)
        if isinstance(found, CallToolResult):
            return found.model_fields_set - {"meta"}, await value_of("t", found, None)
        return found
    except (ValidationError, ModelError) as why:
        return type(why), str(why)


@pytest.mark.parametrize("version", KNOWN_PROTOCOL_VERSIONS[-2:])
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("result", [*PLAIN, *OTHER], ids=str)
async def test_a_call_by_hand_is_the_sdks(
    version: str, kind: dict[str, Any], result: dict[str, Any]
):
    wire = Told({**result, **kind})
    theirs = await given(wire, version, by_hand=False)
    ours = await given(wire, version, by_hand=True)
    if isinstance(ours, Plain):
        assert isinstance(theirs, tuple)
        assert ours.value == theirs[1]
    else:
        assert ours == theirs
    assert isinstance(ours, InputRequiredResult) <= (version in MODERN_PROTOCOL_VERSIONS)
    assert wire.said[0] == wire.said[1]


@pytest.mark.parametrize("result", PLAIN[:4], ids=str)
def test_what_most_tools_give_is_plain(result: dict[str, Any]):
    assert plain({**result, "resultType": "complete"}) is not None


@pytest.mark.parametrize("result", OTHER, ids=str)
def test_what_has_to_be_looked_at_is_not(result: dict[str, Any]):
    assert plain(result) is None

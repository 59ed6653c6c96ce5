"""The SDK's session, with a shorter way for most calls: those that bring no answers along.

The SDK makes three models of a call, and reads its result twice. What is said, and what is taken for a result, is the
same here; a result of nothing but text is looked at by hand.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from mcp.client.session import ClientSession
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import CallToolResult, InputRequiredResult
from mcp_types.methods import validate_server_result
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter

from holdfast.capabilities.mcp.content import Plain, plain
from holdfast.capabilities.mcp.wire import Wire

Given: TypeAlias = Plain | CallToolResult | InputRequiredResult
"""What came of a call."""

_CALL = "tools/call"
_RESULT: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(
    CallToolResult | InputRequiredResult
)
# What only newer protocols know: there are two kinds of results. Of an older server's it counts for nothing.
_KINDS = frozenset({"resultType", "inputRequests", "requestState"})


class Session(ClientSession):
    """What we say to a server, and what it means by its answers."""

    async def call(
        self, wire: Wire, tool: str, arguments: dict[str, Any], on_progress: ProgressFnT | None
    ) -> Given:
        """Call a tool that was listed, while the wire is `direct`; raises what `call_tool` raises."""
        data: dict[str, Any] = {"method": _CALL, "params": {"name": tool, "arguments": arguments}}
        self._stamp(data, {})
        result = await wire.call(data["params"], on_progress)
        version = self.protocol_version or ""
        kinds = version in MODERN_PROTOCOL_VERSIONS
        complete = not kinds or result.get("resultType") == "complete"
        if complete and (found := plain(result)) is not None:
            return found
        validate_server_result(_CALL, version, result)
        if not kinds:
            result = {key: value for key, value in result.items() if key not in _KINDS}
        return _RESULT.validate_python(result, by_name=False)

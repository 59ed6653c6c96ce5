"""The MCP server of the bench, made with the SDK: three tools that give back what they get."""

from __future__ import annotations

from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import CallToolResult, ListToolsResult, TextContent

_WRITES = {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False}
TOOLS = {
    "echo": {"readOnlyHint": True, "openWorldHint": False},
    "keep": {**_WRITES, "idempotentHint": True},
    "send": _WRITES,
}
"""What each says about itself: a read, a write that may be repeated, one that may not."""

_SCHEMA = {"type": "object", "properties": {"i": {"type": "integer"}}, "required": ["i"]}


async def _listed(context: Any, params: Any) -> ListToolsResult:
    return ListToolsResult.model_validate(
        {
            "tools": [
                {"name": name, "description": name, "inputSchema": _SCHEMA, "annotations": hints}
                for name, hints in TOOLS.items()
            ]
        }
    )


async def _called(context: Any, params: Any) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=str(params.arguments["i"]))])


async def main() -> None:
    """Serve whoever started this."""
    server = Server("bench", on_list_tools=_listed, on_call_tool=_called)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)

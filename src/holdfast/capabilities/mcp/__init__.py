"""Tools, resources and prompts of MCP servers, over stdio and streamable HTTP.

`McpSource` is a `Source` (`capabilities/connection.py`): it opens connections, which offer capabilities. The SDK is
imported when the first one is opened. Read `source.py` first, then `connection.py`.
"""

from holdfast.capabilities.mcp.services import LogLine, PromptLine, Root, Services, Step
from holdfast.capabilities.mcp.source import McpSource

__all__ = ["LogLine", "McpSource", "PromptLine", "Root", "Services", "Step"]

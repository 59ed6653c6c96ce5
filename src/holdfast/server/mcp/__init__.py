"""holdfast as an MCP server: a safe, stateful sandbox for any client that speaks the protocol. The SDK is imported on use."""

from holdfast.server.mcp.http import mount

__all__ = ["mount"]

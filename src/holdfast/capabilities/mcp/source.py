"""MCP servers as a source of tools."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from holdfast.capabilities.mcp.services import Services
from holdfast.contracts.surface import HttpSurface, StdioSurface

if TYPE_CHECKING:
    from holdfast.capabilities.mcp.connection import McpConnection


class McpSource:
    """One MCP server: a program to start, or an address."""

    def __init__(
        self, name: str, spec: StdioSurface | HttpSurface, services: Services | None = None
    ) -> None:
        self.name = name
        self.spec = spec
        self.services = services or Services()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[McpConnection]:
        """A new connection. Raises `SURFACE_FAILED`, or what the signing of requests raises.

        A task of its own owns what the SDK opens, so nothing that happens to the server reaches into the caller's:
        a connection that is lost only says so. Leaving ends that task, and the server's process with it.
        """
        # Half a second of imports, while everybody else goes on.
        serving = await to_thread.run_sync(_serving)
        raised: Exception | None = None
        async with anyio.create_task_group() as group:
            closing = anyio.Event()
            owner = partial(serving.serve, self.name, self.spec, self.services, closing)
            opened: McpConnection | Exception = await group.start(owner)
            if isinstance(opened, Exception):
                raised = opened
            else:
                try:
                    yield opened
                except Exception as why:  # noqa: BLE001 - raised below, as it is and not in a group
                    raised = why
                finally:
                    closing.set()
        if raised is not None:
            raise raised


def _serving() -> ModuleType:
    from holdfast.capabilities.mcp import serving

    return serving

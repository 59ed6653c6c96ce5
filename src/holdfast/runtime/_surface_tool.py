"""A tool of a surface, as the gate sees it: bound to the tool that was offered, and to no connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from holdfast.capabilities._contract import Contract
from holdfast.capabilities.connection import Offer
from holdfast.contracts import Capability, Json
from holdfast.gate.executor import Context, Finding


class Calls(Protocol):
    """Who finds the connection that serves."""

    async def call(
        self, tool: SurfaceTool, arguments: Mapping[str, Json], context: Context
    ) -> Json:
        """Make one call."""
        ...

    async def reconcile(
        self, tool: SurfaceTool, arguments: Mapping[str, Json], context: Context
    ) -> Finding:
        """Find out what became of one."""
        ...


class SurfaceTool(Contract):
    """One tool of a surface; raises `INVALID_ARGUMENT` for a contract that is none."""

    def __init__(self, surface: str, offer: Offer, calls: Calls, *, reconciles: bool) -> None:
        super().__init__(offer.capability)
        self.surface = surface
        """Whose it is."""
        self.tool = offer.tool
        """What its server calls it."""
        self.reconciles = reconciles
        self.origin = f"surface `{surface}`"
        self._calls = calls

    def is_still(self, capability: Capability) -> bool:
        """Whether what is offered now is what this was made of."""
        return capability.digest == self.capability.digest

    async def execute(self, arguments: Mapping[str, Json], context: Context) -> Json:
        """Call it, on whatever connection serves by now."""
        return await self._calls.call(self, arguments, context)

    async def reconcile(self, arguments: Mapping[str, Json], context: Context) -> Finding:
        """Find out what became of a call; `unknown` where its server can't."""
        return await self._calls.reconcile(self, arguments, context)

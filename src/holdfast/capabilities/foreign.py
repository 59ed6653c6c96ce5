"""Capabilities whose contract was written by somebody else: a server of tools, a file, a test."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from holdfast.capabilities._contract import Contract
from holdfast.contracts import Capability, Json
from holdfast.gate.executor import Context, Finding

Act: TypeAlias = Callable[[dict[str, Any], Context], Awaitable[Json]]
Reconcile: TypeAlias = Callable[[dict[str, Any], Context], Awaitable[Finding]]


class Foreign(Contract):
    """A contract and the function that fulfils it; raises `INVALID_ARGUMENT` for a schema that is none."""

    reconciles: bool

    def __init__(
        self,
        capability: Capability,
        act: Act,
        reconcile: Reconcile | None = None,
        *,
        origin: str | None = None,
    ) -> None:
        super().__init__(capability)
        self.reconciles = reconcile is not None
        self.origin = origin or _where(act)
        self._act = act
        self._reconcile = reconcile

    async def execute(self, arguments: Mapping[str, Json], context: Context) -> Json:
        """Act, once, and give the result as it is."""
        return await self._act(dict(arguments), context)

    async def reconcile(self, arguments: Mapping[str, Json], context: Context) -> Finding:
        """Find out what became of an effect; `unknown` without a reconciler."""
        if self._reconcile is None:
            return Finding("unknown")
        return await self._reconcile(dict(arguments), context)


def _where(act: Act) -> str:
    module = inspect.getmodule(act)
    return f"{module.__name__ if module else '?'}:{getattr(act, '__qualname__', '?')}"

"""What a surface's definition says about its tools, whatever they come from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.capabilities.naming import named
from holdfast.contracts import Capability, SideEffect
from holdfast.contracts.surface import Surface
from holdfast.gate._expression_patterns import glob


class Offering:
    """Which tools are seen, what they are called, and what they may touch."""

    def __init__(self, surface: str, spec: Surface) -> None:
        self._spec = spec
        self._prefix = f"{surface}_" if spec.prefix is None else spec.prefix

    def sees(self, *called: str) -> bool:
        """Whether sessions see a tool, given everything that its source calls it."""
        spec = self._spec
        if spec.include and not any(_matches(one, called) for one in spec.include):
            return False
        return not any(_matches(one, called) for one in spec.exclude)

    def side_effect(self, *called: str) -> SideEffect | None:
        """What the definition says that a tool may touch; `None`: nothing."""
        told = self._spec.side_effects
        exact = next((told[one] for one in called if one in told), None)
        if exact is not None:
            return exact
        return next((effect for one, effect in told.items() if _matches(one, called)), None)

    def names(self, tools: Iterable[str]) -> dict[str, str]:
        """What code calls each of these tools."""
        return named(tools, self._prefix)


def changed(capability: Capability, **parts: Any) -> Capability:
    """The capability with other parts. (A copy would keep the digest of the first.)"""
    fields = {one: getattr(capability, one) for one in Capability.model_fields}
    return Capability(**{**fields, **parts})


def _matches(pattern: str, called: Iterable[str]) -> bool:
    matches = glob(pattern)
    return any(matches(one) for one in called)

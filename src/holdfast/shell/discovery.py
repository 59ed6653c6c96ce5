"""What code can ask about its own box: `list_tools`, `describe_tool`, `search_tools`, `current_policy`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.contracts import Capability, Json, SessionLimits
from holdfast.errors import ModelError


def discovery(
    capabilities: Sequence[Capability], limits: SessionLimits
) -> Mapping[str, Callable[..., Json]]:
    """The four built-in functions over what this session may call and use."""
    by_name = {one.name: one for one in capabilities}

    def list_tools() -> Json:
        return [_line(one) for one in capabilities]

    def describe_tool(name: str) -> Json:
        found = by_name.get(name)
        if found is None:
            raise ModelError(
                "UNKNOWN_TOOL",
                f"There is no capability {str(name)[:80]!r} in this session.",
                hint="list_tools() names those there are.",
            )
        return found.model_dump(mode="json")

    def search_tools(query: str) -> Json:
        words = str(query).lower().split()
        found = [one for one in capabilities if _mentions(one, words)]
        return [_line(one) for one in found]

    def current_policy() -> Json:
        told: dict[str, Json] = {
            "limits": limits.model_dump(mode="json"),
            "capabilities": [*sorted(by_name)],
            "denied": ["clock", "environment", "files", "network", "processes", "randomness"],
        }
        return told

    return {
        "list_tools": list_tools,
        "describe_tool": describe_tool,
        "search_tools": search_tools,
        "current_policy": current_policy,
    }


def _line(one: Capability) -> dict[str, Any]:
    return {"name": one.name, "description": one.description, "side_effect": one.side_effect.value}


def _mentions(one: Capability, words: Sequence[str]) -> bool:
    text = f"{one.name} {one.description}".lower()
    return all(word in text for word in words)

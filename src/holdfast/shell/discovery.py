"""What code can ask about its own box: `list_tools`, `describe_tool`, `search_tools`, `current_policy`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.contracts import Capability, Json, SessionLimits
from holdfast.errors import ModelError
from holdfast.gate.executor import Toolbox
from holdfast.gate.policy import Policy

_DENIED: list[Json] = ["clock", "environment", "files", "network", "processes", "randomness"]


def discovery(
    toolbox: Toolbox, policy: Policy, limits: SessionLimits
) -> Mapping[str, Callable[..., Json]]:
    """The four built-in functions over what this session may call and use."""

    def list_tools() -> Json:
        return [_line(one) for one in toolbox.all()]

    def describe_tool(name: str) -> Json:
        found = toolbox.get(str(name))
        if found is None:
            raise ModelError(
                "UNKNOWN_TOOL",
                f"There is no capability {str(name)[:80]!r} in this session.",
                hint="list_tools() names those there are.",
            )
        told: dict[str, Json] = found.capability.model_dump(mode="json")
        return {**told, "stub": toolbox.stubs([found.capability.name])}

    def search_tools(query: str) -> Json:
        return [_line(one) for one in toolbox.search(str(query))]

    def current_policy() -> Json:
        told: dict[str, Json] = {
            "limits": limits.model_dump(mode="json"),
            "capabilities": [one.name for one in toolbox.all()],
            "denied": _DENIED,
            "policy": policy.describe(),
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

"""From a tool, as its server describes it, to a capability; or why not.

What a server says about its own tools is a hint by somebody who is not trusted with more than that:

| it says | the call is |
|---|---|
| nothing | `external_system` |
| `readOnlyHint` | `read` |
| `readOnlyHint` and `openWorldHint` | `network`: the arguments leave for anywhere |
| `destructiveHint: false` and `openWorldHint: false` | `write` |
| anything else | `external_system` |

`side_effects` of the surface overrules all of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from holdfast.capabilities._contract import Contract
from holdfast.capabilities.connection import Offer, Offers
from holdfast.capabilities.offering import Offering
from holdfast.capabilities.words import clean, clean_schema, one_line
from holdfast.contracts import Capability, SideEffect
from holdfast.contracts.canonical import canonical_json
from holdfast.contracts.capability import CapabilityLimits
from holdfast.contracts.surface import McpSurface
from holdfast.errors import CallerError, HoldfastError

MAX_SCHEMA_BYTES = 64 * 1024
"""Canonical bytes of one schema."""

MAX_DEPTH = 40
"""How far objects and lists of one schema may be within each other."""

MAX_TOOLS = 1000
"""Tools of one server; what comes after is refused."""


def offers(surface: str, spec: McpSurface, listed: Sequence[object]) -> Offers:
    """The capabilities of a server that lists these tools."""
    told = Offering(surface, spec)
    refused: dict[str, str] = {}
    tools: dict[str, Mapping[str, Any]] = {}
    for number, one in enumerate(listed):
        name = cast("Mapping[str, Any]", one).get("name") if isinstance(one, Mapping) else None
        if not isinstance(name, str) or not name:
            refused[f"#{number + 1}"] = "it has no name"
        elif not told.sees(name):
            continue
        elif name in tools:
            refused[name] = "it is listed twice; the first counts"
        elif len(tools) >= MAX_TOOLS:
            refused[name] = f"there are more than {MAX_TOOLS} tools"
        else:
            tools[name] = cast("Mapping[str, Any]", one)
    names = told.names(tools)
    found: list[Offer] = []
    for tool, one in sorted(tools.items()):
        effect = told.side_effect(tool)
        try:
            found.append(Offer(tool, capability(names[tool], surface, spec, one, effect)))
        except (HoldfastError, ValueError) as why:
            refused[tool] = one_line(why.message if isinstance(why, HoldfastError) else str(why))
    return Offers(tuple(found), refused)


def capability(
    name: str, surface: str, spec: McpSurface, told: Mapping[str, Any], effect: SideEffect | None
) -> Capability:
    """One tool as a capability; raises `INVALID_ARGUMENT` for one that can't be. `effect` overrules its server."""
    tool = cast("str", told["name"])
    hints = _hints(spec, told)
    found = Capability(
        name=name,
        description=_description(tool, surface, told),
        input_schema=_schema(told.get("inputSchema"), "input schema", needed=True),
        output_schema=_schema(told.get("outputSchema"), "output schema"),
        side_effect=side_effect(hints) if effect is None else effect,
        limits=CapabilityLimits(timeout_ms=spec.timeout_ms),
        idempotent=hints.get("idempotentHint") is True or hints.get("readOnlyHint") is True,
        asynchronous=True,
    )
    Contract(found)
    return found


def side_effect(hints: Mapping[str, object]) -> SideEffect:
    """What a tool may touch, by what is said about it."""
    if hints.get("readOnlyHint") is True:
        return SideEffect.NETWORK if hints.get("openWorldHint") is True else SideEffect.READ
    if hints.get("destructiveHint") is False and hints.get("openWorldHint") is False:
        return SideEffect.WRITE
    return SideEffect.EXTERNAL_SYSTEM


def _hints(spec: McpSurface, told: Mapping[str, Any]) -> Mapping[str, object]:
    found = told.get("annotations")
    if not spec.trust_annotations or not isinstance(found, Mapping):
        return {}
    return cast("Mapping[str, object]", found)


def _description(tool: str, surface: str, told: Mapping[str, Any]) -> str:
    for key in ("description", "title"):
        text = told.get(key)
        if isinstance(text, str) and (shown := clean(text)):
            return shown
    return f"The tool `{one_line(tool, 80)}` of the MCP server `{surface}`."


def _schema(schema: object, what: str, *, needed: bool = False) -> dict[str, Any]:
    if schema is None and not needed:
        return {}
    if not isinstance(schema, dict):
        raise _bad(f"Its {what} is no object")
    found = cast("dict[str, Any]", schema)
    if _depth(found) > MAX_DEPTH:
        raise _bad(f"Its {what} is more than {MAX_DEPTH} deep")
    size = len(canonical_json(found))
    if size > MAX_SCHEMA_BYTES:
        raise _bad(f"Its {what} has {size} bytes, {MAX_SCHEMA_BYTES} are allowed")
    if needed and found.get("type") != "object":
        raise _bad(f"Its {what} is not of type `object`")
    return cast("dict[str, Any]", clean_schema(found))


def _depth(value: object) -> int:
    """Counted without recursion, and not further than it matters."""
    level: list[object] = [value]
    depth = 0
    while level and depth <= MAX_DEPTH:
        depth += 1
        level = [
            one
            for outer in level
            if isinstance(outer, dict | list)
            for one in (
                cast("dict[str, object]", outer).values()
                if isinstance(outer, dict)
                else cast("list[object]", outer)
            )
        ]
    return depth


def _bad(why: str) -> CallerError:
    return CallerError("INVALID_ARGUMENT", f"{why}.")

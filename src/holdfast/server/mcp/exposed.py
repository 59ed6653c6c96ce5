"""Capabilities and agents as tools of their own. A call of one is a run of one line of code: through the gate, on record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mcp_types import CallToolResult, Prompt, PromptArgument, TextContent, Tool, ToolAnnotations

from holdfast.contracts import Capability, Json, RunResult, RunStatus, SessionLimits, SideEffect
from holdfast.server.mcp import params as p
from holdfast.server.mcp.content import result_of, text_of
from holdfast.server.mcp.tools import BUILT_IN, schema_of

DIALECT = "https://json-schema.org/draft/2020-12/schema"
"""What the schemas of capabilities are written in."""
CALLS = "-calls"
"""Ends the name of the session of such calls: what code defines elsewhere does not stand in their way."""

_READS = (SideEffect.NONE, SideEffect.READ)
_MORE_MS = 2000


def name_of(capability: str) -> str:
    """The name of a capability's tool."""
    return f"call_{capability}" if capability in BUILT_IN else capability


def tool_of(capability: Capability) -> Tool:
    """A capability as clients are told about it."""
    schema = {"$schema": DIALECT, "type": "object", **capability.input_schema}
    return Tool(
        name=name_of(capability.name),
        description=capability.description,
        input_schema=schema,
        output_schema=capability.output_schema if is_structured(capability) else None,
        annotations=ToolAnnotations(
            read_only_hint=capability.side_effect in _READS,
            idempotent_hint=capability.idempotent,
        ),
    )


def agent_tool(name: str, instructions: str) -> Tool:
    """An agent as clients are told about it."""
    about = instructions.strip().split("\n", 1)[0][:500]
    return Tool(
        name=name,
        description=f"Ask the agent `{name}` to do something. {about}".strip(),
        input_schema=schema_of(p.AskAgent),
        annotations=ToolAnnotations(read_only_hint=False, open_world_hint=True),
    )


def prompt_of(capability: Capability) -> Prompt:
    """A capability as a prompt."""
    wanted = capability.input_schema.get("required")
    required = wanted if isinstance(wanted, list) else []
    return Prompt(
        name=capability.name,
        description=capability.description,
        arguments=[
            PromptArgument(name=name, description=_about(one), required=name in required)
            for name, one in fields(capability).items()
        ],
    )


def fields(capability: Capability) -> Mapping[str, Json]:
    """The parameters of a capability, as its schema has them."""
    found = capability.input_schema.get("properties")
    return found if isinstance(found, dict) else {}


def given_to(capability: Capability, said: Mapping[str, str]) -> dict[str, Json]:
    """Arguments that came as text, as the types that a capability wants."""
    known = fields(capability)
    return {name: _value(known.get(name), text) for name, text in said.items()}


def code_of(capability: Capability) -> str:
    """The call, as code."""
    wait = "await " if capability.asynchronous else ""
    return f"result = {wait}{capability.name}(**arguments)"


def time_of(capability: Capability, limits: SessionLimits) -> int:
    """How long such a run may take."""
    return max(limits.wall_ms, capability.limits.timeout_ms + _MORE_MS)


def is_structured(capability: Capability) -> bool:
    """Whether it gives an object."""
    return capability.output_schema.get("type") == "object"


def told(capability: Capability, result: RunResult) -> CallToolResult:
    """What a call gave. What it did not give yet is no result either: clients hold results against the schema."""
    if result.status is RunStatus.OK:
        return result_of(result.result, structured=is_structured(capability))
    error: Any = None if result.error is None else result.error.model_dump(mode="json")
    view = {"status": result.status.value, "error": error, "run_id": result.run_id}
    if result.approval_id is not None:
        view["approval_id"] = result.approval_id
        view["next"] = "Decide it (`approvals_decide`), then `run_resume` gives the result."
    return CallToolResult(content=[TextContent(text=text_of(view))], is_error=True)


def _about(schema: Json) -> str | None:
    said = schema.get("description") if isinstance(schema, dict) else None
    return said if isinstance(said, str) else None


def _value(schema: Json, text: str) -> Json:
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind in (None, "string"):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text  # refused where it is checked, with the reason

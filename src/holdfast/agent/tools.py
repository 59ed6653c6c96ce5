"""What a model is told it can do: one tool that runs code and a short index, or each capability as a tool of its own.

Both texts follow from the set of capabilities and nothing else, and come in the same order from call to call: a
provider's cache of the prompt survives as long as the set does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.contracts import Capability, Json
from holdfast.contracts.agent import Mode
from holdfast.contracts.model import ToolSpec
from holdfast.gate.executor import Toolbox

RUN_CODE = "run_code"
SEARCH = "search_tools"
DESCRIBE = "describe_tool"
READ_RESULT = "read_result"

OWN = frozenset((RUN_CODE, SEARCH, DESCRIBE, READ_RESULT))
"""Names that are holdfast's."""

_SIGNATURES = 12
"""Up to so many capabilities, the index has their signatures."""
_NAMES = 40
"""Up to so many, their names; above that, groups of them."""

_CODE_TOOL = ToolSpec(
    RUN_CODE,
    "Run Python in your session; variables and functions stay for the next run. Gives what it printed and"
    " `result`, or the value of its last expression.",
    {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "The program."}},
        "required": ["code"],
        "additionalProperties": False,
    },
)
_SEARCH_TOOL = ToolSpec(
    SEARCH,
    "Find functions that your code can call, by words.",
    {
        "type": "object",
        "properties": {"query": {"type": "string"}},
        "required": ["query"],
        "additionalProperties": False,
    },
)
_DESCRIBE_TOOL = ToolSpec(
    DESCRIBE,
    "The signature of one of these functions, and what it does.",
    {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
        "additionalProperties": False,
    },
)
_READ_TOOL = ToolSpec(
    READ_RESULT,
    "More of a result that was shown in part.",
    {
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "As the part names it."},
            "offset": {"type": "integer", "minimum": 0},
            "length": {"type": "integer", "minimum": 1},
        },
        "required": ["id"],
        "additionalProperties": False,
    },
)


@dataclass(frozen=True, slots=True)
class Tools:
    """What a model is told about what it can do."""

    specs: tuple[ToolSpec, ...]
    """The tools it is given."""
    index: str
    """What it is told about them in words; goes to the end of its instructions."""


def tools_of(toolbox: Toolbox, mode: Mode, *, unsupported: str = "") -> Tools:
    """What a model is told; `unsupported` is what its code can't use, as the engine lists it."""
    if mode == "tools":
        specs = tuple(_direct(one) for one in toolbox.all())
        return Tools((*specs, _READ_TOOL) if specs else (), "")
    capabilities = toolbox.all()
    if not capabilities:
        return Tools((_CODE_TOOL,), _code_index(toolbox, capabilities, unsupported))
    return Tools(
        (_CODE_TOOL, _SEARCH_TOOL, _DESCRIBE_TOOL), _code_index(toolbox, capabilities, unsupported)
    )


def _direct(one: Capability) -> ToolSpec:
    schema: dict[str, Json] = one.input_schema or {"type": "object", "properties": {}}
    return ToolSpec(one.name, one.description, schema)


def _code_index(toolbox: Toolbox, capabilities: Sequence[Capability], unsupported: str) -> str:
    lines = [
        "Act by writing Python for `run_code`. It runs in a box: no files, no network, no packages;"
        " the functions below are the only way out. Do whole jobs in one program: loop, filter and"
        " combine in code, and print or return only what you need to see.",
    ]
    if unsupported:
        lines.append(unsupported)
    if capabilities:
        lines.append(_functions(toolbox, capabilities))
    return "\n\n".join(lines)


def _functions(toolbox: Toolbox, capabilities: Sequence[Capability]) -> str:
    names = [one.name for one in capabilities]
    if len(names) <= _SIGNATURES:
        return f"Functions:\n```python\n{toolbox.stubs(names).strip()}\n```"
    more = "Find one with search_tools, and get its signature with describe_tool before you use it."
    if len(names) <= _NAMES:
        return f"Functions: {', '.join(names)}. {more}"
    groups = Counter(name.split("_", 1)[0] for name in names)
    listed = ", ".join(f"{name}_* ({n})" for name, n in sorted(groups.items())[:_NAMES])
    return f"There are {len(names)} functions: {listed}. {more}"

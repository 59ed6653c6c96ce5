"""Python stubs of capabilities, from their contracts alone: for the model to read and the type checker to use."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.capabilities._contract import Parameter, parameters, takes_more
from holdfast.capabilities._names import is_plain
from holdfast.capabilities._types import Type, Types
from holdfast.contracts import Capability, Json

_MAX_DOC = 200


def python_stubs(capabilities: Iterable[Capability]) -> str:
    """Stubs of these capabilities, by name: always valid Python, and the same bytes for the same contracts."""
    found = sorted(capabilities, key=lambda one: one.name)
    types = Types(frozenset(one.name for one in found))
    functions = [_function(one, types) for one in found]
    parts = [types.imports(), *types.classes(), *functions]
    return "\n\n".join(part for part in parts if part) + "\n" if functions else ""


def signature(capability: Capability) -> str:
    """The capability on one line, objects as plain `dict`: `send(to: str, cents: int = 5) -> dict[str, Any]`."""
    return _signature(capability, Types(frozenset((capability.name,)), name_objects=False))


def _function(one: Capability, types: Types) -> str:
    head = f"{'async ' if one.asynchronous else ''}def {_signature(one, types)}:"
    said = _first_line(one.description)
    return f'{head}\n    """{said}"""' if said else f"{head} ..."


def _signature(one: Capability, types: Types) -> str:
    result = types.of(one.output_schema, one.output_schema, f"{one.name}_result")
    return f"{one.name}({', '.join(_parameters(one, types))}) -> {result}"


def _parameters(one: Capability, types: Types) -> list[str]:
    every = parameters(one)
    shown = [parameter for parameter in every if is_plain(parameter.name)]
    written: list[str] = []
    for parameter in shown:
        if parameter.keyword_only and "*" not in written:
            written.append("*")
        written.append(_parameter(parameter, one, types))
    if len(shown) < len(every) or takes_more(one):
        rest = "rest"
        while any(parameter.name == rest for parameter in shown):
            rest += "_"
        written.append(f"**{rest}: {types.typing('Any')}")
    return written


def _parameter(parameter: Parameter, one: Capability, types: Types) -> str:
    hint = types.of(parameter.schema, one.input_schema, f"{one.name}_{parameter.name}")
    written = f"{parameter.name}: {hint}"
    return written if parameter.required else f"{written} = {_default(parameter.schema, hint)}"


def _default(schema: Json, hint: Type) -> str:
    """The default if it is short and surely of the declared type, else `...`."""
    value = schema.get("default", ...) if isinstance(schema, dict) else ...
    if value is not None and not isinstance(value, bool | int | float | str):
        return "..."
    text = repr(value)
    return text if len(text) <= 40 and hint.takes(value) else "..."


def _first_line(description: str) -> str:
    line = next((line for line in description.splitlines() if line.strip()), "")
    text = "".join(char if char.isprintable() else " " for char in line).strip()
    text = text if len(text) <= _MAX_DOC else f"{text[:_MAX_DOC]}…"
    text = text.replace("\\", "\\\\")
    return text.replace('"', '\\"') if '"""' in text or text.endswith('"') else text

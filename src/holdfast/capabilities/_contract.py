"""What follows from a capability's contract alone: how a call's arguments bind, and whether values fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from holdfast.capabilities._names import check_name, is_plain
from holdfast.capabilities._schema import Schema, pointer
from holdfast.contracts import Capability, Json
from holdfast.errors import CallerError, ModelError

_MAX_SIGNATURE = 500


class Parameter(NamedTuple):
    """One parameter of a capability, as its input schema has it."""

    name: str
    schema: Json
    required: bool
    keyword_only: bool = False
    """It, or one before it, can't stand in a row of positions: no identifier, or required behind an optional one."""


def local(schema: Json, root: Mapping[str, Any]) -> Json:
    """`schema` with a leading chain of local references followed; `{}` for one that leads nowhere."""
    for _ in range(32):
        if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
            return schema
        found: Any = root
        for part in cast("str", schema["$ref"]).removeprefix("#").split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            found = cast("dict[str, Any]", found).get(part) if isinstance(found, dict) else None
        schema = cast("Json", found) if isinstance(found, dict) else {}
    return {}


def parameters(capability: Capability) -> tuple[Parameter, ...]:
    """The parameters in the order of the schema's properties, which is that of positional arguments."""
    root = capability.input_schema
    schema = local(cast("Json", root), root)
    if not isinstance(schema, dict) or not isinstance(properties := schema.get("properties"), dict):
        return ()
    wanted = schema.get("required")
    required = {one for one in wanted if isinstance(one, str)} if isinstance(wanted, list) else ()
    found: list[Parameter] = []
    optional = named = False
    for name, one in properties.items():
        named = named or not is_plain(name) or (optional and name in required)
        optional = optional or name not in required
        found.append(Parameter(name, one, name in required, named))
    return tuple(found)


def takes_more(capability: Capability) -> bool:
    """Whether it takes arguments that its schema does not name."""
    root = capability.input_schema
    schema = local(cast("Json", root), root)
    if not isinstance(schema, dict):
        return True
    more, properties = schema.get("additionalProperties"), schema.get("properties")
    if more is False:
        return False
    if more is not None or "patternProperties" in schema or not isinstance(properties, dict):
        return True
    required = schema.get("required")
    return isinstance(required, list) and any(one not in properties for one in required)


class Contract:
    """A capability whose calls and results are checked against its schemas."""

    capability: Capability

    def __init__(self, capability: Capability) -> None:
        self.capability = capability
        name = check_name(capability.name)
        self._input = Schema(capability.input_schema, f"The input schema of `{name}`")
        self._output = Schema(capability.output_schema, f"The output schema of `{name}`")
        self._parameters = parameters(capability)
        self._positional = [one.name for one in self._parameters if not one.keyword_only]
        self._names = frozenset(one.name for one in self._parameters)
        self._required = frozenset(one.name for one in self._parameters if one.required)
        self._takes_more = takes_more(capability)

    @property
    def place(self) -> object:
        """What is the same of two that are one."""
        return id(self)

    def bind(self, args: Sequence[Json], kwargs: Mapping[str, Json]) -> dict[str, Json]:
        """The call's arguments by name, defaults left out; raises `INVALID_ARGUMENT` for a call that fits no way."""
        if len(args) > len(self._positional):
            most = len(self._positional)
            by_position = f"{most} argument{'s' if most != 1 else ''} by position"
            raise self._refused(f"takes {by_position}, {len(args)} were given")
        bound = dict(zip(self._positional, args, strict=False)) if args else {}
        for name, value in kwargs.items():
            if name in bound:
                raise self._refused(f"got `{name}` twice, by position and by name")
            if name not in self._names and not self._takes_more:
                raise self._refused(f"has no parameter `{name[:80]}`")
            bound[name] = value
        if not bound.keys() >= self._required:
            missing = self._required - bound.keys()
            named = [f"`{one.name}`" for one in self._parameters if one.name in missing]
            raise self._refused(f"needs {', '.join(named)}")
        return bound

    def check(self, arguments: Mapping[str, Json]) -> None:
        """Raise `INVALID_ARGUMENT` unless the arguments match the input schema."""
        problems = self._input.problems(dict(arguments))
        if problems:
            raise self._refused(f"was called wrongly: {'; '.join(problems)}")

    def check_result(self, value: Json) -> None:
        """Raise `TOOL_ERROR` unless the result matches the output schema."""
        problems = self._output.problems(value, "result")
        if problems:
            raise ModelError(
                "TOOL_ERROR",
                f"`{self.capability.name}` gave what it does not promise: {'; '.join(problems)}.",
                hint="Its output schema and its implementation disagree: one of them has to change.",
            )

    def _refused(self, why: str) -> CallerError:
        # Stubs are made from contracts, so they can't be known before them.
        from holdfast.capabilities.stubs import signature

        return CallerError(
            "INVALID_ARGUMENT",
            f"`{self.capability.name}` {why}.",
            hint=f"It is declared as `{signature(self.capability)[:_MAX_SIGNATURE]}`.",
        )

    def _unfit(self, path: Sequence[Any], why: str) -> CallerError:
        where = pointer([one for one in path if isinstance(one, str | int)])
        return self._refused(f"was called wrongly: {f'`{where}`: ' if where else ''}{why}")

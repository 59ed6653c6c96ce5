"""A Python function as JSON sees it: schemas from its hints, values made for it, results made JSON."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NotRequired, Required, cast, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, Field, PydanticUserError, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError
from typing_extensions import TypedDict

from holdfast.capabilities._docstring import Documented
from holdfast.contracts import Json, canonical_json
from holdfast.errors import CallerError, HoldfastError, ModelError
from holdfast.gate.executor import Context

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_MAX_SAID = 200
_SIMPLE: tuple[Any, ...] = (str, int, bool)
"""Types of which every value is JSON, and every value of the JSON type is one."""


class _Plain(GenerateJsonSchema):
    """Schemas without a title for every field: it says no more than the field's name."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


class Signature:
    """The parameters and the result of one function."""

    input_schema: dict[str, Any]
    output_schema: dict[str, Any]

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        documented: Documented,
        namespace: Mapping[str, Any],
    ) -> None:
        self._name = name
        found = _signature(function, name)
        hints = _hints(function, name, namespace)
        self._context: list[str] = []
        self._by_position: list[inspect.Parameter] = []
        shown: list[inspect.Parameter] = []
        for one in found.parameters.values():
            hint = hints.get(one.name, Any)
            _check(one, hint, name)
            if one.kind is inspect.Parameter.POSITIONAL_ONLY:
                self._by_position.append(one)
            if _is_context(hint):
                self._context.append(one.name)
            else:
                shown.append(one.replace(annotation=hint))
        self._simple = {one.name: one.annotation for one in shown if one.annotation in _SIMPLE}
        self._required = frozenset(
            one.name for one in shown if one.default is inspect.Parameter.empty
        )
        self._simple_result = hints.get("return") if hints.get("return") in _SIMPLE else None
        self._arguments = _adapter(_typed_dict(shown, documented), name, "its parameters")
        self._result: TypeAdapter[Any] = _adapter(hints.get("return", Any), name, "its result")
        self.input_schema = self._schema_of_arguments(shown)
        self.output_schema = _schema(self._result, "serialization", name, "its result")

    def fits(self, given: Mapping[str, Json]) -> bool:
        """Whether the values are of the very types the function wants, so that nothing is left to check."""
        simple = self._simple
        for name, value in given.items():
            if type(value) is not simple.get(name):
                return False
        return given.keys() >= self._required

    def arguments(self, given: Mapping[str, Json]) -> dict[str, Any]:
        """The values the function wants; raises `pydantic.ValidationError`."""
        return dict(self._arguments.validate_json(canonical_json(dict(given))))

    def call(
        self, given: Mapping[str, Json], context: Context, named: dict[str, Any] | None = None
    ) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments for the function; raises `pydantic.ValidationError`.

        `named` is what `arguments` gave for them, if it was asked before.
        """
        if named is None:
            named = self.arguments(given)
        for one in self._context:
            named[one] = context
        return [named.pop(one.name, one.default) for one in self._by_position], named

    def result(self, value: Any) -> Json:
        """What the function gave, as JSON; raises `TOOL_ERROR` when it can't be."""
        if type(value) is self._simple_result:
            return cast("Json", value)
        try:
            # A value that is not what was declared is found by the schema, which says where.
            found = self._result.dump_python(value, mode="json", by_alias=True, warnings=False)
            canonical_json(found)
        except (PydanticSerializationError, HoldfastError, ValueError, TypeError) as why:
            said = why.message if isinstance(why, HoldfastError) else str(why)
            raise ModelError(
                "TOOL_ERROR",
                f"`{self._name}` gave what is not JSON: {said[:_MAX_SAID]}",
                hint="Return JSON values, pydantic models, dataclasses, dates or enums.",
            ) from None
        return found

    def _schema_of_arguments(self, shown: list[inspect.Parameter]) -> dict[str, Any]:
        schema = _schema(self._arguments, "validation", self._name, "its parameters")
        schema.pop("title", None)
        properties = schema.setdefault("properties", {})
        for one in shown:
            if one.default is not inspect.Parameter.empty:
                default = _default(one)
                if default is not _Unknown and isinstance(properties[one.name], dict):
                    properties[one.name].setdefault("default", default)
        return schema


class _Unknown:
    """Stands for a default that JSON can't express."""


def _default(one: inspect.Parameter) -> Any:
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(one.annotation)
        found = adapter.dump_python(one.default, mode="json", by_alias=True, warnings=False)
        canonical_json(found)
    except (PydanticSerializationError, HoldfastError, ValueError, TypeError):
        return _Unknown
    return found


def _signature(function: Callable[..., Any], name: str) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (ValueError, TypeError):
        raise _refused(
            name, "has no readable signature", "Wrap it in a function with type hints."
        ) from None


def _hints(function: Callable[..., Any], name: str, namespace: Mapping[str, Any]) -> dict[str, Any]:
    target = inspect.unwrap(function)
    while (inner := getattr(target, "func", None)) is not None and callable(inner):
        target = inner  # `functools.partial`
    if not inspect.isroutine(target):
        target = type(target).__call__
    try:
        return get_type_hints(target, localns=dict(namespace), include_extras=True)
    except NameError as why:
        raise _refused(
            name, f"has a hint that can't be resolved: {why}", "Import the type at run time."
        ) from None
    except TypeError as why:
        raise _refused(name, f"has a hint that is no type: {why}", "Use types as hints.") from None


def _check(one: inspect.Parameter, hint: Any, name: str) -> None:
    """Refuse a parameter that a JSON object can't carry."""
    if one.kind in _VARIADIC:
        stars = "*" if one.kind is inspect.Parameter.VAR_POSITIONAL else "**"
        raise _refused(
            name, f"takes `{stars}{one.name}`", "Name each parameter, or take one list or dict."
        )
    if one.name in ("self", "cls") and one.annotation is inspect.Parameter.empty:
        raise _refused(
            name,
            f"is a method that still wants its `{one.name}`",
            "Declare the bound method: `capability(thing.method)`.",
        )
    if isinstance(one.default, FieldInfo):
        raise _refused(
            name,
            f"has a `Field` as the default of `{one.name}`",
            f"Write `{one.name}: Annotated[…, Field(…)] = …`.",
        )
    if _is_context(hint) and one.default is not inspect.Parameter.empty:
        raise _refused(
            name, f"has a default for its context `{one.name}`", "It is always given: drop it."
        )


def _is_context(hint: Any) -> bool:
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return hint is Context


def _typed_dict(shown: list[inspect.Parameter], documented: Documented) -> Any:
    fields: dict[str, Any] = {}
    for one in shown:
        hint = one.annotation
        said = documented.parameters.get(one.name)
        if said and not _is_described(hint):
            hint = Annotated[hint, Field(description=said)]
        needed = one.default is inspect.Parameter.empty
        fields[one.name] = Required[hint] if needed else NotRequired[hint]
    made = cast("Any", TypedDict)("Arguments", fields)
    made.__pydantic_config__ = ConfigDict(extra="forbid")
    return made


def _is_described(hint: Any) -> bool:
    return get_origin(hint) is Annotated and any(
        isinstance(one, FieldInfo) and one.description for one in get_args(hint)[1:]
    )


def _adapter(hint: Any, name: str, what: str) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(hint)
    # Building a schema runs hooks of the types; whatever they raise says why there is none.
    except Exception as why:  # noqa: BLE001
        raise _inexpressible(name, what, why) from None


def _schema(adapter: TypeAdapter[Any], mode: Any, name: str, what: str) -> dict[str, Any]:
    try:
        return adapter.json_schema(mode=mode, by_alias=True, schema_generator=_Plain)
    except (PydanticUserError, ValueError, TypeError, KeyError) as why:
        raise _inexpressible(name, what, why) from None


def _inexpressible(name: str, what: str, why: Exception) -> CallerError:
    said = str(why).partition("\n")[0][:_MAX_SAID].rstrip(".")
    return _refused(
        name,
        f"has hints from which no JSON Schema of {what} can be made: {said}",
        "Use JSON types, pydantic models, dataclasses, TypedDicts, enums or dates.",
    )


def first_problem(error: ValidationError) -> tuple[tuple[Any, ...], str]:
    """The path of the first thing that did not fit, and why."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return first["loc"], first["msg"]


def _refused(name: str, why: str, hint: str) -> CallerError:
    return CallerError("INVALID_ARGUMENT", f"Capability `{name}` {why}.", hint=hint)

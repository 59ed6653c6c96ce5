"""Python types as JSON Schemas, and values of these types made from JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation
from pydantic.json_schema import GenerateJsonSchema, PydanticJsonSchemaWarning

from holdfast.agent._faults import Fault, fault, pointer
from holdfast.agent._schema_guard import children
from holdfast.contracts import Json
from holdfast.errors import CallerError

DEFAULT_NAME: Final = "output"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MAX_SAID = 200
_HINT = (
    "Give a pydantic model, a dataclass, a TypedDict, a type such as `list[int]`, or a JSON Schema."
)


class _Plain(GenerateJsonSchema):
    """Schemas without a title for every field: it says no more than the field's name."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


class Shape(NamedTuple):
    """What the caller asked for."""

    name: str
    schema: dict[str, Json]
    adapter: TypeAdapter[Any] | None
    """Makes values of the caller's type; `None` when JSON itself was asked for."""


def shape_of(shape: Any, name: str | None) -> Shape:
    """The schema of a type, or a copy of the schema itself; raises `INVALID_ARGUMENT` for anything else."""
    if isinstance(shape, Mapping):
        schema = copied(cast("Mapping[str, Any]", shape))
        return Shape(_named(name, schema, None), schema, None)
    if shape is None or isinstance(shape, str | bytes | int | float | list | tuple | set):
        raise refused(f"is a {type(cast('object', shape)).__name__}, not a type", _HINT)
    adapter, schema = _typed(shape)
    return Shape(_named(name, schema, getattr(shape, "__name__", None)), schema, adapter)


def copied(schema: Mapping[str, Any]) -> dict[str, Json]:
    """A schema as plain JSON that nobody else holds."""
    try:
        text = json.dumps(schema, allow_nan=False)
        text.encode()
        return cast("dict[str, Json]", json.loads(text))
    except (TypeError, ValueError, RecursionError) as why:
        raise refused(
            f"is not JSON: {str(why)[:_MAX_SAID]}", "A schema is made of JSON values only."
        ) from None


def made(adapter: TypeAdapter[Any], value: Json) -> object:
    """The value as the caller's type has it; raises what that type raises."""
    # As JSON, because a type may take from JSON (dates, tuples, bytes) what it would not take from Python.
    return adapter.validate_json(json.dumps(value, ensure_ascii=False))


def semantic_faults(error: ValidationError) -> list[Fault]:
    """What a type's own validators found wrong with a value that fits its schema."""
    return [
        fault("semantic_violation", pointer(one["loc"]), f"is refused: {one['msg'][:_MAX_SAID]}")
        for one in error.errors(include_url=False, include_context=False, include_input=False)
    ]


def refused(why: str, hint: str) -> CallerError:
    """The refusal of a shape that answers can't have."""
    return CallerError("INVALID_ARGUMENT", f"The output {why}.", hint=hint)


def _typed(shape: Any) -> tuple[TypeAdapter[Any], dict[str, Json]]:
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PydanticJsonSchemaWarning)
            # It says which name is missing; an adapter only says that one is.
            _rebuild(shape)
            adapter: TypeAdapter[Any] = TypeAdapter(shape)
            schema = adapter.json_schema(schema_generator=_Plain)
    except PydanticUndefinedAnnotation as why:
        raise refused(
            f"type names `{why.name}`, which is not defined", "Define or import it first."
        ) from None
    except (PydanticUserError, TypeError, ValueError, RecursionError) as why:
        said = str(why).partition("\n")[0][:_MAX_SAID].rstrip(".")
        raise refused(f"type can't be written as JSON: {said}", _HINT) from None
    schema = copied(schema)
    _close(schema)
    return adapter, schema


def _rebuild(shape: object) -> None:
    if isinstance(shape, type) and issubclass(shape, BaseModel):
        shape.model_rebuild()


def _close(schema: Json) -> None:
    """Deny what a class does not declare, unless it says otherwise: a misspelt key must not be lost silently."""
    if not isinstance(schema, dict):
        return
    if "properties" in schema and not {"additionalProperties", "patternProperties"} & schema.keys():
        schema["additionalProperties"] = False
    for _, one in children(schema, _BELOW):
        _close(one)


# Not `allOf`: each of its parts sees the members of all.
_BELOW = ("properties", "$defs", "items", "prefixItems", "additionalProperties", "anyOf", "oneOf")


def _named(name: str | None, schema: dict[str, Json], of_type: object) -> str:
    if name is not None:
        if not _NAME.fullmatch(name):
            raise refused(
                f"has the name {name[:_MAX_SAID]!r}", "Use 1 to 64 letters, digits, `_` and `-`."
            )
        return name
    for one in (schema.get("title"), of_type):
        if isinstance(one, str):
            found = re.sub(r"[^A-Za-z0-9_-]+", "_", one)[:64].strip("_")
            if found:
                return found
    return DEFAULT_NAME

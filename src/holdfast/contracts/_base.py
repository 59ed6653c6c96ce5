"""The two bases of every contract, and the marker of an optional field."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import lru_cache
from typing import Annotated, Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticUndefined

from holdfast.errors import CallerError


class Asked(BaseModel):
    """Base of what callers send: frozen, and an unknown field is refused (it would be silently ignored)."""

    # `defer_build`: built when it is first used, since a command uses few of the models it imports.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Told(BaseModel):
    """Base of what holdfast says: frozen, and a newer writer's extra fields are tolerated."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


def _absent(value: object) -> bool:
    return value is None


def optional() -> Any:
    """The default of an optional field: `None`, and left out of the JSON while it is `None`."""
    return Field(default=None, exclude_if=_absent)


def _empty(value: object) -> bool:
    return not value


def listed() -> Any:
    """The default of a list that is left out of the JSON while it is empty."""
    return Field(default=(), exclude_if=_empty)


def unless(default: Any) -> Any:
    """The default of a field that came later: left out of the JSON while it has it, so that old readers read on."""
    return Field(default=default, exclude_if=lambda value: value == default)


Count = Annotated[int, Field(ge=0, lt=1 << 53)]
"""How many of something: no more than every JSON reader takes, so that sums stay numbers, too."""

_Model = TypeVar("_Model", bound=BaseModel)


# A model is four slots. Set by their descriptors, that is a quarter of the price of setting them by name.
_slots = cast("dict[str, Any]", vars(BaseModel))
_set_values = _slots["__dict__"].__set__
_set_names = _slots["__pydantic_fields_set__"].__set__
_set_extra = _slots["__pydantic_extra__"].__set__
_set_private = _slots["__pydantic_private__"].__set__
_bare = object.__new__


def made(model: type[_Model], fields: dict[str, Any]) -> _Model:
    """A `model` of every one of its fields, known to be right: `model_construct` at a tenth of its price."""
    found = _bare(model)
    _set_values(found, fields)
    _set_names(found, set(fields))
    _set_extra(found, None)
    _set_private(found, None)
    return found


@lru_cache(maxsize=256)
def _parts(model: type[BaseModel]) -> tuple[tuple[str, Any], ...] | None:
    """Each field, and what says whether it is left out; `None` when the model writes itself in its own way."""
    decorators = model.__pydantic_decorators__
    if decorators.field_serializers or decorators.model_serializers:
        return None
    return tuple((name, field.exclude_if) for name, field in model.model_fields.items())


def dumped(model: BaseModel) -> dict[str, Any]:
    """`model_dump(mode="json")` at a fifth of its price, for models of plain values, lists and models."""
    parts = _parts(type(model))
    if parts is None:
        return model.model_dump(mode="json")
    values = model.__dict__
    found: dict[str, Any] = {}
    for name, left_out in parts:
        value = values[name]
        if value is None:
            if left_out is not _absent and (left_out is None or not left_out(None)):
                found[name] = None
        elif left_out is None or left_out is _absent or not left_out(value):
            found[name] = value if type(value) in _PLAIN else _plain(value)
    return found


_PLAIN = frozenset((str, int, bool, float, type(None)))


def _plain(value: Any) -> Any:
    # A model last: to ask whether something is one takes longer than all the rest.
    if isinstance(value, Enum):
        return value._value_  # `value` is a property, and a slow one
    if isinstance(value, tuple | list):
        items = cast("Sequence[Any]", value)
        return [item if type(item) in _PLAIN else _plain(item) for item in items]
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    return dumped(value) if isinstance(value, BaseModel) else value


@lru_cache(maxsize=64)
def _defaults(model: type[BaseModel]) -> dict[str, Any]:
    return {
        name: field.default
        for name, field in model.model_fields.items()
        if field.default is not PydanticUndefined
    }


def sure(model: type[_Model], **fields: Any) -> _Model:
    """A `model` of fields that are known to be right, and its defaults; no validator runs."""
    return made(model, {**_defaults(model), **fields})


def parse(model: type[_Model], data: object) -> _Model:
    """`data` as a `model`; raises `INVALID_ARGUMENT` that names the first bad field."""
    try:
        return model.model_validate(data)
    except ValidationError as why:
        first = why.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or model.__name__
        raise CallerError(
            "INVALID_ARGUMENT",
            f"`{where}`: {first['msg']}.",
            hint=f"See the fields of `{model.__name__}` in docs/reference.",
        ) from None

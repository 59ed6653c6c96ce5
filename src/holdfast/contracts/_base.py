"""The two bases of every contract, and the marker of an optional field."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticUndefined

from holdfast.contracts._dump import Default, absent, empty
from holdfast.errors import CallerError


class Asked(BaseModel):
    """Base of what callers send: frozen, and an unknown field is refused (it would be silently ignored)."""

    # `defer_build`: built when it is first used, since a command uses few of the models it imports.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Told(BaseModel):
    """Base of what holdfast says: frozen, and a newer writer's extra fields are tolerated."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


def optional() -> Any:
    """The default of an optional field: `None`, and left out of the JSON while it is `None`."""
    return Field(default=None, exclude_if=absent)


def listed() -> Any:
    """The default of a list that is left out of the JSON while it is empty."""
    return Field(default=(), exclude_if=empty)


def unless(default: Any) -> Any:
    """The default of a field that came later: left out of the JSON while it has it, so that old readers read on."""
    return Field(default=default, exclude_if=Default(default))


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
    _set_names(found, _names.get(model) or _names.setdefault(model, set(model.model_fields)))
    _set_extra(found, None)
    _set_private(found, None)
    return found


# All fields are set in whatever is made, so one set serves them all: a copy of a model copies it first.
_names: dict[type[BaseModel], set[str]] = {}


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


def parse(model: type[_Model], data: object, *, hint: str | None = None) -> _Model:
    """`data` as a `model`; raises `INVALID_ARGUMENT` that names the first bad field.

    Without a `hint` readers are sent to the model in the reference, so it has to be a public one.
    """
    try:
        return model.model_validate(data)
    except ValidationError as why:
        first = why.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or model.__name__
        raise CallerError(
            "INVALID_ARGUMENT",
            f"`{where}`: {first['msg']}.",
            hint=hint or f"See the fields of `{model.__name__}` in docs/reference.",
        ) from None

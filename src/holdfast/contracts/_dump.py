"""`dumped`: a model as JSON values, as `model_dump(mode="json")` gives it, at a tenth of its price.

Every record that is written goes through here. So each model gets a function of its own, written out when the model is
first seen: a line for each field, that does no more than the field's type asks for.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

# `Any`: whatever a model holds.
Write = Callable[[BaseModel], dict[str, Any]]


def dumped(model: BaseModel) -> dict[str, Any]:
    """`model_dump(mode="json")`, for models of plain values, lists and models; keys may come in another order."""
    return (_written.get(type(model)) or _writer(type(model)))(model)


def absent(value: object) -> bool:
    """Why an optional field is left out."""
    return value is None


def empty(value: object) -> bool:
    """Why a list is left out."""
    return not value


@dataclass(frozen=True, slots=True)
class Default:
    """Why a field that came later is left out: it has its default."""

    value: Any

    def __call__(self, value: object) -> bool:
        return value == self.value


_PLAIN = frozenset((str, int, bool, float, type(None)))
_written: dict[type[BaseModel], Write] = {}
_kinds: dict[type[object], Callable[[Any], Any]] = {}


def _writer(model: type[BaseModel]) -> Write:
    """The function that writes this model, made once."""
    if _serializes(model):
        return _written.setdefault(model, _in_its_own_way)
    names: dict[str, Any] = {"plain": _plain, "PLAIN": _PLAIN, "dumped": dumped}
    source = ["def write(model):", "    values, found = model.__dict__, {}"]
    for number, (name, field) in enumerate(model.model_fields.items()):
        names[f"test_{number}"] = field.exclude_if
        source += [
            f"    value = values[{name!r}]",
            f"    {_condition(field, number)}found[{name!r}] = {_expression(field)}",
        ]
    source.append("    return found")
    exec("\n".join(source), names)
    return _written.setdefault(model, cast("Write", names["write"]))


def _serializes(model: type[BaseModel]) -> bool:
    """Whether it has a way of its own to be written."""
    decorators = model.__pydantic_decorators__
    return bool(decorators.field_serializers or decorators.model_serializers)


def _in_its_own_way(model: BaseModel) -> dict[str, Any]:
    return model.model_dump(mode="json")


def _condition(field: FieldInfo, number: int) -> str:
    """When the field is written: what `exclude_if` says, without calling it where that can be had."""
    why = field.exclude_if
    if why is None:
        return ""
    if why is absent:
        return "if value is not None: "
    if why is empty:
        return "if value: "
    if isinstance(why, Default):
        return f"if value != test_{number}.value: "
    return f"if not test_{number}(value): "


def _expression(field: FieldInfo) -> str:
    """What becomes of `value`, which is of the field's type."""
    annotation = field.annotation
    if _is_scalar(annotation):
        return "value"
    return f"value if type(value) in PLAIN else {_conversion(annotation)}"


def _conversion(annotation: Any) -> str:
    """What becomes of a value of this type that is no scalar: without looking at it, where the type says it all."""
    kinds = [one for one in _alternatives(annotation) if not _is_scalar(one)]
    if len(kinds) != 1:
        return "plain(value)"
    (kind,) = kinds
    if get_origin(kind) in (tuple, list):
        scalars = all(one is Ellipsis or _is_scalar(one) for one in get_args(kind))
        return "[*value]" if scalars else "plain(value)"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "value._value_"  # `value` is a property, and a slow one
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return "dumped(value)"
    return "plain(value)"


def _alternatives(annotation: Any) -> list[Any]:
    """The types that an annotation allows."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _alternatives(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [kind for one in get_args(annotation) for kind in _alternatives(one)]
    return [annotation]


def _is_scalar(annotation: Any) -> bool:
    """Whether all that the annotation allows is JSON as it is."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _is_scalar(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return all(_is_scalar(one) for one in get_args(annotation))
    if origin is Literal:
        return all(type(one) in _PLAIN for one in get_args(annotation))
    return annotation in _PLAIN


def is_exact(annotation: Any, inside: tuple[Any, ...] = ()) -> bool:
    """Whether whatever the annotation allows is text, whole numbers, booleans, and lists and objects of them."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return is_exact(parts[0], inside)
    if origin in (Union, types.UnionType, tuple, list, dict):
        return all(one is Ellipsis or is_exact(one, inside) for one in parts)
    if origin is Literal or annotation in (str, int, bool, type(None)):
        return True
    if not isinstance(annotation, type):
        return False
    if issubclass(annotation, BaseModel):
        if _serializes(annotation):
            return False
        within = (*inside, annotation)
        return annotation in inside or all(
            is_exact(field.annotation, within) for field in annotation.model_fields.values()
        )
    return issubclass(annotation, str)


def _plain(value: object) -> Any:
    kind = type(value)
    return (_kinds.get(kind) or _kind(kind))(value)


def _kind(kind: type[object]) -> Callable[[Any], Any]:
    """How values of this type are written."""
    write: Callable[[Any], Any]
    if issubclass(kind, Enum):
        write = _enum
    elif issubclass(kind, tuple | list):
        write = _list
    else:
        write = dumped if issubclass(kind, BaseModel) else _as_it_is
    _kinds[kind] = write
    return write


def _enum(value: Any) -> Any:
    return value._value_  # `value` is a property, and a slow one


def _list(value: Any) -> Any:
    return [one if type(one) in _PLAIN else _plain(one) for one in value]


def _as_it_is(value: Any) -> Any:
    return value

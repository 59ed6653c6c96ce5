"""Compiled JSON Schemas, and what is wrong with a value in words that an agent can act on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, TypeAlias

import jsonschema_rs
from jsonschema_rs import ValidationError, ValidationErrorKind

from holdfast.errors import CallerError

_Kind: TypeAlias = ValidationErrorKind

_MASK = "it"
_MAX_SHOWN = 80
_MAX_PROBLEMS = 3
_MAX_BRANCHES = 6


class Schema:
    """One JSON Schema 2020-12, ready to check values. `format` is a remark, as the standard has it."""

    __slots__ = ("_validator",)

    def __init__(self, schema: Mapping[str, Any], what: str) -> None:
        try:
            self._validator = jsonschema_rs.Draft202012Validator(
                dict(schema), mask=_MASK, offline=True, validate_formats=False
            )
        except (ValueError, TypeError, RecursionError) as why:
            raise CallerError(
                "INVALID_ARGUMENT",
                f"{what} is not a JSON Schema: {_reason(why)}.",
                hint="Use JSON Schema 2020-12; references must stay within the schema (`#/$defs/…`).",
            ) from None

    def problems(self, value: object, root: str = "") -> list[str]:
        """The first few things wrong with `value`, each with its path below `root`; empty when it fits."""
        try:
            if self._validator.is_valid(value):
                return []
            found = list(islice(self._validator.iter_errors(value), _MAX_PROBLEMS + 1))
        except (ValueError, TypeError, RecursionError) as why:
            return [f"{_at([], root)}it is not JSON: {_reason(why)}"]
        said = [_problem(error, root) for error in found[:_MAX_PROBLEMS]]
        return [*said, "and more"] if len(found) > _MAX_PROBLEMS else said


def shown(value: object) -> str:
    """A value as JSON, cut to 80 characters: enough to recognise it, too little to leak it."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def pointer(path: Iterable[str | int], root: str = "") -> str:
    """A path as code would write it: `rows[2].name`."""
    text = root
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.isidentifier():
            text += f".{part}" if text else part
        else:
            text += f"[{shown(part)}]"
    return text


def _at(path: Iterable[str | int], root: str) -> str:
    where = pointer(path, root)
    return f"`{where}`: " if where else ""


def _problem(error: ValidationError, root: str) -> str:
    path, kind = list(error.instance_path), error.kind
    match kind:
        case _Kind.Required(property=name):
            return f"{_at([*path, name], root)}is required and was not given"
        case _Kind.AdditionalProperties(unexpected=names):
            return f"{_at(path, root)}there is no {_listed(map(_quoted, names))}"
        case _Kind.AnyOf(context=branches) | _Kind.OneOfNotValid(context=branches):
            # An alternative that fails further inside is the one that was meant.
            inner = [one[0] for one in branches if one and len(one[0].instance_path) > len(path)]
            if len(inner) == 1:
                return _problem(inner[0], root)
        case _:
            pass
    return f"{_at(path, root)}{_expected(error)}, got {shown(error.instance)}"


def _expected(error: ValidationError) -> str:
    match error.kind:
        case _Kind.Type(types=types):
            return f"expected {_listed(types)}"
        case _Kind.Enum(options=options):
            return f"expected {_listed(map(shown, options))}"
        case _Kind.Constant(expected_value=value):
            return f"expected {shown(value)}"
        case _Kind.AnyOf(context=branches) | _Kind.OneOfNotValid(context=branches):
            return _none_of(branches)
        case _Kind.OneOfMultipleValid():
            return "fits more than one of the alternatives"
        case _:
            return error.message


def _none_of(branches: list[list[ValidationError]]) -> str:
    """What was wrong with each alternative; only those that came closest, if some came closer."""
    firsts = [branch[0] for branch in branches if branch]
    types = [one.kind.types for one in firsts if isinstance(one.kind, _Kind.Type)]
    if len(types) == len(firsts):
        return f"expected {_listed(dict.fromkeys(name for names in types for name in names))}"
    near = [one for one in firsts if not isinstance(one.kind, _Kind.Type)]
    told = dict.fromkeys(_problem(one, "") for one in near[:_MAX_BRANCHES])
    return f"fits none of the alternatives ({'; '.join(told)})"


def _listed(words: Iterable[str]) -> str:
    found = list(words)
    if len(found) < 2:
        return "".join(found)
    return f"{', '.join(found[:-1])} or {found[-1]}"


def _quoted(name: str) -> str:
    return f"`{name[:_MAX_SHOWN]}`"


def _reason(why: Exception) -> str:
    if isinstance(why, ValidationError):
        where = pointer(why.instance_path)
        return f"{f'`{where}`: ' if where else ''}{why.message[:200]}"
    return str(why)[:200] or type(why).__name__

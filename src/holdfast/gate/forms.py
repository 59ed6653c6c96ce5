"""Forms that people fill in: what may be asked for, and whether an answer fits.

A form is the JSON Schema of an object. It may come from a stranger, so it is small, refers to nothing outside, and asks
for no secret: what is filled in goes on record. `format` counts here: a person can mend an address.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.contracts import Json, canonical_json
from holdfast.errors import CallerError

MAX_FORM = 16 * 1024
"""Bytes of a form."""

MAX_CONTENT = 64 * 1024
"""Bytes of what is filled in."""

_DEEPEST = 16
_SHOWN = 80


class BadForm(ValueError):
    """A form that nobody is asked to fill in."""

    def __init__(self, why: str, *, secret: bool = False) -> None:
        super().__init__(why)
        self.secret = secret
        """Whether that is because it asks for a secret."""


def check_form(form: dict[str, Json]) -> None:
    """Raise `BadForm` for what is no form, or asks for what must not be on record."""
    if form.get("type", "object") != "object":
        raise BadForm("it is not the schema of an object")
    if len(canonical_json(form)) > MAX_FORM:
        raise BadForm(f"it is longer than {MAX_FORM} bytes")
    for name, part in _parts(form, "", 0):
        if part.get("writeOnly") is True or part.get("format") == "password":
            raise BadForm(f"`{name[:_SHOWN]}` is a secret", secret=True)
    try:
        _compiled(form)
    except (ValueError, TypeError, RecursionError) as why:
        raise BadForm(f"it is no JSON Schema: {_line(why)}") from None


def check_content(form: dict[str, Json], content: Json) -> bytes:
    """What was filled in, as canonical JSON; raises `INVALID_ARGUMENT` that names the field which does not fit."""
    if not isinstance(content, dict):
        raise _unfit("it is not an object with the fields of the form")
    data = canonical_json(content)
    if len(data) > MAX_CONTENT:
        raise _unfit(f"it has {len(data)} bytes, {MAX_CONTENT} are allowed")
    try:
        error: Any = next(iter(_compiled(form).iter_errors(content)), None)
    except (ValueError, TypeError, RecursionError) as why:
        raise _unfit(f"it can't be checked: {_line(why)}") from None
    if error is not None:
        where = ".".join(str(part) for part in error.instance_path)
        said = str(error.message)[:300]
        raise _unfit(f"`{where[:_SHOWN]}`: {said}" if where else said)
    return data


def required(form: dict[str, Json]) -> list[str]:
    """The fields that must be filled in."""
    names = form.get("required")
    return [str(name) for name in names] if isinstance(names, list) else []


def _parts(form: Json, name: str, depth: int) -> Iterator[tuple[str, dict[str, Json]]]:
    """Every object in a form that may be a schema, with the name it is known by."""
    if depth > _DEEPEST:
        raise BadForm("it is nested too deep")
    if isinstance(form, dict):
        yield name, form
        for key, value in form.items():
            yield from _parts(value, f"{name}.{key}" if name else key, depth + 1)
    elif isinstance(form, list):
        for value in form:
            yield from _parts(value, name, depth + 1)


def _compiled(form: dict[str, Json]) -> Any:
    import jsonschema_rs

    # Patterns run in the engine whose time is bounded: they are a stranger's.
    return jsonschema_rs.Draft202012Validator(
        form,
        mask="it",
        offline=True,
        validate_formats=True,
        pattern_options=jsonschema_rs.RegexOptions(),
    )


def _line(why: Exception) -> str:
    return str(why).split("\n", 1)[0][:200]


def _unfit(why: str) -> CallerError:
    return CallerError(
        "INVALID_ARGUMENT",
        f"The answer does not fit the form: {why}.",
        hint="`holdfast approvals show` lists the fields; nothing was recorded, so answer again.",
    )

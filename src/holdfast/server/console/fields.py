"""The form of a question, as fields of a page; and what was typed into them, as the answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, cast

from holdfast.contracts import Json
from holdfast.errors import CallerError
from holdfast.gate.forms import required

START = "content."
"""Starts the names of the fields in what the browser sends."""

Control = Literal["text", "area", "number", "check", "choice", "choices", "json"]
_INPUTS = {"email": "email", "uri": "url", "date": "date"}
_LONG = 200


class Option(NamedTuple):
    """One of several values."""

    value: Json
    label: str
    chosen: bool


@dataclass(frozen=True, slots=True)
class Field:
    """One field. Its words are the other side's."""

    name: str
    label: str
    help: str
    control: Control
    needed: bool
    input: str = "text"
    """What the browser should make of it."""
    step: str = "any"
    minimum: float | None = None
    maximum: float | None = None
    longest: int | None = None
    value: str = ""
    """What stands in it at first."""
    options: tuple[Option, ...] = ()

    @property
    def key(self) -> str:
        """Its name in what the browser sends."""
        return START + self.name


def fields_of(form: dict[str, Json] | None, said: Mapping[str, str] | None = None) -> list[Field]:
    """The fields of a form, those first that must be filled in; with `said`, as they were filled in before."""
    if form is None:
        return []
    needed = set(required(form))
    found = cast("dict[str, Any]", form.get("properties") or {})
    fields = [
        _field(name, cast("dict[str, Any]", one) if isinstance(one, dict) else {}, name in needed)
        for name, one in found.items()
    ]
    if said is not None:
        fields = [_again(one, said) for one in fields]
    return sorted(fields, key=lambda field: not field.needed)


def _field(name: str, schema: dict[str, Any], needed: bool) -> Field:
    options = _options(schema)
    control = _control(schema, options)
    given: Any = schema.get("default")
    value = "" if given is None else given if isinstance(given, str) else json.dumps(given)
    return Field(
        name,
        str(schema.get("title") or name),
        str(schema.get("description") or ""),
        control,
        needed,
        _INPUTS.get(str(schema.get("format")), "text"),
        "1" if schema.get("type") == "integer" else "any",
        _number(schema.get("minimum")),
        _number(schema.get("maximum")),
        schema["maxLength"] if isinstance(schema.get("maxLength"), int) else None,
        value,
        options,
    )


def _control(schema: dict[str, Any], options: tuple[Option, ...]) -> Control:
    kind = schema.get("type")
    if options:
        return "choices" if kind == "array" else "choice"
    if kind == "boolean":
        return "check"
    if kind in ("integer", "number"):
        return "number"
    if kind == "string":
        longest = schema.get("maxLength")
        return "area" if isinstance(longest, int) and longest > _LONG else "text"
    return "json"


def _options(schema: dict[str, Any]) -> tuple[Option, ...]:
    inner: Any = schema.get("items") if schema.get("type") == "array" else schema
    if not isinstance(inner, dict):
        return ()
    part = cast("dict[str, Any]", inner)
    given: Any = schema.get("default")
    chosen: list[Any] = cast("list[Any]", given) if isinstance(given, list) else [given]
    if isinstance(part.get("enum"), list):
        values = cast("list[Any]", part["enum"])
        names: Any = part.get("enumNames")
        told = cast("list[Any]", names) if isinstance(names, list) else values
        pairs = zip(values, told if len(told) == len(values) else values, strict=True)
        return tuple(Option(value, _label(name), value in chosen) for value, name in pairs)
    found: Any = part.get("oneOf") or part.get("anyOf")
    if not isinstance(found, list):
        return ()
    parts = [one for one in cast("list[dict[str, Any]]", found) if "const" in one]
    return tuple(
        Option(one["const"], _label(one.get("title", one["const"])), one["const"] in chosen)
        for one in parts
    )


def _label(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _again(field: Field, said: Mapping[str, str]) -> Field:
    """A field as it was filled in, to be mended."""
    picked = {str(i) for i in range(len(field.options)) if said.get(f"{field.key}.{i}")}
    if field.control == "choice" and field.key in said:
        picked = {said[field.key]}
    options = tuple(one._replace(chosen=str(i) in picked) for i, one in enumerate(field.options))
    value = said.get(field.key, "false" if field.control == "check" else "")
    return replace(field, value="true" if value == "on" else value, options=options)


def content_of(form: dict[str, Json] | None, said: Mapping[str, str]) -> Json:
    """What was filled in, as values; raises `INVALID_ARGUMENT` for what is no value of its field."""
    if form is None:
        return None
    found: dict[str, Json] = {}
    for field in fields_of(form):
        value = _value(field, said)
        if value is not None:
            found[field.name] = value
    return found


def _value(field: Field, said: Mapping[str, str]) -> Json:
    """`None`: it is left out."""
    text = said.get(field.key, "")
    match field.control:
        case "check":
            return field.key in said
        case "choices":
            picked = [o.value for i, o in enumerate(field.options) if said.get(f"{field.key}.{i}")]
            return picked if picked or field.needed else None
        case "choice":
            fits = text.isdecimal() and int(text) < len(field.options)
            return field.options[int(text)].value if fits else None
        case "text" | "area":
            return text if text or field.needed else None
        case "number" | "json":
            return _read(field, text) if text.strip() else None


def _read(field: Field, text: str) -> Json:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        what = "a number" if field.control == "number" else "JSON"
        raise CallerError(
            "INVALID_ARGUMENT",
            f"`{field.name[:80]}` must be {what}, and `{text[:80]}` is not.",
            hint="Mend it and send it again; nothing was recorded.",
        ) from None

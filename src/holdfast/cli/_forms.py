"""Forms on the command line: their fields for people, and what was typed as values."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from holdfast.cli import _options, _output
from holdfast.contracts import ApprovalView, Json
from holdfast.errors import CallerError
from holdfast.gate.forms import check_content, required

_BOOLS = {"true": True, "yes": True, "y": True, "false": False, "no": False, "n": False}
_BOUNDS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a form."""

    name: str
    schema: dict[str, Any]
    needed: bool

    @property
    def kind(self) -> str:
        """Its type."""
        kind = self.schema.get("type")
        return str(kind) if isinstance(kind, str) else "string" if self.options else "any"

    @property
    def options(self) -> list[Any]:
        """The values to choose from, if it is a choice."""
        inner: dict[str, Any] = self.schema.get("items") or self.schema
        if isinstance(inner.get("enum"), list):
            return inner["enum"]
        found: list[Any] = inner.get("oneOf") or inner.get("anyOf") or []
        return [one["const"] for one in found if isinstance(one, dict) and "const" in one]

    @property
    def about(self) -> str:
        """What it wants, in one line; the words in it are the other side's."""
        parts = [self.kind, "required" if self.needed else "optional"]
        if self.options:
            parts.append("one of " + ", ".join(json.dumps(one) for one in self.options))
        if "format" in self.schema:
            parts.append(str(self.schema["format"]))
        parts += [
            text.format(self.schema[key]) for key, text in _BOUNDS.items() if key in self.schema
        ]
        if "default" in self.schema:
            parts.append(f"default {json.dumps(self.schema['default'])}")
        words = [str(self.schema[key]) for key in ("title", "description") if key in self.schema]
        told = f" · “{'; '.join(words)}”" if words else ""
        return f"{', '.join(parts)}{told}"

    def value(self, text: str) -> Json:
        """What was typed, as a value of its type; raises `INVALID_ARGUMENT`."""
        if self.kind == "string":
            return text
        if self.kind == "boolean" and text.lower() in _BOOLS:
            return _BOOLS[text.lower()]
        if self.kind == "array" and not text.lstrip().startswith("["):
            return [part.strip() for part in text.split(",") if part.strip()]
        try:
            return json.loads(text)
        except ValueError:
            if self.kind == "any":
                return text
            raise CallerError(
                "INVALID_ARGUMENT",
                f"`{self.name}` is {self.kind}, and `{text[:80]}` is not.",
                hint="Write it as JSON.",
            ) from None


def fields_of(form: dict[str, Json] | None) -> list[Field]:
    """The fields of a form, those first that must be filled in; a record keeps no other order."""
    if form is None:
        return []
    needed = set(required(form))
    found = cast("dict[str, Any]", form.get("properties") or {})
    fields = [
        Field(name, cast("dict[str, Any]", one) if isinstance(one, dict) else {}, name in needed)
        for name, one in found.items()
    ]
    return sorted(fields, key=lambda field: not field.needed)


def content_of(view: ApprovalView, answer: str | None, given: Sequence[str]) -> Json:
    """What `--answer` and `--field` say; asked for, field by field, when they say nothing and somebody is there."""
    if answer is not None:
        try:
            return json.loads(answer)
        except ValueError as why:
            _options.refuse(f"`--answer` is not JSON: {why}.", "Write '{\"name\": value}'.")
    if given:
        return _typed(fields_of(view.form), given)
    if view.form is None or view.status != "pending" or not somebody_is_there():
        return None
    return fill(view.form)


def _typed(fields: Sequence[Field], given: Sequence[str]) -> Json:
    known = {one.name: one for one in fields}
    found: dict[str, Json] = {}
    for pair in given:
        name, is_pair, text = pair.partition("=")
        if not is_pair or name not in known:
            names = ", ".join(known) or "it has none"
            _options.refuse(f"`--field {pair[:80]}` names no field.", f"Fields: {names}.")
        found[name] = known[name].value(text)
    return found


def somebody_is_there() -> bool:
    """Whether there is a terminal to ask at."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def fill(form: dict[str, Json], ask: Callable[[str], str] = input) -> Json:
    """Ask for every field until all of them fit; nothing typed leaves one that is optional out."""
    found: dict[str, Json] = {}
    out = _output.console()
    for field in fields_of(form):
        out.print(_output.visible(f"{field.name}: {field.about}"), style="dim", markup=False)
        while True:
            text = ask(f"{_output.visible(field.name)}: ").strip()
            if not text and not field.needed:
                break
            if not text and "default" in field.schema:
                found[field.name] = field.schema["default"]
                break
            try:
                found[field.name] = field.value(text)
                check_content({"type": "object", "properties": {field.name: field.schema}}, found)
                break
            except CallerError as why:
                found.pop(field.name, None)
                out.print(_output.visible(why.message), style="red", markup=False)
    return found

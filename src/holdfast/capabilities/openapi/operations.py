"""Operations of a document as capabilities.

Everything that an operation takes is one flat set of arguments: its parameters, and the properties of its body where
that is a plain object, else `body`. Names become identifiers. A name that is there twice is told apart by where it
goes, and the first of path, query, header and body keeps it: `id`, `id_query`, `id_body`.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.capabilities._names import is_plain
from holdfast.capabilities.openapi._failures import Unusable
from holdfast.capabilities.openapi.bodies import Body, read_body
from holdfast.capabilities.openapi.document import Document, Object, text_of
from holdfast.capabilities.openapi.parameters import Declared, Parameter, Where, read_parameter
from holdfast.capabilities.openapi.responses import result_schema
from holdfast.capabilities.openapi.schemas import MAX_TEXT, Schemas
from holdfast.capabilities.openapi.security import Place, place_of
from holdfast.capabilities.words import clean
from holdfast.contracts import Json, SideEffect
from holdfast.contracts.canonical import canonical_json

METHODS = ("get", "head", "options", "put", "delete", "post", "patch")
"""What can be asked for."""
READS = frozenset(("GET", "HEAD", "OPTIONS"))
"""What changes nothing, by the rules of HTTP."""
REPEATABLE = READS | {"PUT", "DELETE"}
"""What can be done twice without harm, by the rules of HTTP."""
MAX_SCHEMA_BYTES = 128 * 1024
"""Of one schema, as canonical JSON."""

_ORDER: tuple[Where, ...] = ("path", "query", "header")
_KEYS = frozenset(("idempotency-key", "x-idempotency-key"))
_PART = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of an operation."""

    name: str
    """What code calls it."""
    parameter: Parameter
    """Where its value goes, and how."""
    schema: Json
    required: bool


@dataclass(frozen=True, slots=True)
class Operation:
    """What can be asked of a server, and how."""

    tool: str
    """What the document calls it."""
    method: str
    path: str
    """With `{…}` for what arguments fill in."""
    arguments: tuple[Argument, ...]
    body: Body | None
    input_schema: Object
    output_schema: Object
    description: str
    key_header: str | None
    """The header that takes the name of the effect, by which the server recognises a repetition."""
    place: Place | None
    """Where the credential goes."""

    @property
    def side_effect(self) -> SideEffect:
        """What it may touch: even a read sends its arguments away."""
        return SideEffect.NETWORK if self.method in READS else SideEffect.EXTERNAL_SYSTEM

    @property
    def idempotent(self) -> bool:
        """Whether doing it twice is harmless."""
        return self.method in REPEATABLE or self.key_header is not None


@dataclass(frozen=True, slots=True)
class Found:
    """An operation that a document has, before it is looked at."""

    tool: str
    """Its id; without one, its method and path."""
    place: str
    """Its method and path."""
    method: str
    path: str
    item: Object
    """What all operations of the path share."""
    told: Object


def found_in(document: Document) -> Iterator[Found]:
    """Every operation of a document, in its order."""
    for path, value in document.object("paths").items():
        try:
            item = document.followed(value, "path")
        except Unusable:
            item = {}
        for method in METHODS:
            told = item.get(method)
            if isinstance(told, dict):
                place = f"{method.upper()} {path}"
                named = told.get("operationId")
                tool = named if isinstance(named, str) and named.strip() else place
                yield Found(tool, place, method.upper(), path, item, told)


def read_operation(
    document: Document, found: Found, *, given: frozenset[str], signs: bool, elsewhere: bool
) -> Operation:
    """An operation, ready to be offered; raises `Unusable` with the reason why it can't be.

    `given`: the headers that are sent anyway, in lower case. `signs`: whether there is a credential. `elsewhere`:
    whether an operation may say that it is served elsewhere, which is not heeded.
    """
    told = found.told
    if not elsewhere and (told.get("servers") or found.item.get("servers")):
        raise Unusable("it is served elsewhere; `base_url` would say where everything is")
    place = place_of(document, told, given) if signs else None
    schemas = Schemas(document, "in")
    declared, key_header = _declared(document, found, given, place)
    body = read_body(document, told.get("requestBody"), schemas)
    if body is not None and found.method in READS:
        if body.required:
            raise Unusable(f"a {found.method} has no body")
        body = None
    arguments = _arguments(declared, body)
    _check_path(found.path, arguments)
    return Operation(
        found.tool,
        found.method,
        found.path,
        arguments,
        body,
        _bounded(_input_schema(arguments, body, schemas), "arguments"),
        result_schema(document, told, found.method),
        _description(found),
        key_header,
        place,
    )


def _declared(
    document: Document, found: Found, given: frozenset[str], place: Place | None
) -> tuple[list[Declared], str | None]:
    """The parameters, those of the path overruled by the operation's own; and the header for the effect's name."""
    parameters: dict[tuple[str, str], Declared] = {}
    key_header = None
    for holder in (found.item, found.told):
        several = holder.get("parameters", [])
        for one in several if isinstance(several, list) else []:
            declared = read_parameter(document, one)
            if declared is None:
                continue
            name, where = declared.parameter.name, declared.parameter.where
            if where == "header" and name.lower() in _KEYS:
                key_header = name
            elif not (
                (where == "header" and name.lower() in given) or _is_place(place, where, name)
            ):
                parameters[where, name] = declared
    order = {where: at for at, where in enumerate(_ORDER)}
    return sorted(parameters.values(), key=lambda one: order[one.parameter.where]), key_header


def _is_place(place: Place | None, where: str, name: str) -> bool:
    """Whether that is where the credential goes, and so nothing that code gives."""
    if place is None or not place.bare or place.where != where:
        return False
    return place.name == name or (where == "header" and place.name.lower() == name.lower())


def _arguments(declared: list[Declared], body: Body | None) -> tuple[Argument, ...]:
    found: list[Argument] = []
    taken: set[str] = set()

    def add(parameter: Parameter, schema: Json, required: bool, description: str = "") -> None:
        name = _name(parameter, taken)
        taken.add(name)
        text = clean(description, MAX_TEXT)
        if text and isinstance(schema, dict):
            schema = {**schema, "description": text}
        found.append(Argument(name, parameter, schema, required))

    for one in declared:
        add(one.parameter, one.schema, one.required, one.description)
    if body is not None and body.properties is None:
        add(Parameter("body", "body"), body.schema, body.required, body.description)
    elif body is not None:
        for name, schema in (body.properties or {}).items():
            add(Parameter(name, "body"), schema, body.required and name in body.needed)
    # What must be given comes first, so that it can be given by position.
    return tuple(sorted(found, key=lambda one: not one.required))


def _name(parameter: Parameter, taken: set[str]) -> str:
    told = parameter.name.lower() if parameter.where == "header" else parameter.name
    word = told
    if not (word.isascii() and is_plain(word)):
        word = re.sub(r"[^A-Za-z0-9_]+", "_", told).strip("_")[:60] or "value"
        word = f"_{word}" if word[0].isdigit() else word
        word = f"{word}_" if keyword.iskeyword(word) else word
    if word not in taken:
        return word
    word, number = f"{word}_{parameter.where}", 2
    name = word
    while name in taken:
        name, number = f"{word}_{number}", number + 1
    return name


def _input_schema(arguments: tuple[Argument, ...], body: Body | None, schemas: Schemas) -> Object:
    properties: Object = {}
    for one in arguments:
        found = schemas.converted(one.schema)
        # A reference has no words of its own in 3.0; these are the parameter's.
        text = one.schema.get("description") if isinstance(one.schema, dict) else None
        words: Object = {"description": clean(text, MAX_TEXT)} if isinstance(text, str) else {}
        properties[one.name] = {**found, **words} if isinstance(found, dict) else found
    schema: Object = {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }
    if required := [one.name for one in arguments if one.required]:
        schema["required"] = list[Json](required)
    if body is not None and not body.required and body.properties is not None:
        needed: list[Json] = [
            one.name
            for one in arguments
            if one.parameter.where == "body" and one.parameter.name in body.needed
        ]
        if needed:
            # There need be no body; if there is one, this must be in it.
            parts = [one.name for one in arguments if one.parameter.where == "body"]
            schema["dependentRequired"] = dict.fromkeys(parts, needed)
    if definitions := schemas.definitions():
        schema["$defs"] = definitions
    return schema


def _bounded(schema: Object, what: str) -> Object:
    size = len(canonical_json(schema))
    if size > MAX_SCHEMA_BYTES:
        raise Unusable(f"the schema of its {what} has {size} bytes, {MAX_SCHEMA_BYTES} are allowed")
    return schema


def _check_path(path: str, arguments: tuple[Argument, ...]) -> None:
    filled = {one.parameter.name for one in arguments if one.parameter.where == "path"}
    parts = _PART.findall(path)
    if missing := [one for one in parts if one not in filled]:
        raise Unusable(f"its path has `{missing[0][:80]}`, which is no parameter")
    if lost := filled - set(parts):
        raise Unusable(f"its path has no place for `{min(lost)[:80]}`")
    plain = _PART.sub("x", path)
    if not path.startswith("/") or not plain.isprintable() or re.search(r"[\s?#{}\\]", plain):
        raise Unusable(
            "its path is none: it has `?`, `#`, spaces or the like in it, or no `/` first"
        )
    if any(step in (".", "..") for step in re.split("/|%2f", plain.lower().replace("%2e", "."))):
        raise Unusable("its path leads out of itself")


def _description(found: Found) -> str:
    told = found.told
    texts = [text_of(told.get(one)).strip() for one in ("summary", "description")]
    if texts[1].startswith(texts[0]):
        del texts[0]
    parts = [one for one in texts if one] or [found.place]
    if told.get("deprecated") is True:
        parts.append("Deprecated.")
    return clean("\n\n".join(parts))

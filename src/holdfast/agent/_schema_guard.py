"""What a JSON Schema may be before anything is checked against it.

A schema may come from a file or from another process, so it is bounded in every direction in which checking could
become slow, and it can't reach out of itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, cast

from holdfast.contracts import Json

MAX_SCHEMA_BYTES: Final = 64 * 1024
MAX_SCHEMA_DEPTH: Final = 24
MAX_PROPERTIES: Final = 256
MAX_ENUM: Final = 512
MAX_PATTERN_BYTES: Final = 2 * 1024
MAX_WORK: Final = 100_000
"""Schemas that may apply to one value, with every reference followed: alternatives of alternatives multiply."""

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
_IN_PLACE = ("not", "if", "then", "else")
_INNER = (
    "additionalProperties", "contains", "contentSchema", "items", "propertyNames",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_INNER_MAPS = ("properties", "patternProperties")
_DEFINITIONS = ("$defs", "definitions")
_FOREIGN = ("$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$vocabulary")


class SchemaFault(NamedTuple):
    """Why a schema is refused."""

    code: str
    """`hostile_schema`, `schema_contract_violation`, `unsupported_dialect` or `unsupported_schema_ref`."""
    path: str
    """Where in the schema."""
    why: str


class _Refused(Exception):
    def __init__(self, code: str, path: str, why: str) -> None:
        super().__init__(why)
        self.fault = SchemaFault(code, path or "/", why)


def schema_fault(schema: dict[str, Json]) -> SchemaFault | None:
    """The first thing that rules `schema` out, or `None`."""
    try:
        size = len(json.dumps(schema, ensure_ascii=False).encode())
        if size > MAX_SCHEMA_BYTES:
            raise _Refused("hostile_schema", "", f"it has more than {MAX_SCHEMA_BYTES} bytes")
        _check_depth(schema)
        _check_dialect(schema)
        _check(schema, schema, "")
        _Work(schema).check()
    except _Refused as why:
        return why.fault
    return None


def target(ref: str, root: dict[str, Json]) -> Json | _Missing:
    """What a local reference points at."""
    found: Any = root
    for part in ref[1:].split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and key in found:
            found = cast("dict[str, Any]", found)[key]
        elif (
            isinstance(found, list) and key.isdecimal() and int(key) < len(cast("list[Any]", found))
        ):
            found = cast("list[Any]", found)[int(key)]
        else:
            return MISSING
    return found


class _Missing:
    """Stands for what is not there."""


MISSING: Final = _Missing()


def children(schema: dict[str, Json], keywords: tuple[str, ...]) -> Iterator[tuple[str, Json]]:
    """The schemas below these keywords, with their paths."""
    for word in keywords:
        held = schema.get(word)
        if isinstance(held, list):
            for index, one in enumerate(held):
                yield f"/{word}/{index}", one
        elif word in _MAPS and isinstance(held, dict):
            for key, one in held.items():
                yield f"/{word}/{escaped(key)}", one
        elif word in schema and held is not None:
            yield f"/{word}", held


_MAPS = (*_INNER_MAPS, *_DEFINITIONS, "dependentSchemas")
_EVERY = (*_IN_PLACE_LISTS, *_IN_PLACE, *_INNER, "prefixItems", *_MAPS)


def escaped(key: str) -> str:
    """A key as part of a path."""
    return key.replace("~", "~0").replace("/", "~1")


def _check_depth(schema: dict[str, Json]) -> None:
    level: list[Json] = [schema]
    for _ in range(MAX_SCHEMA_DEPTH + 1):
        if not level:
            return
        below: list[Json] = []
        for one in level:
            if isinstance(one, dict):
                below.extend(one.values())
            elif isinstance(one, list):
                below.extend(one)
        level = [one for one in below if isinstance(one, dict | list)]
    raise _Refused("hostile_schema", "", f"it is nested more than {MAX_SCHEMA_DEPTH} levels deep")


def _check_dialect(schema: dict[str, Json]) -> None:
    named = schema.get("$schema")
    if named is not None and (not isinstance(named, str) or named.rstrip("#") != DIALECT):
        raise _Refused("unsupported_dialect", "/$schema", "it is not of JSON Schema 2020-12")


def _check(schema: Json, root: dict[str, Json], path: str) -> None:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise _Refused("schema_contract_violation", path, "a schema is an object or a boolean")
    _check_reference(schema, root, path)
    if len(_sized(schema.get("properties"))) > MAX_PROPERTIES:
        raise _Refused("hostile_schema", path, f"it has more than {MAX_PROPERTIES} properties")
    if len(_sized(schema.get("enum"))) > MAX_ENUM:
        raise _Refused("hostile_schema", path, f"it lists more than {MAX_ENUM} values")
    patterns = [schema.get("pattern"), *_sized(schema.get("patternProperties"))]
    if any(isinstance(one, str) and len(one.encode()) > MAX_PATTERN_BYTES for one in patterns):
        raise _Refused(
            "hostile_schema", path, f"it has a pattern of more than {MAX_PATTERN_BYTES} bytes"
        )
    for below, one in children(schema, _EVERY):
        _check(one, root, path + below)


def _sized(value: Json | None) -> list[Json]:
    return list(value) if isinstance(value, dict | list) else []


def _check_reference(schema: dict[str, Json], root: dict[str, Json], path: str) -> None:
    for word in _FOREIGN:
        if word in schema:
            raise _Refused("unsupported_schema_ref", f"{path}/{word}", f"`{word}` is not supported")
    ref = schema.get("$ref")
    if ref is None:
        return
    if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
        raise _Refused("hostile_schema", f"{path}/$ref", "it refers to something outside itself")
    if not isinstance(target(ref, root), dict | bool):
        raise _Refused("schema_contract_violation", f"{path}/$ref", "it refers to no schema")


class _Work:
    """How many schemas apply to one value at most."""

    def __init__(self, root: dict[str, Json]) -> None:
        self._root = root
        self._known: dict[int, int] = {}
        self._open: set[int] = set()
        self._closed: set[int] = set()

    def check(self) -> None:
        """Refuse what applies to the same value without end, and what applies too often."""
        try:
            self._ends(self._root)
            self._of(self._root)
        except RecursionError:
            raise _Refused("hostile_schema", "", "its references form too long a chain") from None

    def _ends(self, schema: Json) -> None:
        if not isinstance(schema, dict) or id(schema) in self._closed:
            return
        if id(schema) in self._open:
            raise _Refused("hostile_schema", "", "it refers to itself without an end")
        self._open.add(id(schema))
        for one in self._here(schema):
            self._ends(one)
        self._open.discard(id(schema))
        self._closed.add(id(schema))
        held = self._open
        self._open = set()
        for _, one in children(schema, _EVERY):
            self._ends(one)
        self._open = held

    def _of(self, schema: Json) -> int:
        if not isinstance(schema, dict):
            return 1
        key = id(schema)
        if key not in self._known:
            # One that contains itself is checked once for each value, however deep it goes.
            self._known[key] = 1
            below = children(schema, (*_INNER, "prefixItems", *_INNER_MAPS))
            found = (
                1 + sum(map(self._of, self._here(schema))) + sum(self._of(one) for _, one in below)
            )
            if found > MAX_WORK:
                raise _Refused("hostile_schema", "", "its alternatives multiply beyond measure")
            self._known[key] = found
        return self._known[key]

    def _here(self, schema: dict[str, Json]) -> Iterator[Json]:
        """The schemas that apply to the same value as this one."""
        for _, one in children(schema, (*_IN_PLACE_LISTS, *_IN_PLACE, "dependentSchemas")):
            yield one
        ref = schema.get("$ref")
        if isinstance(ref, str):
            found = target(ref, self._root)
            if not isinstance(found, _Missing):
                yield found

"""Schemas of a document as JSON Schema 2020-12, each whole in itself.

What a schema refers to moves into its `$defs`, also where that refers back. One operation can so drag in most of a
document; what no longer fits the room for one schema is left open (`{}`), farthest first: the server knows what it
takes, and says so.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Literal, cast

from holdfast.capabilities.openapi._failures import Unusable
from holdfast.capabilities.openapi.document import Document, Object
from holdfast.capabilities.words import clean
from holdfast.contracts import Json

MAX_NODES = 1500
"""Schemas and values within one schema, before references are left open."""
MAX_INLINE_NODES = 20_000
"""The same within what no reference can be left open for; more is refused."""
MAX_TEXT = 300
"""Characters of a description within a schema."""

Direction = Literal["in", "out"]

# Keywords that hold one schema, a list of them, or some by name.
_ONE = frozenset(
    "additionalProperties contains contentSchema else if items not propertyNames then"
    " unevaluatedItems unevaluatedProperties".split()
)
_SEVERAL = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_NAMED = frozenset(("dependentSchemas", "patternProperties", "properties"))
# Keywords whose value is taken as it is.
_AS_IS = frozenset(
    "const contentEncoding contentMediaType default dependentRequired deprecated enum exclusiveMaximum"
    " exclusiveMinimum format maxContains maxItems maxLength maxProperties maximum minContains minItems"
    " minLength minProperties minimum multipleOf pattern required type uniqueItems".split()
)
_TEXTS = frozenset(("title", "description"))
_LEADS_ELSEWHERE = ("$dynamicRef", "$recursiveRef")


class Schemas:
    """Converts schemas of one document, for what is sent (`in`) or for what comes back (`out`)."""

    def __init__(self, document: Document, direction: Direction) -> None:
        self._document = document
        self._direction = direction
        self._hidden = "readOnly" if direction == "in" else "writeOnly"
        self._names: dict[str, str] = {}
        self._waiting: deque[str] = deque()
        self._nodes = 0

    def converted(self, schema: Json) -> Json:
        """One schema; what it refers to is found in `definitions`. Raises `Unusable`."""
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            raise Unusable("a schema is no object")
        self._count()
        if any(word in schema for word in _LEADS_ELSEWHERE):
            raise Unusable("a schema has a dynamic reference")
        found: Object = {}
        for keyword, value in schema.items():
            self._take(keyword, value, found)
        if "$ref" in schema:
            target: Object = {"$ref": f"#/$defs/{self._named(schema['$ref'])}"}
            # In 3.0 nothing beside a reference counts.
            version = str(self._document.root.get("openapi"))
            found = target if version.startswith("3.0") else {**found, **target}
        return self._in_2020_12(schema, found)

    def definitions(self) -> Object:
        """What the converted schemas refer to, and what that refers to, by name."""
        found: Object = {}
        while self._waiting:
            reference = self._waiting.popleft()
            room = self._nodes < MAX_NODES
            name = self._names[reference]
            found[name] = self.converted(self._document.at(reference)) if room else {}
        return found

    def object_of(self, schema: Json) -> Object:
        """The schema itself, references at its top followed."""
        return {} if isinstance(schema, bool) else self._document.followed(schema, "schema")

    def hides(self, schema: Json) -> bool:
        """Whether what a property holds only ever goes the other way."""
        if not isinstance(schema, dict):
            return False
        if "$ref" in schema:
            try:
                schema = self._document.followed(schema, "schema")
            except Unusable:
                return False
        return schema.get(self._hidden) is True

    def _take(self, keyword: str, value: Json, found: Object) -> None:
        if keyword in _TEXTS:
            if isinstance(value, str) and (text := clean(value, MAX_TEXT)):
                found[keyword] = text
        elif keyword in _AS_IS:
            found[keyword] = value
            self._count(_size(value))
        elif keyword in _ONE:
            found[keyword] = self.converted(value)
        elif keyword in _SEVERAL and isinstance(value, list):
            found[keyword] = [self.converted(one) for one in value]
        elif keyword in _NAMED and isinstance(value, dict):
            found[keyword] = {
                name: self.converted(one) for name, one in value.items() if not self.hides(one)
            }

    def _in_2020_12(self, schema: Object, found: Object) -> Object:
        """What 3.0 says in its own way, and what only one direction has."""
        for limit, strict in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
            if isinstance(told := found.get(strict), bool):
                del found[strict]
                if told and limit in found:
                    found[strict] = found.pop(limit)
        self._require(schema, found)
        if self._direction == "out":
            # A server may come to say more than its document knows, and alternatives often overlap.
            if found.get("additionalProperties") is False:
                del found["additionalProperties"]
            if "oneOf" in found and "anyOf" not in found:
                found["anyOf"] = found.pop("oneOf")
        return _or_null(found) if schema.get("nullable") is True else found

    def _require(self, schema: Object, found: Object) -> None:
        required = found.get("required")
        if required is None:
            return
        if not isinstance(
            required, list
        ):  # `required: true` at a property: a leftover of older times
            del found["required"]
            return
        properties = schema.get("properties")
        known = properties if isinstance(properties, dict) else {}
        names = dict.fromkeys(one for one in required if isinstance(one, str))
        kept = [one for one in names if not self.hides(known.get(one))]
        if kept:
            found["required"] = list[Json](kept)
        else:
            del found["required"]

    def _named(self, reference: Json) -> str:
        """The name of what a reference names, in `$defs`."""
        self._document.at(reference)  # or it is refused here
        key = cast("str", reference)
        if key not in self._names:
            word = re.sub(r"[^A-Za-z0-9_.-]", "_", key.rpartition("/")[2])[:60] or "schema"
            name, number = word, 2
            while name in self._names.values():
                name, number = f"{word}_{number}", number + 1
            self._names[key] = name
            self._waiting.append(key)
        return self._names[key]

    def _count(self, nodes: int = 1) -> None:
        self._nodes += nodes
        if self._nodes > MAX_INLINE_NODES:
            raise Unusable(f"a schema has more than {MAX_INLINE_NODES} parts")


def _or_null(schema: Object) -> Object:
    kind, values = schema.get("type"), schema.get("enum")
    if not isinstance(kind, str):
        return {"anyOf": [schema, {"type": "null"}]} if schema else schema
    found: Object = {**schema, "type": [kind, "null"]}
    if isinstance(values, list) and None not in values:
        found["enum"] = [*values, None]
    return found


def _size(value: Json) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(_size, value.values()))
    if isinstance(value, list):
        return 1 + sum(map(_size, value))
    return 1

"""What is wrong with a value, in words that a model can act on.

Whether a value fits is the library's verdict. Why it does not is found here, place by place and each place once:
the library's own list goes through every combination of alternatives, which for a recursive union of types takes
minutes for an answer of a few hundred bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, cast

import jsonschema_rs

from holdfast.agent._schema_guard import escaped, target
from holdfast.contracts import Json

MAX_FAULTS: Final = 32
"""Faults that are told of one answer."""
_MAX_SHOWN = 80
_MAX_OPTIONS = 20
_MAX_PLACES = 20_000

NOT_REPAIRABLE: Final = frozenset(
    {
        "unsupported_dialect",
        "unsupported_schema_ref",
        "schema_contract_violation",
        "hostile_schema",
        "semantic_validator_unavailable",
    }
)
"""Faults of the schema or of the caller's type: no answer can mend them."""


class Fault(NamedTuple):
    """One thing wrong with an answer."""

    code: str
    """A stable token: `invalid_json`, `type_mismatch`, `missing_required_field` and so on."""
    path: str
    """Where in the value: `/a/b/0`; `/` for the value itself."""
    rule: str
    """What is asked for; the same words whatever was given instead."""
    message: str
    """Both in one sentence, without its full stop."""


def fault(code: str, path: str, rule: str, given: str = "") -> Fault:
    """The fault of a value that breaks `rule`."""
    where = path or "/"
    return Fault(code, where, rule, f"`{where}` {rule}{f', but is {given}' if given else ''}")


def shown(value: object) -> str:
    """A value as JSON, cut to 80 characters."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def pointer(path: Iterable[object]) -> str:
    """A path as faults write it; empty for the value itself."""
    return "".join(f"/{escaped(str(one))}" for one in path)


class Explainer:
    """Finds what is wrong with values of one schema."""

    def __init__(self, root: dict[str, Json]) -> None:
        self._root = root

    def faults(self, value: Json) -> list[Fault]:
        """The first few; none for a value that breaks only a rule not known here."""
        found = _Search(self._root).of(self._root, value, "")
        return list(dict.fromkeys(found))[:MAX_FAULTS]


class _Search:
    """One look at one value."""

    def __init__(self, root: dict[str, Json]) -> None:
        self._root = root
        self._known: dict[tuple[int, str], list[Fault]] = {}
        self._compiled: dict[tuple[int, str], jsonschema_rs.Draft202012Validator] = {}

    def of(self, schema: Json, value: Json, path: str) -> list[Fault]:
        if schema is True or len(self._known) > _MAX_PLACES:
            return []
        if not isinstance(schema, dict):
            return [fault("additional_property_denied", path, "must not be there")]
        key = (id(schema), path)
        if key not in self._known:
            self._known[key] = []
            self._known[key] = list(self._find(schema, value, path))
        return self._known[key]

    def _find(self, schema: dict[str, Json], value: Json, path: str) -> Iterator[Fault]:
        wrong = _type_fault(schema, value, path)
        if wrong:
            # Every other rule is about values of the right type.
            yield wrong
            return
        for word, holds in schema.items():
            if word in _RULES and not self._keeps(schema, word, value):
                yield _rule_fault(word, holds, value, path)
        for words in _COMPOSED:
            if words[0] in schema and not self._satisfies(schema, words, value):
                holds = {word: schema[word] for word in words if word in schema}
                yield fault("constraint_violation", path, f"must satisfy {shown(holds)}")
        ref = schema.get("$ref")
        if isinstance(ref, str):
            yield from self.of(cast("Json", target(ref, self._root)), value, path)
        for one in _listed(schema.get("allOf")):
            yield from self.of(one, value, path)
        for word in ("anyOf", "oneOf"):
            if word in schema:
                yield from self._alternatives(_listed(schema[word]), value, path, word == "oneOf")
        if isinstance(value, dict):
            yield from self._members(schema, value, path)
        elif isinstance(value, list):
            yield from self._items(schema, value, path)

    def _keeps(self, schema: dict[str, Json], word: str, value: Json) -> bool:
        """Whether a value keeps one simple rule: the library decides, as it did about the whole."""
        key = (id(schema), word)
        if key not in self._compiled:
            self._compiled[key] = compiled({word: schema[word]})
        return self._compiled[key].is_valid(value)

    def _satisfies(self, schema: dict[str, Json], words: tuple[str, ...], value: Json) -> bool:
        """Whether a value keeps a rule that is itself made of schemas; unknown counts as yes."""
        part = {word: schema[word] for word in (*words, *_DEFINED) if word in schema}
        part |= {word: self._root[word] for word in _DEFINED if word in self._root}
        try:
            return compiled(part).is_valid(value)
        except ValueError:
            return True  # it refers to a place that only the whole schema has

    def _members(
        self, schema: dict[str, Json], value: dict[str, Json], path: str
    ) -> Iterator[Fault]:
        properties = schema.get("properties")
        named = properties if isinstance(properties, dict) else {}
        for name in _listed(schema.get("required")):
            if isinstance(name, str) and name not in value:
                yield fault(
                    "missing_required_field", f"{path}/{escaped(name)}", "is required and missing"
                )
        more = schema.get("additionalProperties", True)
        for name, one in value.items():
            below = f"{path}/{escaped(name)}"
            if name in named:
                yield from self.of(named[name], one, below)
            elif "patternProperties" in schema:
                continue
            elif more is False:
                known = ", ".join(f"`{key}`" for key in list(named)[:_MAX_OPTIONS])
                rule = f"must not be there{f': the keys are {known}' if known else ''}"
                yield fault("additional_property_denied", below, rule)
            else:
                yield from self.of(more, one, below)

    def _items(self, schema: dict[str, Json], value: list[Json], path: str) -> Iterator[Fault]:
        first = _listed(schema.get("prefixItems"))
        rest = schema.get("items", True)
        for index, one in enumerate(value):
            yield from self.of(first[index] if index < len(first) else rest, one, f"{path}/{index}")

    def _alternatives(
        self, branches: list[Json], value: Json, path: str, only_one: bool
    ) -> Iterator[Fault]:
        found = [self.of(one, value, path) for one in branches]
        fitting = sum(not one for one in found)
        if fitting:
            if only_one and fitting > 1:
                yield fault("constraint_violation", path, "must fit only one of its alternatives")
            return
        here = path or "/"
        # An alternative of another type, or with another tag, is not the one that was meant.
        near = [
            one
            for one in found
            if not any(each.path == here and each.code == "type_mismatch" for each in one)
        ]
        tagged = [one for one in near if not any(each.code == "enum_mismatch" for each in one)]
        meant = tagged or near
        if not meant:
            yield _no_type(found, value, path)
        elif len(meant) == 1:
            yield from meant[0]
        else:
            # Of several that could be meant, the one with the fewest faults.
            yield from min(meant, key=len)


def _no_type(found: list[list[Fault]], value: Json, path: str) -> Fault:
    """What to say when no alternative is of the type that was given."""
    rules = dict.fromkeys(
        each.rule.removeprefix("must be ")
        for one in found
        for each in one
        if each.code == "type_mismatch" and each.path == (path or "/")
    )
    return fault("type_mismatch", path, f"must be {' or '.join(rules)}", shown(value))


# -- the rules of one value -----------------------------------------------------------------------------


class _Rule(NamedTuple):
    code: str
    text: str


_RULES: dict[str, _Rule] = {
    "enum": _Rule("enum_mismatch", "must be one of {}"),
    "const": _Rule("enum_mismatch", "must be {}"),
    "minLength": _Rule("min_length_violation", "must have at least {} characters"),
    "maxLength": _Rule("max_length_violation", "must have at most {} characters"),
    "minItems": _Rule("min_length_violation", "must have at least {} items"),
    "maxItems": _Rule("max_length_violation", "must have at most {} items"),
    "minProperties": _Rule("min_length_violation", "must have at least {} members"),
    "maxProperties": _Rule("max_length_violation", "must have at most {} members"),
    "minimum": _Rule("constraint_violation", "must be at least {}"),
    "maximum": _Rule("constraint_violation", "must be at most {}"),
    "exclusiveMinimum": _Rule("constraint_violation", "must be greater than {}"),
    "exclusiveMaximum": _Rule("constraint_violation", "must be less than {}"),
    "multipleOf": _Rule("constraint_violation", "must be a multiple of {}"),
    "pattern": _Rule("constraint_violation", "must match the pattern {}"),
    "uniqueItems": _Rule("constraint_violation", "must not have the same item twice"),
}
_NAMES = {
    "object": "an object", "array": "an array", "string": "a string", "integer": "an integer",
    "number": "a number", "boolean": "true or false", "null": "null",
}  # fmt: skip


# Rules made of other schemas that are not gone into: the rule itself is quoted.
_COMPOSED = (
    ("not",),
    ("if", "then", "else"),
    ("contains", "minContains", "maxContains"),
    ("dependentRequired",),
    ("dependentSchemas",),
    ("propertyNames",),
    ("patternProperties",),
)
_DEFINED = ("$defs", "definitions")


def compiled(schema: dict[str, Json]) -> jsonschema_rs.Draft202012Validator:
    """What checks values; raises `ValueError` for what is no schema.

    `format` is a remark, as the standard has it. Patterns run in the engine whose time is bounded, which has no
    look-around and no back-references.
    """
    return jsonschema_rs.Draft202012Validator(
        schema, offline=True, validate_formats=False, pattern_options=jsonschema_rs.RegexOptions()
    )


def _type_fault(schema: dict[str, Json], value: Json, path: str) -> Fault | None:
    holds = schema.get("type")
    types = holds if isinstance(holds, list) else [holds]
    if holds is None or any(_is(str(one), value) for one in types):
        return None
    names = [_NAMES.get(str(one), str(one)) for one in types]
    return fault("type_mismatch", path, f"must be {' or '.join(names)}", shown(value))


def _is(name: str, value: Json) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if isinstance(value, float):
        return name == "number" or (name == "integer" and value.is_integer())
    if isinstance(value, int):
        return name in ("integer", "number")
    return name == _TYPES[type(value)]


_TYPES: dict[type, str] = {str: "string", list: "array", dict: "object", type(None): "null"}


def _rule_fault(word: str, holds: Json, value: Json, path: str) -> Fault:
    rule = _RULES[word]
    if word == "enum":
        options = _listed(holds)
        asked = ", ".join(shown(one) for one in options[:_MAX_OPTIONS])
        asked = f"{asked}, …" if len(options) > _MAX_OPTIONS else asked
    else:
        asked = shown(holds)
    return fault(rule.code, path, rule.text.format(asked), shown(value))


def _listed(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []

"""JSON Schemas as Python types.

A schema can say more than a type; the type then says less than the schema, never something else. Objects with
named properties become TypedDicts, in the order in which they are met.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

from holdfast.capabilities._contract import local
from holdfast.capabilities._names import is_plain
from holdfast.contracts import Json, digest_json

_SIMPLE = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
}
_MAX_DEPTH = 16
_MAX_LITERALS = 100
_MAX_INT = 1 << 63
_WORD = re.compile(r"[A-Za-z0-9]+")
# In the body of a class, a field of such a name would hide the type from the fields below it.
_HIDES = frozenset(("bool", "dict", "float", "int", "list", "str"))


class Type(NamedTuple):
    """A union of types."""

    names: tuple[str, ...] = ()
    """Type expressions."""
    literals: tuple[str, ...] = ()
    """Values, as Python writes them."""
    literal: str = "Literal"
    """What `Literal` is called."""
    any: bool = False
    """Whether nothing is known."""

    def __str__(self) -> str:
        literals = [f"{self.literal}[{', '.join(self.literals)}]"] if self.literals else []
        return " | ".join([*literals, *self.names])

    def takes(self, value: Json) -> bool:
        """Whether a plain value surely is of this type."""
        if self.any or repr(value) in self.literals:
            return True
        if isinstance(value, float) and not -1e300 < value < 1e300:
            return False
        return ("None" if value is None else type(value).__name__) in self.names


class Types:
    """The types met so far, and the classes they need."""

    def __init__(self, taken: frozenset[str], *, name_objects: bool = True) -> None:
        self._taken = set(taken)
        self._name_objects = name_objects
        self._typing: dict[str, str] = {}
        self._classes: dict[str, str] = {}
        self._known: dict[str, str] = {}
        self._used: set[str] = set()
        self._same: dict[tuple[str, tuple[tuple[str, str], ...]], str] = {}
        self._open: list[str] = []

    def imports(self) -> str:
        """The import that the classes and types need; empty when they need none."""
        names = [
            name if name == alias else f"{name} as {alias}"
            for name, alias in sorted(self._typing.items())
        ]
        return f"from typing import {', '.join(names)}" if names else ""

    def classes(self) -> list[str]:
        """The definitions of every class named so far."""
        return list(self._classes.values())

    def typing(self, name: str) -> str:
        """What a name of the `typing` module is called here."""
        alias = self._typing.get(name)
        if alias is None:
            alias = name
            while alias in self._taken:
                alias = f"_{alias}"
            self._taken.add(alias)
            self._typing[name] = alias
        return alias

    def of(self, schema: Json, root: Mapping[str, Any], name: str, depth: int = 0) -> Type:
        """The type of `schema`, a part of `root`; `name` is for the class it may need."""
        if not isinstance(schema, dict) or depth > _MAX_DEPTH:
            return self._any()
        ref = schema.get("$ref")
        if isinstance(ref, str):
            return self._referred(ref, schema, root, depth)
        if "const" in schema:
            return self._literals([schema["const"]])
        if isinstance(options := schema.get("enum"), list):
            return self._literals(options)
        kinds = schema.get("type")
        if isinstance(kinds, str | list):
            each = [kinds] if isinstance(kinds, str) else kinds
            return self._union(self._kind(one, schema, root, name, depth) for one in each)
        for word in ("anyOf", "oneOf"):
            if isinstance(branches := schema.get(word), list) and branches:
                return self._union(self.of(one, root, name, depth + 1) for one in branches)
        every = schema.get("allOf")
        if isinstance(every, list) and len(every) == 1:
            return self.of(every[0], root, name, depth + 1)
        if isinstance(schema.get("properties"), dict):
            return self._object(schema, root, name, depth)
        return self._any()

    # -- kinds ----------------------------------------------------------------------------------------

    def _kind(
        self, kind: Json, schema: dict[str, Json], root: Mapping[str, Any], name: str, depth: int
    ) -> Type:
        if kind == "array":
            items = schema.get("items") if "prefixItems" not in schema else None
            return Type((f"list[{self.of(items, root, f'{name}_item', depth + 1)}]",))
        if kind == "object":
            return self._object(schema, root, name, depth)
        simple = _SIMPLE.get(kind) if isinstance(kind, str) else None
        return Type((simple,)) if simple else self._any()

    def _object(
        self, schema: dict[str, Json], root: Mapping[str, Any], name: str, depth: int
    ) -> Type:
        properties, more = schema.get("properties"), schema.get("additionalProperties")
        if isinstance(properties, dict) and properties and not more and self._name_objects:
            title = schema.get("title")
            return Type(
                (self._class(title if isinstance(title, str) else name, schema, root, depth),)
            )
        values = self.of(more, root, f"{name}_value", depth + 1) if not properties else self._any()
        return Type((f"dict[str, {values}]",))

    def _class(
        self, wanted: str, schema: dict[str, Json], root: Mapping[str, Any], depth: int
    ) -> str:
        key = digest_json([_pascal(wanted), schema, root.get("$defs"), root.get("definitions")])
        known = self._known.get(key)
        if known is not None:
            self._used.add(known)
            return known
        name = self._free(_pascal(wanted))
        self._known[key] = name  # before its fields: one of them may be of this very type
        self._classes[name] = ""
        properties = cast("dict[str, Json]", schema["properties"])
        needed = schema.get("required")
        required = needed if isinstance(needed, list) else []
        fields: dict[str, str] = {}
        for field, one in properties.items():
            hint = str(self.of(one, root, f"{name}_{field}", depth + 1))
            fields[field] = hint if field in required else f"{self.typing('NotRequired')}[{hint}]"
        self._classes[name] = self._definition(name, fields)
        return self._merged(name, _pascal(wanted), key, fields)

    def _merged(self, name: str, wanted: str, key: str, fields: dict[str, str]) -> str:
        """An earlier class of the same name and fields, if there is one and nothing uses this one yet."""
        same = (wanted, tuple(sorted(fields.items())))
        first = self._same.setdefault(same, name)
        if first == name or name in self._used:
            return name
        del self._classes[name]
        self._taken.discard(name)
        self._known[key] = first
        return first

    def _definition(self, name: str, fields: dict[str, str]) -> str:
        base = self.typing("TypedDict")
        if all(_is_field(field) and field not in self._taken for field in fields):
            lines = [f"    {field}: {hint}" for field, hint in fields.items()]
            return "\n".join([f"class {name}({base}):", *lines])
        lines = [f"    {field!r}: {hint}," for field, hint in fields.items()]
        return "\n".join([f'{name} = {base}("{name}", {{', *lines, "})"])

    def _referred(
        self, ref: str, schema: dict[str, Json], root: Mapping[str, Any], depth: int
    ) -> Type:
        # What refers to itself without an object in between has no type that Python could write.
        if ref in self._open:
            target = local(schema, root)
            if not (self._name_objects and isinstance(target, dict) and "properties" in target):
                return self._any()
        if len(self._open) > _MAX_DEPTH:
            return self._any()
        self._open.append(ref)
        try:
            return self.of(local(schema, root), root, ref.rpartition("/")[2], depth)
        finally:
            self._open.pop()

    # -- parts ----------------------------------------------------------------------------------------

    def _any(self) -> Type:
        return Type((self.typing("Any"),), any=True)

    def _union(self, types: Iterable[Type]) -> Type:
        found = list(types)
        if not found or any(one.any for one in found):
            return self._any()
        names = tuple(dict.fromkeys(name for one in found for name in one.names))
        literals = tuple(dict.fromkeys(text for one in found for text in one.literals))
        if literals:
            return Type(names, literals, self.typing("Literal"))
        return Type(names)

    def _literals(self, options: list[Json]) -> Type:
        if not options or len(options) > _MAX_LITERALS:
            return self._union(self._of_value(one) for one in options)
        return self._union(self._literal(one) for one in options)

    def _literal(self, value: Json) -> Type:
        if value is None:
            return Type(("None",))
        if isinstance(value, bool | str) or (
            isinstance(value, int) and -_MAX_INT < value < _MAX_INT
        ):
            return Type((), (repr(value),))
        return self._of_value(value)

    def _of_value(self, value: Json) -> Type:
        if value is None:
            return Type(("None",))
        if isinstance(value, list | dict):
            return self._any()
        return Type((type(value).__name__,))

    def _free(self, wanted: str) -> str:
        name, number = wanted, 2
        while name in self._taken:
            name, number = f"{wanted}{number}", number + 1
        self._taken.add(name)
        return name


def _is_field(name: str) -> bool:
    return is_plain(name) and name.isascii() and name not in _HIDES and not name[0].isupper()


def _pascal(text: str) -> str:
    """`text` as the name of a class: `send_invoice_result` gives `SendInvoiceResult`."""
    words = [word[0].upper() + word[1:] for word in _WORD.findall(text[:80])]
    name = "".join(words)
    if not name:
        return "Value"
    # `None`, `True` and `False` are keywords, and the built-in names are all of one word.
    return name if name[0].isalpha() and name not in _RESERVED else f"A{name}"


_RESERVED = frozenset(
    (
        "None",
        "True",
        "False",
        "Any",
        "Ellipsis",
        "NotImplemented",
        "Literal",
        "NotRequired",
        "TypedDict",
    )
)

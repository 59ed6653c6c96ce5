"""Bodies of requests: which kind of content is sent, which arguments it is made of, and its bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, cast
from urllib.parse import quote_plus

from holdfast.capabilities.openapi._failures import Unusable
from holdfast.capabilities.openapi.document import Document, Object, text_of
from holdfast.capabilities.openapi.parameters import Parameter, in_query, is_json, scalar
from holdfast.capabilities.openapi.schemas import Schemas
from holdfast.contracts import Json, digest

Kind = Literal["json", "form", "multipart", "text"]

# From what is understood best to what is understood least.
_KINDS: dict[str, Kind] = {
    "application/x-www-form-urlencoded": "form",
    "multipart/form-data": "multipart",
    "text/plain": "text",
}
_STYLES = ("form", "spaceDelimited", "pipeDelimited", "deepObject")
# An object that says no more than this about itself can be given property by property.
_FLAT = frozenset(
    "$comment $id $ref $schema additionalProperties allOf default deprecated description example examples"
    " externalDocs nullable properties required title type xml".split()
)
_HOPS = 16


@dataclass(frozen=True, slots=True)
class Body:
    """The body of an operation's requests."""

    kind: Kind
    content_type: str
    required: bool
    schema: Json = True
    """Of all of it, as the document has it."""
    properties: Mapping[str, Json] | None = None
    """Of an object whose properties are arguments, each; `None`: it is one argument."""
    needed: frozenset[str] = frozenset()
    """The properties that it can't be without."""
    description: str = ""
    styles: Mapping[str, Parameter] = field(default_factory=dict[str, Parameter])
    """How parts of a form are written, where the document says so."""


def read_body(document: Document, declared: Json, schemas: Schemas) -> Body | None:
    """The body that a document declares; `None` for none that must be sent. Raises `Unusable`."""
    if declared is None:
        return None
    told = document.followed(declared, "request body")
    content = told.get("content")
    required = told.get("required") is True
    media, part = _chosen(content if isinstance(content, dict) else {})
    if media is None:
        if required:
            kinds = ", ".join(f"`{one[:40]}`" for one in list(cast("Object", content or {}))[:5])
            raise Unusable(f"its body is {kinds or 'of no kind'}, which can't be sent")
        return None
    kind, content_type = media
    schema = part.get("schema", True)
    flat = None if kind == "text" else _flat(schemas, schema)
    if kind == "multipart" and flat is not None:
        flat = _without_files(schemas, flat)
    return Body(
        kind,
        content_type,
        required,
        {"type": "string"} if kind == "text" else schema,
        flat[0] if flat else None,
        frozenset(flat[1]) if flat else frozenset(),
        text_of(told.get("description")),
        _styles(part.get("encoding")) if kind == "form" else {},
    )


def encoded(body: Body, value: Json) -> tuple[bytes, str]:
    """The bytes of a body, and what they are."""
    match body.kind:
        case "json":
            return _json(value), body.content_type
        case "text":
            return scalar(value).encode(), "text/plain; charset=utf-8"
        case "form":
            return _form(body, _parts(value)), body.content_type
        case "multipart":
            return _multipart(_parts(value))


def _chosen(content: Object) -> tuple[tuple[Kind, str] | None, Object]:
    for media, part in content.items():
        if is_json(media):
            plain = "*" not in media and media.isascii() and media.isprintable()
            return ("json", media if plain else "application/json"), part if isinstance(
                part, dict
            ) else {}
    for wanted, kind in _KINDS.items():
        for media, part in content.items():
            if media.partition(";")[0].strip().lower() == wanted:
                return (kind, wanted), part if isinstance(part, dict) else {}
    return None, {}


class _Object:
    """A plain object, gathered from the parts that make it up."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self.properties: dict[str, Json] = {}
        self.required: list[str] = []

    def take(self, schema: Json, hops: int = _HOPS) -> bool:
        """Add what a schema says; `False` if that is more than which properties there are."""
        if isinstance(schema, bool) or not hops:
            return False
        told = self._schemas.object_of(schema)
        known = all(word in _FLAT or word.startswith("x-") for word in told)
        if not known or told.get("additionalProperties", False) is not False:
            return False
        if told.get("nullable") is True or told.get("type", "object") not in ("object", ["object"]):
            return False
        parts = told.get("allOf", [])
        if not isinstance(parts, list) or not all(self.take(one, hops - 1) for one in parts):
            return False
        own, needed = told.get("properties", {}), told.get("required", [])
        if not isinstance(own, dict) or not own.keys().isdisjoint(self.properties):
            return False
        self.properties.update(own)
        if isinstance(needed, list):
            self.required += [one for one in needed if isinstance(one, str)]
        return True


def _flat(schemas: Schemas, schema: Json) -> tuple[dict[str, Json], list[str]] | None:
    """The properties of a plain object, and which it can't be without; `None` if there is more to it."""
    found = _Object(schemas)
    if not found.take(schema) or not found.properties.keys() >= set(found.required):
        return None
    sent = {name: one for name, one in found.properties.items() if not schemas.hides(one)}
    return (sent, [one for one in found.required if one in sent]) if sent else None


def _without_files(
    schemas: Schemas, flat: tuple[dict[str, Json], list[str]]
) -> tuple[dict[str, Json], list[str]]:
    """Text can be sent, files can't: they have no place in arguments."""
    properties, required = flat
    kept: dict[str, Json] = {}
    for name, schema in properties.items():
        told = schemas.object_of(schema)
        items = told.get("items")
        inner = schemas.object_of(items) if items is not None else {}
        if not (_is_file(told) or _is_file(inner)):
            kept[name] = schema
        elif name in required:
            raise Unusable(f"it needs the file `{name[:80]}`, which can't be sent")
    return kept, required


def _is_file(schema: Object) -> bool:
    if schema.get("format") == "binary":
        return True
    media = schema.get("contentMediaType")
    return isinstance(media, str) and not media.startswith(("text/", "application/json"))


def _styles(told: Json) -> dict[str, Parameter]:
    """How the document wants parts of a form written; the rest has a rule of its own."""
    found: dict[str, Parameter] = {}
    for name, one in told.items() if isinstance(told, dict) else ():
        if not isinstance(one, dict) or not one.keys() & {"style", "explode", "allowReserved"}:
            continue
        style = one.get("style", "form")
        if style not in _STYLES:
            raise Unusable(f"the style `{str(style)[:40]}` of `{name[:80]}` is none for a form")
        explode = one.get("explode")
        spread = explode if isinstance(explode, bool) else style == "form"
        found[name] = Parameter(name, "query", cast("str", style), spread)
    return found


def _parts(value: Json) -> Object:
    return value if isinstance(value, dict) else {}


def _form(body: Body, parts: Object) -> bytes:
    written: list[str] = []
    for name, value in parts.items():
        if value is None:
            continue
        if name in body.styles:
            written += in_query(body.styles[name], value)
            continue
        several = value if isinstance(value, list) else [value]
        written += [f"{quote_plus(name)}={quote_plus(scalar(one))}" for one in several]
    return "&".join(written).encode()


def _multipart(parts: Object) -> tuple[bytes, str]:
    blocks: list[bytes] = []
    for name, value in parts.items():
        if value is None:
            continue
        for one in value if isinstance(value, list) else [value]:
            kind = "application/json" if isinstance(one, dict | list) else "text/plain"
            head = (
                f'Content-Disposition: form-data; name="{_quoted(name)}"\r\n'
                f"Content-Type: {kind}; charset=utf-8\r\n\r\n"
            )
            blocks.append(head.encode() + scalar(one).encode() + b"\r\n")
    # Made of what is between its places, so that it can't be in it.
    boundary = f"holdfast-{digest(b''.join(blocks))[:40]}"
    mark = f"--{boundary}".encode()
    data = b"".join(mark + b"\r\n" + block for block in blocks) + mark + b"--\r\n"
    return data, f"multipart/form-data; boundary={boundary}"


def _quoted(name: str) -> str:
    return name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


def _json(value: Json) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

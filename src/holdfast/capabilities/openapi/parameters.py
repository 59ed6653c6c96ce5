"""Parameters of operations, and how their values are written into paths, queries and headers.

The styles are those of the specification. Where it leaves a case open: what is `null` is not sent; an object or list
within a list is written as JSON; what is within a `deepObject` is named by its path (`filter[a][0]=1`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast
from urllib.parse import quote

from holdfast.capabilities.openapi._failures import Unusable
from holdfast.capabilities.openapi.document import Document, Object, text_of
from holdfast.contracts import Json
from holdfast.errors import CallerError

Where = Literal["path", "query", "header", "body"]

_STYLES = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
}
_BETWEEN = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}
# What may stay as it is where a document says `allowReserved`; not what would end the value.
_RESERVED = ":/?@!$'()*,;"
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
# Headers that are the connection's, or that something else decides.
_NOT_THEIRS = frozenset(
    "accept accept-encoding authorization connection content-length content-type cookie expect host"
    " keep-alive te trailer transfer-encoding upgrade user-agent".split()
)
_NUMBERS_EXACT = 2**53


@dataclass(frozen=True, slots=True)
class Parameter:
    """How one value is sent."""

    name: str
    """What the other side calls it."""
    where: Where
    """Where it goes."""
    style: str = "form"
    """How it is written."""
    explode: bool = True
    """Whether the parts of a list or object are written one by one."""
    reserved: bool = False
    """Whether reserved characters stay as they are."""
    as_json: bool = False
    """Whether it is written as JSON, whatever the style."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A parameter as an operation declares it."""

    parameter: Parameter
    schema: Json
    required: bool
    description: str


def read_parameter(document: Document, declared: Json) -> Declared | None:
    """One parameter of an operation; `None` for one that is not sent. Raises `Unusable`."""
    told = document.followed(declared, "parameter")
    name, where = told.get("name"), told.get("in")
    if not isinstance(name, str) or not name:
        raise Unusable("a parameter has no name")
    required = told.get("required") is True or where == "path"
    if where == "header" and name.lower() in _NOT_THEIRS:
        return None  # the specification wants it ignored, or it is the connection's
    if where not in _STYLES or (where == "header" and not _TOKEN.fullmatch(name)):
        if required:
            raise Unusable(f"it needs `{name[:80]}` in `{str(where)[:20]}`, which can't be sent")
        return None
    schema, as_json = _schema(told, name)
    return Declared(
        Parameter(name, cast("Where", where), *_style(told, where, name), as_json=as_json),
        schema,
        required,
        text_of(told.get("description")),
    )


def _style(told: Object, where: str, name: str) -> tuple[str, bool, bool]:
    style = told.get("style", _STYLES[where][0])
    if style not in _STYLES[where]:
        raise Unusable(f"the style `{str(style)[:40]}` of `{name[:80]}` is none for a {where}")
    explode = told.get("explode")
    found = cast("str", style)
    return (
        found,
        explode if isinstance(explode, bool) else found == "form",
        told.get("allowReserved") is True,
    )


def _schema(told: Object, name: str) -> tuple[Json, bool]:
    content = told.get("content")
    if not isinstance(content, dict):
        return told.get("schema", {}), False
    for media, part in content.items():
        if is_json(media) and isinstance(part, dict):
            return part.get("schema", {}), True
    raise Unusable(f"`{name[:80]}` is sent as something other than JSON")


def is_json(media: str) -> bool:
    """Whether a type of content is JSON."""
    kind = media.partition(";")[0].strip().lower()
    return kind in ("application/json", "text/json", "*/*", "application/*") or kind.endswith(
        "+json"
    )


def in_path(parameter: Parameter, value: Json) -> str:
    """The value as it stands in a path; raises `INVALID_ARGUMENT` for one that would lead to another path."""
    name = quote(parameter.name, safe="")
    parts = [one for one in _leaves(value) if one is not None]
    if not parts or any(_scalar(one) == "" for one in parts):
        raise _unfit(parameter, "is empty, and part of a path")
    if any(step in (".", "..") for one in parts for step in re.split(r"[/\\]", _scalar(one))):
        raise _unfit(parameter, "has `.` or `..` for a part of a path")
    if parameter.as_json:
        return quote(_json(value), safe="")
    if parameter.style == "label":
        return "." + _joined(parameter, value, "." if parameter.explode else ",")
    if parameter.style == "simple":
        return _joined(parameter, value, ",")
    if not parameter.explode or not isinstance(value, dict | list):
        return f";{name}={_joined(parameter, value, ',')}"
    if isinstance(value, list):
        return "".join(f";{name}={_encoded(one)}" for one in value if one is not None)
    return f";{_joined(parameter, value, ';')}"


def in_query(parameter: Parameter, value: Json) -> list[str]:
    """The `name=value` parts of a query."""
    safe = _RESERVED if parameter.reserved else ""
    name = quote(parameter.name, safe="")
    if value is None:
        return []
    if parameter.as_json:
        return [f"{name}={quote(_json(value), safe=safe)}"]
    if parameter.style == "deepObject" and isinstance(value, dict | list):
        return [f"{path}={_encoded(one, safe)}" for path, one in _paths(name, value)]
    if not isinstance(value, dict | list):
        return [f"{name}={_encoded(value, safe)}"]
    if not parameter.explode:
        written = _joined(parameter, value, _BETWEEN[parameter.style], safe)
        return [f"{name}={written}"] if written else []
    if isinstance(value, list):
        return [f"{name}={_encoded(one, safe)}" for one in value if one is not None]
    return [
        f"{quote(key, safe='')}={_encoded(one, safe)}"
        for key, one in value.items()
        if one is not None
    ]


def in_header(parameter: Parameter, value: Json) -> str | None:
    """The value of a header; `None`: it is not sent. Raises `INVALID_ARGUMENT` for what no header can have."""
    if value is None:
        return None
    text = _json(value) if parameter.as_json else _plain(value, explode=parameter.explode)
    if not text.isascii() or not text.isprintable():
        raise _unfit(parameter, "has characters that a header can't have")
    return text.strip()


def scalar(value: Json) -> str:
    """A value as text: itself, `true` or `false`, a number, or JSON."""
    return _scalar(value)


def _joined(parameter: Parameter, value: Json, between: str, safe: str = "") -> str:
    if isinstance(value, list):
        return between.join(_encoded(one, safe) for one in value if one is not None)
    if not isinstance(value, dict):
        return _encoded(value, safe)
    pairs = [
        (quote(key, safe=""), _encoded(one, safe)) for key, one in value.items() if one is not None
    ]
    if parameter.explode:
        return between.join(f"{key}={one}" for key, one in pairs)
    return between.join(f"{key}{between}{one}" for key, one in pairs)


def _plain(value: Json, *, explode: bool) -> str:
    if isinstance(value, list):
        return ",".join(_scalar(one) for one in value if one is not None)
    if isinstance(value, dict):
        pairs = [(key, _scalar(one)) for key, one in value.items() if one is not None]
        return ",".join(f"{key}={one}" if explode else f"{key},{one}" for key, one in pairs)
    return _scalar(value)


def _paths(name: str, value: Json) -> list[tuple[str, Json]]:
    if isinstance(value, dict):
        items: Sequence[tuple[str, Json]] = list(value.items())
    elif isinstance(value, list):
        items = [(str(at), one) for at, one in enumerate(value)]
    else:
        return [] if value is None else [(name, value)]
    return [
        found for key, one in items for found in _paths(f"{name}%5B{quote(key, safe='')}%5D", one)
    ]


def _leaves(value: Json) -> list[Json]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else [value]


def _encoded(value: Json, safe: str = "") -> str:
    return quote(_scalar(value), safe=safe)


def _scalar(value: Json) -> str:
    match value:
        case str():
            return value
        case float() if value.is_integer() and abs(value) < _NUMBERS_EXACT:
            return str(int(value))  # JSON does not tell 1.0 from 1
        case None:
            return ""
        case _:
            return _json(value)


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _unfit(parameter: Parameter, why: str) -> CallerError:
    return CallerError(
        "INVALID_ARGUMENT",
        f"`{parameter.name[:80]}` {why}.",
        hint="Give it another value.",
    )

"""Where the credential of a request goes, by what the document says about each operation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol
from urllib.parse import quote

from holdfast.capabilities.openapi._failures import Unusable
from holdfast.capabilities.openapi.document import Document, Object

if TYPE_CHECKING:
    from holdfast.capabilities.openapi.requests import Request

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_COOKIE = re.compile(r"[A-Za-z0-9_.-]+")


class Credentials(Protocol):
    """Who has the credentials of leases, and gives each to its own hosts only."""

    async def header(self, key: str, host: str) -> Mapping[str, str]:
        """The headers that sign a request to the host with the lease's credential.

        Raises `NeedsAnswer` when a person has to sign in first.
        """
        ...

    async def rejected(
        self, key: str, host: str, sent: Mapping[str, str]
    ) -> Mapping[str, str] | None:
        """The host answered 401 to these headers: what to send instead; `None`: a person has to sign in."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """Where the credential goes."""

    where: Literal["header", "query", "cookie"]
    name: str
    bare: bool = False
    """Whether only the secret goes there, without the word before it (`Bearer`)."""


AS_GIVEN = Place("header", "Authorization")
"""The headers as whoever has the credential gives them."""


def place_of(document: Document, operation: Object, given: frozenset[str]) -> Place | None:
    """Where an operation wants the credential; `None`: nowhere. Raises `Unusable` if it wants several.

    `given` are the headers, in lower case, that are sent anyway: what they are for needs no credential.
    """
    components = document.object("components").get("securitySchemes")
    schemes = components if isinstance(components, dict) else {}
    wanted = operation.get("security", document.root.get("security"))
    if wanted is None:
        # It says nothing about credentials at all: then it is up to whoever gave one.
        return None if schemes else AS_GIVEN
    ways = [one for one in wanted if isinstance(one, dict)] if isinstance(wanted, list) else []
    if not ways:
        return None
    why = ""
    for way in filter(None, ways):  # to go without one comes last: there is one
        try:
            places = [_place(document, schemes, name) for name in way]
        except Unusable as cause:
            why = str(cause)
            continue
        open_ = [one for one in places if not (one.where == "header" and _is_given(one, given))]
        if len(open_) <= 1:
            return open_[0] if open_ else None
        why = f"it wants {len(open_)} credentials at a time"
    if {} in ways:
        return None
    raise Unusable(why)


def signed(place: Place, credential: Mapping[str, str], request: Request) -> None:
    """Put the credential where it belongs."""
    if not place.bare:
        request.give(credential)
        return
    value = next(iter(credential.values()), "")
    word, _, rest = value.partition(" ")
    secret = rest if rest and word.lower() in ("bearer", "basic", "token", "apikey") else value
    if place.where == "header":
        request.give({place.name: secret})
    elif place.where == "query":
        request.query.append(f"{quote(place.name, safe='')}={quote(secret, safe='')}")
    else:
        request.give({"Cookie": f"{place.name}={quote(secret, safe='')}"})


def _is_given(place: Place, given: frozenset[str]) -> bool:
    return place.name.lower() in given


def _place(document: Document, schemes: Object, name: str) -> Place:
    if name not in schemes:
        raise Unusable(f"its security scheme `{name[:80]}` is not in the document")
    scheme = document.followed(schemes[name], "security scheme")
    kind = scheme.get("type")
    if kind in ("http", "oauth2", "openIdConnect"):
        return AS_GIVEN
    where, key = scheme.get("in"), scheme.get("name")
    if kind != "apiKey" or not isinstance(key, str):
        raise Unusable(f"its security scheme `{name[:80]}` is of a kind that is not supported")
    if where == "query" and key:
        return Place("query", key, bare=True)
    if where in ("header", "cookie") and (_TOKEN if where == "header" else _COOKIE).fullmatch(key):
        return Place(where, key, bare=True)
    raise Unusable(f"its security scheme `{name[:80]}` goes where nothing can be sent")

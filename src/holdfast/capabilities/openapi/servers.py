"""Where the operations of a document are, and who may decide that."""

from __future__ import annotations

from urllib.parse import urljoin, urlsplit

from holdfast.capabilities.builtin._hosts import PORTS, Hosts, address_of
from holdfast.capabilities.openapi._failures import BadDocument
from holdfast.capabilities.openapi.document import Document, Object, origin
from holdfast.contracts.surface import OpenApiSurface
from holdfast.errors import HoldfastError


def base_of(document: Document, spec: OpenApiSurface) -> str:
    """Where the operations are; raises `BadDocument` where a document may not decide that."""
    if spec.base_url is not None:
        return _plain(spec.base_url)
    told = _server(document)
    if not told.startswith(("http://", "https://")):
        if document.address is None:
            raise BadDocument("it does not say where its server is: `base_url` has to")
        told = urljoin(document.address, told)
    base = _plain(told)
    here = origin(base)
    if document.address is not None and same_origin(here, origin(document.address)):
        return base
    host = urlsplit(base).hostname or ""
    if not here.startswith("https://") or address_of(host) is not None or host == "localhost":
        raise BadDocument(f"its server is `{here}`: if that is meant, `base_url` has to say so")
    if spec.headers:
        raise BadDocument(
            f"`headers` would go to `{here}`, which only the document names: `base_url` has to"
        )
    return base


def _server(document: Document) -> str:
    servers = document.root.get("servers")
    first = servers[0] if isinstance(servers, list) and servers else None
    told: Object = first if isinstance(first, dict) else {"url": "/"}
    url, given = told.get("url"), told.get("variables")
    if not isinstance(url, str):
        raise BadDocument("its server has no address")
    for name, one in given.items() if isinstance(given, dict) else ():
        default = one.get("default") if isinstance(one, dict) else None
        url = url.replace(f"{{{name}}}", str(default))
    return url


def _plain(base: str) -> str:
    """The address, if nothing but a path comes after its host."""
    found = origin(base)
    try:
        Hosts([found]).check(base)
    except (HoldfastError, ValueError) as why:
        raise BadDocument(f"`{base[:200]}` is no address of a server ({why})") from None
    if any(char in base for char in "?#{}"):
        raise BadDocument(f"`{base[:200]}` has more in it than the address of a server")
    return base


def same_origin(one: str, other: str) -> bool:
    """Whether two origins are the same host, port and way to speak."""
    first, second = urlsplit(one), urlsplit(other)
    return (first.scheme, first.hostname, first.port or PORTS[first.scheme]) == (
        second.scheme,
        second.hostname,
        second.port or PORTS[second.scheme],
    )

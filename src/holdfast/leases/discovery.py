"""Which authorization server guards an address, and who we are to it.

As the authorization part of MCP asks: protected resource metadata (RFC 9728), then the server's own (RFC 8414, or
OpenID Connect); where a server has neither, its well-known paths. Then a client id: given, a document of ours, or
registered (RFC 7591). What a stranger's metadata says is checked before anything is sent there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from pydantic import BaseModel, ConfigDict, ValidationError

from holdfast.errors import OperatorError
from holdfast.leases._web import Web, check_address, where
from holdfast.leases.credential import Client, Server

CLIENT_NAME = "holdfast"
METHODS = ("client_secret_basic", "client_secret_post", "private_key_jwt", "none")
OFFLINE = "offline_access"


@dataclass(frozen=True, slots=True)
class Challenge:
    """What a server said when it refused: `WWW-Authenticate` of a 401 or 403."""

    error: str | None = None
    scopes: tuple[str, ...] | None = None
    resource_metadata: str | None = None

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> Challenge:
        """From a response's headers."""
        text = headers.get("www-authenticate") or ""
        scope = _field(text, "scope")
        return cls(
            error=_field(text, "error"),
            scopes=None if scope is None else tuple(scope.split()),
            resource_metadata=_field(text, "resource_metadata"),
        )


def _field(text: str, name: str) -> str | None:
    found = re.search(rf'(?:^|[\s,]){name}\s*=\s*(?:"([^"]*)"|([^\s,"]+))', text, re.IGNORECASE)
    return None if found is None else (found[1] if found[1] is not None else found[2])


@dataclass(frozen=True, slots=True)
class Found:
    """What discovery found."""

    server: Server
    issuer: str
    """Whom a client registered there is bound to."""
    resource: str | None = None
    """What the token is to be for (RFC 8707)."""
    scopes: tuple[str, ...] | None = None
    """What the resource says it needs; none: it does not say."""


class _Resource(BaseModel):
    model_config = ConfigDict(extra="ignore")

    resource: str
    authorization_servers: list[str]
    scopes_supported: tuple[str, ...] | None = None


def refused(message: str, hint: str) -> OperatorError:
    """An authorization server, or what is said about one, can't be used."""
    return OperatorError("AUTH_FAILED", message, hint=hint)


async def discover(
    web: Web, url: str, challenge: Challenge | None = None, *, issuer: str | None = None
) -> Found:
    """Who guards `url`. With `issuer`, only that one will do: its client must not be shown to another."""
    check_address(url)
    resource = await _resource(web, url, challenge or Challenge())
    if resource is None:
        expected = issuer or _origin(url)
        server = await _server(web, expected, legacy=issuer is None, asked_by=url)
        return Found(server or _by_convention(url), expected)
    listed = resource.authorization_servers
    chosen = listed[0]
    if issuer is not None:
        matching = [one for one in listed if same_issuer(one, issuer)]
        if not matching:
            raise refused(
                f"`{where(url)}` names other authorization servers than `{where(issuer)}`.",
                "The client is registered with that one only; sign in with another client.",
            )
        chosen = matching[0]
    server = await _server(web, chosen, legacy=False, asked_by=url)
    if server is None:
        raise refused(
            f"The authorization server `{where(chosen)}` does not say how to sign in.",
            "It must publish its metadata (RFC 8414).",
        )
    return Found(server, chosen, resource.resource, resource.scopes_supported)


async def discover_issuer(web: Web, issuer: str) -> Found:
    """An authorization server that is known by its address."""
    check_address(issuer)
    server = await _server(web, issuer.rstrip("/"), legacy=False, asked_by=issuer, lenient=True)
    if server is None:
        raise refused(
            f"`{where(issuer)}` does not say how to sign in.",
            "It must publish its metadata (RFC 8414, or OpenID Connect).",
        )
    return Found(server, server.issuer or issuer)


async def _resource(web: Web, url: str, challenge: Challenge) -> _Resource | None:
    failed = 0
    for candidate in _resource_urls(url, challenge.resource_metadata):
        reply = await web.get(check_address(candidate, asked_by=url))
        if reply.status == 429 or reply.status >= 500:
            failed = reply.status
        if reply.status != 200:
            continue
        try:
            found = _Resource.model_validate(reply.json())
        except ValidationError:
            continue
        if not found.authorization_servers:
            continue
        if not _covers(found.resource, url):
            raise refused(
                f"`{where(url)}` says that it is `{found.resource[:200]}`, which it is not.",
                "A token for one server must not be shown to another. Ask who runs it.",
            )
        return found
    if failed:
        # It may well have metadata: to go on as if not would ask the wrong server.
        raise refused(
            f"`{where(url)}` does not say who guards it: HTTP {failed}.", "Try again later."
        )
    return None


def _resource_urls(url: str, told: str | None) -> list[str]:
    parts = urlsplit(url)
    well_known = "/.well-known/oauth-protected-resource"
    found = [told] if told else []
    if parts.path not in ("", "/"):
        found.append(f"{_origin(url)}{well_known}{parts.path}")
    return [*found, f"{_origin(url)}{well_known}"]


async def _server(
    web: Web, issuer: str, *, legacy: bool, asked_by: str, lenient: bool = False
) -> Server | None:
    for candidate in _server_urls(issuer, legacy=legacy):
        reply = await web.get(check_address(candidate, asked_by=asked_by))
        if reply.status >= 500:
            raise refused(
                f"The authorization server `{where(issuer)}` has trouble: HTTP {reply.status}.",
                "Try again later.",
            )
        told = reply.json() if reply.status == 200 else None
        if told is None:
            continue
        try:
            server = Server.model_validate({k: v for k, v in told.items() if v is not None})
        except ValidationError:
            continue
        said = server.issuer or ""
        fits = said == issuer or (lenient and same_issuer(said, issuer))
        if legacy:
            # The old protocol has no other place for the metadata of a server that is below a path.
            fits = _origin(said) == issuer
        if not fits:
            raise refused(
                f"The metadata of `{where(issuer)}` are those of another authorization server.",
                "Somebody may be trying to get at your sign-in. Ask who runs it.",
            )
        for endpoint in _endpoints(server):
            check_address(endpoint, asked_by=asked_by)
        return server
    return None


def _endpoints(server: Server) -> list[str]:
    every = (
        server.token_endpoint,
        server.authorization_endpoint,
        server.registration_endpoint,
        server.device_authorization_endpoint,
        server.revocation_endpoint,
    )
    return [one for one in every if one]


def _server_urls(issuer: str, *, legacy: bool) -> list[str]:
    parts = urlsplit(issuer)
    base, path = _origin(issuer), parts.path.rstrip("/")
    if legacy:
        return [f"{base}/.well-known/oauth-authorization-server"]
    found = [
        f"{base}/.well-known/oauth-authorization-server{path}",
        f"{base}/.well-known/openid-configuration{path}",
    ]
    return [*found, f"{base}{path}/.well-known/openid-configuration"] if path else found


def _by_convention(url: str) -> Server:
    """A server without metadata: the paths of the protocol version that did not ask for any."""
    base = _origin(url)
    return Server(
        token_endpoint=f"{base}/token",
        authorization_endpoint=f"{base}/authorize",
        registration_endpoint=f"{base}/register",
    )


def same_issuer(one: str, other: str) -> bool:
    """Whether two issuers are the same; a root may end with a slash or not."""
    if one == other:
        return True
    shorter, longer = sorted((one, other), key=len)
    return longer == f"{shorter}/" and urlsplit(shorter).path == ""


def resource_of(url: str) -> str:
    """An address as a resource indicator (RFC 8707)."""
    parts = urlsplit(url)
    return urlunsplit(
        parts._replace(scheme=parts.scheme.lower(), netloc=parts.netloc.lower(), fragment="")
    )


def _covers(resource: str, url: str) -> bool:
    have, want = urlsplit(resource), urlsplit(resource_of(url))
    if (have.scheme.lower(), have.netloc.lower()) != (want.scheme, want.netloc):
        return False
    return f"{want.path.rstrip('/')}/".startswith(f"{have.path.rstrip('/')}/")


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme.lower()}://{parts.netloc.lower()}"


# -- the client ---------------------------------------------------------------------------------------


def scopes_to_ask(
    found: Found, challenge: Challenge | None, wanted: Sequence[str] | None
) -> tuple[str, ...] | None:
    """What to ask for: what was demanded, else what the caller wants, else what the resource says; none: say nothing."""
    if challenge is not None and challenge.scopes is not None:
        chosen = union(wanted or (), challenge.scopes)
    elif wanted:
        chosen = tuple(wanted)
    elif found.scopes is not None:
        chosen = found.scopes
    else:
        return None
    # Without it, many servers give no refresh token; with it, those that do not know it refuse.
    if OFFLINE in (found.server.scopes_supported or ()):
        return union(chosen, (OFFLINE,))
    return chosen


def union(some: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
    """All of them, once, in order."""
    return tuple(dict.fromkeys((*some, *more)))


async def client_for(
    web: Web,
    found: Found,
    *,
    given: Client | None,
    document: str | None,
    redirect_uri: str,
    scopes: Sequence[str] | None,
) -> Client:
    """Who we are to that server: as given, by a document of ours, or registered just now."""
    if given is not None and (given.issuer is None or same_issuer(given.issuer, found.issuer)):
        return with_method(given, found.server)
    if given is not None and not given.registered:
        raise refused(
            f"The client is registered with `{where(given.issuer or '')}`, not with "
            f"`{where(found.issuer)}`.",
            "Its secret is not shown to another server; sign in with another client.",
        )
    if document and found.server.client_id_metadata_document_supported:
        return Client(client_id=document, method="none", redirect_uri=redirect_uri)
    return await register(web, found, redirect_uri, scopes)


async def register(
    web: Web, found: Found, redirect_uri: str, scopes: Sequence[str] | None
) -> Client:
    """Register a client (RFC 7591)."""
    endpoint = found.server.registration_endpoint
    if endpoint is None:
        raise refused(
            f"`{where(found.issuer)}` registers no clients by itself.",
            "Register one there, and give its id: `holdfast auth login KEY --client-id ID`.",
        )
    asked: dict[str, Any] = {
        "client_name": CLIENT_NAME,
        "application_type": "native",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
    }
    supported = found.server.token_endpoint_auth_methods_supported
    if supported is not None:
        usable = [one for one in ("none", *METHODS[:2]) if one in supported]
        asked |= {"token_endpoint_auth_method": usable[0]} if usable else {}
    if scopes:
        asked["scope"] = " ".join(scopes)
    reply = await web.post_json(endpoint, asked)
    told = reply.json() or {}
    client_id = told.get("client_id")
    if reply.status not in (200, 201) or not isinstance(client_id, str) or not client_id:
        raise refused(
            f"`{where(endpoint)}` did not register a client: HTTP {reply.status}.",
            "Register one there, and give its id: `holdfast auth login KEY --client-id ID`.",
        )
    secret, method = told.get("client_secret") or None, told.get("token_endpoint_auth_method")
    if method and method not in METHODS:
        raise refused(
            f"`{where(endpoint)}` registered a client that signs in by `{str(method)[:60]}`.",
            f"holdfast can {', '.join(METHODS)}.",
        )
    client = Client(
        client_id=client_id,
        client_secret=str(secret) if secret else None,
        method=str(method) if method else None,
        redirect_uri=redirect_uri,
        issuer=found.issuer,
        registered=True,
    )
    return with_method(client, found.server)


def with_method(client: Client, server: Server) -> Client:
    """The client, and how it proves who it is."""
    if client.method is not None:
        return client
    if client.private_key:
        method = "private_key_jwt"
    elif not client.client_secret:
        method = "none"
    else:
        supported = server.token_endpoint_auth_methods_supported or METHODS[:1]
        method = (
            METHODS[1] if METHODS[1] in supported and METHODS[0] not in supported else METHODS[0]
        )
    return client.model_copy(update={"method": method})

"""A credential: what is handed out for one call, what is kept, and how a new one is got.

`Credential` is what a caller gets. `Entry` is what the vault keeps for a lease: where its machine stands, the value,
and how to renew it. Neither shows its secrets when it is printed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from holdfast.errors import CallerError
from holdfast.machines.lease import LEASE, Lease, Phase

Kind = Literal["oauth", "client_credentials", "static", "command"]
"""How a credential came."""


class Kept(BaseModel):
    """Base of what is kept in the vault."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Server(Kept):
    """An authorization server, as far as it was asked about."""

    token_endpoint: str
    issuer: str | None = None
    authorization_endpoint: str | None = None
    registration_endpoint: str | None = None
    device_authorization_endpoint: str | None = None
    revocation_endpoint: str | None = None
    scopes_supported: tuple[str, ...] | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] | None = None
    code_challenge_methods_supported: tuple[str, ...] | None = None
    authorization_response_iss_parameter_supported: bool = False
    client_id_metadata_document_supported: bool = False


class Client(Kept):
    """Who holdfast is to an authorization server."""

    client_id: str
    client_secret: str | None = Field(default=None, repr=False)
    method: str | None = None
    """`client_secret_basic`, `client_secret_post`, `private_key_jwt` or `none`; without, what the server supports."""
    private_key: str | None = Field(default=None, repr=False)
    """In PEM, for `private_key_jwt`."""
    algorithm: str = "ES256"
    """What it signs with."""
    redirect_uri: str | None = None
    """Where sign-ins come back to, if that was registered."""
    issuer: str | None = None
    """Whom it is registered with; without, it is presented to whichever server discovery finds."""
    registered: bool = False
    """Whether it was registered by us: then it may be registered again."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must appear nowhere."""
        return tuple(one for one in (self.client_secret, self.private_key) if one)


class OAuthRenewal(Kept):
    """How a new token is got from an authorization server."""

    kind: Literal["oauth"] = "oauth"
    grant: Literal["refresh_token", "client_credentials", "jwt_bearer"]
    server: Server
    client: Client
    refresh_token: str | None = Field(default=None, repr=False)
    assertion: str | None = Field(default=None, repr=False)
    resource: str | None = None
    scopes: tuple[str, ...] = ()


class CommandRenewal(Kept):
    """How a new token is got from a program on this machine: it prints one."""

    kind: Literal["command"] = "command"
    command: tuple[str, ...]
    lifetime_ms: int | None = None
    """How long what it prints is good; none: until it is refused."""


Renewal = OAuthRenewal | CommandRenewal


class Given(Kept):
    """A credential as it comes in."""

    value: str = Field(repr=False)
    kind: Kind = "static"
    expires_at: int | None = None
    """Unix milliseconds; never a lifetime, which would be wrong after a restart."""
    hosts: tuple[str, ...]
    """The only places it is sent to: see `host_of`."""
    scopes: tuple[str, ...] = ()
    header: str = "Authorization"
    scheme: str = "Bearer"
    """What stands before the value; may be empty."""
    renewal: Renewal | None = Field(default=None, discriminator="kind")
    url: str | None = None
    """The server to sign in at again, once that is needed."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every value that must appear nowhere."""
        found = [self.value]
        if isinstance(self.renewal, OAuthRenewal):
            found += [*self.renewal.client.secrets]
            found += [one for one in (self.renewal.refresh_token, self.renewal.assertion) if one]
        return tuple(found)

    @property
    def single_use(self) -> bool:
        """Whether what a new one is got with may be good only once: a refresh token."""
        return isinstance(self.renewal, OAuthRenewal) and self.renewal.grant == "refresh_token"


class Entry(Kept):
    """What the vault keeps for one lease."""

    lease: Lease = Lease()
    given: Given | None = None
    """None once it was released."""
    kind: Kind = "static"

    @property
    def renewable(self) -> bool:
        """Whether a new one can be got without a person."""
        return self.given is not None and self.given.renewal is not None

    @classmethod
    def load(cls, stored: dict[str, Any] | None) -> Entry:
        """From the vault; a state the machine could not have reached is not loaded."""
        entry = cls() if stored is None else cls.model_validate(stored)
        LEASE.check(entry.lease)
        return entry

    def dump(self) -> dict[str, Any]:
        """For the vault."""
        return self.model_dump(mode="json")

    def at(self, lease: Lease) -> Entry:
        """The same credential, elsewhere in its life; what is released is forgotten."""
        given = None if lease.phase is Phase.RELEASED else self.given
        return Entry(lease=lease, given=given, kind=self.kind)

    def with_(self, given: Given) -> Entry:
        """Another credential."""
        return Entry(lease=self.lease, given=given, kind=given.kind)


@dataclass(frozen=True, slots=True)
class Credential:
    """What one call may send, and to whom."""

    key: str
    generation: int
    """Quote it when the other side refuses the credential."""
    value: str = field(repr=False)
    header: str
    scheme: str
    hosts: tuple[str, ...]
    scopes: tuple[str, ...]
    expires_at: int | None

    @property
    def headers(self) -> dict[str, str]:
        """What to add to the request."""
        return {self.header: f"{self.scheme} {self.value}".strip()}


def host_of(url: str) -> str:
    """The host of an address, as leases name it: with its port, unless that is 443."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
        parts = urlsplit("")
    if parts.scheme not in ("https", "http") or not host:
        raise CallerError(
            "INVALID_ARGUMENT",
            f"`{url[:200]}` is no address of a server.",
            hint="Use `https://host/path`.",
        )
    port = port or (443 if parts.scheme == "https" else 80)
    name = f"[{host}]" if ":" in host else host
    return name if port == 443 else f"{name}:{port}"


def normal_host(host: str) -> str:
    """One spelling for each host; the address of a request counts as its host."""
    if "://" in host:
        return host_of(host)
    return host.lower().removesuffix(":443")


def is_local(host: str) -> bool:
    """Whether the host of an address is this machine."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")

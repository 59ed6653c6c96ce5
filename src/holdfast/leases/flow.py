"""One sign-in: what is asked for, what is kept while a person is on the way, and the link they follow."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from holdfast.leases import _protocol
from holdfast.leases._web import where
from holdfast.leases.credential import Client, Kept, Server
from holdfast.leases.discovery import refused


class Flow(Kept):
    """A sign-in that was begun."""

    key: str
    kind: Literal["browser", "device"] = "browser"
    url: str
    """Where the person goes."""
    user_code: str | None = None
    """What they type there, on another device."""
    state: str = Field(repr=False)
    verifier: str = Field(default="", repr=False)
    redirect_uri: str = ""
    device_code: str | None = Field(default=None, repr=False)
    interval_ms: int = 5_000
    server: Server
    client: Client
    resource: str | None = None
    scopes: tuple[str, ...] | None = None
    target: str | None = None
    """The server that the credential is for."""
    hosts: tuple[str, ...]
    expires_at: int

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must appear nowhere. Not `state`: it is part of the link that people are shown."""
        every = (*self.client.secrets, self.verifier, self.device_code)
        return tuple(one for one in every if one)


class Ask(Kept):
    """What to sign in for."""

    url: str | None = None
    """The server that the credential is for, which says who guards it."""
    issuer: str | None = None
    """The authorization server, where the other does not say, or must not choose."""
    hosts: tuple[str, ...] = ()
    """Where the credential may be sent; default: the host of `url`."""
    scopes: tuple[str, ...] = ()
    client: Client | None = None
    """A client that was registered beforehand."""
    document: str | None = None
    """The address of a document that describes the client, for servers that read it."""
    redirect_uri: str | None = None
    device: bool = False
    """Sign in on another device, with a code."""


def with_link(flow: Flow, redirect_uri: str) -> Flow:
    """With the address that a browser goes to, and what proves that we sent it there (PKCE)."""
    endpoint = flow.server.authorization_endpoint
    methods = flow.server.code_challenge_methods_supported
    if endpoint is None or (methods is not None and "S256" not in methods):
        raise refused(
            f"`{where(flow.server.token_endpoint)}` has no sign-in in the browser that is safe.",
            "It must support PKCE with S256; or try `--device`.",
        )
    verifier = _protocol.new_verifier()
    more = {"code_challenge": _protocol.challenge_of(verifier), "code_challenge_method": "S256"}
    if flow.resource:
        more["resource"] = flow.resource
    if "offline_access" in (flow.scopes or ()):
        more["prompt"] = "consent"  # OpenID Connect gives a refresh token only then
    url = _protocol.authorization_uri(
        endpoint,
        flow.client.client_id,
        redirect_uri=redirect_uri,
        scopes=flow.scopes,
        state=flow.state,
        more=more,
    )
    return flow.model_copy(update={"url": url, "verifier": verifier, "redirect_uri": redirect_uri})


def check_issuer(flow: Flow, iss: str | None) -> None:
    """Whether the answer came from the server that was asked (RFC 9207)."""
    needed = flow.server.authorization_response_iss_parameter_supported
    if (iss is None and needed) or (iss is not None and iss != flow.server.issuer):
        raise refused(
            "The sign-in was answered by another authorization server than was asked.",
            "Somebody may be trying to get at it. Begin again, and look at the address.",
        )

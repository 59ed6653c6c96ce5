"""The parts of the OAuth protocol that a library does for us. It has no types, so it is kept behind these few."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote

from holdfast.errors import OperatorError
from holdfast.leases.credential import Client

ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
ASSERTION_SECONDS = 300


def new_verifier() -> str:
    """A PKCE code verifier (RFC 7636)."""
    return secrets.token_urlsafe(64)


def challenge_of(verifier: str) -> str:
    """Its S256 challenge."""
    from authlib.oauth2 import rfc7636

    return str(cast("Any", rfc7636).create_s256_code_challenge(verifier))


def authorization_uri(
    endpoint: str,
    client_id: str,
    *,
    redirect_uri: str,
    scopes: Sequence[str] | None,
    state: str,
    more: Mapping[str, str],
) -> str:
    """Where a person is sent to sign in (RFC 6749, section 4.1.1)."""
    from authlib.oauth2.rfc6749 import parameters

    make = cast("Any", parameters).prepare_grant_uri
    scope = " ".join(scopes) if scopes else None
    return str(make(endpoint, client_id, "code", redirect_uri, scope, state, **more))


def proof(client: Client, audience: str) -> tuple[dict[str, str], dict[str, str]]:
    """What proves to a token endpoint who we are: fields of the form, and headers."""
    method = client.method or "none"
    if method == "client_secret_basic" and client.client_secret:
        # Both parts are form-encoded first (RFC 6749, section 2.3.1), which the library leaves out.
        pair = f"{quote(client.client_id, safe='')}:{quote(client.client_secret, safe='')}"
        encoded = base64.b64encode(pair.encode()).decode()
        return {}, {"Authorization": f"Basic {encoded}"}
    found = {"client_id": client.client_id}
    if method == "client_secret_post" and client.client_secret:
        return {**found, "client_secret": client.client_secret}, {}
    if method == "private_key_jwt" and client.private_key:
        signed = _signed(client, audience)
        return {**found, "client_assertion": signed, "client_assertion_type": ASSERTION_TYPE}, {}
    return found, {}


def _signed(client: Client, audience: str) -> str:
    """A JWT by which the client proves who it is (RFC 7523)."""
    from joserfc import jwk, jwt
    from joserfc.errors import JoseError

    now = int(time.time())
    claims = {
        "iss": client.client_id,
        "sub": client.client_id,
        "aud": audience,
        "iat": now,
        "exp": now + ASSERTION_SECONDS,
        "jti": secrets.token_urlsafe(24),
    }
    kind: Any = {"E": "EC", "R": "RSA", "P": "RSA"}.get(client.algorithm[:1], "OKP")
    try:
        key: Any = cast("Any", jwk).import_key(client.private_key or "", kind)
        return jwt.encode({"alg": client.algorithm}, claims, key, algorithms=[client.algorithm])
    except (JoseError, ValueError, TypeError) as why:
        raise OperatorError(
            "AUTH_FAILED",
            f"The client's private key can't sign with {client.algorithm}: {type(why).__name__}.",
            hint="Give a PEM file of the right kind, and its algorithm.",
        ) from None

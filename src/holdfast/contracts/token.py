"""Tokens of the server, and what is on record about them: never a secret, only its digest."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from holdfast.contracts._base import Count, Told, optional, unless
from holdfast.contracts.content import Digest
from holdfast.contracts.ids import Id

TOKENS = "holdfast:tokens"
"""The stream of tokens, and of requests that were refused. Nobody leases it."""

KEY_KEPT_MS = 7 * 86_400_000
"""How long a key of a caller's own stands for the request it came with."""

TokenScope = Literal["read", "run", "approve", "admin"]
"""What a token may be good for. `admin` includes the others."""

TokenKind = Literal["api", "browser", "link"]
"""For programs; in a browser's cookie; or in an address that is good once, for a cookie."""

TokenPrefix = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,63}$")]
"""What the names of sessions begin with."""


class TokenCreated(Told):
    """There is a token from here on."""

    id: Id
    """Its name."""
    secret: Digest
    """The digest of its secret, which nobody has but its owner."""
    scopes: tuple[TokenScope, ...]
    """What it is good for."""
    prefix: TokenPrefix | None = optional()
    """The only sessions it sees start with this."""
    kind: TokenKind = unless("api")
    """Where it is used."""
    name: str | None = optional()
    """What people call it."""
    expires_at: Count | None = optional()
    """Unix milliseconds; none: never."""
    by: str = "operator"
    """Who made it."""
    replaces: Id | None = optional()
    """The token it was made in place of."""


class TokenRevoked(Told):
    """A token is good for nothing from here on."""

    id: Id
    """Which."""
    reason: str = "revoked"
    """`revoked`, `rotated`, `used` (a link)."""


class TokenUsed(Told):
    """A token was used; at most one such record for each minute."""

    id: Id
    """Which."""


class AccessRefused(Told):
    """Somebody asked for what is not theirs, or without a token that counts."""

    code: str
    """`UNAUTHENTICATED`, `FORBIDDEN` or `NOT_FOUND`."""
    via: str
    """How they came in, as far as that is known."""
    method: str
    """Of the request."""
    path: str
    """What it asked for, shortened."""
    count: Count = unless(1)
    """How many such requests since the last one on record."""


class TokenView(Told):
    """A token as people see it."""

    id: str
    """Its name."""
    status: Literal["active", "expired", "revoked"]
    """Whether it can be used."""
    scopes: tuple[TokenScope, ...]
    """What it is good for."""
    prefix: str | None = None
    """The only sessions it sees start with this."""
    kind: TokenKind = "api"
    """Where it is used."""
    name: str | None = None
    """What people call it."""
    created_at: int
    """Unix milliseconds."""
    created_by: str = "operator"
    """Who made it."""
    expires_at: int | None = None
    """Unix milliseconds."""
    last_used_at: int | None = None
    """Unix milliseconds, to the minute."""
    replaces: str | None = None
    """The token it was made in place of."""


class RequestAccepted(Told):
    """A request with a key of its caller's own was taken on: the same key never starts another run."""

    key: Digest
    """The digest of who asked, what for, and their key."""
    body: Digest
    """The digest of what was asked."""
    run: Id
    """The run it starts."""
    session: str
    """The run's session."""


TOKEN_PAYLOADS: dict[str, type[BaseModel]] = {
    "token_created": TokenCreated,
    "token_revoked": TokenRevoked,
    "token_used": TokenUsed,
    "access_refused": AccessRefused,
    "request_accepted": RequestAccepted,
}
"""Kind → payload model."""

"""Who asks: what every way into the server knows about a request before it does anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from holdfast.errors import CallerError

Scope = Literal["read", "run", "approve", "admin"]
SCOPES: tuple[Scope, ...] = ("read", "run", "approve", "admin")
"""What a token may be good for. `admin` includes the others, and is nobody's who has a prefix."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody whose credentials were checked. `request.state.caller` of every request that reaches a handler."""

    id: str
    """On record with what they do: `token:tok_…`, `browser:tok_…`, `local`."""
    scopes: frozenset[Scope]
    """What they may."""
    prefix: str | None = None
    """The only sessions they see start with this; `None`: all."""
    via: str = "http"
    """How they came in, on record with each decision: `http:token:tok_…`, `console:tok_…`, `rpc:…`, `mcp:…`."""
    token: str | None = None
    """The token they came with; `None`: by none, and nothing can be revoked."""
    name: str | None = None
    """The person's, if whoever let them in said so: what they decide is recorded as theirs. `via` tells the token."""

    @property
    def person(self) -> str:
        """Who decides, on record."""
        return self.name or self.id

    def may(self, scope: Scope) -> bool:
        """Whether they have this scope. `admin` is about the whole host: with a prefix it is just all the others."""
        if scope == "admin":
            return "admin" in self.scopes and self.prefix is None
        return scope in self.scopes or "admin" in self.scopes

    def sees(self, session_id: str | None) -> bool:
        """Whether a session is theirs to see; what belongs to no session, only without a prefix."""
        if self.prefix is None:
            return True
        return session_id is not None and session_id.startswith(self.prefix)

    def need(self, scope: Scope) -> None:
        """Raise `FORBIDDEN` unless they have this scope."""
        if not self.may(scope):
            alone = ", and no prefix" if scope in self.scopes else ""
            raise CallerError(
                "FORBIDDEN",
                f"This needs the scope `{scope}`{alone}.",
                hint=f"`holdfast token create --scope {scope}` makes a token that has it.",
            )

    def need_session(self, session_id: str | None) -> None:
        """Raise `NOT_FOUND` for a session that is not theirs: that it exists is not theirs to know."""
        if not self.sees(session_id):
            raise CallerError("NOT_FOUND", "There is no such session, run or record.")


LOCAL = Caller("local", frozenset(SCOPES), via="local")
"""Whoever uses the library or the command line of this machine."""

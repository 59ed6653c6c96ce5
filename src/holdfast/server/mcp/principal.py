"""Our callers as the SDK knows users: what a connection, and a question's state, is bound to."""

from __future__ import annotations

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken

from holdfast.server.callers import Caller


def user_of(caller: Caller) -> AuthenticatedUser:
    """A user of the SDK's for a caller. The token itself stays outside."""
    return AuthenticatedUser(
        AccessToken(token="", client_id=caller.id, scopes=sorted(caller.scopes))
    )

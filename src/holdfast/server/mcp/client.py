"""Who is connected: whose credentials came with a request, what the client at the other end can do, and its session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp_types import ClientCapabilities
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from holdfast.contracts import check_session_id, digest
from holdfast.errors import CallerError
from holdfast.server.callers import Caller

Context = ServerRequestContext[Any, Any]

SESSION_HEADER = "mcp-session-id"

_LONGEST = 64
_OWN = "mcp-"


@dataclass(frozen=True, slots=True)
class Client:
    """Whoever sent a request."""

    caller: Caller
    """Whose credentials were checked."""
    name: str
    """What the client calls itself. Nobody has checked it."""
    connection: str
    """Tells its connection from others."""
    modern: bool
    """Whether each request stands for itself (2026-07-28 and later)."""
    over_http: bool
    """Whether it came over HTTP."""
    fills_forms: bool
    """Whether the person who uses it can be asked."""

    @property
    def via(self) -> str:
        """How a decision came in, for the record."""
        return self.caller.via if self.caller.via.startswith("mcp:") else f"mcp:{self.caller.id}"

    @property
    def own_session(self) -> str:
        """The session of this connection."""
        start = f"{self.caller.prefix or ''}{_OWN}"
        room = max(_LONGEST - len(start), 0)
        return f"{start}{digest(self.connection.encode())[: min(room, 20)]}"

    def session(self, named: str | None) -> str:
        """The session that is meant; raises `NOT_FOUND` for one that is not theirs."""
        if named is None:
            return check_session_id(self.own_session)
        self.caller.need_session(check_session_id(named))
        return named


def client_of(ctx: Context, local: Caller | None, process: str) -> Client:
    """Who sent a request. `local` is who sits at the other end of a pipe, `process` the name of that pipe."""
    session = ctx.session
    modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    request: Any = ctx.request
    found = local if request is None else getattr(request.state, "caller", None)
    if not isinstance(found, Caller):
        raise CallerError("UNAUTHENTICATED", "Nobody is known to have sent this.")
    params = session.client_params
    name = "client"
    if params is not None:
        name = f"{params.client_info.name}/{params.client_info.version}"[:100]
    if request is None:
        connection = process
    else:
        # Without a handshake there is no connection either: the same program of the same caller goes on.
        said: str | None = None if modern else request.headers.get(SESSION_HEADER)
        connection = f"{found.id} {said or name}"
    return Client(
        caller=found,
        name=name,
        connection=connection,
        modern=modern,
        over_http=request is not None,
        fills_forms=_fills_forms(session.client_capabilities),
    )


def _fills_forms(capabilities: ClientCapabilities | None) -> bool:
    if capabilities is None or capabilities.elicitation is None:
        return False
    said = capabilities.elicitation
    # An empty one means forms: there was nothing else before.
    return said.form is not None or said.url is None

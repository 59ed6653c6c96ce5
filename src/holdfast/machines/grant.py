"""A remembered yes: what a session may do again without asking.

What the table guarantees: a grant skips a question only in the session, for the agent, the tool, the schema, the risk
and the arguments it was given for, and only before it expires or is revoked. It is never given without a session, and
never for critical risk. A tool whose schema changed is another tool: the grant is gone, for good.

Using a grant contacts nobody and is a record of its own (`preapproved`). Uses, expiries and revocations race, so those
inputs are tolerant: after the end they fail on `still_active`. A use in the moment of expiry is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from holdfast.contracts.approval import Risk
from holdfast.machines.kernel import Machine, guard, row


class Phase(StrEnum):
    """Where a grant is."""

    ABSENT = "absent"
    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"


class ArgsScope(NamedTuple):
    """Which arguments a grant is for."""

    kind: Literal["any", "exact", "under"] = "any"
    """Whatever they are, these by digest, or those about something under a path."""
    value: str = ""
    """The digest or the path."""


class Grantee(NamedTuple):
    """Who may call what; all of it must be the same to use a grant."""

    session_id: str
    agent_id: str
    tool: str


class Grant(NamedTuple):
    """The state."""

    phase: Phase = Phase.ABSENT
    grant_id: str | None = None
    grantee: Grantee | None = None
    schema_digest: str = ""
    """Of the tool when it was granted."""
    risk: Risk = Risk.LOW
    """The most it was granted for."""
    scope: ArgsScope = ArgsScope()
    expires_at: int | None = None
    """Unix milliseconds; at this moment it is over. `None`: with the session."""


# -- inputs -------------------------------------------------------------------------------------------


class Give(NamedTuple):
    """Remember a session-wide yes."""

    grant_id: str
    grantee: Grantee
    schema_digest: str
    risk: Risk
    scope: ArgsScope
    expires_at: int | None
    now: int


class Use(NamedTuple):
    """Skip a question by it."""

    grantee: Grantee
    schema_digest: str
    """Of the tool as it is now."""
    risk: Risk
    args_digest: str
    path: str | None
    """What the arguments are about, when the tool declares it."""
    now: int


class Expire(NamedTuple):
    """Its time is up."""

    grant_id: str
    now: int


class Revoke(NamedTuple):
    """Somebody takes it back."""

    grant_id: str
    actor: str


class SchemaChanged(NamedTuple):
    """A tool is not what it was."""

    tool: str
    schema_digest: str


# -- effects ------------------------------------------------------------------------------------------


class RecordGrant(NamedTuple):
    """Write it."""

    grant_id: str


class RecordPreapproved(NamedTuple):
    """Write that a question was skipped, and by which grant."""

    grant_id: str
    args_digest: str


class RecordGrantEnd(NamedTuple):
    """Write that it is over, and why."""

    grant_id: str
    reason: Literal["expired", "revoked", "schema_changed"]


# -- guards -------------------------------------------------------------------------------------------

_RISKS = tuple(Risk)
_ABSENT, _ACTIVE, _EXPIRED, _REVOKED = Phase
_GIVEN = frozenset({_ACTIVE, _EXPIRED, _REVOKED})


def in_scope(scope: ArgsScope, args_digest: str, path: str | None) -> bool:
    """Whether arguments fall under a scope. A path that climbs (`..`) is under nothing."""
    if scope.kind == "any":
        return True
    if scope.kind == "exact":
        return args_digest == scope.value
    if path is None or ".." in path.split("/"):
        return False
    root = scope.value.rstrip("/")
    return path == root or path.startswith(f"{root}/")


def _alive(s: Grant, now: int) -> bool:
    return s.expires_at is None or now < s.expires_at


HAS_SESSION = guard("has_a_session", lambda s, i: bool(i.grantee.session_id))
NOT_CRITICAL = guard("not_critical", lambda s, i: i.risk is not Risk.CRITICAL)
AHEAD = guard("expiry_ahead", lambda s, i: i.expires_at is None or i.now < i.expires_at)
ACTIVE = guard("still_active", lambda s, i: s.phase is _ACTIVE)
GRANT_ID = guard("grant_matches", lambda s, i: i.grant_id == s.grant_id)
SESSION = guard("same_session", lambda s, i: i.grantee.session_id == s.grantee.session_id)
AGENT = guard("same_agent", lambda s, i: i.grantee.agent_id == s.grantee.agent_id)
TOOL = guard("same_tool", lambda s, i: i.grantee.tool == s.grantee.tool)
SCHEMA = guard("schema_unchanged", lambda s, i: i.schema_digest == s.schema_digest)
RISK = guard("risk_not_higher", lambda s, i: _RISKS.index(i.risk) <= _RISKS.index(s.risk))
SCOPE = guard("args_in_scope", lambda s, i: in_scope(s.scope, i.args_digest, i.path))
ALIVE = guard("before_expiry", lambda s, i: _alive(s, i.now))
OVER = guard("expiry_passed", lambda s, i: not _alive(s, i.now))
ITS_TOOL = guard("about_its_tool", lambda s, i: i.tool == s.grantee.tool)
CHANGED = guard("schema_differs", lambda s, i: i.schema_digest != s.schema_digest)

_ROWS = (
    row(
        Give,
        [_ABSENT],
        _ACTIVE,
        HAS_SESSION,
        NOT_CRITICAL,
        AHEAD,
        update=lambda s, i: Grant(_ACTIVE, *i[:6]),
        effects=lambda old, new, i: (RecordGrant(i.grant_id),),
        emits="RecordGrant",
    ),
    row(
        Use,
        _GIVEN,
        "=",
        ACTIVE,
        SESSION,
        AGENT,
        TOOL,
        SCHEMA,
        RISK,
        SCOPE,
        ALIVE,
        effects=lambda old, new, i: (RecordPreapproved(new.grant_id, i.args_digest),),
        emits="RecordPreapproved",
    ),
    row(
        Expire,
        _GIVEN,
        _EXPIRED,
        GRANT_ID,
        ACTIVE,
        OVER,
        update=lambda s, i: s._replace(phase=_EXPIRED),
        effects=lambda old, new, i: (RecordGrantEnd(i.grant_id, "expired"),),
        emits="RecordGrantEnd(expired)",
    ),
    row(
        Revoke,
        _GIVEN,
        _REVOKED,
        GRANT_ID,
        ACTIVE,
        update=lambda s, i: s._replace(phase=_REVOKED),
        effects=lambda old, new, i: (RecordGrantEnd(i.grant_id, "revoked"),),
        emits="RecordGrantEnd(revoked)",
    ),
    row(
        SchemaChanged,
        _GIVEN,
        _REVOKED,
        ITS_TOOL,
        ACTIVE,
        CHANGED,
        update=lambda s, i: s._replace(phase=_REVOKED),
        effects=lambda old, new, i: (RecordGrantEnd(old.grant_id, "schema_changed"),),
        emits="RecordGrantEnd(schema_changed)",
    ),
)

_WHO = Grantee("s", "agent", "send")
_OTHERS = (
    Grantee("other", "agent", "send"),
    Grantee("s", "other", "send"),
    Grantee("s", "agent", "other"),
)


def _alphabet(s: Grant) -> Iterator[Any]:
    for scope in (ArgsScope(), ArgsScope("exact", "args"), ArgsScope("under", "/data")):
        yield Give("g", _WHO, "schema", Risk.MEDIUM, scope, 10, 5)
    yield Give("g", _WHO, "schema", Risk.LOW, ArgsScope(), None, 5)
    yield Give("g", _WHO, "schema", Risk.LOW, ArgsScope(), 5, 5)
    yield Give("g", _WHO, "schema", Risk.CRITICAL, ArgsScope(), None, 5)
    yield Give("g", Grantee("", "agent", "send"), "schema", Risk.LOW, ArgsScope(), None, 5)
    for now in (9, 10):
        yield Use(_WHO, "schema", Risk.LOW, "args", "/data/x", now)
        yield from (Expire(name, now) for name in ("g", "other"))
    yield from (Use(other, "schema", Risk.LOW, "args", None, 9) for other in _OTHERS)
    yield Use(_WHO, "schema 2", Risk.LOW, "args", None, 9)
    yield Use(_WHO, "schema", Risk.HIGH, "args", None, 9)
    yield Use(_WHO, "schema", Risk.LOW, "more", "/database", 9)
    yield from (Revoke(name, "person") for name in ("g", "other"))
    for tool in ("send", "other"):
        yield from (SchemaChanged(tool, digest) for digest in ("schema", "schema 2"))


GRANT: Machine[Grant] = Machine(
    name="grant",
    purpose="A remembered yes: who may call which tool with what, until when.",
    initial=Grant(),
    rows=_ROWS,
    invariants={
        "a grant says who may call what, in which session": lambda s: (
            s == Grant()
            if s.phase is _ABSENT
            else s.grant_id is not None and s.grantee is not None and bool(s.grantee.session_id)
        ),
        "a grant is never for critical risk": lambda s: s.risk is not Risk.CRITICAL,
    },
    ends=frozenset({_EXPIRED, _REVOKED}),
    alphabet=_alphabet,
)

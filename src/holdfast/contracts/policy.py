"""What may pass the gate: rules, budgets, and what a session was opened with."""

from __future__ import annotations

from enum import StrEnum
from urllib.parse import urlsplit

from pydantic import Field, field_serializer, field_validator

from holdfast.contracts._base import Asked, optional
from holdfast.contracts.capability import CapabilityLimits, Risk, SideEffect
from holdfast.contracts.session import SessionLimits
from holdfast.errors import CallerError


class Verdict(StrEnum):
    """What a rule says about a call."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class Provenance(StrEnum):
    """Where a call comes from."""

    CODE = "code"
    TOOL_CALL = "tool_call"
    MODEL = "model"
    PEER = "peer"
    OPERATOR = "operator"


class Rule(Asked):
    """One line of policy. The first rule all of whose conditions hold decides."""

    id: str = Field(min_length=1, max_length=128)
    """Its name, as the record of every call it decided has it."""
    tool: str = "*"
    """Capability name, with `*` and `?`."""
    side_effect: tuple[SideEffect, ...] = ()
    """Any of these; empty: any."""
    where: str | None = None
    """An expression over the call, like the rule of an automatic approval; see docs/guides/policy.md."""
    session: str = "*"
    """Session id, with `*` and `?`."""
    provenance: tuple[Provenance, ...] = ()
    """Any of these; empty: any."""
    then: Verdict
    """What follows."""
    limits: CapabilityLimits | None = None
    """Limits in place of the capability's own, each where it is stricter."""
    risk: Risk | None = None
    """What the person who is asked is told, in place of the capability's own."""
    reason: str | None = None
    """Why, for whoever is refused or asked."""
    timeout_ms: int | None = Field(default=None, ge=1)
    """How long a person has to answer; default: the settings'."""

    @field_serializer("limits")
    def _only_what_was_said(self, limits: CapabilityLimits | None) -> dict[str, int | None] | None:
        # A rule limits what it names and nothing else, also after it was stored.
        return None if limits is None else limits.model_dump(exclude_unset=True)


class Budget(Asked):
    """What all runs of a session together may use. Reserved before a call, settled after it; kept in the journal."""

    calls: int | None = Field(default=None, ge=0)
    """Calls of capabilities; questions to models are not counted."""
    cost_micros: int | None = Field(default=None, ge=0)
    """Money, in millionths of a US dollar."""
    wall_ms: int | None = Field(default=None, ge=0)
    """Time that calls of capabilities and models take, added up."""
    tokens: int | None = Field(default=None, ge=0)
    """Tokens of models, in and out."""


class Mount(Asked):
    """A folder of the host as code sees it."""

    path: str
    """Where code finds it: `/workspace`."""
    host: str
    """The folder."""
    writable: bool = False
    """Whether code may write there."""


class Database(Asked):
    """A database that code may query."""

    name: str
    """What code calls it."""
    url: str
    """`sqlite:///path` or `postgresql://…`; `$NAME` in it is taken from the environment when it is opened."""
    writable: bool = False
    """Whether statements may change it."""


class Setup(Asked):
    """What a session is opened with, by reference, so that any process can open it again."""

    capabilities: tuple[str, ...] = ()
    """`module:attribute`: a capability, or a list of them; `module` alone: every capability in it."""
    mounts: tuple[Mount, ...] = ()
    """Folders for `read_text`, `write_text`, `list_dir`, `glob` and `stat`."""
    allow_hosts: tuple[str, ...] = ()
    """Hosts for `fetch_text` and `fetch_json`: `api.example.com`, `*.example.com`, `localhost:8000`."""
    databases: tuple[Database, ...] = ()
    """Databases for `query_db`."""
    clock: bool = False
    """Whether code may ask for the time: `now`."""
    randomness: bool = False
    """Whether code may ask for random numbers: `random_bytes`, `random_int`."""
    surfaces: tuple[str, ...] | None = optional()
    """The tool surfaces whose tools it sees, by name; without a word, all there are."""
    rules: tuple[Rule, ...] = ()
    """Rules that go before those of the settings; they can only be stricter."""
    budget: Budget | None = None
    """What all its runs together may use."""
    limits: SessionLimits | None = None
    """What each of its runs may use."""
    ttl_ms: int | None = Field(default=None, ge=1)
    """Unused for so long, the session is destroyed."""

    @field_validator("databases")
    @classmethod
    def _no_password_is_recorded(cls, databases: tuple[Database, ...]) -> tuple[Database, ...]:
        for one in databases:
            password = urlsplit(one.url).password
            if password and not password.startswith("$"):
                raise CallerError(
                    "INVALID_ARGUMENT",
                    f"The address of database `{one.name}` holds a password, and would be recorded.",
                    hint="Put the password into the environment, and `$NAME` in its place.",
                )
        return databases

"""A hook as its author writes it down: in code, or in a settings file."""

from __future__ import annotations

from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from holdfast.contracts._base import Asked
from holdfast.contracts.canonical import digest_json
from holdfast.contracts.hook import (
    SECURITY_CRITICAL,
    Blocking,
    HookFailure,
    HookOrdering,
    HookOverflow,
    HookPhase,
    HookPoint,
    HookPrivacy,
    HookQueue,
    HookSource,
    HookSpec,
    NonBlocking,
    Order,
)
from holdfast.contracts.hook_response import ResponseClass
from holdfast.contracts.ids import Id


class HookTerms(Asked):
    """What can be said about a hook, wherever it is said; the rest is filled in."""

    id: Id
    """Its name."""
    point: HookPoint
    """Where it is asked."""
    rights: tuple[ResponseClass, ...] = ()
    """What it may answer beside `observe`."""
    phase: HookPhase = HookPhase.NORMAL
    """Which group it runs in."""
    order: Order = 100
    """Lower goes first."""
    blocking: bool | None = None
    """Whether the operation waits for it; default: if it may change something, or its point is critical."""
    queue: HookQueue = HookQueue()
    """What waits for it, unless it is blocking."""
    overflow: HookOverflow = HookOverflow.DROP_OBSERVE_ONLY
    """What becomes of what finds no room."""
    timeout_ms: int = 250
    """How long it may take."""
    failure: HookFailure | None = None
    """What follows when it fails; default: `interrupt_run` if blocking, else it fails open."""
    privacy: HookPrivacy = HookPrivacy.ENVELOPE_AND_REDACTED_SUMMARY
    """How much it sees."""
    policy_ref: str | None = None
    """The rule under which it acts; default `hook.<id>`."""

    def lower(self, source: HookSource, executor_ref: str) -> HookSpec:
        """The spec: the same from code and from a file, but for its source and what answers."""
        blocking = self.blocking
        if blocking is None:
            changes = any(right is not ResponseClass.OBSERVE for right in self.rights)
            blocking = changes or self.point in SECURITY_CRITICAL
        failure = HookFailure.INTERRUPT_RUN if blocking else HookFailure.FAIL_OPEN_OBSERVE_ONLY
        return HookSpec(
            hook_id=self.id,
            point=self.point,
            source=source,
            ordering=HookOrdering(phase=self.phase, order=self.order),
            execution=Blocking()
            if blocking
            else NonBlocking(queue=self.queue, overflow=self.overflow),
            timeout_ms=self.timeout_ms,
            failure=self.failure or failure,
            mutation_rights=self.rights,
            privacy=self.privacy,
            policy_ref=f"hook.{self.id}" if self.policy_ref is None else self.policy_ref,
            executor_ref=executor_ref,
        )


class HookConfig(HookTerms):
    """A hook as a settings file has it: an entry of `[[hooks]]`."""

    command: tuple[str, ...] | None = None
    """A program and its arguments: the question comes on its standard input, the answer goes to its output."""
    env: tuple[str, ...] = ()
    """Environment variables the program gets, by name; beside these only `PATH`, `LANG` and `HOME`."""
    url: str | None = None
    """Where to post the question."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Headers of the post; `$NAME` in a value is taken from the environment."""
    allow_http: bool = False
    """Whether `url` may be plain HTTP to another machine."""

    @model_validator(mode="after")
    def _answers_in_one_way(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("a hook has either a `command` or a `url`")
        if self.command is not None and not all((self.command, *self.command)):
            raise ValueError("`command` names no program")
        if self.url is not None:
            parts = urlsplit(
                self.url
            )  # raises ValueError for what can't be taken apart; so does `port`
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
                raise ValueError("`url` is not `https://…` or `http://…`")
        return self

    @property
    def executor_ref(self) -> str:
        """What answers, without what may be secret in it, and with a digest of all of it."""
        if self.command is not None:
            shown = f"command:{self.command[0]}"
        else:
            parts = urlsplit(self.url or "")
            shown = f"url:{parts.scheme}://{parts.hostname or ''}{parts.path}"
        whole = digest_json([self.command, self.env, self.url, self.headers, self.allow_http])
        return f"{shown}#{whole[:16]}"

    def spec(self) -> HookSpec:
        """The spec it stands for."""
        return self.lower(HookSource.HOST_CONFIG, self.executor_ref)

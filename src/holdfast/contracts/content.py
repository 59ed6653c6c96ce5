"""Content by reference: the journal holds digests, the content store holds bodies."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from holdfast.contracts._base import Told, made, optional
from holdfast.contracts.canonical import digest as digest_of


class Privacy(StrEnum):
    """Who may see it, from anybody to nobody."""

    PUBLIC = "public"
    INTERNAL = "internal"
    CONTENT_REFS_ONLY = "content_refs_only"
    SENSITIVE = "sensitive"
    SECRET = "secret"


class Retention(StrEnum):
    """How long a body is kept. Its digest, in the chain, is kept for ever."""

    EPHEMERAL = "ephemeral"
    """Until the next sweep."""
    RUN_SCOPED = "run_scoped"
    """Until its run has ended."""
    SESSION_SCOPED = "session_scoped"
    """Until its session is destroyed."""
    DURABLE = "durable"
    """Until somebody erases it."""
    PERSISTENT = "persistent"
    """Never erased, not even on request."""
    HOST_POLICY = "host_policy"
    """As long as the host says; without a word from the host, as `durable`."""


Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""Lower-case hex SHA3-256."""


class ContentRef(Told):
    """A body by its digest, with what must be known to handle it."""

    digest: Digest
    """SHA3-256 of the body."""
    size: int = Field(ge=0)
    """Bytes of the body."""
    mime: str = "application/octet-stream"
    """What the body is."""
    privacy: Privacy = Privacy.CONTENT_REFS_ONLY
    """Who may read it."""
    retention: Retention = Retention.SESSION_SCOPED
    """How long the body is kept."""
    role: str | None = optional()
    """What it is to the record: `code`, `inputs`, `result`, `state` …"""


_PRIVACY = {one.value: one for one in Privacy}
_RETENTION = {one.value: one for one in Retention}
_BLANK: dict[str, Any] = dict.fromkeys(ContentRef.model_fields)


# `Any`: part of a stored body, which a hash proves to be what some holdfast wrote.
def trusted_ref(found: dict[str, Any]) -> ContentRef:
    """The reference of a stored record, without validation; `KeyError` for a class that this version does not know."""
    fields = {**_BLANK, **found}
    fields["privacy"] = _PRIVACY[fields["privacy"]]
    fields["retention"] = _RETENTION[fields["retention"]]
    if len(fields) != len(_BLANK):
        raise KeyError("more than this version knows")
    return made(ContentRef, fields)


class Body(Told):
    """A body on its way into the store together with the record that refers to it."""

    ref: ContentRef
    """Its reference."""
    data: bytes = Field(repr=False)
    """The bytes."""

    @model_validator(mode="after")
    def _is_what_it_says(self) -> Self:
        if len(self.data) != self.ref.size or digest_of(self.data) != self.ref.digest:
            raise ValueError("the bytes do not match the reference")
        return self

    @classmethod
    def of(
        cls,
        data: bytes,
        *,
        role: str | None = None,
        mime: str = "application/octet-stream",
        privacy: Privacy = Privacy.CONTENT_REFS_ONLY,
        retention: Retention = Retention.SESSION_SCOPED,
    ) -> Body:
        """The body of `data`, with its reference computed."""
        ref = made(
            ContentRef,
            {
                "digest": digest_of(data),
                "size": len(data),
                "mime": mime,
                "privacy": privacy,
                "retention": retention,
                "role": role,
            },
        )
        return made(cls, {"ref": ref, "data": data})

"""The journal record: what a writer hands in (`Draft`), what readers get (`Record`).

The stored form of a record is its `body`: the canonical JSON of every field but `hash`, byte for byte. The
hash is taken over those bytes, so a record written by a newer holdfast, with fields or kinds this version
has never heard of, still verifies, still exports, and is shown as what it is.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Any

from pydantic import (
    BaseModel,
    Field,
    JsonValue,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
)

from holdfast.contracts._base import Asked, Told, listed, made, optional
from holdfast.contracts._dump import dumped, is_exact
from holdfast.contracts.canonical import not_json
from holdfast.contracts.content import Body, ContentRef, Privacy, trusted_ref
from holdfast.contracts.ids import Id, check_id
from holdfast.contracts.payload import PAYLOADS
from holdfast.errors import CallerError

RECORD_VERSION = 1
"""The version this holdfast writes; a greater one is kept and shown, never interpreted."""

MAX_PAYLOAD_BYTES = 64 * 1024
"""Greater things are content: put them in a body and refer to them."""

_US = "holdfast"

_KIND = re.compile(r"[a-z][a-z0-9_]{0,63}(\.[a-z][a-z0-9_]{0,63})?")


class Draft(Asked):
    """A record on its way in. The journal adds seq, position, time and the chain."""

    kind: str
    """One of `PAYLOADS`, or `namespace.name` for one of your own."""
    payload: dict[str, JsonValue] = Field(default_factory=dict)
    """What happened; checked against the kind's model."""
    run_id: Id | None = None
    """The run it belongs to."""
    turn_id: Id | None = None
    """The turn it belongs to."""
    effect_id: Id | None = None
    """The effect it belongs to."""
    actor: Id = _US
    """On whose authority."""
    cause: int | None = Field(default=None, ge=1, lt=1 << 63)
    """The seq of the record it follows from."""
    privacy: Privacy = Privacy.CONTENT_REFS_ONLY
    """Who may see the payload."""
    content: tuple[ContentRef, ...] = ()
    """Content it needs that is stored already."""
    bodies: tuple[Body, ...] = Field(default=(), repr=False)
    """Content stored together with it."""

    @field_validator("payload", mode="wrap")
    @classmethod
    def _payload_is_json(
        cls, value: object, check: ValidatorFunctionWrapHandler
    ) -> dict[str, JsonValue]:
        try:
            return check(value)
        except ValidationError as why:
            first = why.errors(include_url=False, include_input=False)[0]
            raise not_json(f"`{'.'.join(map(str, first['loc']))}`: {first['msg']}") from None

    @classmethod
    def of(
        cls,
        payload: BaseModel,
        *,
        run_id: str | None = None,
        turn_id: str | None = None,
        actor: str = _US,
        cause: int | None = None,
        privacy: Privacy = Privacy.CONTENT_REFS_ONLY,
        content: tuple[ContentRef, ...] = (),
        bodies: tuple[Body, ...] = (),
    ) -> Draft:
        """The draft of a typed payload. Its kind follows from the type, its effect from the payload."""
        if run_id is not None:
            check_id(run_id)
        if turn_id is not None:
            check_id(turn_id)
        if actor is not _US:
            check_id(actor)
        said = dumped(payload)
        return made(
            _Typed,
            {
                "kind": KINDS[type(payload)],
                "payload": said,
                "run_id": run_id,
                "turn_id": turn_id,
                "effect_id": said.get("effect_id"),
                "actor": actor,
                "cause": cause,
                "privacy": privacy,
                "content": content,
                "bodies": bodies,
            },
        )


class _Typed(Draft):
    """A draft whose payload was a valid model a moment ago: it need not be checked again."""


class Record(Told):
    """One line of the journal."""

    v: int = RECORD_VERSION
    """The version of the record format it was written in."""
    seq: int
    """Its place among all records, without gaps."""
    stream: str
    """Whose history it is part of."""
    pos: int
    """Its place in the stream, without gaps, from 1."""
    time: int
    """Unix milliseconds, by the store's clock; informational, order comes from `seq`."""
    kind: str
    """What kind of thing happened."""
    run_id: str | None = optional()
    """The run it belongs to."""
    turn_id: str | None = optional()
    """The turn it belongs to."""
    effect_id: str | None = optional()
    """The effect it belongs to."""
    actor: str = _US
    """On whose authority."""
    cause: int | None = optional()
    """The seq of the record it follows from."""
    privacy: str = Privacy.CONTENT_REFS_ONLY.value
    """Who may see the payload."""
    payload: dict[str, JsonValue] = Field(default_factory=dict)
    """What happened."""
    content: tuple[ContentRef, ...] = listed()
    """The content it refers to."""
    prev: str
    """The hash of the stream's previous record; 64 zeros for the first."""
    hash: str
    """SHA3-256 of the stored body."""

    @property
    def known(self) -> bool:
        """Whether this version understands the record: its format and its kind."""
        return self.v <= RECORD_VERSION and (self.kind in PAYLOADS or "." in self.kind)


_BLANK: dict[str, Any] = {name: () if name == "content" else None for name in Record.model_fields}


# `Any`: the fields of a stored body, which a hash proves to be what some holdfast wrote.
def trusted_record(found: dict[str, Any], hash_: str) -> Record:
    """The record of a stored body, without validation.

    Raises `KeyError` or `TypeError` for one that this version does not lay out so.
    """
    fields: dict[str, Any] = {**_BLANK, **found, "hash": hash_}
    if (
        len(fields) != len(_BLANK)
        or fields["v"] != RECORD_VERSION
        or type(fields["payload"]) is not dict
    ):
        raise TypeError("it is not laid out as this version does it")
    if fields["content"]:
        refs: list[dict[str, Any]] = fields["content"]
        fields["content"] = tuple([trusted_ref(ref) for ref in refs])
    return made(Record, fields)


_EXACT = frozenset((str, int, bool, type(None)))

KINDS: dict[type[BaseModel], str] = {model: kind for kind, model in PAYLOADS.items()}


def holds_exact(draft: Draft, kind: str) -> bool:
    """Whether the payload of a draft of this kind needs no more checks, and has no number in it but whole ones.

    That is known of what was a model a moment ago, and seen of a flat payload of a kind of somebody's own.
    """
    if type(draft) is _Typed:
        return _is_exact(kind)
    return (
        kind not in PAYLOADS
        and _is_own_kind(kind)
        and _EXACT.issuperset(map(type, draft.payload.values()))
    )


@cache
def _is_exact(kind: str) -> bool:
    return is_exact(PAYLOADS[kind])


def check_draft(draft: Draft, payload: bytes) -> None:
    """Refuse a draft whose kind is unknown or whose payload breaks the kind's model: `INVALID_RECORD`.

    The model is strict here, for the projections read the payload as it is: a number in quotes is none.
    """
    if type(draft) is _Typed:  # `isinstance` of a model takes as long as the rest of this
        return
    model = PAYLOADS.get(draft.kind)
    if model is not None:
        try:
            model.model_validate_json(payload, strict=True)
        except ValidationError as why:
            first = why.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise _invalid(draft.kind, f"its payload's `{where}`: {first['msg']}") from None
    elif not _is_own_kind(draft.kind):
        raise _invalid(draft.kind, "no such kind")


@lru_cache(1024)
def _is_own_kind(kind: str) -> bool:
    return "." in kind and _KIND.fullmatch(kind) is not None


def _invalid(kind: str, why: str) -> CallerError:
    return CallerError(
        "INVALID_RECORD",
        f"A record of kind {kind[:80]!a} was refused: {why}.",
        hint="docs/reference/records.md lists the kinds; a kind of your own is `namespace.name`.",
    )

"""How a body lies in a store: as it is while tiny, squeezed once that pays, gone when erased."""

from __future__ import annotations

import zlib
from collections.abc import Collection
from typing import NamedTuple

from holdfast.contracts import ContentRef, Privacy, digest
from holdfast.errors import CallerError, JournalError, NotFound
from holdfast.journal._squeeze import squeezed, unsqueezed

MAX_BODY_BYTES = 64 << 20
"""The greatest body a journal takes."""

TINY = 64
"""Bytes below which a body is stored as it is: squeezing it would cost more than it saves."""

RAW, ZLIB, SQUEEZED = 0, 1, 2
"""How bytes are stored; formats 1 and 2 wrote `ZLIB`."""


class Packed(NamedTuple):
    """A body as stored. `codec` is `None` once it was erased."""

    size: int
    codec: int | None
    data: bytes | None


def check_body(data: bytes) -> None:
    """Refuse a body that is too large: `CONTENT_TOO_LARGE`."""
    if len(data) > MAX_BODY_BYTES:
        raise CallerError(
            "CONTENT_TOO_LARGE",
            f"A body of {len(data)} bytes was refused; {MAX_BODY_BYTES} are allowed.",
            hint="Keep it in a file and hand in a reference, or split it.",
        )


def pack(data: bytes) -> Packed:
    """The stored form of `data`."""
    size = len(data)
    if size >= TINY:
        small = squeezed(data)
        if len(small) < size - size // 8:
            return Packed(size, SQUEEZED, small)
    return Packed(size, RAW, data)


def unpack(name: str, packed: Packed | None, max_bytes: int | None) -> bytes:
    """The body again; raises when it is absent, erased, damaged or too large."""
    if packed is None:
        raise NotFound("NOT_FOUND", f"No content has the digest {name}.")
    if packed.codec is None or packed.data is None:
        raise CallerError(
            "CONTENT_ERASED",
            f"The content {name} was erased; only its digest remains.",
            hint="The journal still proves what it was: compare your copy's SHA3-256 with it.",
        )
    if max_bytes is not None and packed.size > max_bytes:
        raise CallerError(
            "CONTENT_TOO_LARGE",
            f"The content {name} has {packed.size} bytes; the reader allows {max_bytes}.",
            hint="Raise `max_bytes`.",
        )
    data = _inflate(packed)
    if data is None or len(data) != packed.size or digest(data) != name:
        raise JournalError(
            "JOURNAL_DAMAGED",
            f"The stored bytes of content {name} are not what they were.",
            hint="Restore the journal from a backup.",
        )
    return data


def _inflate(packed: Packed) -> bytes | None:
    if packed.codec == RAW:
        return packed.data
    if packed.codec == SQUEEZED:
        return unsqueezed(packed.data or b"")
    if packed.codec != ZLIB:
        return None
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(packed.data or b"", packed.size + 1)
    except zlib.error:
        return None
    return data if stream.eof and not stream.unused_data else None


def check_access(ref: ContentRef | str, allowed: Collection[Privacy]) -> str:
    """The digest to look up; raises `CONTENT_NOT_ALLOWED` when the reference's class is not allowed."""
    if isinstance(ref, str):
        return ref
    if ref.privacy not in allowed:
        raise CallerError(
            "CONTENT_NOT_ALLOWED",
            f"The content {ref.digest} is {ref.privacy.value}; this reader may not have it.",
            hint="Ask for it with `allowed` naming that privacy class, if you may.",
        )
    return ref.digest

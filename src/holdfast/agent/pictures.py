"""Pictures in a conversation: found in the results of calls, and their bytes for a model that sees.

What `read_resource` gives for a picture, and a picture among the parts that an MCP tool gives, name it by the digest of
its bytes. The conversation holds these names only, so a picture that was erased is gone from it, too.

Code can write down any digest. So bytes are sent only of what the records of the same session refer to, and only as
the strictest of these references allows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

from holdfast.contracts import ContentRef, Json, Privacy
from holdfast.contracts.message import Message, Picture, ToolMessage
from holdfast.errors import HoldfastError
from holdfast.journal import Journal
from holdfast.resources.parsers.image import image_mime

SHOWN = 8
"""Pictures that one result shows, at most."""

SENT = 16
"""Pictures that are sent with one question, at most: the newest."""

SENT_BYTES = 16 << 20
"""Bytes of all of them."""

TAKEN = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
"""What every provider whose models see takes."""

_LOOKED_AT = 1000
"""Values inside a result that are looked at."""
_DEEP = 4
"""How deep inside a result a picture can be."""

_DIGEST = re.compile("[0-9a-f]{64}")
_HOLDS = (dict, list)  # written out, `dict | list` is made anew for every value


def pictures_in(value: Json) -> tuple[Picture, ...]:
    """The pictures that a result names, in order; the same for the same result, wherever it is read."""
    if not isinstance(value, _HOLDS):
        return ()
    found: dict[str, Picture] = {}
    _find(value, found, _DEEP, _LOOKED_AT)
    return tuple(found.values())


def _find(
    value: dict[str, Json] | list[Json], found: dict[str, Picture], depth: int, left: int
) -> int:
    """Find pictures in a value and inside it, and look at no more than `left` values; how many may still be looked at."""
    left -= 1
    if isinstance(value, dict):
        picture = _picture(value)
        if picture is not None and len(found) < SHOWN:
            found.setdefault(picture.digest, picture)
        value = [*value.values()]
    if depth > 0:
        for one in value:
            if left <= 0:
                break
            left = _find(one, found, depth - 1, left) if isinstance(one, _HOLDS) else left - 1
    return left


def _picture(value: dict[str, Json]) -> Picture | None:
    """What `read_resource` or an MCP tool says of a picture; `None` for anything else."""
    if value.get("format") == "image":
        digest, size = value.get("content"), value.get("image")
    elif value.get("type") == "image":
        digest, size = value.get("digest"), None
    else:
        return None
    mime = value.get("mime")
    if not (isinstance(digest, str) and isinstance(mime, str)):
        return None
    if not _DIGEST.fullmatch(digest) or mime not in TAKEN:
        return None
    width, height = (size.get("width"), size.get("height")) if isinstance(size, dict) else (0, 0)
    return Picture(digest=digest, mime=mime, width=_pixels(width), height=_pixels(height))


def _pixels(count: Json) -> int | None:
    return count if isinstance(count, int) and 0 < count < 1 << 31 else None


class Pictures:
    """Those of one session, for the questions of a run."""

    def __init__(self, journal: Journal, session_id: str) -> None:
        self._journal = journal
        self._session_id = session_id
        self._known: dict[str, ContentRef] = {}
        self._upto = 0

    async def of(self, messages: Sequence[Message]) -> dict[str, bytes]:
        """The bytes of the newest pictures, by digest, of those that may be sent and are still there."""
        newest = [
            one.digest
            for message in reversed(messages)
            if isinstance(message, ToolMessage)
            for one in reversed(message.pictures)
        ]
        await self._look()
        found: dict[str, bytes] = {}
        room = SENT_BYTES
        for digest in islice(dict.fromkeys(newest), SENT):
            data = await self._bytes(digest, room)
            if data is not None:
                found[digest] = data
                room -= len(data)
        return found

    async def _look(self) -> None:
        """Take note of what the records refer to, since the last time."""
        order = list(Privacy)
        async for record in self._journal.read(self._session_id, after=self._upto):
            self._upto = record.pos
            for ref in record.content:
                known = self._known.get(ref.digest)
                stricter = known is None or order.index(ref.privacy) > order.index(known.privacy)
                if ref.mime in TAKEN and stricter:
                    self._known[ref.digest] = ref

    async def _bytes(self, digest: str, room: int) -> bytes | None:
        """A picture; `None` for what is not the session's, must not be sent, was erased, does not fit, or is none."""
        ref = self._known.get(digest)
        if ref is None:
            return None
        try:
            data = await self._journal.content(ref, max_bytes=room)
        except HoldfastError as why:
            if why.code in ("CONTENT_ERASED", "CONTENT_NOT_ALLOWED", "CONTENT_TOO_LARGE"):
                return None
            raise
        return data if image_mime(data[:64]) == ref.mime else None

"""`content:`: bodies in the journal, by digest. A session reads what its own records refer to.

The order of the checks: somebody who may ask refers to it, its privacy class is allowed, it is there, it is what
its digest says, it fits. A digest that nobody refers to and one that another session refers to are answered alike.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Protocol

from holdfast.contracts import ContentRef, Privacy
from holdfast.contracts.resource import ResourceRequest
from holdfast.errors import CallerError, ModelError, NotFound
from holdfast.journal import Journal
from holdfast.journal.log import READABLE
from holdfast.resources.source import Held, Source

MAX_BODY_BYTES = 64 << 20
"""As much as a journal takes."""

_DIGEST = re.compile(r"[0-9a-f]{64}")


class References(Protocol):
    """Who refers to what."""

    async def find(self, digest: str, session_id: str) -> ContentRef | None:
        """How a session's records refer to a body; `None` when none does."""
        ...


class Scan:
    """Looks for references in a session's records, newest last; the journal has no index of them."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def find(self, digest: str, session_id: str) -> ContentRef | None:
        """The strictest of the references, if there are several."""
        found: ContentRef | None = None
        order = list(Privacy)
        async for record in self._journal.read(session_id):
            for ref in record.content:
                if ref.digest == digest and (
                    found is None or order.index(ref.privacy) > order.index(found.privacy)
                ):
                    found = ref
        return found


class ContentResolver:
    """Opens `content:` URIs."""

    def __init__(
        self,
        journal: Journal,
        references: References | None = None,
        *,
        allowed: Collection[Privacy] = READABLE,
        max_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        self._journal = journal
        self._references = references or Scan(journal)
        self._allowed = allowed
        self._max_bytes = max_bytes

    async def open(self, request: ResourceRequest) -> Source:
        """The body. Without a session it is the operator who asks, whose journal it is."""
        digest = digest_of(request.uri)
        if request.session_id is None:
            data = await self._journal.content(digest, max_bytes=self._max_bytes)
            return Held(data, version=digest)
        ref = await self._references.find(digest, request.session_id)
        if ref is None:
            raise NotFound(
                "NOT_FOUND",
                f"The session has no content {digest}.",
                hint="Use a digest from one of its own results.",
            )
        try:
            data = await self._journal.content(
                ref, allowed=self._allowed, max_bytes=self._max_bytes
            )
        except CallerError as why:
            if why.code != "CONTENT_NOT_ALLOWED":
                raise
            raise ModelError(
                "PERMISSION_DENIED", f"The content {digest} is {ref.privacy.value}."
            ) from None
        return Held(data, ref.mime, version=digest, privacy=ref.privacy, retention=ref.retention)


def digest_of(uri: str) -> str:
    """The digest that a `content:` URI names, with or without `//`."""
    digest = uri.partition(":")[2].removeprefix("//")
    if not _DIGEST.fullmatch(digest):
        raise CallerError(
            "INVALID_ARGUMENT",
            f"`{uri[:100].encode('unicode_escape').decode()}` names no content.",
            hint="Write `content:` and the 64 characters of its digest.",
        )
    return digest

"""The bodies that records refer to, for whoever tells what happened: what was erased is just not there."""

from __future__ import annotations

import json
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.journal import Journal


class Bodies:
    """Of the records of a journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def json(self, digest: Any) -> Any:
        """A value; `None` when there is none, or it was erased."""
        data = await self._body(digest)
        return None if data is None else json.loads(data)

    async def text(self, digest: Any) -> str:
        """A text; empty when there is none, or it was erased."""
        data = await self._body(digest)
        return "" if data is None else data.decode()

    async def _body(self, digest: Any) -> bytes | None:
        if digest is None:
            return None
        try:
            return await self._journal.content(str(digest))
        except HoldfastError as why:
            if why.code != "CONTENT_ERASED":
                raise
            return None

"""Requests that were refused, on record: who tried what. So many at most that nobody can fill the disk by it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic

from holdfast.contracts import Draft
from holdfast.contracts.token import TOKENS, AccessRefused
from holdfast.errors import HoldfastError
from holdfast.journal import Journal
from holdfast.server.limits import Buckets, Rate

BURST = 60
"""Records about one caller at once; in the long run, one each ten seconds. Those in between are counted."""
_RATE = Rate(0.1, BURST)
_MAX_KNOWN = 1000
_SHOWN = 200


class Refusals:
    """Writes down who was refused."""

    def __init__(self, journal: Journal, *, now: Callable[[], float] = monotonic) -> None:
        self._journal = journal
        self._room = Buckets(_RATE, now=now)
        self._missed: OrderedDict[str, int] = OrderedDict()

    async def note(self, code: str, *, actor: str, via: str, method: str, path: str) -> None:
        """Record a refusal, or count it."""
        if self._room.take(via) > 0:
            self._missed[via] = self._missed.get(via, 0) + 1
            if len(self._missed) > _MAX_KNOWN:
                self._missed.popitem(last=False)
            return
        said = AccessRefused(
            code=code,
            via=via,
            method=method[:10],
            path=path[:_SHOWN],
            count=self._missed.pop(via, 0) + 1,
        )
        try:
            await self._journal.append(TOKENS, [Draft.of(said, actor=actor)], durable=False)
        except HoldfastError:
            pass  # it is refused all the same

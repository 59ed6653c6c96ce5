"""How often somebody may ask: a bucket for each of them, which fills at a steady rate and holds a burst."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

MAX_BUCKETS = 10_000


@dataclass(frozen=True, slots=True)
class Rate:
    """Requests per second in the long run, and at once."""

    per_second: float
    burst: float


@dataclass(frozen=True, slots=True)
class Limits:
    """What the server bears."""

    token: Rate | None = Rate(200, 400)
    """Of one token."""
    address: Rate | None = Rate(400, 800)
    """From one address."""
    failures: Rate | None = Rate(1, 20)
    """Wrong tokens from one address; right ones are taken all the same."""
    max_body: int = 16 << 20
    """Bytes of a request."""
    max_snapshot: int = 96 << 20
    """Bytes of a request that brings a snapshot."""
    body_seconds: float = 30.0
    """How long a request may take to come in."""
    wait_seconds: float = 300.0
    """How long an answer may wait for its run; then the caller is told where to look."""


UNLIMITED = Limits(token=None, address=None, failures=None)
"""For tests and measurements."""


class Buckets:
    """A bucket for each key; those that were not used for longest are forgotten, and so are full again."""

    def __init__(self, rate: Rate | None, *, now: Callable[[], float] = monotonic) -> None:
        self._rate = rate
        self._now = now
        self._held: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str) -> float:
        """Take one; 0 when there was one, else the seconds until there will be."""
        if self._rate is None:
            return 0.0
        left = self._left(key) - 1
        if left < 0:
            return -left / self._rate.per_second
        self._keep(key, left)
        return 0.0

    def _left(self, key: str) -> float:
        assert self._rate is not None
        left, at = self._held.get(key, (self._rate.burst, 0.0))
        return min(self._rate.burst, left + (self._now() - at) * self._rate.per_second)

    def _keep(self, key: str, left: float) -> None:
        self._held[key] = (left, self._now())
        self._held.move_to_end(key)
        if len(self._held) > MAX_BUCKETS:
            self._held.popitem(last=False)

"""A clock that moves only when told to."""

from __future__ import annotations


class FakeClock:
    """Stands in for any `clock: Callable[[], int]` of unix milliseconds."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now = now
        """Unix milliseconds; set it, or `advance` it."""

    def __call__(self) -> int:
        """The time it shows."""
        return self.now

    def advance(self, ms: int) -> int:
        """Move on by `ms` (back, when negative) and return the new time."""
        self.now += ms
        return self.now

"""The store's clock."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Unix milliseconds."""
    return time.time_ns() // 1_000_000

"""The time, for code: a call like any other, so what it said is on record and a replay sees the same."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from typing_extensions import TypedDict

from holdfast.capabilities.declare import Declared, capability


class Now(TypedDict):
    """A moment."""

    unix_ms: int
    iso: str


def now() -> Now:
    """Tell the time: `unix_ms`, milliseconds since 1970 in UTC, and `iso`, like `2026-01-31T09:30:00.125Z`."""
    unix_ms = time.time_ns() // 1_000_000
    moment = datetime.fromtimestamp(unix_ms // 1000, UTC)
    return {"unix_ms": unix_ms, "iso": f"{moment:%Y-%m-%dT%H:%M:%S}.{unix_ms % 1000:03}Z"}


def clock() -> list[Declared[..., Any]]:
    """`now`."""
    return [capability(now, side_effect="read", idempotent=True)]

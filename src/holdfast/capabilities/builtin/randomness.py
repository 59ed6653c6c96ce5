"""Random numbers, for code: calls like any other, so what they gave is on record and a replay sees the same."""

from __future__ import annotations

import secrets
from typing import Annotated, Any

from pydantic import Field

from holdfast.capabilities.declare import Declared, capability

MAX_BYTES = 1024
"""What one call gives."""
_MOST = 2**63 - 1

Whole = Annotated[int, Field(ge=-_MOST - 1, le=_MOST)]


def random_bytes(n: Annotated[int, Field(ge=1, le=MAX_BYTES)] = 16) -> str:
    """Give unpredictable random bytes, as `2 * n` hexadecimal digits.

    The value is written to the journal: do not use it as a password or key.

    Args:
        n: How many bytes, from 1 to 1024.
    """
    if not 1 <= n <= MAX_BYTES:
        raise ValueError(f"`n` must be from 1 to {MAX_BYTES}")
    return secrets.token_hex(n)


def random_int(low: Whole, high: Whole) -> int:
    """Give an unpredictable random whole number, each from `low` to `high` (both included) equally likely.

    Args:
        low: The least it can be.
        high: The most it can be.
    """
    if low > high:
        raise ValueError("`low` must not be more than `high`")
    return low + secrets.randbelow(high - low + 1)


def randomness() -> list[Declared[..., Any]]:
    """`random_bytes` and `random_int`."""
    return [
        capability(random_bytes, side_effect="read", idempotent=True),
        capability(random_int, side_effect="read", idempotent=True),
    ]

"""What a database gives, as code gets it: JSON, bounded in rows and bytes; and how long it may take."""

from __future__ import annotations

import base64
import math
import time
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, cast

from anyio import from_thread
from pydantic import JsonValue
from typing_extensions import TypedDict

from holdfast.contracts import canonical_json
from holdfast.errors import ModelError

MAX_BYTES = 512 * 1024
"""Size of all rows together, as JSON: an answer stays below the default size of a result."""
MAX_ROWS = 10_000
"""Rows of one answer, whatever is asked for."""

Scalar = str | int | float | bool | None
Params = list[Scalar | list[Scalar]] | dict[str, Scalar]


class Answer(TypedDict):
    """What a statement gave."""

    columns: list[str]
    rows: list[list[JsonValue]]
    truncated: bool
    changed: int


class Deadline:
    """How long a statement may still run: until its time is up, or nobody waits for it any more."""

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self._until = time.monotonic() + timeout_ms / 1000

    @property
    def passed(self) -> bool:
        """Whether to stop now."""
        return self.left_ms == 0 or self._abandoned()

    @property
    def left_ms(self) -> int:
        """Milliseconds left."""
        return max(0, int((self._until - time.monotonic()) * 1000))

    def error(self) -> ModelError:
        """What to say about a statement that was stopped."""
        return ModelError(
            "TIMEOUT_TOOL",
            f"The statement took longer than {self.timeout_ms} ms and was stopped.",
            hint="Select less, or use an index.",
        )

    def _abandoned(self) -> bool:
        """Whether the call was cancelled; a thread can't be stopped from outside and has to ask."""
        try:
            from_thread.check_cancelled()
        except RuntimeError:
            return False  # not called by an event loop: nobody can cancel it
        except BaseException:  # noqa: BLE001 - the loop's own exception of being cancelled
            return True
        return False


# `Any`: a row is whatever the database has.
def collect(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, most: int, changed: int = 0
) -> Answer:
    """As many rows as fit."""
    found: list[list[JsonValue]] = []
    size = 0
    for row in rows:
        plain = [_plain(value) for value in row]
        size += len(canonical_json(plain))
        if len(found) >= most or size > MAX_BYTES:
            return {"columns": list(columns), "rows": found, "truncated": True, "changed": changed}
        found.append(plain)
    return {"columns": list(columns), "rows": found, "truncated": False, "changed": changed}


# `Any`: drivers give objects of many types, some of their own.
def _plain(value: Any) -> JsonValue:
    """A value as JSON: what JSON lacks becomes text, exact rather than convenient."""
    match value:
        case None | bool() | int():
            return value
        case str():
            return value.encode(errors="replace").decode()
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(bytes(cast("bytes", value))).decode()
        case Decimal():
            return int(value) if value.as_tuple().exponent == 0 else str(value)
        case list() | tuple():
            return [_plain(one) for one in cast("Sequence[Any]", value)]
        case dict():
            items = cast("dict[Any, Any]", value).items()
            return {str(key): _plain(one) for key, one in items}
        case _:
            return value.isoformat() if hasattr(value, "isoformat") else str(value)

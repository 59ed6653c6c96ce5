"""Lists: a part at a time, and of it only what the caller may see."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from holdfast.contracts._base import Asked
from holdfast.server.rest.endpoint import Call

T = TypeVar("T")

MOST = 1000
"""Items of a part."""
_SCANNED = 500


# Not a `Told`: pydantic looks for the words below a field in the source, which a generic's copy has not.
class Listed(BaseModel, Generic[T]):
    """A part of a list."""

    model_config = ConfigDict(frozen=True)

    items: tuple[T, ...] = Field(description="In order.")
    next: str | None = Field(description="Give it as `after` for the next part; null at the end.")


class Paged(Asked):
    """A part of a list."""

    after: str = Field(default="", max_length=600)
    """`next` of the part before it."""
    limit: int = Field(default=100, ge=1, le=MOST)
    """At most so many."""


async def seen(
    call: Call,
    fetch: Callable[[str, int], Awaitable[Sequence[T]]],
    *,
    key: Callable[[T], str],
    session: Callable[[T], str | None],
) -> dict[str, Any]:
    """A part of what `fetch(after, limit)` gives, without what is of other sessions than the caller's."""
    asked: Paged = call.query
    after, found = asked.after, list[T]()
    size = asked.limit + 1 if call.caller.prefix is None else _SCANNED
    while len(found) <= asked.limit:
        part = await fetch(after, size)
        found.extend(one for one in part if call.caller.sees(session(one)))
        if len(part) < size:
            break
        after = key(part[-1])
    items = found[: asked.limit]
    return {"items": items, "next": key(items[-1]) if len(found) > asked.limit else None}

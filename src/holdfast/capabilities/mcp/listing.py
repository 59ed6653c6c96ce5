"""Lists that come in pages: read to their end, or to where it makes no sense any more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND, PaginatedRequestParams

MAX_PAGES = 100
"""Pages of one list."""


class Page(Protocol):
    """A part of a list."""

    next_cursor: str | None


_PageT = TypeVar("_PageT", bound=Page)


async def pages(
    ask: Callable[[PaginatedRequestParams], Awaitable[_PageT]], *, optional: bool = False
) -> list[_PageT]:
    """The pages of a list; `optional`: none from a server that does not know the question."""
    found: list[_PageT] = []
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(MAX_PAGES):
        try:
            page = await ask(PaginatedRequestParams(cursor=cursor))
        except MCPError as why:
            if optional and not found and why.code in (METHOD_NOT_FOUND, INVALID_PARAMS):
                return found
            raise
        found.append(page)
        cursor = page.next_cursor
        # A server that goes in circles has said all it has to say.
        if cursor is None or cursor in seen:
            break
        seen.add(cursor)
    return found

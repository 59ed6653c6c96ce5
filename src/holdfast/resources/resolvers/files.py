"""`file:`: the folders that were mounted, and nothing else. What opens a file is handed in, and confines it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol
from urllib.parse import quote, unquote_to_bytes

from holdfast.contracts.resource import (
    ListRequest,
    ResourceEntry,
    ResourceList,
    ResourceRequest,
)
from holdfast.errors import ModelError
from holdfast.resources.source import Source

MAX_URI_CHARS = 16 * 1024
"""Each byte of the longest path, encoded."""


class Name(NamedTuple):
    """An entry of a folder."""

    name: str
    kind: Literal["file", "dir"]
    size: int


class Folders(Protocol):
    """The folders that were mounted."""

    async def open(self, path: str) -> Source:
        """A file by its virtual path, never outside of a mount, whatever links there are."""
        ...

    async def names(self, path: str, after: str, limit: int) -> Sequence[Name]:
        """The first `limit` entries of a folder that come after a name, sorted."""
        ...

    def roots(self) -> Sequence[str]:
        """The virtual paths of the mounts."""
        ...


class FileResolver:
    """Opens `file:` URIs over mounted folders."""

    def __init__(self, folders: Folders) -> None:
        self._folders = folders

    async def open(self, request: ResourceRequest) -> Source:
        """The file; raises `PERMISSION_DENIED` for anything outside of the mounts."""
        return await self._folders.open(path_of(request.uri))

    async def list(self, request: ListRequest) -> ResourceList:
        """The entries of a folder; without one, the mounts."""
        if request.prefix.partition(":")[2].strip("/") == "" and not self._has_root():
            items = [
                ResourceEntry(uri=uri_of(path), kind="root", name=path)
                for path in sorted(self._folders.roots())
                if request.after is None or path > request.after
            ]
            return ResourceList(items=tuple(items[: request.limit]), next=_next(items, request))
        path = path_of(request.prefix)
        found = await self._folders.names(path, request.after or "", request.limit + 1)
        items = [_entry(path, one) for one in found]
        return ResourceList(items=tuple(items[: request.limit]), next=_next(items, request))

    def _has_root(self) -> bool:
        return "/" in self._folders.roots()


def path_of(uri: str) -> str:
    """The virtual path that a `file:` URI names, decoded once."""
    if len(uri) > MAX_URI_CHARS:
        raise _denied(uri, f"has more than {MAX_URI_CHARS} characters")
    rest = uri.partition(":")[2]
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host.lower() not in ("", "localhost"):
            raise _denied(uri, "names a host")
        rest = slash + path
    if "?" in rest or "#" in rest:
        raise _denied(uri, "has a `?` or `#` in it: encode them as `%3F` and `%23`")
    if "%2f" in rest.lower():
        raise _denied(uri, "has a `/` in it that is encoded")
    try:
        path = unquote_to_bytes(rest).decode()
    except UnicodeError:
        raise _denied(uri, "is not UTF-8") from None
    if not path.startswith("/"):
        raise _denied(uri, "has no absolute path")
    return path


def uri_of(path: str) -> str:
    """The `file:` URI of a virtual path."""
    return f"file://{quote(path)}"


def _entry(folder: str, one: Name) -> ResourceEntry:
    uri = uri_of(f"{folder.rstrip('/')}/{one.name}")
    if one.kind == "dir":
        return ResourceEntry(uri=uri, kind="folder", name=one.name)
    return ResourceEntry(uri=uri, kind="resource", name=one.name, size=one.size)


def _next(items: Sequence[ResourceEntry], request: ListRequest) -> str | None:
    return items[request.limit - 1].name if len(items) > request.limit else None


def _denied(uri: str, why: str) -> ModelError:
    shown = uri[:200].encode("unicode_escape").decode()
    return ModelError(
        "PERMISSION_DENIED",
        f"`{shown}` {why}.",
        hint="Write it like `file:///workspace/notes.txt`.",
    )

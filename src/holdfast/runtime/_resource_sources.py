"""Files of mounted folders and answers of allowed hosts, as sources of bytes. Both are confined where they are opened."""

from __future__ import annotations

import heapq
import os
import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urljoin

import anyio
from anyio import to_thread

from holdfast.capabilities.builtin import _paths as paths
from holdfast.capabilities.builtin._hosts import Hosts, Target
from holdfast.capabilities.builtin.http import MAX_REDIRECTS
from holdfast.contracts.policy import Mount
from holdfast.errors import ModelError
from holdfast.resources.resolvers.files import Name

if TYPE_CHECKING:
    from holdfast.capabilities.builtin._wire import Flow, Resolve, Wire

MAX_LOOKS = 200_000
"""Entries of a folder that are looked at for one list."""
MAX_SKIP_BYTES = 64 << 20
"""What is fetched and thrown away to get at a range of a server that has none."""
TIMEOUT_MS = 20_000
"""Time for one answer to begin, and for each piece of it to come."""

MAX_VERSION = 200
"""Characters of what a server calls a version."""

_PIECE = 256 * 1024
_RANGE = re.compile(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18}|\*)")


# -- files --------------------------------------------------------------------------------------------


class MountedFolders:
    """The folders of a session, walked name by name and never through a link (see `_paths`)."""

    def __init__(self, mounts: Sequence[Mount]) -> None:
        self._mounts = paths.Mounts(mounts)
        self._roots = [paths.shown(paths.split(one.path)) for one in mounts]

    async def open(self, path: str) -> OpenFile:
        """A file by its virtual path."""
        return await to_thread.run_sync(self._open, path)

    async def names(self, path: str, after: str, limit: int) -> list[Name]:
        """The first `limit` entries of a folder that come after a name, sorted."""
        return await to_thread.run_sync(self._names, path, after, limit)

    def roots(self) -> list[str]:
        """The virtual paths of the mounts."""
        return self._roots

    def _open(self, path: str) -> OpenFile:
        with paths.file(self._mounts.find(path)) as handle:
            # The checked handle itself is kept; nothing is opened a second time.
            return OpenFile(os.dup(handle))

    def _names(self, path: str, after: str, limit: int) -> list[Name]:
        place = self._mounts.find(path)
        found: dict[str, Name] = {}
        with paths.folder(place) as handle, paths.told(place), paths.listing(handle) as entries:
            for looks, entry in enumerate(entries):
                if looks >= MAX_LOOKS:
                    raise ValueError(f"More than {MAX_LOOKS} entries: {place}.")
                if entry.name > after and not entry.is_symlink():
                    _add(found, entry)
                    if len(found) > 2 * limit:
                        found = {name: found[name] for name in heapq.nsmallest(limit, found)}
        for name in self._mounts.below(place.names):
            if name > after:
                found[name] = Name(name, "dir", 0)
        return [found[name] for name in sorted(found)[:limit]]


def _add(found: dict[str, Name], entry: os.DirEntry[str]) -> None:
    try:
        if entry.is_dir(follow_symlinks=False):
            found[entry.name] = Name(entry.name, "dir", 0)
        elif entry.is_file(follow_symlinks=False):
            size = entry.stat(follow_symlinks=False).st_size
            found[entry.name] = Name(entry.name, "file", size)
    except FileNotFoundError:
        pass  # gone since the folder was read


class OpenFile:
    """An open file."""

    mime: str | None = None

    def __init__(self, handle: int) -> None:
        self._handle: int | None = handle
        found = os.fstat(handle)
        self.size = found.st_size
        self.version = f"{found.st_mtime_ns:x}-{found.st_size:x}-{found.st_ino:x}"

    async def read(self, start: int, length: int) -> bytes:
        """A piece."""
        handle = self._handle
        if handle is None:
            raise ValueError("The file is closed.")
        return await to_thread.run_sync(os.pread, handle, length, start)

    async def aclose(self) -> None:
        """Close it."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)


# -- the web ------------------------------------------------------------------------------------------


class AllowedHosts:
    """The hosts of a session; every address that is connected to was checked (see `_hosts` and `_wire`)."""

    def __init__(
        self,
        allow_hosts: Sequence[str],
        *,
        resolve: Resolve | None = None,
        timeout_ms: int = TIMEOUT_MS,
        max_skip: int = MAX_SKIP_BYTES,
    ) -> None:
        self._hosts = Hosts(allow_hosts)
        self._listed = tuple(allow_hosts)
        self._resolve = resolve
        self.timeout = timeout_ms / 1000
        self.max_skip = max_skip
        self._made: Wire | None = None

    async def open(self, url: str) -> Download:
        """What a URL has; raises `PERMISSION_DENIED` for one of another host, also after a redirect."""
        found = Download(self, self._hosts.check(url))
        try:
            await found.begin(0)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await found.aclose()
            raise
        return found

    def roots(self) -> list[str]:
        """The hosts that can be named, as beginnings of URLs."""
        named = [one for one in self._listed if "*" not in one]
        return [f"{one if '://' in one else f'https://{one}'}/" for one in named]

    async def ask(self, target: Target, headers: dict[str, str]) -> tuple[Flow, Target]:
        """The answer of whoever a target leads to, and who that is."""
        from holdfast.capabilities.builtin import _wire as wire

        if self._made is None:
            self._made = wire.Wire(
                self._hosts,
                self._resolve or wire.resolve,
                max_bytes=_PIECE,
                timeout=self.timeout,
            )
        first = target
        for _ in range(MAX_REDIRECTS + 1):
            try:
                flow = await self._made.begin(target, headers)
            except wire.Broken as why:
                raise ConnectionError(f"{why}: {target}") from None
            location = flow.headers.get("location")
            if flow.status not in (301, 302, 303, 307, 308) or location is None:
                return flow, target
            await flow.aclose()
            target = self._hosts.check(urljoin(str(target), location))
        raise ConnectionError(f"More than {MAX_REDIRECTS} redirects: {first}")


class Download:
    """What a server has: one answer that is read on, or asked for again from another byte."""

    def __init__(self, web: AllowedHosts, target: Target) -> None:
        self.size: int | None = None
        self.mime: str | None = None
        self.version: str | None = None
        self._web = web
        self._target = target
        self._flow: Flow | None = None
        self._at = 0
        """The byte that comes next."""
        self._rest = b""
        """What came already and was not asked for yet."""
        self._ranges = False

    async def read(self, start: int, length: int) -> bytes:
        """A piece; raises `ConnectionError` when the server breaks off, or has something else now."""
        if self._flow is None or start < self._at or (self._ranges and start != self._at):
            await self.begin(start)
        await self._skip_to(start)
        piece = await self._piece()
        piece, self._rest = piece[:length], piece[length:]
        self._at += len(piece)
        return piece

    async def begin(self, start: int) -> None:
        """Ask for everything from a byte on."""
        await self.aclose()
        with _in_time(self._web.timeout, self._target):
            self._flow, self._target = await self._web.ask(
                self._target, {"Range": f"bytes={start}-"}
            )
            if self._flow.status == 416:
                await self._beyond(start)
                return
        self._check_status(self._flow)
        self._learn(self._flow, start)

    async def aclose(self) -> None:
        """Hang up."""
        flow, self._flow, self._rest = self._flow, None, b""
        if flow is not None:
            await flow.aclose()

    def _learn(self, flow: Flow, start: int) -> None:
        """What the answer's headers say; they must say the same each time."""
        headers, size = flow.headers, None
        part = _RANGE.fullmatch(headers.get("content-range", ""))
        self._ranges = flow.status == 206 and part is not None
        self._at = 0
        if part is not None and self._ranges:
            self._at = int(part[1])
            size = None if part[2] == "*" else int(part[2])
            if self._at > start:
                raise ConnectionError(f"The server gave another range: {self._target}")
        elif "content-encoding" not in headers and headers.get("content-length", "").isdigit():
            size = int(headers["content-length"])
        version = (headers.get("etag") or headers.get("last-modified") or "")[:MAX_VERSION] or None
        if self.version is not None and self.version != version:
            raise ConnectionError(f"It changed while it was read: {self._target}")
        self.version = version
        self.size = size if size is not None else self.size
        self.mime = headers.get("content-type")

    async def _beyond(self, start: int) -> None:
        """There is nothing at `start`: not even at the beginning, if it is empty."""
        await self.aclose()
        self._ranges, self._at, self._rest = False, start, b""
        if start == 0:
            self.size = 0

    async def _skip_to(self, start: int) -> None:
        if start - self._at > self._web.max_skip:
            raise ModelError(
                "TOOL_ERROR",
                f"The server gives no ranges, and byte {start} is too far in to fetch all before it.",
                hint=f"Read what is within the first {self._web.max_skip} bytes.",
            )
        while self._at < start and (piece := await self._piece()):
            taken = min(len(piece), start - self._at)
            self._rest = piece[taken:]
            self._at += taken

    async def _piece(self) -> bytes:
        if self._rest:
            piece, self._rest = self._rest, b""
            return piece
        if self._flow is None:
            return b""
        from holdfast.capabilities.builtin import _wire as wire

        try:
            with _in_time(self._web.timeout, self._target):
                return await self._flow.next()
        except wire.Broken as why:
            raise ConnectionError(f"{why}: {self._target}") from None

    def _check_status(self, flow: Flow) -> None:
        if flow.status in (404, 410):
            raise FileNotFoundError(f"The server has no such thing: {self._target}")
        if flow.status not in (200, 203, 206):
            raise ConnectionError(f"The server answered {flow.status}: {self._target}")


@contextmanager
def _in_time(seconds: float, target: Target) -> Generator[None]:
    """Give something so long to come."""
    try:
        with anyio.fail_after(seconds):
            yield
    except TimeoutError:
        raise ModelError(
            "TIMEOUT_TOOL",
            f"Nothing came for {seconds:g} s: {target}",
            hint="Try again later.",
        ) from None

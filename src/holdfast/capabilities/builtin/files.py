"""Files for code: reading, writing and finding them in the folders a session was given."""

from __future__ import annotations

import codecs
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, cast

from pydantic import Field
from typing_extensions import TypedDict

from holdfast.capabilities.builtin import _paths as paths
from holdfast.capabilities.builtin._find import find
from holdfast.capabilities.declare import Declared, capability
from holdfast.contracts import Json
from holdfast.contracts.policy import Mount
from holdfast.errors import HoldfastError, ModelError
from holdfast.gate.executor import Context, Finding

MAX_READ_BYTES = 512 * 1024
"""What one call reads: as JSON it stays below the default size of a result."""
MAX_WRITE_BYTES = 1024 * 1024
"""What one call writes."""
MAX_ENTRIES = 5000
"""How many entries of a folder one call lists."""
MAX_MATCHES = 10_000
"""How many paths one call finds."""
_LEAST_BYTES = 4  # one character of UTF-8

Kind = Literal["file", "dir", "link", "other"]


class Entry(TypedDict):
    """One entry of a folder."""

    name: str
    type: Kind
    size: int


class Stat(TypedDict):
    """What is at a path."""

    path: str
    type: Kind
    size: int
    modified_ms: int


class Written(TypedDict):
    """What was written."""

    path: str
    bytes: int


def files(mounts: Sequence[Mount]) -> list[Declared[..., Any]]:
    """`read_text`, `list_dir`, `glob`, `stat`, and `write_text` if a mount is writable; over these folders."""
    host = Files(paths.Mounts(mounts))
    # `Any`: each has its own parameters and result.
    reads: list[Callable[..., Any]] = [host.read_text, host.list_dir, host.glob, host.stat]
    found: list[Declared[..., Any]] = [
        capability(one, side_effect="read", idempotent=True) for one in reads
    ]
    if host.mounts.writable:
        found.append(
            capability(
                host.write_text,
                side_effect="write",
                idempotent=True,
                reconcile=host.reconcile_write,
            )
        )
    return found


class Files:
    """The functions, over one set of mounts."""

    def __init__(self, mounts: paths.Mounts) -> None:
        self.mounts = mounts

    def read_text(
        self,
        path: str,
        start: Annotated[int, Field(ge=0)] = 0,
        max_bytes: Annotated[int, Field(ge=_LEAST_BYTES, le=MAX_READ_BYTES)] | None = None,
    ) -> str:
        """Read a UTF-8 text file.

        Without `max_bytes` the rest of the file is read, or ValueError raised if that is more than 524288 bytes.
        To read a long file in pieces: pass `max_bytes`, add `len(piece.encode())` to `start`, and stop at an
        empty piece. Pieces never cut a character in two.

        Args:
            path: Absolute path, as in `/workspace/notes.txt`.
            start: The byte to start at.
            max_bytes: At most so many bytes, from 4 to 524288.
        """
        _check_range("start", start, 0)
        if max_bytes is not None:
            _check_range("max_bytes", max_bytes, _LEAST_BYTES, MAX_READ_BYTES)
        place = self.mounts.find(path)
        limit = max_bytes or MAX_READ_BYTES
        with paths.file(place) as handle, paths.told(place):
            data = _read(handle, start, limit + 1)
        if len(data) > limit and max_bytes is None:
            raise ValueError(
                f"More than {MAX_READ_BYTES} bytes: {place}. Read it in pieces, with `max_bytes`."
            )
        return _decode(data[:limit], place, start, whole=len(data) <= limit)

    def write_text(self, path: str, text: str, make_dirs: bool = False) -> Written:
        """Write a UTF-8 text file, in place of what was there. Either all of it is written or nothing changes.

        Args:
            path: Absolute path, as in `/workspace/out/report.txt`.
            text: The whole content, at most 1048576 bytes.
            make_dirs: Create the folders on the way that do not exist yet.
        """
        place = self.mounts.find(path)
        data = _encode(text)
        if not place.root.writable:
            raise paths.denied(f"Read only: {place}.", "Write to a folder granted for writing.")
        if not place.inside or self.mounts.is_root(place.names):
            raise IsADirectoryError(f"Is a directory: {place}")
        with paths.folder(place.parent, make=make_dirs) as parent, paths.told(place, parent):
            _replace(parent, place, data)
        return {"path": str(place), "bytes": len(data)}

    def list_dir(self, path: str) -> list[Entry]:
        """List a folder, by name. Types are `file`, `dir`, `link` and `other`; only the first two can be used.

        Args:
            path: Absolute path, as in `/workspace`.
        """
        place = self.mounts.find(path)
        found: dict[str, Entry] = {}
        with paths.folder(place) as handle, paths.told(place), paths.listing(handle) as entries:
            for entry in entries:
                if len(found) >= MAX_ENTRIES:
                    raise ValueError(
                        f"More than {MAX_ENTRIES} entries: {place}. Use `glob` with a narrow pattern."
                    )
                if made := _entry(entry):
                    found[entry.name] = made
        for name in self.mounts.below(place.names):
            found[name] = {"name": name, "type": "dir", "size": 0}
        return [found[name] for name in sorted(found)]

    def glob(
        self, pattern: str, max_results: Annotated[int, Field(ge=1, le=MAX_MATCHES)] = 1000
    ) -> list[str]:
        """Find files and folders: paths that match a pattern, sorted. ValueError if there are more than asked for.

        Args:
            pattern: Absolute, as in `/workspace/**/*.csv`. `*`, `?` and `[…]` match within a name, `**` matches
                any number of folders.
            max_results: How many paths to return at most, from 1 to 10000.
        """
        _check_range("max_results", max_results, 1, MAX_MATCHES)
        return find(self.mounts, pattern, max_results)

    def stat(self, path: str) -> Stat:
        """Tell what is at a path: its type (`file`, `dir`, `link` or `other`), size, and time of last change.

        Args:
            path: Absolute path, as in `/workspace/notes.txt`.
        """
        place = self.mounts.find(path)
        found = paths.look(place)
        return {
            "path": str(place),
            "type": cast("Kind", paths.kind_of(found.st_mode)),
            "size": found.st_size,
            "modified_ms": found.st_mtime_ns // 1_000_000,
        }

    def reconcile_write(self, arguments: Mapping[str, Json], _context: Context) -> Finding:
        """Whether a write in doubt happened: it did if the file has exactly the text."""
        path, text = str(arguments["path"]), str(arguments["text"])
        # A write is all or nothing, so one that did not happen can simply be done.
        try:
            data = _encode(text)
            place = self.mounts.find(path)
            with paths.file(place) as handle, paths.told(place):
                if _read(handle, 0, len(data) + 1) != data:
                    return Finding("not_started")
        except (OSError, ValueError, HoldfastError):
            return Finding("not_started")
        return Finding("completed", {"path": str(place), "bytes": len(data)})


def _check_range(name: str, value: int, low: int, high: int | None = None) -> None:
    if value < low or (high is not None and value > high):
        raise ValueError(f"`{name}` must be from {low} to {high if high is not None else '…'}")


def _read(handle: int, start: int, size: int) -> bytes:
    parts: list[bytes] = []
    while size > 0 and (part := os.pread(handle, size, start)):
        parts.append(part)
        start += len(part)
        size -= len(part)
    return b"".join(parts)


def _decode(data: bytes, place: paths.Place, start: int, *, whole: bool) -> str:
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(data, final=whole)
    except UnicodeDecodeError as why:
        raise ValueError(
            f"Not UTF-8 text at byte {start + why.start}: {place}."
            + (" Does `start` cut a character in two?" if start and not why.start else "")
        ) from None


def _encode(text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError as why:
        raise ValueError(f"Not Unicode text: a lone surrogate at {why.start}.") from None
    if len(data) > MAX_WRITE_BYTES:
        raise ModelError(
            "REQUEST_TOO_LARGE",
            f"The text has {len(data)} bytes; one call writes at most {MAX_WRITE_BYTES}.",
            hint="Write several files.",
        )
    return data


def _replace(parent: int, place: paths.Place, data: bytes) -> None:
    """Write beside the file, bring that to the disk, and give it the file's name."""
    name = place.names[-1]
    mode = _mode_of(place)
    partial = f".{secrets.token_hex(8)}{paths.PARTIAL}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(partial, flags, 0o666, dir_fd=parent)
    try:
        try:
            if mode is not None:
                os.fchmod(handle, mode)
            _write(handle, data)
            os.fsync(handle)
        finally:
            os.close(handle)
        # Whatever has the name by now is replaced, not followed.
        os.rename(partial, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        os.unlink(partial, dir_fd=parent)
        raise
    paths.sync(parent)


def _mode_of(place: paths.Place) -> int | None:
    """The permissions of the file that is replaced; None when there is none."""
    try:
        found = paths.look(place)
    except FileNotFoundError:
        return None
    paths.check_file(found, place)
    return found.st_mode & 0o777


def _write(handle: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


def _entry(entry: os.DirEntry[str]) -> Entry | None:
    try:
        found = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None  # gone since the folder was read
    kind = cast("Kind", paths.kind_of(found.st_mode))
    return {"name": entry.name, "type": kind, "size": found.st_size if kind == "file" else 0}

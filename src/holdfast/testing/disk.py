# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""A disk to look at, to fail, and to cut the power of: for tests of anything that keeps a SQLite file.

While a `Disk` is in use every file that SQLite opens in this process goes through it. It notes each write, sync,
truncation and removal, asks `before` about it (which may raise, or kill the process), and knows what a power cut
would leave: the contents at the last sync, and as much of what was written since as one likes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import apsw

# The file system that SQLite would use without us.
_BELOW = "unix"


class Op(NamedTuple):
    """One operation on a file."""

    kind: str
    """`write`, `sync`, `truncate` or `delete`."""
    path: Path
    """Of which file."""
    offset: int = 0
    """Where a write begins; to which size a truncation goes."""
    data: bytes = b""
    """What is written."""


class Watched:
    """What is known of one file."""

    def __init__(self, synced: bytes) -> None:
        self.synced = synced
        """What is on the disk for certain."""
        self.pending: list[Op] = []
        """What was written since, in order."""

    def after_power_cut(self, keep: Callable[[int], float]) -> bytes:
        """The contents when of each pending operation as much survives as `keep` says, from 0 to 1."""
        data = bytearray(self.synced)
        for number, op in enumerate(self.pending):
            part = keep(number)
            if not part:
                continue
            if op.kind == "truncate":
                del data[op.offset :]
            else:
                data.extend(bytes(max(0, op.offset - len(data))))
                written = op.data[: int(len(op.data) * part)]
                data[op.offset : op.offset + len(written)] = written
        return bytes(data)


class Disk(apsw.VFS):
    """Use it as a context manager, around the opening and closing of every connection."""

    def __init__(self, before: Callable[[Op], None] | None = None) -> None:
        self.before = before
        """Asked before each operation."""
        self.ops: list[Op] = []
        """Every operation so far."""
        self.files: dict[Path, Watched] = {}
        """Every file written so far."""
        super().__init__(f"holdfast-disk-{id(self)}", _BELOW, makedefault=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.unregister()

    def unsynced(self, path: Path) -> list[Op]:
        """What a power cut could take from this file."""
        watched = self.files.get(path)
        return watched.pending if watched else []

    def cut_power(self, keep: Callable[[int], float] = lambda number: 0) -> None:
        """Leave the files as a power cut would. Only for a process that is about to die."""
        for path, watched in self.files.items():
            if path.exists():
                path.write_bytes(watched.after_power_cut(keep))
        for path in list(self.files):
            Path(f"{path}-shm").unlink(missing_ok=True)  # never on a disk in the first place

    def note(self, op: Op) -> None:
        """Take an operation down, once `before` has let it pass."""
        if self.before is not None:
            self.before(op)
        self.ops.append(op)

    # `Any`: apsw's annotations name a type that Python 3.11 lacks.
    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return _File(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        path = Path(filename)
        if path.exists():
            self.note(Op("delete", path))
            self.files.pop(path, None)
        super().xDelete(filename, syncdir)


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        self._path = Path(os.fspath(name.filename() if hasattr(name, "filename") else name or ""))
        super().__init__(_BELOW, name, flags)
        if self._path not in disk.files:
            disk.files[self._path] = Watched(self._contents())

    def _contents(self) -> bytes:
        size = self.xFileSize()
        return self.xRead(size, 0) if size else b""

    def xWrite(self, data: Any, offset: int) -> None:
        op = Op("write", self._path, offset, bytes(data))
        self._disk.note(op)
        super().xWrite(data, offset)
        self._watched().pending.append(op)

    def xTruncate(self, newsize: int) -> None:
        op = Op("truncate", self._path, newsize)
        self._disk.note(op)
        super().xTruncate(newsize)
        self._watched().pending.append(op)

    def xSync(self, flags: int) -> None:
        self._disk.note(Op("sync", self._path))
        super().xSync(flags)
        self._disk.files[self._path] = Watched(self._contents())

    def _watched(self) -> Watched:
        return self._disk.files.setdefault(self._path, Watched(b""))

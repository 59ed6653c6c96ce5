"""Secrets at rest: one encrypted file beside the journal, for all processes on it.

Each entry is JSON, encrypted with AES-GCM and bound to its name: an entry that is copied under another name does not
open. Names are not secret. A change takes the file's lock, reads again, and replaces the file as a whole, so a reader
sees the old file or the new one, and a crash leaves one of them. What can't be read is never written over.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import json
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread

from holdfast.contracts import canonical_json, digest
from holdfast.errors import OperatorError
from holdfast.leases.keys import KeySource, key_id, sync_folder, unavailable

FORMAT = 1
NONCE_BYTES = 12
MAX_BYTES = 16 * 1024 * 1024

Value = dict[str, Any]
Change = Callable[[Value | None], Value | None]
"""From what an entry is to what it becomes; `None`: there is none."""

_POLL = 0.02


class Vault(ABC):
    """Named secrets."""

    @property
    @abstractmethod
    def stamp(self) -> object:
        """Changes whenever anything in it may have; cheap."""

    @abstractmethod
    async def get(self, name: str) -> Value | None:
        """An entry."""

    @abstractmethod
    async def names(self, prefix: str = "") -> list[str]:
        """The names there are, in order."""

    @abstractmethod
    async def change(self, name: str, change: Change) -> Value | None:
        """Replace an entry by what `change` makes of it, while nobody else can; what it is now.

        If `change` raises, nothing has changed. It may run in a thread.
        """

    @abstractmethod
    def lock(self, name: str) -> AbstractAsyncContextManager[object]:
        """Hold a name: no other task or process gets in meanwhile. It ends with the process, too."""

    @abstractmethod
    async def rekey(self, source: KeySource | None = None) -> None:
        """Encrypt everything with a new key: of the same source, or the key of another."""

    async def put(self, name: str, value: Value) -> None:
        """Write an entry."""
        await self.change(name, lambda _: value)

    async def remove(self, name: str) -> None:
        """There is no such entry any more."""
        await self.change(name, lambda _: None)


class MemoryVault(Vault):
    """For journals in memory: ends with the process, so nothing is encrypted."""

    def __init__(self) -> None:
        self._entries: dict[str, Value] = {}
        self._locks: dict[str, anyio.Lock] = {}
        self._changes = 0

    @property
    def stamp(self) -> object:
        """Counts changes."""
        return self._changes

    async def get(self, name: str) -> Value | None:
        """A copy of the entry."""
        found = self._entries.get(name)
        return None if found is None else json.loads(canonical_json(found))

    async def names(self, prefix: str = "") -> list[str]:
        """The names there are, in order."""
        return sorted(name for name in self._entries if name.startswith(prefix))

    async def change(self, name: str, change: Change) -> Value | None:
        """At once."""
        new = change(await self.get(name))
        if new is None:
            self._entries.pop(name, None)
        else:
            self._entries[name] = json.loads(canonical_json(new))
        self._changes += 1
        return new

    def lock(self, name: str) -> anyio.Lock:
        """A lock of this process."""
        return self._locks.setdefault(name, anyio.Lock())

    async def rekey(self, source: KeySource | None = None) -> None:
        """There is no key."""

    def __repr__(self) -> str:
        return f"MemoryVault({len(self._entries)} entries)"


class FileVault(Vault):
    """An encrypted file. Nothing is made before there is something to keep."""

    def __init__(self, path: Path, source: KeySource) -> None:
        self._path = path
        self._source = source
        self._keys: dict[str, bytes] = {}

    @property
    def stamp(self) -> object:
        """The file's inode, size and time: each change makes a new file."""
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    async def get(self, name: str) -> Value | None:
        """Read from disk each time: another process may have written."""
        return await to_thread.run_sync(self._get, name)

    async def names(self, prefix: str = "") -> list[str]:
        """The names there are, in order."""
        content = await to_thread.run_sync(self._read)
        return sorted(name for name in content.entries if name.startswith(prefix))

    async def change(self, name: str, change: Change) -> Value | None:
        """Under the file's lock, and on disk when it returns."""
        # Not abandoned on cancellation: a thread that goes on alone would change things behind our back.
        return await to_thread.run_sync(self._change, name, change)

    @asynccontextmanager
    async def lock(self, name: str) -> AsyncGenerator[None]:
        """A lock file, polled: waiting for it can be cancelled."""
        handle = self._open_lock(f"{digest(name.encode())[:32]}.lock")
        try:
            while not _taken(handle):  # noqa: ASYNC110 - another process sets no event
                await anyio.sleep(_POLL)
            yield
        finally:
            os.close(handle)

    async def rekey(self, source: KeySource | None = None) -> None:
        """Encrypt everything anew. If this is cut off, the old key or the proposed one opens the vault."""
        await to_thread.run_sync(self._rekey, source)

    def __repr__(self) -> str:
        return f"FileVault({str(self._path)!r})"

    # -- in a thread ----------------------------------------------------------------------------------

    def _get(self, name: str) -> Value | None:
        content = self._read()
        sealed = content.entries.get(name)
        return None if sealed is None else self._open(name, sealed, self._key_of(content))

    def _change(self, name: str, change: Change) -> Value | None:
        with self._locked():
            content = self._read()
            key = self._key_of(content) if content.key_id else self._first_key()
            sealed = content.entries.get(name)
            old = None if sealed is None else self._open(name, sealed, key)
            new = change(old)
            if new is None and old is None:
                return None
            entries = {**content.entries}
            entries.pop(name, None)
            if new is not None:
                entries[name] = _sealed(name, new, key)
            self._write(_Content(key_id(key), entries))
            return new

    def _rekey(self, source: KeySource | None) -> None:
        with self._locked():
            content = self._read()
            into = source or self._source
            if not content.key_id:
                self._source = into
                return
            old = self._key_of(content)
            if source is None:
                if content.key_id != key_id(into.found()[0]):
                    into.accept()  # an earlier change of keys was cut off before its last step
                key = into.propose()
            else:
                found = into.found()
                key = found[0] if found else into.make()
            opened = {name: self._open(name, one, old) for name, one in content.entries.items()}
            entries = {name: _sealed(name, value, key) for name, value in opened.items()}
            self._write(_Content(key_id(key), entries))
            if source is None:
                into.accept()
            self._source = into
            self._keys = {key_id(key): key}

    def _key_of(self, content: _Content) -> bytes:
        if not content.key_id:
            return b""
        if content.key_id not in self._keys:
            found = {key_id(key): key for key in self._source.found()}
            if content.key_id not in found:
                raise unavailable(
                    f"The vault `{self._path}` was not written with "
                    + ("the key at hand." if found else "any key there is: its key is gone."),
                    "Restore its key from a backup. Without it, remove the vault and sign in again.",
                )
            self._keys = {content.key_id: found[content.key_id]}
        return self._keys[content.key_id]

    def _first_key(self) -> bytes:
        found = self._source.found()
        return found[0] if found else self._source.make()

    def _read(self) -> _Content:
        try:
            with open(self._path, "rb") as file:
                data = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            return _Content("", {})
        except OSError as why:
            raise unavailable(
                f"The vault `{self._path}` can't be read: {why.strerror}.",
                "It must be a file that this user can read.",
            ) from None
        content = _parsed(data)
        if content is None:
            raise unavailable(
                f"`{self._path}` is no vault, or is damaged.",
                "Restore it from a backup, or move it away and sign in again.",
            )
        return content

    def _write(self, content: _Content) -> None:
        draft = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
        try:
            draft.unlink(missing_ok=True)
            handle = os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(content.data())
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, self._path)
            sync_folder(self._path.parent)
        except OSError as why:
            raise self._not_written(why) from None

    def _open(self, name: str, sealed: bytes, key: bytes) -> Value:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce, secret = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
        try:
            return json.loads(AESGCM(key).decrypt(nonce, secret, _bound_to(name)))
        except (InvalidTag, ValueError):
            raise unavailable(
                f"Entry `{name}` of the vault `{self._path}` was changed by somebody else.",
                "Restore the vault from a backup, or move it away and sign in again.",
            ) from None

    @contextmanager
    def _locked(self) -> Generator[None]:
        handle = self._open_lock("vault.lock")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _open_lock(self, name: str) -> int:
        folder = self._path.with_name(f"{self._path.name}.locks")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder.mkdir(exist_ok=True, mode=0o700)
            return os.open(folder / name, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as why:
            raise self._not_written(why) from None

    def _not_written(self, why: OSError) -> OperatorError:
        return unavailable(
            f"The vault `{self._path}` can't be written: {why.strerror}.",
            "Its folder must belong to this user, and have room.",
        )


class _Content:
    """The file, parsed; its entries are still encrypted."""

    __slots__ = ("entries", "key_id")

    def __init__(self, key_id: str, entries: dict[str, bytes]) -> None:
        self.key_id = key_id
        self.entries = entries

    def data(self) -> bytes:
        """The file's bytes."""
        entries = {name: base64.b64encode(one).decode() for name, one in self.entries.items()}
        return canonical_json({"format": FORMAT, "key": self.key_id, "entries": entries})


def _parsed(data: bytes) -> _Content | None:
    try:
        found = json.loads(data)
        if found["format"] != FORMAT or not isinstance(found["key"], str) or not found["key"]:
            return None
        entries = {
            name: base64.b64decode(one, validate=True) for name, one in found["entries"].items()
        }
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, binascii.Error):
        return None
    return _Content(found["key"], entries)


def _sealed(name: str, value: Value, key: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, canonical_json(value), _bound_to(name))


def _bound_to(name: str) -> bytes:
    return b"holdfast vault 1\0" + name.encode()


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

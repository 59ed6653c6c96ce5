"""Where the vault's key comes from: a file for its owner's eyes only, the keyring of the system, or a command.

A key is 32 random bytes. It has an id, which says nothing about it: the vault notes the id of the key it was written
with, so that a wrong key is told from a damaged file, and a change of keys can be finished by whoever comes next.
"""

from __future__ import annotations

import base64
import binascii
import os
import stat
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from holdfast.contracts import digest
from holdfast.errors import OperatorError

KEY_BYTES = 32
COMMAND_SECONDS = 60
SERVICE = "holdfast"


def key_id(key: bytes) -> str:
    """Names a key without telling anything about it."""
    return digest(b"holdfast vault key\0" + key)[:16]


def unavailable(message: str, hint: str) -> OperatorError:
    """The vault can't be used, and nothing in it was changed."""
    return OperatorError("VAULT_UNAVAILABLE", message, hint=hint)


class KeySource(Protocol):
    """Where a key comes from."""

    def found(self) -> Sequence[bytes]:
        """The keys there are: the one in force, and one that is to replace it; none where none was made yet."""
        ...

    def make(self) -> bytes:
        """Make the first key; of several processes that try at once, all get the same."""
        ...

    def propose(self) -> bytes:
        """Make a key that is to replace the one in force."""
        ...

    def accept(self) -> None:
        """What was proposed is in force."""
        ...


class FileKey:
    """A key in a file. One that somebody else could read is refused."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next = path.with_name(f"{path.name}.next")

    def found(self) -> Sequence[bytes]:
        """The file's key, and the proposed one."""
        found = (self._read(self._path), self._read(self._next))
        return [key for key in found if key is not None]

    def make(self) -> bytes:
        """Write one, unless there is one by now."""
        write_once(self._path)
        found = self._read(self._path)
        assert found is not None
        return found

    def propose(self) -> bytes:
        """Write one beside it. One that was proposed before and never accepted is thrown away."""
        self._next.unlink(missing_ok=True)
        write_once(self._next)
        found = self._read(self._next)
        assert found is not None
        return found

    def accept(self) -> None:
        """Put it in the place of the other."""
        with suppress(FileNotFoundError):
            os.replace(self._next, self._path)
        sync_folder(self._path.parent)

    def _read(self, path: Path) -> bytes | None:
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as why:
            raise unavailable(
                f"The vault's key `{path}` can't be read: {why.strerror}.",
                "It must be a file of yours that only you can read.",
            ) from None
        with os.fdopen(handle, "rb") as file:
            found = os.fstat(file.fileno())
            if found.st_mode & 0o077 or not stat.S_ISREG(found.st_mode):
                raise unavailable(
                    f"The vault's key `{path}` can be read by others, so it is not used.",
                    f"Run `chmod 600 {path}`; if somebody may have read it, sign in again everywhere.",
                )
            if found.st_uid != os.geteuid():
                raise unavailable(
                    f"The vault's key `{path}` belongs to another user.",
                    "Use a key of your own: set `[vault] key_file`.",
                )
            key = file.read(KEY_BYTES + 1)
        if len(key) != KEY_BYTES:
            raise unavailable(
                f"The vault's key `{path}` is not {KEY_BYTES} bytes long.",
                "Restore it from a backup. Without it, remove the vault and sign in again.",
            )
        return key


def write_once(path: Path) -> None:
    """Write a new key so that of several who try at once, exactly one succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f"{path.name}.{os.getpid()}.{os.urandom(4).hex()}.new")
    handle = os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600)
    try:
        os.write(handle, os.urandom(KEY_BYTES))
        os.fsync(handle)
    finally:
        os.close(handle)
    with suppress(FileExistsError):
        os.link(draft, path)
    draft.unlink()
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """What was renamed in the folder is so on disk."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class KeyringKey:
    """A key in the keyring of the operating system."""

    def __init__(self, user: str, *, service: str = SERVICE) -> None:
        """`user` names it there: one for each vault."""
        self._user = user
        self._service = service

    def found(self) -> Sequence[bytes]:
        """The keyring's key, and the proposed one."""
        found = (self._get(self._user), self._get(self._proposed))
        return [key for key in found if key is not None]

    def make(self) -> bytes:
        """Put one there. The vault's lock is held meanwhile, so nobody else does."""
        return self._set(self._user, os.urandom(KEY_BYTES))

    def propose(self) -> bytes:
        """Put one beside it."""
        return self._set(self._proposed, os.urandom(KEY_BYTES))

    def accept(self) -> None:
        """Put it in the place of the other."""
        if (key := self._get(self._proposed)) is not None:
            self._set(self._user, key)
            self._ask("delete_password", self._proposed)

    @property
    def _proposed(self) -> str:
        return f"{self._user}.next"

    def _get(self, user: str) -> bytes | None:
        found = self._ask("get_password", user)
        return None if found is None else decoded(str(found), "in the keyring")

    def _set(self, user: str, key: bytes) -> bytes:
        self._ask("set_password", user, base64.b64encode(key).decode())
        return key

    def _ask(self, method: str, *arguments: str) -> Any:
        try:
            import keyring
            from keyring.errors import KeyringError
        except ImportError:
            raise unavailable(
                "The vault's key is to come from the keyring, and its library is not installed.",
                'Run `pip install holdfast[keyring]`, or set `[vault] key = "file"`.',
            ) from None
        try:
            return getattr(keyring, method)(self._service, *arguments)
        except KeyringError as why:
            raise unavailable(
                f"The keyring does not give the vault's key: {type(why).__name__}.",
                'Unlock it, or set `[vault] key = "file"`.',
            ) from None


class CommandKey:
    """A key that a program prints, in base64 or hex: a secret manager's, say."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = tuple(command)

    def found(self) -> Sequence[bytes]:
        """What it prints."""
        name = self._command[0] if self._command else ""
        try:
            done = subprocess.run(
                self._command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=COMMAND_SECONDS,
                check=True,
            )
        except (OSError, ValueError, IndexError, subprocess.SubprocessError) as why:
            raise unavailable(
                f"The command `{name}` does not give the vault's key: {type(why).__name__}.",
                "Run it by hand: it must print the key and exit with 0.",
            ) from None
        return [decoded(done.stdout.decode(errors="replace"), f"that `{name}` prints")]

    def make(self) -> bytes:
        """It always has one."""
        return self.found()[0]

    def propose(self) -> bytes:
        """Not here."""
        raise unavailable(
            "A key that comes from a command can't be changed from here.",
            "Give the vault a new source of keys: `vault.rekey(CommandKey([...]))`.",
        )

    def accept(self) -> None:
        """Nothing to do."""


def decoded(text: str, where: str) -> bytes:
    """A key from text: 32 bytes in base64 or hex."""
    text = text.strip()
    with suppress(ValueError, binascii.Error):
        if len(text) == 2 * KEY_BYTES:
            return bytes.fromhex(text)
        key = base64.b64decode(text, validate=True)
        if len(key) == KEY_BYTES:
            return key
    raise unavailable(
        f"The vault's key {where} is not {KEY_BYTES} bytes in base64 or hex.",
        "Make one with `head -c 32 /dev/urandom | base64`.",
    )

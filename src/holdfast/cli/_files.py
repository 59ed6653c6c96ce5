"""Files that commands write: for their owner's eyes only, whole or not at all."""

from __future__ import annotations

import os

from holdfast.errors import CallerError

MAX_BYTES = 128 << 20


def create(name: str, *, wanted: str | None = None) -> int:
    """A new file; `wanted` is what it will be called once it is whole, and so what is told about it."""
    try:
        return os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        raise CallerError(
            "INVALID_ARGUMENT",
            f"`{name}` exists and is not overwritten.",
            hint="Choose another name.",
        ) from None
    except OSError as why:
        raise CallerError(
            "INVALID_ARGUMENT", f"`{wanted or name}` can't be written: {why.strerror}."
        ) from None


def replace(name: str, data: bytes) -> None:
    """Write a file; what had this name before is replaced once all of it is written."""
    draft = f"{name}.{os.getpid()}.new"
    handle = create(draft, wanted=name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, name)
    except OSError as why:
        os.unlink(draft)
        raise CallerError(
            "INVALID_ARGUMENT", f"`{name}` can't be written: {why.strerror}."
        ) from None


def read(name: str) -> bytes:
    """A file's bytes."""
    try:
        with open(name, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as why:
        raise CallerError(
            "INVALID_ARGUMENT", f"The file `{name}` can't be read: {why.strerror}."
        ) from None
    if len(data) > MAX_BYTES:
        raise CallerError("INVALID_ARGUMENT", f"The file `{name}` is over {MAX_BYTES} bytes.")
    return data

"""The composition root: the only file that knows concrete stores and engines."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from holdfast.contracts import Language
from holdfast.errors import CallerError, OperatorError
from holdfast.journal import Journal, MemoryJournal
from holdfast.runtime.settings import Settings
from holdfast.shell.box import Boxes

KEY_BYTES = 32


def journal_path(settings: Settings) -> Path | None:
    """The journal's file; `None` when it is kept in memory."""
    url = settings.journal.url
    if url is None:
        return settings.folder / "journal.db"
    if url in ("memory:", "memory://"):
        return None
    if url.startswith("sqlite:///") and len(url) > len("sqlite:///"):
        return Path(url.removeprefix("sqlite:///")).expanduser().absolute()
    raise CallerError(
        "INVALID_ARGUMENT",
        f"`{url[:200]}` names no journal.",
        hint="Use `sqlite:///path`, `sqlite:////absolute/path` or `memory:`.",
    )


def open_journal(settings: Settings, *, read_only: bool = False) -> Journal:
    """The journal the settings name; `read_only` also opens one that is damaged, newer or can't be written."""
    path = journal_path(settings)
    if path is None:
        return MemoryJournal()
    if read_only:
        from holdfast.journal.sqlite_reader import SqliteReader

        return SqliteReader(path)
    from holdfast.journal.sqlite import SqliteJournal

    return SqliteJournal.open(path)


def open_boxes(settings: Settings) -> dict[Language, Boxes]:
    """An engine for each language."""
    from holdfast.shell.languages.python import PythonBoxes

    return {Language.PYTHON: PythonBoxes(jail=settings.shell.jail)}


def key_path(settings: Settings) -> Path | None:
    """The file of the key that seals saved states, beside the journal; `None` when that is in memory."""
    path = journal_path(settings)
    return None if path is None else path.with_name(path.name + ".key")


def state_key(settings: Settings) -> bytes:
    """The key that seals saved states: for its owner's eyes only; made on first use."""
    path = key_path(settings)
    if path is None:
        return os.urandom(KEY_BYTES)
    try:
        if not path.exists():
            _make_key(path)
        key = path.read_bytes()
    except OSError as why:
        raise OperatorError(
            "IO_ERROR",
            f"The key `{path}` can't be used: {why.strerror}.",
            hint="Saved states are sealed with it: it must be readable, and kept with the journal.",
        ) from None
    if len(key) != KEY_BYTES:
        raise OperatorError(
            "IO_ERROR",
            f"The key `{path}` has {len(key)} bytes instead of {KEY_BYTES}.",
            hint="Restore it from a backup, or remove it: sessions are then replayed from their code.",
        )
    return key


def _make_key(path: Path) -> None:
    """Write a new key so that of several processes that try at once, exactly one succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    handle = os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    try:
        os.write(handle, os.urandom(KEY_BYTES))
        os.fsync(handle)
    finally:
        os.close(handle)
    with suppress(FileExistsError):
        os.link(draft, path)
    draft.unlink()

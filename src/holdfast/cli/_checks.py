"""What the doctor looks at. A check never raises: whatever stands in its way is its finding."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from holdfast.cli import _output
from holdfast.cli._setup import import_from_here
from holdfast.errors import HoldfastError
from holdfast.runtime import Settings, wiring
from holdfast.runtime.settings import nearest
from holdfast.shell.box import Ran, Stop

if TYPE_CHECKING:
    from holdfast.journal.sqlite_reader import SqliteReader

LITTLE_DISK, TOO_LITTLE_DISK = 1 << 30, 64 << 20
"""Bytes. A session's state alone may have 64 MiB."""

VARIABLES = ("HOLDFAST_HOME", "HOLDFAST_URL", "HOLDFAST_JAIL")

_GET_JAIL = "Install bubblewrap (Debian, Ubuntu: apt-get install bubblewrap; Fedora: dnf install bubblewrap)"
_LET_JAIL = (
    "Allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1;"
    " Ubuntu: kernel.apparmor_restrict_unprivileged_userns=0); in a container, give it"
    " --security-opt seccomp=unconfined or run it as the host's root"
)

_REINSTALL = "Reinstall holdfast and its engine: pip install --force-reinstall holdfast"


class Check(NamedTuple):
    """One finding."""

    name: str
    state: Literal["ok", "warn", "fail"]
    what: str
    fix: str | None = None


async def examine() -> list[Check]:
    """Every finding, in the order in which things depend on each other."""
    found = [_python(), _sqlite()]
    try:
        settings = Settings.load()
        found.append(_settings())
        path = wiring.journal_path(settings)
    except HoldfastError as why:
        # Which home and which journal are meant is not known, so there is nothing else to look at.
        return [*found, _failed("settings", why)]
    found += await _box(settings)
    found += _capabilities(settings)
    found += await _surfaces(settings)
    found += _home(settings)
    if path is None:
        return [*found, Check("journal", "warn", "in memory: gone when the process ends")]
    found += await _journal(path)
    found += _key(settings)
    found.append(_disk(path))
    return found


def _failed(name: str, why: HoldfastError) -> Check:
    return Check(name, "fail", f"{why.code}: {why.message}", why.hint)


def _python() -> Check:
    version = platform.python_version()
    return Check("python", "ok", f"{version} ({sys.executable})")


def _sqlite() -> Check:
    import apsw

    return Check("sqlite", "ok", f"{apsw.sqlite_lib_version()} (apsw {apsw.apsw_version()})")


def _settings() -> Check:
    file = nearest(Path.cwd())
    parts = [str(file) if file else "no holdfast.toml here or above"]
    parts += [f"{name}={os.environ[name]}" for name in VARIABLES if os.environ.get(name)]
    return Check("settings", "ok", ", ".join(parts))


# -- the box ------------------------------------------------------------------------------------------


async def _box(settings: Settings) -> list[Check]:
    """Start every engine and run something in it."""
    found: list[Check] = []
    limits = settings.shell.limits
    try:
        for one in wiring.open_boxes(settings).values():
            async with one as boxes:
                found.append(_jail(boxes.jail, boxes.jail_reason, settings))
                box = await boxes.open(limits)
                ran = await box.run("6 * 7", inputs={}, limits=limits, names={})
                await box.close()
                found.append(_engine(boxes.engine, ran))
    except HoldfastError as why:
        found.append(_failed("jail" if why.code == "JAIL_UNAVAILABLE" else "engine", why))
    return found


def _engine(name: str, ran: Stop) -> Check:
    if not isinstance(ran, Ran):
        return Check("engine", "fail", f"{name}: 6 * 7 called somebody", _REINSTALL)
    if ran.value == 42:
        return Check("engine", "ok", f"{name} runs code")
    why = ran.error.message if ran.error else f"6 * 7 gave {ran.value}"
    return Check("engine", "fail", f"{name}: {why}", _REINSTALL)


def _jail(jail: str, reason: str, settings: Settings) -> Check:
    if jail != "none":
        if reason:
            return Check("jail", "warn", f"{jail} around every worker, but {reason}", None)
        return Check("jail", "ok", f"{jail} around every worker")
    if settings.shell.jail == "off":
        what = "NO JAIL: it is switched off; the engine's own sandbox is the only boundary"
        return Check("jail", "warn", what, 'Remove `jail = "off"` ([shell]) or HOLDFAST_JAIL.')
    what = f"NO JAIL: {reason}; code runs in the engine's own sandbox only"
    return Check("jail", "fail", what, f"{_GET_JAIL if 'installed' in reason else _LET_JAIL}.")


# -- what code may call -------------------------------------------------------------------------------


def _capabilities(settings: Settings) -> list[Check]:
    """What a session gets that says nothing of its own, and what the built-in ones need."""
    try:
        import_from_here()
        tools = wiring.make_tools((), wiring.make_redactor(settings, {}))(settings.session)
    except HoldfastError as why:
        return [_failed("capabilities", why), _postgres()]
    names = [one.name for one in tools.all()]
    what = ", ".join(names) if names else "none unless a session is opened with some"
    return [Check("capabilities", "ok", what), _postgres()]


def _postgres() -> Check:
    try:
        import psycopg
    except ImportError as why:
        what = f"psycopg can't be imported ({why}): code can query SQLite only"
        return Check("postgres", "warn", what, "pip install 'psycopg[binary]'")
    kind = psycopg.pq.__impl__
    return Check("postgres", "ok", f"psycopg {psycopg.__version__} ({kind}) for `query_db`")


async def _surfaces(settings: Settings) -> list[Check]:
    """Connect to each tool surface that there is to be."""
    from holdfast.cli._surfaces import definitions, trial

    try:
        known = await definitions(settings)
        async with trial(settings, known.specs) as trying:
            return [_surface(await trying.found(name)) for name in known.known]
    except HoldfastError as why:
        return [_failed("surfaces", why)]


# `Any`: how a surface was found is JSON.
def _surface(found: dict[str, Any]) -> Check:
    name, error = f"surface {found['name']}", found["error"]
    if error is not None:
        state = "warn" if found["status"] == "sign_in_required" else "fail"
        return Check(name, state, f"{error['code']}: {error['message']}", error.get("hint"))
    facts = [found["kind"], found["server"], f"{len(found['tools'])} tools"]
    what = ", ".join(one for one in facts if one)
    if found["refused"]:
        return Check(name, "warn", f"{what}, refused: {', '.join(found['refused'])}")
    return Check(name, "ok", what)


# -- files --------------------------------------------------------------------------------------------


def _home(settings: Settings) -> list[Check]:
    folder = settings.folder
    if not folder.exists():
        return [_would_be_made(folder)]
    if not folder.is_dir():
        return [Check("home", "fail", f"{folder} is no folder", "Set $HOLDFAST_HOME to a folder.")]
    if problem := _unwritable(folder):
        fix = "Make it writable for you, or set $HOLDFAST_HOME to a folder that is."
        return [Check("home", "fail", f"{folder} can't be written: {problem}", fix)]
    return [_private("home", folder, "700") or Check("home", "ok", str(folder))]


def _would_be_made(folder: Path) -> Check:
    above = next(one for one in folder.parents if one.exists())
    if above.is_dir() and not _unwritable(above):
        return Check("home", "ok", f"{folder} is not there yet; the first run makes it")
    fix = "Set $HOLDFAST_HOME to a folder that can be made."
    return Check("home", "fail", f"{folder} can't be made in {above}", fix)


def _unwritable(folder: Path) -> str | None:
    """Why nothing can be made in a folder. Asked by trying: permission bits know nothing of mounts."""
    trial = folder / f".holdfast-doctor-{os.getpid()}"
    try:
        trial.touch(exist_ok=False)
        trial.unlink()
    except OSError as why:
        return why.strerror or str(why)
    return None


def _private(name: str, path: Path, mode: str) -> Check | None:
    found = stat.S_IMODE(path.stat().st_mode)
    if not found & 0o077:
        return None
    what = f"{path} can be read by others (mode {found:o})"
    return Check(name, "warn", what, f"chmod {mode} {path}")


def _key(settings: Settings) -> list[Check]:
    key, journal = wiring.key_path(settings), wiring.journal_path(settings)
    if key is None or journal is None or not journal.exists():
        return []
    if not key.exists():
        what = f"{key} is missing: saved states can't be opened"
        return [Check("key", "warn", what, "Restore it from where the journal was backed up.")]
    try:
        wiring.state_key(settings)
    except HoldfastError as why:
        return [_failed("key", why)]
    return [_private("key", key, "600") or Check("key", "ok", str(key))]


def _disk(path: Path) -> Check:
    above = next(one for one in path.parents if one.exists())
    free = shutil.disk_usage(above).free
    what = f"{_output.size(free)} free at {above}"
    if free < TOO_LITTLE_DISK:
        return Check("disk", "fail", what, "Free disk space: nothing can be recorded soon.")
    if free < LITTLE_DISK:
        return Check("disk", "warn", what, "Free disk space.")
    return Check("disk", "ok", what)


# -- the journal --------------------------------------------------------------------------------------


async def _journal(path: Path) -> list[Check]:
    if _size(path) is None:
        return [Check("journal", "ok", f"{path} is not there yet; the first run makes it")]
    try:
        return [check async for check in _journal_file(path)]
    except HoldfastError as why:
        return [_failed("journal", why)]
    except OSError as why:
        return [Check("journal", "fail", f"{path} can't be read: {why.strerror}")]


async def _journal_file(path: Path) -> AsyncGenerator[Check]:
    from holdfast.journal.sqlite_reader import FORMAT, SqliteReader, check_writable

    journal = SqliteReader(path)
    try:
        what = (
            f"{path}: format {journal.format}, {_output.size(_size(path) or 0)},"
            f" {journal.found.records} records in {journal.found.streams} streams"
        )
        if journal.found.recovered:
            what += "; a log is beside it, of a process that runs or has died: nothing is lost"
        if journal.format > FORMAT:
            what += f"; this holdfast knows formats up to {FORMAT}"
            yield Check(
                "journal", "fail", what, "Upgrade holdfast; until then it can only be read."
            )
            return
        yield _private("journal", path, "600") or Check("journal", "ok", what)
        yield _newest(journal)
    finally:
        await journal.close()
    try:
        check_writable(path)
        yield Check("writing", "ok", "the journal can be written now")
    except HoldfastError as why:
        yield _failed("writing", why)


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.exists() else None


def _newest(journal: SqliteReader) -> Check:
    try:
        count = journal.check()
    except HoldfastError as why:
        return _failed("records", why)
    return Check("records", "ok", f"the newest {count} are whole; `journal verify` checks all")

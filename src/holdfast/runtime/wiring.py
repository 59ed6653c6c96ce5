"""The composition root: the only file that knows concrete stores and engines."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from holdfast.capabilities.builtin import builtins_of
from holdfast.capabilities.declare import Declared
from holdfast.capabilities.load import load
from holdfast.capabilities.registry import CapabilitySet
from holdfast.contracts import Database, Draft, Language, Setup, digest_json
from holdfast.errors import CallerError, OperatorError
from holdfast.gate.approvals import Approvals
from holdfast.gate.asking import Asking
from holdfast.gate.broker import Broker
from holdfast.gate.dispatch import AskFunction, Callback, Dispatcher
from holdfast.gate.dispatch_command import AskCommand
from holdfast.gate.gate import Gate
from holdfast.gate.guards import HOOKS, Guards
from holdfast.gate.hooks import Hook, Hooks, configured
from holdfast.gate.limits import Limiter
from holdfast.gate.policy import Policy
from holdfast.gate.redact import RedactingFilter, Redactor
from holdfast.journal import Journal, MemoryJournal
from holdfast.runtime.settings import Settings
from holdfast.shell.box import Boxes
from holdfast.shell.services import Tools

if TYPE_CHECKING:
    from holdfast.capabilities.connection import Source
    from holdfast.contracts.surface import SurfaceSpec
    from holdfast.leases import Broker as Leases
    from holdfast.leases import Vault
    from holdfast.models.base import Model
    from holdfast.resources import Resources
    from holdfast.runtime._surface_sources import Thinking
    from holdfast.runtime._surface_tool import SurfaceTool
    from holdfast.runtime.surfaces import Surfaces

_Key = tuple[str, tuple[int, ...]]
"""A setup, and what whoever holds the session brings along."""

KEY_BYTES = 32
MIN_SECRET = 6


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


def find_model(id_: str) -> Model:
    """A model by its id; its library is imported here."""
    from holdfast.models.catalog import model

    return model(id_)


def make_policy(settings: Settings) -> Policy:
    """The operator's rules."""
    return Policy(settings.policy.rules, default=settings.policy.default)


def make_redactor(settings: Settings, secrets: Mapping[str, str]) -> Redactor:
    """Knows every secret value that is live: those handed in, and those the settings name."""
    redactor = Redactor()
    for name in settings.secrets.env:
        if value := os.environ.get(name):
            redactor.add(name, value)
    for name, value in secrets.items():
        redactor.add(name, value)
    return redactor


def make_hooks(settings: Settings, hooks: Sequence[Hook], journal: Journal) -> Hooks:
    """Those of the code and those of the settings."""

    async def aside(drafts: list[Draft]) -> None:
        await journal.append(HOOKS, drafts, durable=False)

    return Hooks([*hooks, *configured(settings.hooks)], aside=aside)


def make_gate(
    settings: Settings,
    journal: Journal,
    approvals: Approvals,
    hooks: Hooks,
    redactor: Redactor,
    on_approval: Callback | None,
) -> Gate:
    """The gate of a runtime."""
    said = settings.approvals
    dispatcher: Dispatcher | None = None
    if on_approval is not None:
        dispatcher = AskFunction(on_approval)
    elif said.command:
        dispatcher = AskCommand(said.command)
    guards = Guards(journal, hooks, redactor)
    broker = Broker(approvals, dispatcher, inbox=said.inbox, grant_ms=said.grant_ms)
    asking = Asking(approvals, broker, guards, timeout_ms=said.timeout_ms)
    return Gate(
        journal,
        asking=asking,
        guards=guards,
        limiter=Limiter(approvals.now),
        redactor=redactor,
    )


def make_tools(
    given: Sequence[Declared[..., Any]],
    redactor: Redactor,
    journal: Journal | None = None,
    surfaces: Surfaces | None = None,
) -> Tools:
    """What a session may call: what this process was given, what its setup names, and what its surfaces offer.

    Where it has something to read by URI, the functions for that are among it. Made once for each setup, and again when one of its surfaces offers something else.
    """
    made: dict[_Key, tuple[Sequence[object], CapabilitySet, CapabilitySet]] = {}
    grown: dict[_Key, tuple[object, CapabilitySet]] = {}

    def tools(setup: Setup, more: Sequence[object] = ()) -> CapabilitySet:
        # `more` is kept with what was made of it: else another object could get the same number.
        key = (_digest_of(setup), tuple(map(id, more)))
        found = made.get(key)
        if found is None:
            named = [one for reference in setup.capabilities for one in load(reference)]
            brought = cast("Sequence[Declared[..., Any]]", more)
            set_ = CapabilitySet(*_once([*given, *named, *brought]), *builtins_of(setup))
            found = made[key] = (more, set_, _with_resources(set_, setup, journal))
            for database in setup.databases:
                _hide_password(database, redactor)
        if surfaces is None:
            return found[2]
        offered, speaks = surfaces.tools(setup), surfaces.speaks(setup)
        if not offered and not speaks:
            return found[2]
        now = (offered, speaks, _reads(surfaces, setup))
        known = grown.get(key)
        if known is None or known[0] != now:  # the same tools are the same objects
            own = _with_resources(found[1], setup, journal, surfaces) if speaks else found[2]
            known = grown[key] = (now, _with_surfaces(own, offered, surfaces))
        return known[1]

    return tools


def _with_resources(
    own: CapabilitySet, setup: Setup, journal: Journal | None, surfaces: Surfaces | None = None
) -> CapabilitySet:
    """The set, with what a session reads with; where a name is taken, whoever has it keeps it."""
    if not (setup.mounts or setup.allow_hosts or surfaces is not None):
        return own
    from holdfast.runtime.resources import session_resources

    tools = session_resources(setup, journal, surfaces)
    free = [one for one in tools if one.capability.name not in own]
    return own.with_(*free) if free else own


def own_resources(settings: Settings, journal: Journal, surfaces: Surfaces) -> Resources:
    """What the operator can read by URI."""
    from holdfast.runtime.resources import make_resources

    return make_resources(settings.session, journal, connected=surfaces)


def _reads(surfaces: Surfaces, setup: Setup) -> object:
    """What decides which functions read from surfaces."""
    return [(one, surfaces.touches(one)) for one in surfaces.readable(setup)]


def _with_surfaces(
    own: CapabilitySet, offered: Sequence[SurfaceTool], surfaces: Surfaces
) -> CapabilitySet:
    """The set, with what surfaces offer; what has a name that is taken is left out, and that is told."""
    taken: dict[str, SurfaceTool | None] = {one.capability.name: None for one in own}
    kept: list[SurfaceTool] = []
    for tool in offered:
        name = tool.capability.name
        if name in taken:
            surfaces.clashes(tool, taken[name])
        else:
            taken[name] = tool
            kept.append(tool)
    return own.with_(*kept)


def make_sources(
    settings: Settings,
    redactor: Redactor,
    leases: Callable[[], Leases],
    gate: Gate | None = None,
    thinking: Callable[[], Thinking] | None = None,
) -> Callable[[str, SurfaceSpec], Source]:
    """What makes of a surface's definition what it is connected to.

    Without `gate` and `thinking` servers can't have a model asked, and nobody is told how far calls are.
    """
    from holdfast.runtime._surface_sources import Sources

    return Sources(settings, redactor, leases, gate, thinking)


def _digest_of(setup: Setup) -> str:
    return digest_json(setup.model_dump(mode="json"))


@contextmanager
def redacted_logs(redactor: Redactor) -> Generator[None]:
    """Nothing that is logged while this is open holds a live secret."""
    cleaning = RedactingFilter(redactor)
    handlers = [*logging.getLogger().handlers]
    make = logging.getLogRecordFactory()

    def clean(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        cleaning.filter(record)
        return record

    # Each record is clean as it is made, whoever handles it; what is added to it later, as handlers see it.
    logging.setLogRecordFactory(clean)
    for handler in handlers:
        handler.addFilter(cleaning)
    try:
        yield
    finally:
        if logging.getLogRecordFactory() is clean:
            logging.setLogRecordFactory(make)
        for handler in handlers:
            handler.removeFilter(cleaning)


def _once(found: Sequence[Declared[..., Any]]) -> list[Declared[..., Any]]:
    """Each of them once, though it was named twice, or by a file that the program has imported, too."""
    return [*{one.place: one for one in found}.values()]


def _hide_password(database: Database, redactor: Redactor) -> None:
    password = urlsplit(os.path.expandvars(database.url)).password
    if password and len(password) >= MIN_SECRET:
        redactor.add(f"database.{database.name}", password)


def vault_path(settings: Settings) -> Path | None:
    """The file that credentials are kept in, beside the journal; `None` when that is in memory."""
    path = journal_path(settings)
    if path is None or settings.journal.url is None:
        return None if path is None else path.with_name("vault")
    return path.with_name(f"{path.name}.vault")


def make_vault(settings: Settings) -> Vault:
    """Where credentials are kept, encrypted; its library is imported when it is used."""
    from holdfast.leases import CommandKey, FileKey, FileVault, KeyringKey, MemoryVault

    path = vault_path(settings)
    if path is None:
        return MemoryVault()
    said = settings.vault
    if said.key == "keyring":
        return FileVault(path, KeyringKey(str(path)))
    if said.key == "command":
        return FileVault(path, CommandKey(said.command))
    file = said.key_file.expanduser().absolute() if said.key_file is not None else None
    return FileVault(path, FileKey(file or path.with_name(f"{path.name}.key")))


def make_leases(settings: Settings, journal: Journal, redactor: Redactor) -> Leases:
    """The credentials of a runtime. Every live value is told to the redactor."""
    from holdfast.leases import Broker as Leases

    return Leases(make_vault(settings), journal, redact=redactor)


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
            from holdfast.leases.keys import write_once

            write_once(path)
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

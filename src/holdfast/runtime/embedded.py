"""Everything in this process: what `holdfast.open()` gives you."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.journal import Journal
from holdfast.runtime import wiring
from holdfast.runtime.settings import Settings
from holdfast.shell import Shell


@dataclass(frozen=True, slots=True)
class Runtime:
    """An open holdfast. Leaving its `async with` parks and saves everything."""

    journal: Journal
    """The append-only truth."""
    shell: Shell
    """Code sessions."""
    settings: Settings
    """What is in force."""


@asynccontextmanager
async def open(
    url: str | None = None, config: Mapping[str, Any] | str | Path | None = None
) -> AsyncGenerator[Runtime]:
    """Open a journal and everything on it.

    `url` is `sqlite:///path` or `memory:` (default: the journal in `$HOLDFAST_HOME`); `config` is a mapping or
    a file instead of the nearest `holdfast.toml`.
    """
    settings = Settings.load(config)
    if url is not None:
        journal_settings = settings.journal.model_copy(update={"url": url})
        settings = settings.model_copy(update={"journal": journal_settings})
    async with AsyncExitStack() as rest:
        journal = wiring.open_journal(settings)
        rest.push_async_callback(journal.close)
        key = wiring.state_key(settings)
        boxes = wiring.open_boxes(settings)
        for one in boxes.values():
            await rest.enter_async_context(one)
        shell = await rest.enter_async_context(
            Shell.open(journal, boxes, key, limits=settings.shell.limits)
        )
        yield Runtime(journal, shell, settings)

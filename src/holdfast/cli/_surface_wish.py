"""What is wanted of tool surfaces, said on the journal: whoever runs sessions on it follows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from holdfast.capabilities.connection import Source
from holdfast.contracts.surface import SurfaceSpec
from holdfast.errors import CallerError, InternalError
from holdfast.runtime import Settings, wiring
from holdfast.runtime.surfaces import Surfaces


def check_journal(settings: Settings) -> None:
    """A wish in a journal that ends with the command is none."""
    if wiring.journal_path(settings) is None:
        raise CallerError(
            "INVALID_ARGUMENT",
            "The journal is in memory, and ends with this command.",
            hint="Use a journal on disk, or write `[surfaces.NAME]` into holdfast.toml.",
        )


async def on_journal(settings: Settings, work: Callable[[Surfaces], Awaitable[None]]) -> None:
    """Say it on the journal alone: nothing is connected for it."""
    journal = wiring.open_journal(settings)
    try:
        async with Surfaces.open(journal, _nothing, settings.surfaces) as surfaces:
            await work(surfaces)
    finally:
        await journal.close()


def _nothing(name: str, spec: SurfaceSpec) -> Source:
    raise InternalError(f"Saying what is wanted of `{name}` tried to connect it.")

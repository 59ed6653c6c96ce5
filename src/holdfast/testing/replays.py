"""Recorded runs of agents as tests: save one as a file, replay it offline, see the first thing that differs.

```python
from holdfast.testing import replay, save

save("sqlite:///journal.db", "tests/refund.jsonl", run="run_18e8…")  # once


def test_refund():
    replay("tests/refund.jsonl").check()
```

Nothing is executed in a replay: see `docs/guides/testing.md`. `replay` and `save` block; in asynchronous code, and for
a runtime that is open, use `replay_async` and `save_async`. Needs no pytest.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import anyio
import anyio.to_thread

from holdfast.agent.recording import Recording, read, recorded, unfit, written
from holdfast.agent.replay import Changes, Difference, Replay, contracts_of
from holdfast.contracts import Capability
from holdfast.errors import CallerError
from holdfast.journal import Journal
from holdfast.runtime.agent import Run
from holdfast.runtime.embedded import Runtime
from holdfast.runtime.embedded import open as open_runtime

if TYPE_CHECKING:
    from holdfast.runtime.settings import Settings

__all__ = [
    "Changes",
    "Difference",
    "Recording",
    "Replay",
    "Source",
    "replay",
    "replay_async",
    "save",
    "save_async",
]

Source = Run[Any] | Recording | Runtime | Journal | Path | str
"""Where a run is on record: the run itself, a file that `save` wrote, a `sqlite:///…` url, a runtime or a journal."""

_T = TypeVar("_T")


def replay(source: Source, *, run: str | None = None, **changes: Unpack[Changes]) -> Replay:
    """Replay a recorded run offline, as it was or with `changes`; `run` names it where the source holds several."""
    return _blocking(lambda: replay_async(source, run=run, **changes), "replay")


async def replay_async(
    source: Source, *, run: str | None = None, **changes: Unpack[Changes]
) -> Replay:
    """The same, in asynchronous code."""
    recording = await _recording(source, run)
    if isinstance(source, Run) and changes.get("capabilities") is None:
        # Those the agent brings along are known; whether they are what they were, the replay tells.
        changes["capabilities"] = source.agent.definition().capabilities or None
    # A runtime without a configuration: no hooks, no rules, no files of this machine.
    async with _beside(source) as hf:
        return await hf.agents.replay(recording, **changes)


def save(source: Source, path: str | Path, *, run: str | None = None) -> Path:
    """Write a recorded run to a file, with all it takes to replay it anywhere; the file."""
    return _blocking(lambda: save_async(source, path, run=run), "save")


async def save_async(source: Source, path: str | Path, *, run: str | None = None) -> Path:
    """The same, in asynchronous code."""
    recording = await _recording(source, run)
    if recording.capabilities is None:
        known = await _known(source, recording)
        if known is not None:
            recording = recording.with_capabilities(known)
    return await anyio.to_thread.run_sync(_write, recording, Path(path))


# -- where it is ------------------------------------------------------------------------------------------


async def _recording(source: Source, run: str | None) -> Recording:
    if isinstance(source, Recording):
        return source
    if isinstance(source, Run):
        if source.runtime is not None:
            return await recorded(source.runtime.journal, source.id)
        return await _from_settings(source.agent.settings(), source.id)
    if isinstance(source, Runtime):
        return await recorded(source.journal, _named(run))
    if isinstance(source, Journal):
        return await recorded(source, _named(run))
    if str(source).startswith("sqlite:"):
        from holdfast.runtime.settings import Settings

        return await _from_settings(Settings.load({"journal": {"url": str(source)}}), _named(run))
    return await anyio.to_thread.run_sync(_load, Path(source))


def _write(recording: Recording, path: Path) -> Path:
    with path.open("wb") as file:
        file.writelines(line + b"\n" for line in written(recording))
    return path


def _load(path: Path) -> Recording:
    try:
        with path.open("rb") as file:
            return read(file, str(path))
    except OSError as why:
        raise unfit(str(path), f"it can't be read: {why.strerror}") from None


async def _from_settings(settings: Settings, run_id: str) -> Recording:
    """From a journal that somebody may be writing to: it is only read."""
    from holdfast.runtime.wiring import open_journal

    journal = open_journal(settings, read_only=True)
    try:
        return await recorded(journal, run_id)
    finally:
        await journal.close()


def _named(run: str | None) -> str:
    if run is None:
        raise CallerError(
            "INVALID_ARGUMENT",
            "A journal holds many runs, and none of them is named.",
            hint='`replay(source, run="run_…")`; `holdfast runs list` names them.',
        )
    return run


@asynccontextmanager
async def _beside(source: Source) -> AsyncGenerator[Runtime]:
    """A runtime to replay in: the one the run is in, else one in memory."""
    given = source.runtime if isinstance(source, Run) else source
    if isinstance(given, Runtime):
        yield given
        return
    async with open_runtime("memory:", {}) as hf:
        yield hf


async def _known(source: Source, recording: Recording) -> tuple[Capability, ...] | None:
    """What the run could call, if whoever has it knows all of that."""
    brought = source.agent.definition().capabilities if isinstance(source, Run) else ()
    async with _beside(source) as hf:
        return await contracts_of(hf.shell.services, recording, brought)


def _blocking(start: Callable[[], Awaitable[_T]], name: str) -> _T:
    try:
        anyio.get_current_task()
    except RuntimeError:
        return anyio.run(start)
    raise CallerError(
        "INVALID_ARGUMENT",
        f"`{name}` was called from asynchronous code, which it would block.",
        hint=f"Use `await {name}_async(…)`.",
    )

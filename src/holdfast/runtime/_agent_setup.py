"""What an agent's sessions are opened with, from how its definition says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.contracts import Mount, Setup, parse

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.runtime.surfaces import Given


def surface_names(
    surfaces: Sequence[str | tuple[str, Given]] | None,
) -> tuple[str, ...] | None:
    """The surfaces that an agent names; `None`: it names none, and sees all."""
    if surfaces is None:
        return None
    return tuple(one if isinstance(one, str) else one[0] for one in surfaces)


def setup_of(
    setup: Setup | Mapping[str, Any] | None,
    mounts: Mapping[str, str | Path] | Sequence[Mount],
    surfaces: tuple[str, ...] | None,
) -> Setup | None:
    """What an agent's sessions are opened with; `None`: as they are."""
    found = Setup() if setup is None else setup if isinstance(setup, Setup) else parse(Setup, setup)
    if surfaces is not None:
        setup = found = found.model_copy(update={"surfaces": surfaces})
    if mounts:
        more = (
            tuple(_mount(path, str(host)) for path, host in mounts.items())
            if isinstance(mounts, Mapping)
            else tuple(mounts)
        )
        found = found.model_copy(update={"mounts": (*found.mounts, *more)})
        return found
    return None if setup is None else found


def _mount(path: str, host: str) -> Mount:
    """`/workspace: ./data` is read-only; `./data:rw` may be written."""
    folder, colon, how = host.rpartition(":")
    if colon and how in ("rw", "ro"):
        return Mount(path=path, host=folder, writable=how == "rw")
    return Mount(path=path, host=host)

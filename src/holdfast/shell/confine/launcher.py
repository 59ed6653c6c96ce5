"""How a worker is started: the file to execute in its place, and what it is jailed by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Launcher:
    """A program that starts the worker and passes its arguments on."""

    program: str
    """The file to execute."""
    jail: Literal["bubblewrap", "none"]
    """What is around the worker."""
    reason: str = ""
    """Why that is less than wanted."""
    folder: str | None = None
    """A private folder to remove once no worker is left."""

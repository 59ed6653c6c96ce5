"""No jail: the engine's own sandbox is the only boundary."""

from __future__ import annotations

from holdfast.shell.confine.launcher import Launcher


def unconfined(worker: str, reason: str) -> Launcher:
    """The worker itself, as it is."""
    return Launcher(worker, "none", reason)

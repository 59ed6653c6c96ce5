"""How a program that serves others is told to stop, and how long it takes over that."""

from __future__ import annotations

import signal
from collections.abc import Callable

import anyio
from anyio.abc import TaskStatus

GRACE = 10.0
"""Seconds that effects under way get to end."""
FAREWELL = 5
"""Seconds that answers under way get then."""


async def watch(stop: Callable[[], None], *, task_status: TaskStatus[None]) -> None:
    """The first signal stops the server in order; the second ends the program as if we were not there."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            stop()
            break

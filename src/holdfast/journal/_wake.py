"""Tells event loops that the journal moved."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import anyio


class Wakeups:
    """One signal for each event loop that waits, all raised at once from any thread."""

    def __init__(self) -> None:
        self._signals: dict[asyncio.AbstractEventLoop, anyio.Event] = {}
        self._lock = threading.Lock()

    def signal(self) -> anyio.Event:
        """An event that the next `notify` sets. Take it before looking, or a change in between is missed."""
        loop = asyncio.get_running_loop()
        with self._lock:
            event = self._signals.get(loop)
            if event is None:
                event = self._signals[loop] = anyio.Event()
        return event

    def notify(self) -> None:
        """Set every signal handed out so far."""
        if not self._signals:
            return
        with self._lock:
            signals, self._signals = self._signals, {}
        for loop, event in signals.items():
            call_into(loop, event.set)


def call_into(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *args: object) -> None:
    """Have `loop` make the call, from any thread; a loop that has closed has nobody waiting in it."""
    try:
        loop.call_soon_threadsafe(call, *args)
    except RuntimeError:
        pass


def when_idle(call: Callable[[], object]) -> None:
    """Have this thread's event loop make the call once what it does now is done; never, where there is none."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return
    loop.call_soon(call)

"""Asynchronous work from code that is not asynchronous."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from holdfast.errors import CallerError

T = TypeVar("T")


def blocking(start: Callable[[], Awaitable[T]], name: str) -> T:
    """Run it to its end; `name` is the method that waits for it. In a thread with an event loop it is refused."""
    if _in_a_loop():
        raise CallerError(
            "INVALID_ARGUMENT",
            f"`{name}_sync` was called from asynchronous code, which it would block.",
            hint=f"Use `await agent.{name}(…)`; what can't await calls it in a thread of its own.",
        )
    return anyio.run(start)


def _in_a_loop() -> bool:
    """Whether an event loop runs in this thread, be it a task or a callback that asks."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        return True
    try:
        anyio.get_current_task()
    except RuntimeError:
        return False
    return True

"""A command's work on an open runtime, and who asks for it."""

from __future__ import annotations

import os
import pwd
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import anyio

from holdfast.cli._setup import import_from_here
from holdfast.cli._stop import until_stopped

if TYPE_CHECKING:
    from holdfast.contracts import RunResult
    from holdfast.errors import HoldfastError
    from holdfast.runtime import Runtime

T = TypeVar("T")


def on_runtime(work: Callable[[Runtime], Awaitable[T]], *, watched: bool = True) -> T:
    """What `work` gives. The runtime is closed by then: what the user is shown is on the disk.

    A signal cancels it, unless it is not `watched`: then it has its own way with signals.
    """
    return anyio.run(_on_runtime, work, watched)


async def _on_runtime(work: Callable[[Runtime], Awaitable[T]], watched: bool) -> T:
    from holdfast import runtime

    import_from_here()
    async with runtime.open() as hf:
        return await (until_stopped(lambda: work(hf)) if watched else work(hf))


def user() -> str:
    """The name of who started the program, as the system knows it; the environment can't change it."""
    number = os.getuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"uid:{number}"


def without_result(error: HoldfastError) -> RunResult:
    """The result of a run that gave none."""
    from holdfast.contracts import RunResult

    told = error.to_json()
    remark = {key: value for key, value in told.items() if key != "effect_id"}
    diagnostics = [{**remark, "severity": "error"}]
    return RunResult.model_validate(
        {"status": error.status or "runtime_error", "error": told, "diagnostics": diagnostics}
    )

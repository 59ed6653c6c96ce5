"""Loads states that were dumped, and says why one can't be loaded."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager

import pydantic_monty
from pydantic_monty import MontyError, MontyRuntimeError

from holdfast.errors import CallerError
from holdfast.shell.languages._python_capture import FAR
from holdfast.shell.languages._python_live import Live

ENGINE = f"monty/{pydantic_monty.__version__}"
"""A state only fits the engine that made it."""

# Fails in any case: with a `NameError` when no run may set `result` from afar. The traceback has the feed's number.
_ASK = f"{FAR} and 0/0"
_NUMBER = re.compile(r"<python-input-(\d+)>")


async def loaded(live: Live, state: bytes) -> bool:
    """Load a state from between runs; whether later runs may set `result` from afar."""
    with refusals():
        await live.session.load_session(state)
    try:
        return bool(await live.session.feed_run(_ASK))
    except MontyRuntimeError as error:
        for frame in error.traceback()[:1]:
            if number := _NUMBER.fullmatch(frame.filename):
                live.feeds = int(number[1]) + 1
        return isinstance(error.exception(), ZeroDivisionError)
    except MontyError:
        return False


@contextmanager
def refusals() -> Generator[None]:
    """Turn what the engine says of a state into `SNAPSHOT_CORRUPT` or `SNAPSHOT_VERSION_MISMATCH`."""
    try:
        yield
    except (MontyError, RuntimeError, LookupError, TypeError, ValueError) as why:
        said = str(why)
        if "format version" in said:
            raise CallerError(
                "SNAPSHOT_VERSION_MISMATCH",
                "The saved state is of another version of the engine.",
                hint=f"This is {ENGINE}: use the version that wrote it, or replay the code.",
            ) from None
        raise CallerError(
            "SNAPSHOT_CORRUPT",
            f"The saved state can't be loaded: {said[:200]}.",
            hint="Use an undamaged copy, or replay the session's code.",
        ) from None

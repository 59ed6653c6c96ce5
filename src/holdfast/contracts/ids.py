"""Identifiers: one rule for all, a stricter one for sessions and tools, and time-ordered new ones."""

from __future__ import annotations

import itertools
import os
import re
import time
import unicodedata
from typing import Annotated

from pydantic import AfterValidator

from holdfast.errors import CallerError

MAX_ID_BYTES = 512

_SESSION = re.compile(r"[a-zA-Z0-9_\-]{1,64}")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What almost every id looks like; anything else takes the slow, exact path.
_PLAIN = re.compile(r"[\x21-\x7e]{1,512}")


def check_id(value: str) -> str:
    """`value` itself, or `INVALID_ID` when it is empty, over 512 bytes, or holds a control character."""
    if _PLAIN.fullmatch(value):
        return value
    if not value:
        raise _bad_id("is empty")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as why:
        raise _bad_id(f"holds no Unicode text at character {why.start}") from None
    if size > MAX_ID_BYTES:
        raise _bad_id(f"is {size} bytes long, {MAX_ID_BYTES} are allowed")
    for at, char in enumerate(value):
        if unicodedata.category(char) == "Cc":
            raise _bad_id(f"holds the control character {char!a} at character {at}")
    return value


def check_session_id(value: str) -> str:
    """`value` itself, or `INVALID_SESSION_ID`."""
    if isinstance(value, str) and _SESSION.fullmatch(value):  # pyright: ignore[reportUnnecessaryIsInstance]
        return value
    shown = value[:80] if isinstance(value, str) else value  # pyright: ignore[reportUnnecessaryIsInstance]
    raise CallerError(
        "INVALID_SESSION_ID",
        f"Session id {shown!a} does not match ^[a-zA-Z0-9_-]{{1,64}}$.",
        hint="Use 1 to 64 letters, digits, `_` or `-`.",
    )


def check_tool_name(value: str) -> str:
    """`value` itself, or `INVALID_TOOL_NAME`."""
    if _IDENTIFIER.fullmatch(value):
        return value
    raise CallerError(
        "INVALID_TOOL_NAME",
        f"Capability name {value[:80]!a} is not an ASCII identifier.",
        hint="Start with a letter or `_`, go on with letters, digits or `_`.",
    )


class _Ours:
    """What tells this process's ids from any other's: drawn once, and anew in a forked child.

    Drawing for every id would let go of the interpreter's lock each time, and wait to get it back.
    """

    def __init__(self) -> None:
        self.draw()

    def draw(self) -> None:
        self.name = os.urandom(4).hex()
        self.count = itertools.count()


_ours = _Ours()
os.register_at_fork(after_in_child=_ours.draw)


def new_id(prefix: str) -> str:
    """A fresh id that sorts by the time it was made: `run_17f…`."""
    return f"{prefix}_{time.time_ns():016x}{_ours.name}{next(_ours.count) & 0xFFFF:04x}"


def _bad_id(why: str) -> CallerError:
    return CallerError(
        "INVALID_ID", f"An id {why}.", hint="Ids are 1 to 512 bytes of printable text."
    )


# A refusal must reach the caller with its own code, so the checks run outside pydantic's ValueError net:
# `HoldfastError` is no ValueError and passes through model validation untouched.
Id = Annotated[str, AfterValidator(check_id)]
SessionId = Annotated[str, AfterValidator(check_session_id)]
ToolName = Annotated[str, AfterValidator(check_tool_name)]

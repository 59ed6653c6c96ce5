"""What a command prints: JSON for programs, text for people, and every error in one form."""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console

INTERRUPTED = 130
"""What to exit with after Ctrl-C."""

JsonFlag = Annotated[
    bool | None,
    typer.Option(
        "--json/--no-json",
        help="Print JSON, or text for people.  [default: text if stdout is a terminal]",
        show_default=False,
    ),
]

# Text that code or a record brings along must not be able to steer the terminal it is shown on.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def prepare() -> None:
    """A character that the terminal's encoding lacks is escaped, and is no reason to fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def as_json(flag: bool | None) -> bool:
    """Whether to print JSON: as asked, else when nobody looks at a terminal."""
    return not sys.stdout.isatty() if flag is None else flag


def print_json(value: BaseModel | dict[str, Any]) -> None:
    """Write one JSON document to stdout: on one line, or laid out for who reads it on a terminal."""
    from pydantic_core import PydanticSerializationError, to_json

    try:
        data = to_json(value, indent=2 if sys.stdout.isatty() else None)
    except PydanticSerializationError:
        # A lone surrogate has no UTF-8 form, but it has an escape.
        plain: Any = value if isinstance(value, dict) else value.model_dump()
        data = json.dumps(plain, default=str).encode()
    print_bytes(data + b"\n")


def print_bytes(data: bytes) -> None:
    """Write to stdout, after what was printed before."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def console(*, stderr: bool = False) -> Console:
    """A terminal to print for people on; text is taken as it is, without markup."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, highlight=False, emoji=False, soft_wrap=True)


def visible(text: str) -> str:
    """`text` with its control characters spelled out; line ends and tabs stay."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def tell_error(error: HoldfastError, *, as_json: bool) -> None:
    """Say what went wrong: as JSON on stdout, or in words on stderr."""
    if as_json:
        indent = 2 if sys.stdout.isatty() else None
        separators = None if indent else (",", ":")
        told = json.dumps({"error": error.to_json()}, indent=indent, separators=separators)
        print_bytes(told.encode() + b"\n")
        return
    out = console(stderr=True)
    out.print(f"error {error.code}: ", style="bold red", end="")
    out.print(visible(error.message))
    if error.hint:
        tell_hint(error.hint)


def tell_hint(hint: str) -> None:
    """Say on stderr what can be done about it."""
    out = console(stderr=True)
    out.print("hint: ", style="cyan", end="")
    out.print(visible(hint))


def only(why: BaseException) -> BaseException:
    """The one exception inside a group; task groups wrap what is raised within them."""
    while isinstance(why, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", why)
        if len(group.exceptions) != 1:
            return group
        why = group.exceptions[0]
    return why


def clock(unix_ms: int) -> str:
    """A point in time, by the local clock."""
    moment = datetime.fromtimestamp(unix_ms / 1000, UTC).astimezone()
    return f"{moment:%Y-%m-%d %H:%M:%S}.{unix_ms % 1000:03d}"


def size(count: float) -> str:
    """A number of bytes, for people."""
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"

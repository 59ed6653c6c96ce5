"""Options that several commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from holdfast.errors import CallerError

if TYPE_CHECKING:
    from collections.abc import Sequence

SessionId = Annotated[
    str, typer.Option("--session-id", metavar="S", help="The session; made on first use.")
]
Wait = Annotated[
    int,
    typer.Option(
        "--wait", metavar="MS", min=0, help="How long to wait while another run has the session."
    ),
]
Limit = Annotated[
    list[str] | None,
    typer.Option(
        "--limit", metavar="NAME=N", help="Such as cpu_ms=500 or memory_mb=128; repeatable."
    ),
]
Most = Annotated[
    int, typer.Option("--limit", metavar="N", min=1, max=10_000, help="At most so many.")
]
After = Annotated[
    str,
    typer.Option("--after", metavar="CURSOR", help="Go on after this one: `next` of a list."),
]

WAIT_MS = 30_000


def limits_of(given: Sequence[str] | None) -> dict[str, int]:
    """`--limit` as numbers by name."""
    from holdfast.contracts import SessionLimits

    found: dict[str, int] = {}
    for one in given or ():
        name, _, text = one.partition("=")
        if name not in SessionLimits.model_fields:
            refuse(
                f"`--limit {one[:80]}` names no limit.",
                f"The limits are {', '.join(SessionLimits.model_fields)}.",
            )
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            refuse(f"`--limit {one[:80]}` is not NAME=NUMBER.", "Such as --limit cpu_ms=500.")
        if name in found:
            refuse(f"`--limit {name}` is given twice.")
        found[name] = int(text)
    return found


def refuse(message: str, hint: str | None = None) -> NoReturn:
    """End a command whose options can't be understood."""
    raise CallerError("INVALID_ARGUMENT", message, hint=hint)

"""What a connection to an MCP server needs from others, handed in: none of it is looked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from holdfast.contracts import Json
from holdfast.gate.executor import Context

if TYPE_CHECKING:
    from httpx2 import Auth


@dataclass(frozen=True, slots=True)
class Step:
    """How far a call is, as its server says."""

    effect_id: str
    """Which call."""
    tool: str
    """What the server calls the tool."""
    progress: float
    """Grows; what it counts is the server's business."""
    total: float | None = None
    """How far it goes, if that is known."""
    message: str | None = None
    """The server's words."""
    run_id: str = ""
    """Of which run the call is."""
    session_id: str = ""
    """In which session."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """Something that a server said to whoever watches it; its words are not to be trusted."""

    surface: str
    """Which."""
    level: str
    """As the protocol has them, from `debug` to `emergency`; `stderr` for its error output; `note` for ours."""
    text: str
    """What it said: bounded, without control characters and secrets."""


@dataclass(frozen=True, slots=True)
class Root:
    """A folder that a server is told about."""

    uri: str
    """`file://…`."""
    name: str | None = None
    """What people call it."""


@dataclass(frozen=True, slots=True)
class PromptLine:
    """A prompt that a server has to offer."""

    name: str
    """Which."""
    description: str = ""
    """What it is for."""
    arguments: tuple[tuple[str, bool], ...] = ()
    """Its parameters, and whether each is required."""


Keep: TypeAlias = Callable[[bytes, str], Awaitable[str]]
"""Keeps a body, given with its mime type, and says its digest."""

KeepFor: TypeAlias = Callable[[Context, bytes, str], Awaitable[str]]
"""The same, beside the result of a call."""

Sample: TypeAlias = Callable[[Mapping[str, Json], Context], Awaitable[Mapping[str, Json]]]
"""Has a model asked: the request and the result are those of `sampling/createMessage`, as JSON."""


def _as_it_is(text: str) -> str:
    return text


@dataclass(frozen=True, slots=True)
class Services:
    """What a connection may use. Without a part, servers are not told that there is one."""

    redact: Callable[[str], str] = _as_it_is
    """Takes secrets out of what is shown or logged."""
    hide: Callable[[str, str], None] | None = None
    """Told the name and value of everything that is taken from our environment: it may be a secret."""
    keep: KeepFor | None = None
    """Where the pictures, sounds and other bodies go that calls give."""
    progress: Callable[[Step], None] | None = None
    """Told how far calls are."""
    log: Callable[[LogLine], None] | None = None
    """Told what servers say."""
    sample: Sample | None = None
    """Asks a model on a server's behalf."""
    roots: Callable[[], Sequence[Root]] | None = None
    """The folders that servers are told about."""
    auth: Auth | None = None
    """Signs the requests to a server at an address. What it raises reaches whoever made the call."""
    environ: Mapping[str, str] | None = None
    """Our environment; default: that of this process."""

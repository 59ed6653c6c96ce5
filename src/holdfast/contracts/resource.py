"""Big things by reference: what is asked of a resource, and the part of it that is given back."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from holdfast.contracts._base import Asked, Count, Told, listed, optional
from holdfast.contracts.content import Digest, Privacy, Retention
from holdfast.contracts.ids import SessionId

MAX_URI_CHARS = 512 * 1024
"""A `data:` URI is as long as what it holds; each kind of resource has a limit of its own below this."""
MAX_PATTERN_CHARS = 1000
"""How long a pattern to search for may be."""
MAX_MATCHES = 1000
"""How many matches one search gives."""
MAX_ENTRIES = 1000
"""How many entries one list has."""

Uri = Annotated[str, Field(min_length=1, max_length=MAX_URI_CHARS)]
"""`scheme:rest`."""

Format = Literal["auto", "text", "jsonl", "csv", "pdf", "image", "reference"]
"""How to read it; `auto` looks at the bytes. `reference`: store the bytes and give only their name."""

Unit = Literal["bytes", "lines", "rows", "pages"]
"""What `start`, `count` and `next` count."""


class ResourceRequest(Asked):
    """What is asked of a resource."""

    uri: Uri
    """Which."""
    start: Count = 0
    """Where to begin: a byte, a line, a row of JSON lines or CSV, a page of a PDF; from 0."""
    length: int | None = Field(default=None, ge=1, lt=1 << 53)
    """How many of these; without a word, as many as fit."""
    unit: Literal["bytes", "lines"] = "bytes"
    """What `start` and `length` count in a text."""
    format: Format = "auto"
    """How to read it."""
    select: tuple[str, ...] = listed()
    """Of each row only these: columns of CSV, fields of JSON lines (`user.name`)."""
    max_bytes: int = Field(default=64 * 1024, ge=1)
    """At most so many bytes of the source; what is behind it may allow less."""
    session_id: SessionId | None = optional()
    """On behalf of which session; none: the operator's own."""


class Resolution(Told):
    """What became of a request: which part of the resource came, and what must be known to handle it."""

    uri: str
    """As it was asked for."""
    scheme: str
    """What answered."""
    mime: str
    """What it is, by its bytes first and by its name last."""
    parser: str
    """What read it, and its version."""
    content: Digest | None = None
    """The stored bytes; `None` when they are not stored."""
    byte_len: Count | None = None
    """Bytes of the whole source; `None` when nobody knows."""
    returned_bytes: Count = 0
    """Bytes of the source that came."""
    truncated: bool = False
    """Whether less came than was asked for."""
    next: Count | None = None
    """Where the rest begins, as a `start`; `None` at the end."""
    version: str | None = None
    """Changes when the source does: parts with the same belong together."""
    privacy: Privacy = Privacy.CONTENT_REFS_ONLY
    """Who may see it."""
    retention: Retention = Retention.SESSION_SCOPED
    """How long what is recorded of it is kept."""
    summary: str = ""
    """The whole of it in one line."""


class ResourceImage(Told):
    """A picture, as its header describes it; nothing of it was decoded."""

    width: Count
    """Pixels."""
    height: Count
    """Pixels."""


class ResourceView(Resolution):
    """A part of a resource."""

    format: str
    """How it was read: `text`, `jsonl`, `csv`, `pdf`, `image`, `reference`, or `binary`, which is only described."""
    unit: Unit = "bytes"
    """What `start`, `count` and `next` count."""
    start: Count = 0
    """Where the part begins."""
    count: Count = 0
    """How many of `unit` came."""
    text: str | None = None
    """The part, if it is text."""
    columns: tuple[str, ...] | None = None
    """The columns of CSV."""
    rows: tuple[JsonValue, ...] | None = None
    """The rows of CSV, as lists, or of JSON lines."""
    image: ResourceImage | None = None
    """The picture's size."""
    notes: tuple[str, ...] = ()
    """What is odd about it."""


class GrepRequest(Asked):
    """What to look for in a resource."""

    uri: Uri
    """Which."""
    pattern: str = Field(min_length=1, max_length=MAX_PATTERN_CHARS)
    """A regular expression of Rust's `regex`: no look-around, no back-references, never slow."""
    start: Count = 0
    """The byte to begin at: 0, or `next` of the search before."""
    max_matches: int = Field(default=50, ge=1, le=MAX_MATCHES)
    """At most so many lines."""
    ignore_case: bool = False
    """Whether upper and lower case are the same."""
    session_id: SessionId | None = optional()
    """On behalf of which session; none: the operator's own."""


class GrepMatch(Told):
    """A line that matches."""

    line: Count | None
    """Its number, from 0, as a `start` of lines; `None` when the search began in the middle."""
    at: Count
    """The byte it begins at."""
    text: str
    """The line, or the part of a long one around the match."""
    cut: bool = False
    """Whether `text` is only a part."""


class GrepView(Told):
    """What a search found."""

    uri: str
    """As it was asked for."""
    mime: str
    """What was searched."""
    matches: tuple[GrepMatch, ...] = ()
    """In order."""
    byte_len: Count | None = None
    """Bytes of the whole source; `None` when nobody knows."""
    scanned_bytes: Count = 0
    """Bytes that were looked at."""
    truncated: bool = False
    """Whether the search stopped before the end."""
    next: Count | None = None
    """Where to go on, as a `start`; `None` at the end."""
    version: str | None = None
    """Changes when the source does."""
    notes: tuple[str, ...] = ()
    """What is odd about it."""


class ResourceEntry(Told):
    """Something that there is to read or to list."""

    uri: str
    """Which."""
    kind: Literal["resource", "folder", "root"]
    """`folder` and `root` have more below them; `root` is where a kind of resource begins."""
    name: str = ""
    """What it is called."""
    size: Count | None = None
    """Bytes, if they are known."""
    mime: str | None = None
    """What it is said to be."""
    description: str = ""
    """What it says of itself."""


class ListRequest(Asked):
    """Which resources to list."""

    prefix: str = Field(default="", max_length=8192)
    """A folder or a server; empty: where each kind of resource begins."""
    after: str | None = Field(default=None, max_length=8192)
    """Go on after this: `next` of the list before."""
    limit: int = Field(default=200, ge=1, le=MAX_ENTRIES)
    """At most so many."""
    session_id: SessionId | None = optional()
    """On behalf of which session; none: the operator's own."""


class ResourceList(Told):
    """Some of what there is."""

    items: tuple[ResourceEntry, ...] = ()
    """By name."""
    next: str | None = None
    """Where to go on, as an `after`; `None` at the end."""

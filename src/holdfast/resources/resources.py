"""Resources: a part of anything that has a URI, never the whole in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

import anyio

from holdfast.contracts import Privacy, Retention, SideEffect
from holdfast.contracts.resource import (
    GrepRequest,
    GrepView,
    ListRequest,
    ResourceImage,
    ResourceList,
    ResourceRequest,
    ResourceView,
)
from holdfast.errors import ModelError
from holdfast.resources._marks import Key, Marks
from holdfast.resources._window import CHUNK, HEAD, MAX_SCAN_BYTES, Window, in_thread
from holdfast.resources.grep import MAX_GREP_BYTES, Found, grep
from holdfast.resources.parsers import pdf, rows, text
from holdfast.resources.parsers.detect import Kind, detect
from holdfast.resources.parsers.image import image_size
from holdfast.resources.parsers.part import Part
from holdfast.resources.router import Route, Router
from holdfast.resources.source import Lister, Source

MAX_KEPT_BYTES = 8 << 20
"""What is stored of a resource by one call: a picture, or what is asked for as a reference."""
MAX_AT_ONCE = 8
"""Resources that are worked on at a time."""

Keep: TypeAlias = Callable[[bytes, str, Privacy, Retention], Awaitable[str]]
"""Stores bytes of a type; gives the digest of what was stored."""


@dataclass(slots=True)
class _Read:
    """What a thread found out about a source."""

    kind: Kind
    part: Part | None = None
    size: tuple[int, int] | None = None


class Resources:
    """What there is to read, and how."""

    def __init__(
        self, *, scan_bytes: int = MAX_SCAN_BYTES, grep_bytes: int = MAX_GREP_BYTES
    ) -> None:
        self.router = Router()
        """Which resolver a URI goes to: register yours here."""
        self._marks = Marks()
        self._threads = anyio.CapacityLimiter(MAX_AT_ONCE)
        self._scan_bytes = scan_bytes
        self._grep_bytes = grep_bytes

    async def read(
        self,
        request: ResourceRequest,
        *,
        among: SideEffect | None = None,
        keep: Keep | None = None,
    ) -> ResourceView:
        """A part of a resource. What is too long comes in part and says where it goes on; it never fails for that.

        `among`: only a resource whose opening has this side effect. `keep` stores what is given by reference.
        """
        self._check(request.uri, among)
        async with self.router.open(request) as (route, source):
            most = min(request.max_bytes, route.max_bytes)
            if request.format == "reference":
                return await self._referred(request, route, source, keep)
            key = _key(request, source)

            def work(window: Window) -> _Read:
                return self._parsed(window, request, source, most, key)

            found = await in_thread(source, work, limiter=self._threads, budget=self._scan_bytes)
            if found.part is not None and found.part.mark is not None:
                self._marks.add(key, *found.part.mark)
            return await self._view(request, route, source, found, most, keep)

    async def grep(self, request: GrepRequest, *, among: SideEffect | None = None) -> GrepView:
        """The lines of a text that match a pattern, from a byte on, until there are enough."""
        self._check(request.uri, among)
        opened = ResourceRequest(uri=request.uri, session_id=request.session_id)
        async with self.router.open(opened) as (_, source):
            key = None if source.version is None else (request.uri, source.version, "lines")
            line = 0 if request.start == 0 else self._marks.line_at(key, request.start)

            def work(window: Window) -> tuple[Kind, Found | None]:
                kind = _kind(window, source, request.uri)
                return kind, None if kind.format != "text" else grep(window, kind, request, line)

            kind, found = await in_thread(
                source, work, limiter=self._threads, budget=self._grep_bytes
            )
            notes = (kind.note,) if kind.note else ()
            if found is None:
                found = Found(notes=(f"It is {kind.mime}: only text can be searched.",))
            if found.next is not None and found.next_line is not None:
                self._marks.add(key, found.next_line, found.next)
            return GrepView(
                uri=request.uri,
                mime=kind.mime,
                matches=tuple(found.matches),
                byte_len=source.size,
                scanned_bytes=found.scanned,
                truncated=found.next is not None,
                next=found.next,
                version=source.version,
                notes=(*notes, *found.notes),
            )

    async def list(self, request: ListRequest, *, among: SideEffect | None = None) -> ResourceList:
        """What is below a prefix; without one, where each kind of resource begins."""
        if request.prefix:
            self._check(request.prefix, among, listed=True)
            resolver = self.router.route(request.prefix).resolver
            if isinstance(resolver, Lister):
                return await resolver.list(request)
            raise ModelError("TOOL_ERROR", f"`{request.prefix[:200]}` can't be listed.")
        found: list[ResourceList] = []
        for route in self.router.routes:
            if among in (None, route.side_effect) and isinstance(route.resolver, Lister):
                asked = request.model_copy(update={"prefix": f"{route.scheme}:", "after": None})
                found.append(await route.resolver.list(asked))
        items = [one for page in found for one in page.items]
        return ResourceList(items=tuple(items[: request.limit]))

    # -- reading --------------------------------------------------------------------------------------

    def _check(self, uri: str, among: SideEffect | None, *, listed: bool = False) -> None:
        route = self.router.route(uri)
        effect = route.side_effect if listed else route.effect(uri)
        if among not in (None, effect):
            web = effect is SideEffect.NETWORK
            raise ModelError(
                "PERMISSION_DENIED",
                f"`{_shown(route, uri)}` is not read by this function.",
                hint=f"Use the one for resources {'on the network' if web else 'that are here'}.",
            )

    def _parsed(
        self, window: Window, request: ResourceRequest, source: Source, most: int, key: Key | None
    ) -> _Read:
        """In a thread: what it is, and the part of it, if it is text."""
        kind = _kind(window, source, request.uri)
        if kind.format == "image":
            return _Read(kind, size=image_size(window, kind.mime))
        if kind.format != "text":
            return _Read(kind)
        start, length = request.start, request.length
        known = self._marks.before(key, start)
        match request.format:
            case "jsonl":
                read = rows.read_jsonl
            case "csv":
                read = rows.read_csv
            case _ if request.unit == "lines":
                part = text.read_lines(window, kind, start, length, most=most, known=known)
                return _Read(kind, part)
            case _:
                return _Read(kind, text.read_bytes(window, kind, start, length, most=most))
        part = read(window, kind, start, length, most=most, select=request.select, known=known)
        return _Read(kind, part)

    async def _view(
        self,
        request: ResourceRequest,
        route: Route,
        source: Source,
        found: _Read,
        most: int,
        keep: Keep | None,
    ) -> ResourceView:
        kind, part = found.kind, found.part
        asked = request.format
        if asked in ("pdf", "image") and asked != kind.format:
            raise ModelError(
                "TOOL_ERROR", f"It is not {asked}, but {kind.mime}.", hint="Use `format='auto'`."
            )
        made = _Maker(request, route, source, kind)
        if part is not None:
            format_ = asked if asked in ("jsonl", "csv") else "text"
            return made.view(format_, f"{format_}/1", part)
        if asked in ("auto", "pdf") and kind.format == "pdf":
            if source.size is not None and source.size > pdf.MAX_PDF_BYTES:
                return made.described(f"A PDF of more than {pdf.MAX_PDF_BYTES} bytes is not read.")
            part = await pdf.read_pdf(source, request.start, request.length, most=most)
            return made.view("pdf", pdf.PARSER, part)
        if asked in ("auto", "image") and kind.format == "image":
            return await _image(made, found, keep)
        note = f"It is {kind.mime}; read it with `format='auto'`." if asked != "auto" else None
        return made.described(note if kind.format != "binary" else None)

    async def _referred(
        self, request: ResourceRequest, route: Route, source: Source, keep: Keep | None
    ) -> ResourceView:
        """Store a range of bytes, and give its name."""
        if keep is None:
            raise ModelError("TOOL_ERROR", "Nothing can be stored here.", hint="Read it as it is.")
        want = min(request.length or MAX_KEPT_BYTES, MAX_KEPT_BYTES)
        data = await _bytes(source, request.start, want + 1)
        head = await _bytes(source, 0, HEAD)
        kind = detect(head, whole=len(head) < HEAD, hint=source.mime, uri=request.uri)
        more, data = len(data) > want, data[:want]
        made = _Maker(request, route, source, kind)
        mime = kind.mime if not request.start and not more else "application/octet-stream"
        digest = await keep(data, mime, made.privacy, made.retention)
        part = Part("bytes", request.start, count=len(data), took=len(data))
        part.next = request.start + len(data) if more else None
        part.short = more and (request.length is None or request.length > want)
        return made.view("reference", "reference/1", part, content=digest)


class _Maker:
    """Makes views of one source."""

    def __init__(self, request: ResourceRequest, route: Route, source: Source, kind: Kind) -> None:
        self.request = request
        self.route = route
        self.source = source
        self.kind = kind
        self.privacy = getattr(source, "privacy", Privacy.CONTENT_REFS_ONLY)
        self.retention = getattr(source, "retention", Retention.SESSION_SCOPED)

    def view(
        self,
        format_: str,
        parser: str,
        part: Part,
        *,
        content: str | None = None,
        image: ResourceImage | None = None,
    ) -> ResourceView:
        """A view of a part."""
        size, kind = self.source.size, self.kind
        notes = (kind.note,) if kind.note else ()
        how = f", {kind.encoding}" if kind.encoding else ""
        return ResourceView(
            uri=self.request.uri,
            scheme=self.route.scheme,
            mime=kind.mime,
            parser=parser,
            content=content,
            byte_len=size,
            returned_bytes=part.took,
            truncated=part.short,
            next=part.next,
            version=self.source.version,
            privacy=self.privacy,
            retention=self.retention,
            summary=f"{kind.mime}, {'unknown' if size is None else size} bytes{how}",
            format=format_,
            unit=part.unit,
            start=part.start,
            count=part.count,
            text=part.text,
            columns=None if part.columns is None else tuple(part.columns),
            rows=None if part.rows is None else tuple(part.rows),
            image=image,
            notes=(*notes, *part.notes),
        )

    def described(self, note: str | None = None) -> ResourceView:
        """What can't be shown is described."""
        view = self.view("binary", "binary/1", Part("bytes", 0, notes=(note,) if note else ()))
        return view.model_copy(update={"text": f"Not text: {view.summary}."})


async def _image(made: _Maker, found: _Read, keep: Keep | None) -> ResourceView:
    """A picture: its size, and its bytes by reference, so that they can be shown to a model."""
    source = made.source
    part, content = Part("bytes", 0), None
    if found.size is None:
        part.notes += ("Its header does not say how large it is.",)
    if keep is None:
        part.notes += ("Its bytes are not stored.",)
    else:
        data = await _bytes(source, 0, MAX_KEPT_BYTES + 1)
        if len(data) > MAX_KEPT_BYTES:
            part.short = True
            part.notes += (f"It has more than {MAX_KEPT_BYTES} bytes and is not stored.",)
        else:
            content = await keep(data, made.kind.mime, made.privacy, made.retention)
            part.count = part.took = len(data)
    image = None if found.size is None else ResourceImage(width=found.size[0], height=found.size[1])
    return made.view("image", "image/1", part, content=content, image=image)


async def _bytes(source: Source, start: int, length: int) -> bytes:
    """`length` bytes, or those up to the end."""
    found = bytearray()
    while len(found) < length:
        part = await source.read(start + len(found), min(CHUNK, length - len(found)))
        if not part:
            break
        found += part
    return bytes(found[:length])


def _shown(route: Route, uri: str) -> str:
    """The kind of a resource that a function does not read: its scheme, or where that is not enough, its server."""
    return f"{route.scheme}:" if route.effect_of is None else "/".join(uri[:80].split("/")[:3])


def _kind(window: Window, source: Source, uri: str) -> Kind:
    whole = len(window.head) < HEAD
    return detect(window.head, whole=whole, hint=source.mime, uri=uri)


def _key(request: ResourceRequest, source: Source) -> Key | None:
    if source.version is None:
        return None
    counted = request.format if request.format in ("jsonl", "csv") else request.unit
    # Rows of JSON lines are lines; rows of CSV are not.
    return request.uri, source.version, "csv" if counted == "csv" else "lines"

"""Sessions, runs and the journal as resources: `holdfast://sessions/{id}`, `holdfast://runs/{id}`, `holdfast://journal?after=`."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

from mcp_types import Resource, ResourceTemplate, TextResourceContents

from holdfast.contracts import Record, parse
from holdfast.errors import CallerError, NotFound
from holdfast.runtime import Runtime
from holdfast.server import params, views
from holdfast.server.callers import Caller
from holdfast.server.mcp.content import text_of
from holdfast.server.rights import Rights

SCHEME = "holdfast"
JOURNAL = "holdfast://journal"
SESSIONS = "holdfast://sessions/"
RUNS = "holdfast://runs/"
MIME = "application/json"
PAGE = 100
MAX_SCANNED = 50_000
"""Records that one reading of the journal looks at; `next` goes on from there."""
LATEST = 20
"""Runs that a session is shown with."""

_ONE = re.compile(r"holdfast://(sessions|runs)/([^/?#]+)")

TEMPLATES = (
    ResourceTemplate(
        name="session",
        uri_template=f"{SESSIONS}{{id}}",
        description="A session: its limits, its state, its latest runs.",
        mime_type=MIME,
    ),
    ResourceTemplate(
        name="run",
        uri_template=f"{RUNS}{{id}}",
        description="A run: how it stands, every call it made, what it gave.",
        mime_type=MIME,
    ),
    ResourceTemplate(
        name="journal",
        uri_template=f"{JOURNAL}{{?after,limit,session_id,run_id,kind}}",
        description="Records of the journal after a seq, oldest first; `next` is where to go on.",
        mime_type=MIME,
    ),
)


class Shown:
    """What one caller sees of a runtime."""

    def __init__(self, hf: Runtime, caller: Caller) -> None:
        self._hf = hf
        self._caller = caller
        self._rights = Rights(hf, caller)

    async def page(self, cursor: str | None) -> tuple[list[Resource], str | None]:
        """A part of the list, and where the next begins: the journal, then sessions, then runs."""
        kind, _, after = (cursor or "s:").partition(":")
        if kind not in ("s", "r"):
            raise CallerError("INVALID_ARGUMENT", "There is no such cursor.", hint="Start again.")
        asked = params.Page(after=after, limit=PAGE)
        found: list[Resource] = []
        if kind == "s":
            if cursor is None:
                found.append(_journal())
            part = await self._rights.page(self._sessions, asked, lambda one: one.id)
            found += [_session(one.id) for one in part["items"]]
            return found, f"s:{part['next']}" if part["next"] else "r:"
        part = await self._rights.page(self._runs, asked, lambda one: one.session_id)
        found += [_run(one.id, one.session_id) for one in part["items"]]
        return found, f"r:{part['next']}" if part["next"] else None

    async def read(self, uri: str) -> TextResourceContents:
        """One of them; raises `NOT_FOUND`."""
        return TextResourceContents(uri=uri, mime_type=MIME, text=text_of(await self._value(uri)))

    async def session(self, session_id: str) -> dict[str, Any]:
        """A session, and its latest runs."""
        self._caller.need_session(session_id)
        view = await self._hf.shell.show(session_id)
        runs = await self._hf.runs.list(session=session_id, limit=1_000_000)
        latest = [one.model_dump(mode="json") for one in runs[-LATEST:]]
        return {**view.model_dump(mode="json"), "latest_runs": latest}

    async def named(self, kind: str, start: str) -> list[str]:
        """The sessions, or runs, whose names begin so."""
        fetch: Any = self._sessions if kind == "session" else self._runs

        def session_of(one: Any) -> str:
            return one.id if kind == "session" else one.session_id

        part = await self._rights.page(fetch, params.Page(limit=1000), session_of)
        return [one.id for one in part["items"] if one.id.startswith(start)]

    async def _value(self, uri: str) -> Any:
        self._caller.need("read")
        if uri.partition("?")[0] == JOURNAL:
            return await self._records(uri)
        found = _ONE.fullmatch(uri)
        if found is None:
            raise NotFound("NOT_FOUND", f"There is no resource `{uri[:200]}`.")
        if found[1] == "sessions":
            return await self.session(found[2])
        row = await self._hf.journal.row("runs", found[2]) or {}
        self._caller.need_session(row.get("session_id") if row else None)  # pyright: ignore[reportArgumentType]
        told = await views.run_details(self._hf.runs, found[2])
        return {name: _plain(value) for name, value in told.items()}

    async def _records(self, uri: str) -> dict[str, Any]:
        said = {name: values[-1] for name, values in parse_qs(urlsplit(uri).query).items()}
        asked = parse(params.ReadJournal, _numbers(said))
        if asked.session_id is not None:
            self._caller.need_session(asked.session_id)
            source = self._hf.journal.read(asked.session_id)
        else:
            source = self._hf.journal.read_all(after=asked.after)
        found: list[Record] = []
        scanned, last = 0, None
        async for record in source:
            if _wanted(record, asked) and await self._rights.sees(record):
                found.append(self._rights.shown(record))
            scanned += 1
            if len(found) > asked.limit:
                break
            if scanned >= MAX_SCANNED and asked.session_id is None:
                last = record.seq  # enough for once
                break
        await source.aclose()
        part = views.page(found, asked.limit, "seq")
        items = [one.model_dump(mode="json") for one in part["items"]]
        return {"items": items, "next": part["next"] or last}

    async def _sessions(self, after: str, limit: int) -> Any:
        return await self._hf.shell.list(after=after, limit=limit)

    async def _runs(self, after: str, limit: int) -> Any:
        return await self._hf.runs.list(after=after, limit=limit)


def changed_by(record: Record) -> list[str]:
    """The resources that a record changes."""
    found = [JOURNAL, f"{SESSIONS}{record.stream}"]
    return found if record.run_id is None else [*found, f"{RUNS}{record.run_id}"]


def _numbers(said: dict[str, str]) -> dict[str, Any]:
    return {name: int(one) if one.isdigit() else one for name, one in said.items()}


def _wanted(record: Record, asked: params.ReadJournal) -> bool:
    return (
        record.seq > asked.after
        and asked.session_id in (None, record.stream)
        and asked.run_id in (None, record.run_id)
        and asked.kind in (None, record.kind)
    )


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]  # pyright: ignore[reportUnknownVariableType]
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


def _journal() -> Resource:
    return Resource(
        name="journal",
        uri=JOURNAL,
        description="The first records of the journal; `next` is where to go on.",
        mime_type=MIME,
    )


def _session(id_: str) -> Resource:
    return Resource(
        name=id_, uri=f"{SESSIONS}{id_}", description=f"The session `{id_}`.", mime_type=MIME
    )


def _run(id_: str, session: str) -> Resource:
    return Resource(
        name=id_, uri=f"{RUNS}{id_}", description=f"A run of `{session}`.", mime_type=MIME
    )

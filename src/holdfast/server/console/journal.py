"""The journal, for people: search it, newest first; look at a record with all that belongs to it; prove that it is whole."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, NamedTuple

from pydantic import Field
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from holdfast.contracts import Record, check_session_id, parse
from holdfast.errors import NotFound
from holdfast.journal.belonging import session_of
from holdfast.journal.chain import decode
from holdfast.server import views
from holdfast.server.console.asking import ask, form, picked
from holdfast.server.console.page import is_htmx, render
from holdfast.server.console.steps import parts_of
from holdfast.server.console.story import shown
from holdfast.server.rest.bodies import JournalRecord
from holdfast.server.rest.endpoint import Call
from holdfast.server.rest.journal import SCANNED, ReadJournal, is_wanted, told
from holdfast.server.sight import readable

SHOWN = 60
"""Records that a page lists."""
BODY = 200_000
"""Characters of a body that the page of its record shows."""
_WINDOW = 250
_NAMES = ("name", "tool", "id", "hook_id", "redacted_summary", "summary", "reason", "text", "model")
"""Fields of a payload that name what it is about."""


class Search(ReadJournal):
    """Which records, newest first."""

    text: str = Field(default="", max_length=200)
    """Only those whose name has this in it."""
    before: int | None = Field(default=None, ge=1, lt=1 << 63)
    """Only older ones: a seq, or in a session a position."""


class Line(NamedTuple):
    """A record in a list."""

    record: JournalRecord
    session_id: str | None
    about: str
    """What it is about, in a few words."""


def routes() -> list[BaseRoute]:
    """`/journal`, a record, the proof."""
    return [
        Route("/journal", search, methods=["GET"], name="console_journal"),
        Route("/journal/verify", verify, methods=["POST"], name="console_verify"),
        Route("/journal/{seq:int}", show, methods=["GET"], name="console_record"),
    ]


async def search(request: Request) -> Response:
    """Records, newest first."""
    said = picked(request, "session_id", "run_id", "kind", "text", "seq", "before")
    seq = said.pop("seq", "")
    if seq.isdigit() and len(seq) < 19:
        return RedirectResponse(f"/journal/{int(seq)}", 303)
    asked = parse(Search, said)
    call = await ask(request, "read", query=asked)
    lines, before = await _newest(call, asked)
    last = await call.hf.journal.last_seq()
    return await render(
        request, "journal.html", lines=lines, before=before, asked=asked, last=last,
        whole=call.caller.prefix is None,
    )  # fmt: skip


async def _newest(call: Call, asked: Search) -> tuple[list[Line], int | None]:
    """A part of what is asked for, and where the next begins."""
    stream, low, top = await _range(call, asked)
    start = top + 1 if asked.before is None else min(asked.before, top + 1)
    found: list[Line] = []
    looked, at = 0, start
    async for at, record in _backwards(call, stream, low, start):
        if len(found) == SHOWN or looked == SCANNED:
            return found, at + 1
        looked += 1
        if not is_wanted(record, asked) or not _named(record, asked.text):
            continue
        session = await session_of(call.hf.journal, record)
        if call.caller.sees(session):
            found.append(Line(told(record), session, about(record)))
    return found, None


async def _range(call: Call, asked: Search) -> tuple[str | None, int, int]:
    """The stream to look at, and from where to where: a run is a part of its session's."""
    journal = call.hf.journal
    if asked.session_id is not None:
        await call.mine(check_session_id(asked.session_id))
    if asked.run_id is not None:
        row = await journal.row("runs", asked.run_id)
        if row is not None or call.caller.prefix is not None:
            row = await call.own("runs", asked.run_id)
            session = str(row["session_id"])
            start: Any = row["start_pos"]
            end: Any = row.get("end_pos") or (await journal.head(session)).pos
            return session, int(start) - 1, int(end)
    if asked.session_id is not None:
        return asked.session_id, 0, (await journal.head(asked.session_id)).pos
    return None, 0, await journal.last_seq()


async def _backwards(
    call: Call, stream: str | None, low: int, start: int
) -> AsyncGenerator[tuple[int, Record]]:
    before = start
    while before - 1 > low:
        after = max(low, before - 1 - _WINDOW)
        page = await call.hf.journal.page(stream, after, before - 1 - after)
        for stored in reversed(page):
            record = decode(stored)
            yield (record.pos if stream is not None else record.seq), record
        before = after + 1


def _named(record: Record, text: str) -> bool:
    """Whether words are part of what a record names."""
    if not text:
        return True
    names = [record.kind, record.actor, record.run_id or "", record.effect_id or ""]
    if readable(record):
        names += [str(record.payload.get(name) or "") for name in _NAMES]
    return text.lower() in "\n".join(names).lower()


def about(record: Record) -> str:
    """What a record is about, in a few words."""
    if not readable(record):
        return ""
    said: Any = record.payload
    if record.kind in ("run_started", "session_created"):
        return f"{said.get('kind', '')} in {said.get('language', '')}".strip().removeprefix("in ")
    if record.kind == "hook":
        return f"{said.get('hook_id', '')} at {str(said.get('point', '')).replace('_', ' ')}"
    for name in ("redacted_summary", "summary", "tool", "name", "reason", "status", "text"):
        if isinstance(said.get(name), str) and said[name]:
            return said[name][:200] if name != "status" else said[name].replace("_", " ")
    decision: Any = said.get("decision")
    if isinstance(decision, dict):
        return f"{decision.get('decision', '')} {said.get('id', '')}"[:200]  # pyright: ignore[reportUnknownMemberType]
    error: Any = said.get("error")
    return str(error.get("message", ""))[:200] if isinstance(error, dict) else ""  # pyright: ignore[reportUnknownMemberType,reportUnknownArgumentType]


async def show(request: Request) -> Response:
    """One record, with the bodies it refers to."""
    call = await ask(request, "read")
    seq: int = request.path_params["seq"]
    page = await call.hf.journal.page(None, seq - 1, 1) if 0 < seq < 1 << 63 else []
    record = decode(page[0]) if page and page[0].seq == seq else None
    if record is None:
        raise NotFound(
            "NOT_FOUND",
            f"There is no record {seq}.",
            hint=f"The newest is {await call.hf.journal.last_seq()}.",
        )
    session = await session_of(call.hf.journal, record)
    await call.mine(session, "record")
    parts = parts_of(record)
    data = await call.hf.journal.contents(
        {one.digest for one in parts if one.digest is not None and one.role not in _SEALED}
    )
    bodies = [
        shown(one, data, BODY) if one.role not in _SEALED else _sealed(shown(one, {}))
        for one in parts
    ]
    return await render(
        request, "journal_record.html", record=told(record), session_id=session, bodies=bodies,
        refs=record.content, last=await call.hf.journal.last_seq(), about=about(record),
    )  # fmt: skip


_SEALED = frozenset({"state"})


def _sealed(one: Any) -> Any:
    return one._replace(hidden="It is sealed: only the engine reads it.")


async def verify(request: Request) -> Response:
    """Prove that nothing was changed, removed or put in; or name the first record that was."""
    await form(request)
    call = await ask(request, "read")
    await call.mine(None, "journal")  # it is about all sessions
    report = views.report(await call.hf.journal.verify())
    name = "journal_proof.html" if is_htmx(request) else "journal_verified.html"
    return await render(request, name, report=report)

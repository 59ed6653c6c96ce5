"""The journal as JSON lines, and the proof over such a file.

A line is `{"body": {…}, "hash": "…"}`: the record's canonical body, spliced in as it is stored, and the SHA3-256
of those bytes. Whoever writes the body as canonical JSON again has the bytes that were hashed, so the chain can be
checked years later, without holdfast. A stored record whose bytes are not canonical JSON was damaged; it is kept
as `{"seq", "stream", "pos", "raw" (base64), "hash"}`, so that the file shows what the journal showed.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass

from holdfast.contracts import canonical_json
from holdfast.errors import CallerError, JournalError
from holdfast.journal import Bad, ChainCheck, Journal, Report, Stored

PAGE = 200


@dataclass(slots=True)
class Exported:
    """What an export wrote."""

    records: int = 0
    """Lines written."""
    damaged: int | None = None
    """The seq of the first record that is not what it was, or can't be read."""


async def lines(journal: Journal, done: Exported) -> AsyncGenerator[bytes]:
    """Every record as a line; a record that can't be read is left out and noted in `done`."""
    last = await _last(journal)
    after, size = 0, PAGE
    while True:
        try:
            page = await journal.page(None, after, size)
        except JournalError:
            if size == 1:
                done.damaged = done.damaged or after + 1
                after += 1
                if after >= last:
                    return
            size = 1
            continue
        if not page:
            return
        for stored in page:
            line = _line(stored)
            if line is None:
                done.damaged = done.damaged or stored.seq
                line = _raw_line(stored)
            done.records += 1
            yield line
        after = page[-1].seq


async def _last(journal: Journal) -> int:
    """The newest record, as far as a damaged file tells: behind an unreadable one there may be good ones."""
    try:
        return max([await journal.last_seq(), *(head.seq for head in await journal.heads())])
    except JournalError:
        return 0


def _line(stored: Stored) -> bytes | None:
    try:
        if canonical_json(json.loads(stored.body)) != stored.body:
            return None
    except (ValueError, RecursionError, CallerError):
        return None
    return b'{"body":' + stored.body + b',"hash":"' + stored.hash.encode() + b'"}\n'


def _raw_line(stored: Stored) -> bytes:
    raw = base64.b64encode(stored.body).decode()
    place = {"seq": stored.seq, "stream": stored.stream, "pos": stored.pos}
    return canonical_json({**place, "raw": raw, "hash": stored.hash}) + b"\n"


def verify(file: Iterable[bytes]) -> Report:
    """The proof over an exported file; needs no journal."""
    check = ChainCheck()
    for number, line in enumerate(file, 1):
        try:
            stored = _parse(line)
        except (ValueError, KeyError, TypeError, RecursionError, CallerError):
            why = f"line {number} of the file is no record"
            check.report.bad = Bad(check.report.records + 1, "", 0, why)
            return check.report
        if check.add(stored):
            return check.report
    check.finish()
    return check.report


def _parse(line: bytes) -> Stored:
    found = json.loads(line)
    hash_ = str(found["hash"])
    if "raw" in found:
        raw = base64.b64decode(found["raw"])
        return Stored(int(found["seq"]), str(found["stream"]), int(found["pos"]), raw, hash_)
    body = found["body"]
    data = canonical_json(body)
    return Stored(int(body["seq"]), str(body["stream"]), int(body["pos"]), data, hash_)

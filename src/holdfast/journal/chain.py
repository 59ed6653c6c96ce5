"""The hash chain: from a draft to stored bytes, from stored bytes to a record, and the proof.

A stored record is its canonical JSON (every field but the hash) and the SHA3-256 of those bytes. The JSON
holds `prev`, the hash of the stream's record before, so the last hash of a stream stands for all of it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from pydantic import ValidationError
from pydantic_core import from_json

from holdfast.contracts import Body, Draft, Record, digest
from holdfast.contracts.canonical import canonical_json, canonical_text, json_string
from holdfast.contracts.content import ContentRef
from holdfast.contracts.record import (
    MAX_PAYLOAD_BYTES,
    RECORD_VERSION,
    check_draft,
    holds_exact,
    trusted_record,
)
from holdfast.errors import CallerError, JournalError
from holdfast.journal._exact import exact_json

ZERO = "0" * 64
"""What the first record of a stream names as its predecessor."""


class Stored(NamedTuple):
    """A record as it lies in a store."""

    seq: int
    stream: str
    pos: int
    body: bytes
    hash: str


class Entry(NamedTuple):
    """A checked draft, encoded as far as it can be before its place is known.

    The keys of the body are in canonical order, so the parts that the store decides (`pos`, `prev`, `seq`,
    `stream`, `time`) fall between three texts that are ready before the write lock is taken.
    """

    kind: str
    payload: dict[str, Any]
    run_id: str | None
    effect_id: str | None
    held: Sequence[tuple[str, str]]
    """The content it refers to: digest and retention."""
    bodies: tuple[Body, ...]
    before_pos: bytes
    before_seq: bytes
    after_time: bytes

    def body(self, pos: int, prev: str, seq: int, stream_json: str, time: int) -> bytes:
        """The bytes to store and to hash."""
        here = f'{pos},"prev":"{prev}"'.encode()
        number = f'{seq},"stream":{stream_json},"time":{time}'.encode()
        return b"".join((self.before_pos, here, self.before_seq, number, self.after_time))

    def cut(self, time: int) -> bytes:
        """The body without what its place says: three parts, with a zero byte, which no JSON has, between them."""
        return b"%b\0%b\0%d%b" % (self.before_pos, self.before_seq, time, self.after_time)


def joined(cut: bytes, pos: int, prev: str, seq: int, stream_json: str) -> bytes | None:
    """The body that was cut, at its place; `None` when these are not three parts."""
    parts = cut.split(b"\0")
    if len(parts) != 3:
        return None
    first, second, third = parts
    here = f'{pos},"prev":"{prev}"'.encode()
    number = f'{seq},"stream":{stream_json},"time":'.encode()
    return b"".join((first, here, second, number, third))


def encode(draft: Draft) -> Entry:
    """Check a draft and encode it; raises the refusal of whatever is wrong with it."""
    fields = vars(draft)  # looked up once: a model's attribute costs three times as much
    said, kind, run_id, effect_id, turn_id, content, bodies = (
        fields["payload"],
        fields["kind"],
        fields["run_id"],
        fields["effect_id"],
        fields["turn_id"],
        fields["content"],
        fields["bodies"],
    )
    first: dict[str, Any] = {"actor": fields["actor"], "kind": kind, "payload": said}
    if fields["cause"] is not None:
        first["cause"] = fields["cause"]
    if effect_id is not None:
        first["effect_id"] = effect_id
    held: Sequence[tuple[str, str]] = ()
    if content or bodies:
        refs = [_reference(ref) for ref in (*content, *[body.ref for body in bodies])]
        held = [(ref["digest"], ref["retention"]) for ref in refs]
        first["content"] = refs
    run = "" if run_id is None else f',"run_id":{json_string(run_id)}'
    turn = "" if turn_id is None else f',"turn_id":{json_string(turn_id)}'
    return Entry(
        kind,
        said,
        run_id,
        effect_id,
        held,
        bodies,
        _first_part(draft, first, kind),
        f',"privacy":"{fields["privacy"]._value_}"{run},"seq":'.encode(),
        f'{turn},"v":{RECORD_VERSION}}}'.encode(),
    )


def _first_part(draft: Draft, first: dict[str, Any], kind: str) -> bytes:
    """The body up to its position: these fields, of which the payload comes last."""
    if holds_exact(draft, kind):
        part = exact_json(first)
        if len(part) <= MAX_PAYLOAD_BYTES:
            return part[:-1] + b',"pos":'
    payload = canonical_json(first.pop("payload"))
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise _too_large(draft, "payload")
    check_draft(draft, payload)
    head = exact_json(first)
    if len(head) > MAX_PAYLOAD_BYTES and len(exact_json(first["content"])) > MAX_PAYLOAD_BYTES:
        raise _too_large(draft, "list of references")
    return b'%b,"payload":%b,"pos":' % (head[:-1], payload)


def _reference(ref: ContentRef) -> dict[str, Any]:
    """A reference as JSON values."""
    fields = vars(ref)
    found = {
        "digest": fields["digest"],
        "mime": fields["mime"],
        "privacy": fields["privacy"]._value_,
        "retention": fields["retention"]._value_,
        "size": fields["size"],
    }
    if fields["role"] is not None:
        found["role"] = fields["role"]
    return found


def _too_large(draft: Draft, part: str) -> CallerError:
    return CallerError(
        "RECORD_TOO_LARGE",
        f"The {part} of a {draft.kind[:80]!a} record is over {MAX_PAYLOAD_BYTES} bytes.",
        hint="Hand the large part in as a body and refer to it by digest.",
    )


def decode(stored: Stored) -> Record:
    """The record of stored bytes; raises `JOURNAL_DAMAGED` when they do not match their hash.

    A record that this version can't lay out was written by a newer one. It is returned all the same, with its
    bytes as text in the payload and `known` false.
    """
    if digest(stored.body) != stored.hash:
        raise damaged(stored, "its bytes do not match its hash")
    found = _fields(stored)
    try:
        return trusted_record(found, stored.hash)
    except (KeyError, TypeError):
        pass  # it is not laid out as this version does it
    try:
        return Record.model_validate({**found, "hash": stored.hash})
    except ValidationError:
        return _unreadable(stored, found)


def _unreadable(stored: Stored, found: dict[str, Any]) -> Record:
    newer = found.get("v")
    return Record.model_construct(
        v=newer if isinstance(newer, int) and newer > RECORD_VERSION else RECORD_VERSION + 1,
        seq=stored.seq,
        stream=stored.stream,
        pos=stored.pos,
        time=0,
        kind=str(found.get("kind", "unreadable")),
        run_id=None,
        turn_id=None,
        effect_id=None,
        actor=str(found.get("actor", "unknown")),
        cause=None,
        privacy="secret",
        payload={"unreadable": stored.body.decode(errors="replace")},
        content=(),
        prev=str(found.get("prev", ZERO)),
        hash=stored.hash,
    )


def _fields(stored: Stored) -> dict[str, Any]:
    try:
        found = from_json(stored.body, allow_inf_nan=False)
        if type(found) is dict:
            return cast("dict[str, Any]", found)
    except ValueError:
        pass  # nested too deep for the fast parser, or no JSON at all
    try:
        return {**json.loads(stored.body)}
    except (ValueError, TypeError, RecursionError):
        raise damaged(stored, "its bytes are no record") from None


def damaged(stored: Stored, why: str) -> JournalError:
    """The error of one bad record."""
    return JournalError(
        "JOURNAL_DAMAGED",
        f"Record {stored.seq} (stream `{stored.stream}`, position {stored.pos}): {why}.",
        hint="Run `holdfast journal verify`, then restore the journal from a backup.",
    )


class Bad(NamedTuple):
    """The first record that proves a change."""

    seq: int
    stream: str
    pos: int
    why: str


@dataclass(slots=True)
class Report:
    """What a verification found."""

    records: int = 0
    """Records that hold."""
    streams: int = 0
    """Streams they belong to."""
    bad: Bad | None = None
    """The first record that does not hold."""
    root: str = ZERO
    """One hash over the heads of all streams: note it elsewhere to prove this very state later."""
    bad_content: str | None = None
    """The digest of the first body whose bytes are not what they should be, or are missing."""
    erased: int = 0
    """Bodies that were erased on purpose; they do not count as damage."""

    @property
    def ok(self) -> bool:
        """Whether everything holds."""
        return self.bad is None and self.bad_content is None


@dataclass(slots=True)
class ChainCheck:
    """Feed stored records in seq order to `add`, then the streams' heads to `finish`.

    Where others write meanwhile, hand in the heads as they were `before` the first record was read as well: a
    stream may then have moved on since, but it must hold at least what it held before.
    """

    before: dict[str, tuple[int, str]] | None = None
    report: Report = field(default_factory=Report)
    named: set[str] = field(default_factory=set[str])
    """The bodies that the records refer to; for the caller to look for, and to empty."""
    _heads: dict[str, tuple[int, str]] = field(default_factory=dict[str, tuple[int, str]])
    _seq: int = 0

    def add(self, stored: Stored) -> bool:
        """Check one record; True when it is bad, and then the report names it."""
        why = self._why_bad(stored)
        if why is not None:
            self.report.bad = Bad(stored.seq, stored.stream, stored.pos, why)
            return True
        self._heads[stored.stream] = (stored.pos, stored.hash)
        self._seq = stored.seq
        self.report.records += 1
        return False

    def _why_bad(self, stored: Stored) -> str | None:
        # First what is missing: without the record before it, a record in a file does not match its hash either.
        if stored.seq != self._seq + 1:
            return f"record {self._seq + 1} is missing before it"
        if digest(stored.body) != stored.hash:
            return "its bytes do not match its hash"
        try:
            said = json.loads(stored.body)
            claims = (said["seq"], said["stream"], said["pos"])
            prev = said["prev"]
            if said["v"] == RECORD_VERSION:
                self.named.update([ref["digest"] for ref in said.get("content", ())])
        except (ValueError, KeyError, TypeError, RecursionError):
            return "its bytes are no record"
        if claims != (stored.seq, stored.stream, stored.pos):
            return f"it says it is record {claims[0]} at position {claims[2]} of `{claims[1]}`"
        pos, last = self._heads.get(stored.stream, (0, ZERO))
        if stored.pos != pos + 1:
            return f"position {pos + 1} of its stream is missing before it"
        if prev != last:
            return "it does not follow from the record before it in its stream"
        return None

    def finish(self, heads: dict[str, tuple[int, str]] | None = None) -> None:
        """Check that every stream ends where its head says, and sum the heads up."""
        for stream, (pos, last) in sorted((heads or {}).items()):
            at, found = self._heads.get(stream, (0, ZERO))
            if self.before is not None and pos > at >= self.before.get(stream, (0, ZERO))[0]:
                continue
            if (pos, last) != (at, found) and self.report.bad is None:
                why = f"the stream's head is at position {pos}, its last record at {at}"
                if pos == at:
                    why = "the stream's head names another record"
                self.report.bad = Bad(self._seq, stream, at, why)
        self.report.streams = len(self._heads)
        self.report.root = digest(canonical_text(sorted(self._heads.items())).encode())

"""A run of an agent as it is on record, with all it takes to replay it anywhere: what a saved run is.

The file is JSON lines, one of each kind in this order:

    {"recording": 1, "run_id": …, "session_id": …, "capabilities": […], "pins": […]}
    {"body": {…}, "hash": "…"}            a record of the session's stream, as `journal export` writes it
    {"content": "…", "text": "…"}         what records refer to, by digest; `base64` in place of `text` for bytes

Records and content are held against their hashes when they are read, so that a fixture that was changed by hand does
not pass for what happened. Secrets were taken out before anything was recorded.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from holdfast.agent.pins import pins_of
from holdfast.contracts import Capability, Record, canonical_json, digest, parse
from holdfast.errors import CallerError, HoldfastError, NotFound
from holdfast.journal import Journal, Stored
from holdfast.journal.chain import decode

FORMAT = 1
"""The version of the file."""

_PAGE = 500
_ENDS = ("run_completed", "run_failed", "run_cancelled")


@dataclass(frozen=True, slots=True)
class Recording:
    """One run of an agent, and what happened in its session before it."""

    run_id: str
    """The run."""
    session_id: str
    """Its session."""
    stored: tuple[Stored, ...] = field(repr=False)
    """The session's stream up to the end of the run, as it lies in the journal."""
    content: Mapping[str, bytes] = field(repr=False)
    """What records refer to, by digest; what was erased is not in it."""
    capabilities: tuple[Capability, ...] | None = None
    """What the run could call, without what it takes to do it; `None`: nobody knows."""
    pins: tuple[str, ...] = ()
    """What was pinned in the session."""
    records: tuple[Record, ...] = field(init=False, repr=False)
    """The same records, laid out."""
    start: int = field(init=False)
    """The position at which the run starts."""

    def __post_init__(self) -> None:
        records = tuple(decode(one) for one in self.stored)
        starts = [one.pos for one in records if _starts(one, self.run_id)]
        if not starts:
            raise _not_here(self.run_id)
        object.__setattr__(self, "records", records)
        object.__setattr__(self, "start", starts[0])

    def with_capabilities(self, capabilities: Sequence[Capability]) -> Recording:
        """The same, of a run that could call these."""
        return replace(self, capabilities=tuple(capabilities))


async def recorded(journal: Journal, run_id: str) -> Recording:
    """A run of an agent from a journal; raises `NOT_FOUND` when it has none of that name."""
    row = await journal.row("runs", run_id)
    if row is None or row["kind"] != "agent":
        raise _not_here(run_id)
    session = str(row["session_id"])
    stored: list[Stored] = []
    content: dict[str, bytes] = {}
    over = False
    while not over:
        page = await journal.page(session, len(stored), _PAGE)
        for one in page:
            record = decode(one)
            stored.append(one)
            await _fetch(journal, record, content)
            if record.run_id == run_id and record.kind in _ENDS:
                over = True
                break
        over = over or len(page) < _PAGE
    pins = await _pins(journal, session)
    return Recording(run_id, session, tuple(stored), content, None, pins)


async def _fetch(journal: Journal, record: Record, content: dict[str, bytes]) -> None:
    if record.kind == "session_state" and record.payload.get("reason", "saved") == "saved":
        return  # it is made again from the code
    for ref in record.content:
        if ref.digest in content:
            continue
        try:
            content[ref.digest] = await journal.content(ref)
        except CallerError:
            continue  # erased, or not for everybody: whoever needs it says so


async def _pins(journal: Journal, session: str) -> tuple[str, ...]:
    try:
        return tuple(one.text for one in await pins_of(journal, session))
    except HoldfastError:  # the session is over
        return ()


# -- as a file --------------------------------------------------------------------------------------------


def written(recording: Recording) -> Iterator[bytes]:
    """A recording as the lines of a file that `read` reads."""
    head: dict[str, Any] = {
        "recording": FORMAT,
        "run_id": recording.run_id,
        "session_id": recording.session_id,
    }
    if recording.capabilities is not None:
        # Not canonical JSON: the order of a schema's properties is that of the arguments.
        head["capabilities"] = [one.model_dump(mode="json") for one in recording.capabilities]
    if recording.pins:
        head["pins"] = list(recording.pins)
    yield json.dumps(head, ensure_ascii=False).encode()
    for stored in recording.stored:
        yield b'{"body":' + stored.body + b',"hash":"' + stored.hash.encode() + b'"}'
    for name, data in recording.content.items():
        yield canonical_json({"content": name, **_written(data)})


def _written(data: bytes) -> dict[str, str]:
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def read(lines: Iterable[bytes], path: str) -> Recording:
    """A recording from its lines; raises `INVALID_ARGUMENT` for those that are none, or were changed since."""
    try:
        return _read(lines, path)
    except (ValueError, KeyError, TypeError, RecursionError) as why:
        raise unfit(path, f"{type(why).__name__}: {why}") from None


def _read(file: Iterable[bytes], path: str) -> Recording:
    lines = iter(file)
    head = cast("dict[str, Any]", json.loads(next(lines, b"{}")))
    if "recording" not in head:
        raise unfit(path, "its first line does not say so")
    if head["recording"] != FORMAT:
        raise unfit(path, f"it is of version {head['recording']}, and this holdfast reads {FORMAT}")
    stored: list[Stored] = []
    content: dict[str, bytes] = {}
    for number, line in enumerate(lines, 2):
        said = json.loads(line)
        if "body" in said:
            stored.append(_record(said, stored, path, number))
        else:
            data = said["text"].encode() if "text" in said else base64.b64decode(said["base64"])
            if digest(data) != said["content"]:
                raise unfit(path, f"line {number} was changed since it was recorded")
            content[str(said["content"])] = data
    known = head.get("capabilities")
    capabilities = None if known is None else tuple(parse(Capability, one) for one in known)
    pins = tuple(map(str, head.get("pins", ())))
    return Recording(
        str(head["run_id"]), str(head["session_id"]), tuple(stored), content, capabilities, pins
    )


def _record(said: dict[str, Any], before: list[Stored], path: str, number: int) -> Stored:
    body, hash_ = said["body"], str(said["hash"])
    data = canonical_json(body)
    prev = before[-1].hash if before else "0" * 64
    if digest(data) != hash_ or body["prev"] != prev:
        raise unfit(path, f"line {number} was changed since it was recorded")
    return Stored(int(body["seq"]), str(body["stream"]), int(body["pos"]), data, hash_)


def _starts(record: Record, run_id: str) -> bool:
    return record.run_id == run_id and record.kind == "run_started"


def _not_here(run_id: str) -> NotFound:
    return NotFound(
        "NOT_FOUND",
        f"There is no agent's run `{run_id[:80]}`.",
        hint="`holdfast runs list` names the runs there are.",
    )


def unfit(path: str, why: str) -> CallerError:
    """The refusal of a file that is no recording."""
    return CallerError(
        "INVALID_ARGUMENT",
        f"`{path[:200]}` is no recording of a run: {why}.",
        hint="`holdfast.testing.save` writes one.",
    )

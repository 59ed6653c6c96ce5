"""A run as its page shows it: its records read, the bodies that the page needs fetched, the rest left where it is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from anyio import to_thread

from holdfast.contracts import Record, RunView
from holdfast.contracts.agent import AgentResult
from holdfast.contracts.run import RunResult
from holdfast.errors import CallerError
from holdfast.journal import Journal
from holdfast.runtime import Runtime
from holdfast.server.console.drawing import Drawing, draw
from holdfast.server.console.source import Source, source
from holdfast.server.console.steps import (
    LANES,
    Moment,
    Part,
    Program,
    Step,
    Timeline,
    moment,
)
from holdfast.server.console.timeline import timeline
from holdfast.server.console.words import duration, now_ms, visible

MOST_RECORDS = 10_000
"""Of a run, those that its page looks at."""
PAGE = 50
"""Steps that a page lists."""
SHOWN = 4000
"""Characters of a body that a page shows; the record has the rest."""
MOST_PROGRAMS = 40
_LOOKED = 400
"""Steps whose arguments are read to find the lines they came from."""
_SMALL = 4096


class Shown(NamedTuple):
    """A body on a page."""

    role: str
    text: str
    value: Any
    """The same as JSON, where it is that and small enough; else `None`."""
    size: int
    seq: int
    cut: bool = False
    hidden: str = ""
    """Why it is not shown, if it is not."""


class Entry(NamedTuple):
    """A step of the list, with all there is to say about it."""

    step: Step
    status: str | None
    """As it was at the moment that is shown; `None`: it had not begun."""
    bodies: tuple[Shown, ...]
    asked: tuple[Step, ...]
    hooks: tuple[Step, ...]
    line: int | None
    code: str
    """Of a program that an agent wrote."""

    @property
    def costs(self) -> bool:
        """Whether it cost anything."""
        return bool(self.step.cost_micros or self.step.input_tokens)


@dataclass(frozen=True, slots=True)
class Page:
    """All that the page of a run shows."""

    run: RunView
    parent: str | None
    view: Timeline
    drawing: Drawing
    at: int
    """The newest record of what is shown."""
    now: Moment
    entries: tuple[Entry, ...]
    before: int | None
    """Where the steps before these begin."""
    after: int | None
    """Where the steps after these begin."""
    total: int
    sources: tuple[Source, ...]
    result: RunResult | AgentResult | None
    prompt: str
    agent: Mapping[str, Any]
    replay: Mapping[str, Any]
    """What the slider knows."""

    @property
    def last(self) -> bool:
        """Whether the newest moment is shown."""
        return self.at >= self.view.seqs[-1]

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.run.ended_at is not None

    @property
    def took(self) -> int:
        """How long it took, or takes so far."""
        return self.view.end - self.view.start

    @property
    def scrubs(self) -> bool:
        """Whether there is more than one moment to look at."""
        return len(self.view.seqs) > 1

    @property
    def waited(self) -> int:
        """How much of that somebody was waited for."""
        waits = [one for one in self.view.steps if one.lane == "wait"]
        return sum((self.view.end if one.end is None else one.end) - one.start for one in waits)

    @property
    def elapsed(self) -> str:
        """When the moment that is shown was, since the start."""
        return f"+{duration(self.now.time - self.view.start)}"

    @property
    def cursor(self) -> float:
        """Where that is in the drawing."""
        return self.drawing.xs[self.view.seqs.index(self.at)]

    @property
    def calls(self) -> int:
        """Calls out of the box, and of tools."""
        return sum(one.lane == "effect" and one.kind != "budget" for one in self.view.steps)


async def read(journal: Journal, run_id: str, row: Mapping[str, Any]) -> tuple[list[Record], bool]:
    """The records of a run and of the code it wrote, in order, and whether there are more than these."""
    after = int(row["start_pos"]) - 1
    end: int | None = row.get("end_pos")
    runs, found = {run_id}, list[Record]()
    limit = None if end is None else int(end) - after
    async for record in journal.read(str(row["session_id"]), after=after, limit=limit):
        said: Any = record.payload
        begun: Mapping[str, Any] = said.get("start") or said
        if record.run_id is not None and begun.get("parent") == run_id:
            runs.add(record.run_id)
        if record.run_id in runs:
            if len(found) == MOST_RECORDS:
                return found, True
            found.append(record)
    return found, False


async def page_of(
    hf: Runtime, run_id: str, row: Mapping[str, Any], *, at: int | None, after: int | None
) -> Page:
    """The page of a run, as it was when record `at` was the newest; of its steps, those from record `after` on."""
    records, cut = await read(hf.journal, run_id, row)
    # A long one takes a moment; others are served meanwhile.
    view, drawing = await to_thread.run_sync(_told, run_id, records, cut)
    run = RunView.model_validate(row)
    newest = view.seqs[-1]
    seq = newest if at is None else max([view.seqs[0], *(one for one in view.seqs if one <= at)])
    steps = view.steps
    first = _first(steps, after, over=run.ended_at is not None)
    part = steps[first : first + PAGE]
    arguments = await _arguments(hf.journal, steps)
    sources = await _sources(hf.journal, view, arguments, seq)
    lines = {key: place.line for one in sources for key, place in one.places.items()}
    bodies = await _bodies(hf.journal, [p for one in part for p in one.parts])
    own = {one.run_id: one for one in sources}
    entries = tuple(
        Entry(
            one, one.at(seq), tuple(bodies[p] for p in one.parts if p in bodies),
            tuple(view.asked(one.key)) if one.lane == "effect" else (),
            tuple(view.hooks(one.key)), lines.get(one.key), _code_of(own, view, one),
        )
        for one in part
    )  # fmt: skip
    words = await _bodies(hf.journal, [p for p in (view.prompt, view.agent) if p is not None])
    return Page(
        run=run,
        parent=row.get("parent"),
        view=view,
        drawing=drawing,
        at=seq,
        now=moment(view, seq),
        entries=entries,
        before=None if first == 0 else steps[max(0, first - PAGE)].seq,
        after=steps[first + PAGE].seq if first + PAGE < len(steps) else None,
        total=len(steps),
        sources=sources,
        result=await _result(hf, run_id),
        prompt=_prompt(words.get(view.prompt) if view.prompt else None),
        agent=_mapping(words.get(view.agent) if view.agent else None),
        replay=_replay(view, drawing, lines),
    )


def _told(run_id: str, records: Sequence[Record], cut: bool) -> tuple[Timeline, Drawing]:
    view = timeline(run_id, records, now=now_ms(), cut=cut)
    return view, draw(view)


def _first(steps: Sequence[Step], after: int | None, *, over: bool) -> int:
    if after is not None:
        return next((n for n, one in enumerate(steps) if one.seq >= after), 0)
    # Of one that is under way, the newest are what people look for.
    return 0 if over or len(steps) <= PAGE else (len(steps) - 1) // PAGE * PAGE


def _code_of(own: Mapping[str, Source], view: Timeline, step: Step) -> str:
    """The text of a program that an agent wrote, with the step that began it."""
    if step.lane != "code" or step.run_id == view.run_id or step.run_id not in own:
        return ""
    found = own[step.run_id]
    return "\n".join(one.text for one in found.lines) if found.seq == step.seq else ""


async def _result(hf: Runtime, run_id: str) -> RunResult | AgentResult | None:
    try:
        return await hf.runs.result_any(run_id)
    except CallerError as why:
        if why.code not in ("RUN_OPEN", "NOT_FOUND", "CONTENT_ERASED"):
            raise
        return None


# -- bodies ---------------------------------------------------------------------------------------


async def _bodies(journal: Journal, parts: Iterable[Part]) -> dict[Part, Shown]:
    wanted = [one for one in parts if one.role not in ("state", "progress")]
    small = {one.digest for one in wanted if one.digest is not None and one.size <= 1 << 20}
    data = await journal.contents(small)
    return {one: shown(one, data) for one in wanted}


def shown(part: Part, data: Mapping[str, bytes], most: int = SHOWN) -> Shown:
    """A body, as far as it may be shown and fits."""
    role, size, seq = part.role, part.size, part.seq
    if part.digest is None:
        return Shown(
            role, "", None, size, seq, hidden="It is of a privacy class that nobody is shown."
        )
    if size > 1 << 20:
        return Shown(role, "", None, size, seq, hidden="It is too large for a page.")
    found = data.get(part.digest)
    if found is None:
        return Shown(role, "", None, size, seq, hidden="It was erased.")
    return Shown(role, *_text(found, most), size, seq, cut=len(found) > most)


def _text(data: bytes, most: int = SHOWN) -> tuple[str, Any]:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data[:256].hex(" "), None
    try:
        value = json.loads(text)
        pretty = json.dumps(value, indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text[:most], None
    return pretty[:most], value if len(pretty) <= most else None


def _prompt(found: Shown | None) -> str:
    if found is None or not isinstance(found.value, dict):
        return "" if found is None else found.text
    return str(_mapping(found).get("text", ""))


def _mapping(found: Shown | None) -> dict[str, Any]:
    value: Any = None if found is None else found.value
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


# -- code -----------------------------------------------------------------------------------------


async def _arguments(journal: Journal, steps: Sequence[Step]) -> dict[str, Any]:
    """What calls were made with, for those of which it helps to know."""
    wanted: dict[str, str] = {}
    for step in steps[-_LOOKED:]:
        if step.lane in ("effect", "approval") and step.line is None:
            part = next((one for one in step.parts if one.role == "arguments"), None)
            if part is not None and part.digest is not None and part.size <= _SMALL:
                wanted[step.key] = part.digest
    data = await journal.contents({*wanted.values()})
    return {key: _text(data[digest])[1] for key, digest in wanted.items() if digest in data}


async def _sources(
    journal: Journal, view: Timeline, arguments: Mapping[str, Any], at: int
) -> tuple[Source, ...]:
    programs = view.programs[-MOST_PROGRAMS:]
    data = await journal.contents([one.digest for one in programs if one.digest is not None])
    return tuple(_source(one, data, view, arguments, at) for one in programs)


def _source(
    program: Program,
    data: Mapping[str, bytes],
    view: Timeline,
    arguments: Mapping[str, Any],
    at: int,
) -> Source:
    code = data.get(program.digest or "")
    if code is None:
        return Source(program.run_id, program.language, gone=True, seq=program.seq)
    return source(
        code.decode(errors="replace"),
        run_id=program.run_id,
        language=program.language,
        steps=view.steps,
        arguments=arguments,
        at=at,
        seq=program.seq,
        error_line=_error_line(program, view, at),
    )


def _error_line(program: Program, view: Timeline, at: int) -> int | None:
    """The line at which a program failed."""
    for step in view.steps:
        if step.run_id == program.run_id and step.lane == "code" and step.at(at) == "failed":
            span: Mapping[str, Any] = (step.error or {}).get("span") or {}
            return span.get("line")
    return None


# -- the slider -----------------------------------------------------------------------------------


def _replay(view: Timeline, drawing: Drawing, lines: Mapping[str, int]) -> dict[str, Any]:
    """Every step in a few numbers, so that a browser can tell any moment without asking."""
    statuses: dict[str, int] = {}
    names: dict[str, int] = {}
    programs = {one.run_id: place for place, one in enumerate(view.programs)}
    steps: list[list[Any]] = []
    for step in view.steps:
        marks: list[int] = []
        for mark in step.marks:
            marks += (mark.seq, statuses.setdefault(mark.status, len(statuses)))
        name = names.setdefault(visible(step.name[:60]), len(names))
        tokens = step.input_tokens + step.output_tokens
        program, line = programs.get(step.run_id, -1), lines.get(step.key, 0)
        lane = LANES.index(step.lane)
        steps.append([name, lane, step.cost_micros, tokens, program, line, marks])
    return {
        "names": list(names),
        "lanes": LANES,
        "seqs": view.seqs,
        "times": [time - view.start for time in view.times],
        "xs": drawing.xs,
        "statuses": list(statuses),
        "programs": [one.seq for one in view.programs],
        "steps": steps,
    }

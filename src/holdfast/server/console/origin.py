"""Where a call comes from: whose run it is, of which agent, asked for what, and the code with the lines that call."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.contracts import Record
from holdfast.errors import HoldfastError
from holdfast.gate.past import stored_json
from holdfast.server.console.source import lines_of, sites

if TYPE_CHECKING:
    from holdfast.runtime import Runtime

_MOST_CODE = 20_000
_MOST_PROMPT = 2_000
_MOST_LINE = 160
_AROUND = 3


@dataclass(frozen=True, slots=True)
class Origin:
    """What is known about who asks."""

    run_id: str | None = None
    """The run that calls."""
    kind: str = ""
    """`code` or `agent`."""
    actor: str | None = None
    """Who started it."""
    agent: str | None = None
    """The agent's name."""
    model: str | None = None
    """The agent's model."""
    agent_run: str | None = None
    """The agent's run, when the run is code that it wrote."""
    prompt: str | None = None
    """What the agent was asked: its beginning."""
    prompt_cut: int = 0
    """Characters that this leaves out."""
    lines: tuple[tuple[int, str], ...] = ()
    """The code, by lines; only those around the calls, when it is long."""
    calls: frozenset[int] = frozenset()
    """The lines that call this capability."""
    cut: int = 0
    """Characters of the code that were not looked at."""


async def origin_of(hf: Runtime, run_id: str | None, tool: str) -> Origin:
    """Where a call of a run comes from, as far as it is on record and not erased."""
    if run_id is None:
        return Origin()
    row = await hf.journal.row("runs", run_id)
    if row is None:
        return Origin(run_id)
    said = await _started(hf, row)
    parent = row.get("parent")
    above: dict[str, Any] = {}
    if isinstance(parent, str):
        over = await hf.journal.row("runs", parent)
        above = {} if over is None else await _started(hf, over)
    asked = said if row["kind"] == "agent" else above
    spec = await _stored(hf, asked.get("agent"))
    prompt = _text(await _stored(hf, asked.get("prompt")), "text") or ""
    lines, calls, cut = await _code(hf, said, tool)
    return Origin(
        run_id,
        str(row["kind"]),
        said.get("actor") or above.get("actor"),
        _text(spec, "name"),
        _text(spec, "model"),
        parent if isinstance(parent, str) else None,
        prompt[:_MOST_PROMPT] or None,
        len(prompt[_MOST_PROMPT:]),
        lines,
        calls,
        cut,
    )


class About(NamedTuple):
    """A run in a line."""

    agent: str | None
    """The agent's name."""
    text: str
    """What it was asked; of code, the first line that does something."""
    parent: str | None = None
    """The run of the agent that wrote it."""


async def about(hf: Runtime, run_ids: Iterable[str]) -> dict[str, About]:
    """What each of these runs is about, as far as it is on record and not erased."""
    found: dict[str, About] = {}
    for run_id in run_ids:
        row = await hf.journal.row("runs", run_id)
        if row is None:
            continue
        said = await _started(hf, row)
        if row["kind"] == "agent":
            name = _text(await _stored(hf, said.get("agent")), "name")
            asked = _text(await _stored(hf, said.get("prompt")), "text")
            found[run_id] = About(name or "agent", _line(asked or ""))
        else:
            code = await _content(hf, said.get("code"))
            found[run_id] = About(None, _line(code or ""), _text(row, "parent"))
    return found


def _line(text: str) -> str:
    """The first line that says something: neither empty nor a comment."""
    lines = [one.strip() for one in text[:_MOST_PROMPT].splitlines()]
    told = [one for one in lines if one and not one.startswith("#")]
    return (told or [one for one in lines if one] or [""])[0][:_MOST_LINE]


async def _started(hf: Runtime, row: dict[str, Any]) -> dict[str, Any]:
    """How a run began, as it is on record: of one that was over at once, with its end."""
    after = int(row["start_pos"]) - 1
    found: list[Record] = [
        one async for one in hf.journal.read(str(row["session_id"]), after=after, limit=1)
    ]
    said: dict[str, Any] = dict(found[0].payload) if found else {}
    return said.get("start") or said


# `Any`: contents are what JSON can express.
async def _stored(hf: Runtime, digest: Any) -> Any:
    if not isinstance(digest, str):
        return None
    try:
        return await stored_json(hf.journal, digest)
    except (HoldfastError, ValueError):
        return None  # erased, or not what this version knows


def _text(value: Any, name: str) -> str | None:
    found = value.get(name) if isinstance(value, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - any JSON
    return found if isinstance(found, str) else None


async def _content(hf: Runtime, digest: Any) -> str | None:
    """A text; `None` when it is erased, or there is none."""
    if not isinstance(digest, str):
        return None
    try:
        return (await hf.journal.content(digest)).decode(errors="replace")
    except HoldfastError:
        return None


async def _code(
    hf: Runtime, said: dict[str, Any], tool: str
) -> tuple[tuple[tuple[int, str], ...], frozenset[int], int]:
    """The lines of a run's code, which of them call `tool`, and how many characters were not looked at."""
    whole = await _content(hf, said.get("code"))
    if whole is None:
        return (), frozenset(), 0
    text = whole[:_MOST_CODE]
    lines = lines_of(text)
    calls = frozenset(
        one.line for one in sites(text, str(said.get("language", "python"))) if one.name == tool
    )
    if len(lines) <= 4 * _AROUND:
        shown = range(1, len(lines) + 1)
    else:
        near = {n for at in calls for n in range(at - _AROUND, at + _AROUND + 1)}
        shown = sorted(n for n in near if 1 <= n <= len(lines))
    return tuple((n, lines[n - 1]) for n in shown), calls, len(whole) - len(text)

"""The code of a run, line by line, with what happened at each line and where it stands.

Which line a call came from is taken from the record where it says so. Where it does not, it is worked out: the code has one
place that calls this name; or one whose written-down arguments are these; else the next such place, which is marked as a guess.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from holdfast.server.console.steps import OPEN, Step

MOST_LINES = 2000
"""Lines that a page shows."""
MOST_CODE = 200_000
"""Characters that are read for places of calls."""
_LINE = re.compile(r"\r\n|\r|\n")
_NAME = re.compile(r"\b([A-Za-z_][A-Za-z0-9_]*)\s*\(")
_NOT_WRITTEN: Any = object()


class Site(NamedTuple):
    """A place in the code that calls something."""

    line: int
    name: str
    args: tuple[Any, ...]
    """As they are written down; those that are not have a mark in their place."""
    kwargs: Mapping[str, Any]


class Place(NamedTuple):
    """The line of a step."""

    line: int
    sure: bool


@dataclass(frozen=True, slots=True)
class Line:
    """A line, and the steps that came from it."""

    number: int
    text: str
    steps: tuple[Step, ...] = ()
    here: bool = False
    """Whether the run stands here."""
    sure: bool = True
    """Whether that is known."""
    waits: str = ""
    """What for."""
    failed: bool = False
    """Whether the run ended here."""


@dataclass(frozen=True, slots=True)
class Source:
    """A program."""

    run_id: str
    language: str
    lines: tuple[Line, ...] = ()
    gone: bool = False
    """Whether its text was erased, or may not be shown."""
    cut: int = 0
    """Lines that are left out."""
    seq: int = 0
    status: str = ""
    places: Mapping[str, Place] = field(default_factory=dict[str, Place])
    """Step → its line."""


def lines_of(code: str) -> list[str]:
    """The lines of code, as its language counts them: not at every character that other texts break a line at."""
    found = _LINE.split(code)
    return found[:-1] if len(found) > 1 and not found[-1] else found


def sites(code: str, language: str = "python") -> list[Site]:
    """Every place that calls something, in order."""
    if len(code) > MOST_CODE:
        return []
    if language == "python":
        try:
            tree = ast.parse(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return _by_words(code)
        try:
            found = [_site(node) for node in ast.walk(tree) if isinstance(node, ast.Call)]
        except RecursionError:
            return _by_words(code)
        return sorted((one for one in found if one is not None), key=lambda one: one.line)
    return _by_words(code)


def _site(node: ast.Call) -> Site | None:
    if not isinstance(node.func, ast.Name):
        return None
    args = tuple(map(_written, node.args))
    kwargs = {one.arg: _written(one.value) for one in node.keywords if one.arg is not None}
    return Site(node.lineno, node.func.id, args, kwargs)


def _written(node: ast.expr) -> Any:
    return node.value if isinstance(node, ast.Constant) else _NOT_WRITTEN


def _by_words(code: str) -> list[Site]:
    return [
        Site(number, found[1], (), {})
        for number, text in enumerate(lines_of(code), 1)
        for found in _NAME.finditer(text)
    ]


def places(
    steps: Sequence[Step], found: Sequence[Site], arguments: Mapping[str, Any]
) -> dict[str, Place]:
    """The line of each step that came from this code. `arguments`: of steps, by their keys, where they are known."""
    by_name: dict[str, list[Site]] = {}
    for site in found:
        by_name.setdefault(site.name, []).append(site)
    last: dict[str, int] = {}
    told: dict[str, Place] = {}
    for step in steps:
        if step.key in told:
            continue  # whoever was asked about it has told
        if step.line is not None:
            told[step.key] = Place(step.line, sure=True)
            if step.lane == "approval" and step.subject is not None:
                told.setdefault(step.subject, told[step.key])
            continue
        if step.lane not in ("effect", "approval") or step.kind == "answered here":
            continue
        if step.subject in told:  # an approval is about a call, and at its line
            told[step.key] = told[str(step.subject)]
            continue
        named = by_name.get(step.name, [])
        fits = [one for one in named if _fits(one, arguments.get(step.key))] or named
        if not fits:
            continue
        before = last.get(step.name, 0)
        site = next((one for one in fits if one.line > before), fits[0])
        last[step.name] = site.line
        told[step.key] = Place(site.line, sure=len({one.line for one in fits}) == 1)
        if step.lane == "approval" and step.subject is not None:
            told[step.subject] = told[step.key]
    return told


def _fits(site: Site, said: Any) -> bool:
    """Whether a call with these arguments can have come from here."""
    if not isinstance(said, dict):
        return True
    values = cast("dict[str, Any]", said)
    for name, value in site.kwargs.items():
        if value is not _NOT_WRITTEN and values.get(name, _NOT_WRITTEN) != value:
            return False
    given = list(values.values())
    return all(value is _NOT_WRITTEN or value in given for value in site.args)


def source(
    code: str,
    *,
    run_id: str,
    language: str,
    steps: Sequence[Step],
    arguments: Mapping[str, Any],
    at: int,
    seq: int = 0,
    error_line: int | None = None,
) -> Source:
    """The program as it stood at a record."""
    own = [one for one in steps if one.run_id == run_id]
    told = places(own, sites(code, language), arguments)
    by_line: dict[int, list[Step]] = {}
    for step in own:
        place = told.get(step.key)
        if place is not None and step.at(at) is not None and step.lane == "effect":
            by_line.setdefault(place.line, []).append(step)
    stands = {
        told[one.key].line: one
        for one in own
        if one.key in told and one.lane in ("effect", "approval") and one.at(at) in OPEN
    }
    texts = lines_of(code)
    lines = tuple(
        Line(
            number=number,
            text=text,
            steps=tuple(by_line.get(number, ())),
            here=number in stands,
            sure=number not in stands or told[stands[number].key].sure,
            waits=_waits(stands[number], at) if number in stands else "",
            failed=number == error_line,
        )
        for number, text in enumerate(texts[:MOST_LINES], 1)
    )
    status = next((one.status for one in reversed(own) if one.lane == "code"), "")
    return Source(
        run_id, language, lines, cut=max(0, len(texts) - MOST_LINES), seq=seq, status=status,
        places=told,
    )  # fmt: skip


def _waits(step: Step, at: int) -> str:
    match step.at(at):
        case "waiting":
            asks = {"question": "an answer for", "sign_in": "a sign-in for"}
            return f"waits for {asks.get(step.kind, 'a person to approve')} {step.name}"
        case "in_doubt":
            return f"nobody knows whether {step.name} happened"
        case _:
            return f"{step.name} is under way"

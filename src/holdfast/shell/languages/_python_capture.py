"""Which value a run gives back: the global `result` if the run set it, else that of a final expression.

Decided from the text before it runs, in the cheapest way that is exact:

- *last*: nothing sets `result`: the engine's own answer is the value of a final expression;
- *named*: `result` is set on every way through: one more line, `result`, makes it the engine's answer;
- *watched*: only the run can tell. Each assignment gets a mark behind it that says it was carried out. What
  can't be marked (a loop variable, `exec`) is told by comparing the object before and after.

Nothing that runs is changed by it: marks and the extra line stand behind the agent's text, and columns behind
a mark are counted back by `Reading.column`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple
from unicodedata import normalize

from holdfast.contracts import Span
from holdfast.shell.languages import _python_scope as scope

RESULT = "result"
SET, FAR, WAS = "__holdfast_set", "__holdfast_far", "__holdfast_was"
"""Variables of ours in the box: the mark; that a run may set `result` from afar; the object before."""

STASH = f"[{WAS} := {RESULT}] and True"
"""Fed before a watched run; fails when there is no `result` yet."""

ASK = f"({SET} or {RESULT} is not {WAS}, {RESULT})"
ASK_FIRST = f"(True, {RESULT})"
"""Fed after it: whether it set `result`, and to what. Fails when there is none; the second when there was none."""

_MARK = f";{SET}=True"
_GLOBAL_MARK = f";global {SET}"
_ONLY = frozenset((RESULT,))
_DYNAMIC = frozenset(("exec", "eval"))

_DYNAMIC_MENTION = re.compile(r"\b(?:exec|eval)\b")
_MENTION = re.compile(r"\b(?:result|exec|eval)\b")
_ASSIGNMENT = re.compile(r"^result[ \t]*=(?!=)", re.MULTILINE)
# With these, that an assignment stands in the text is not enough.
_TRICKY = re.compile(r"\b(?:return|global|exec|eval|as\s+result)\b")
# Quotes that span lines, or a line that goes on.
_OPEN = re.compile(r"""\'\'\'|\"\"\"|\\\r?\n\Z""")
_LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_MAX_TAIL = 4096
_MAX_REMEMBERED = 4096


class Mark(NamedTuple):
    """Text put behind a statement; line and column count from 1, the column in characters."""

    line: int
    column: int
    text: str


class Reading(NamedTuple):
    """How to feed a piece of code, and how to find its value."""

    feed: str
    """The code, with what was put behind it."""
    named: bool = False
    """The engine's answer is `result`."""
    watched: bool = False
    """Ask afterwards whether `result` was set."""
    surely: bool = False
    """Watched, but a glance says it was."""
    far: bool = False
    """Later runs may set `result` without naming it."""
    marks: tuple[Mark, ...] = ()

    def column(self, line: int, column: int) -> int:
        """The column in the agent's text of a place in `feed`."""
        shift = sum(len(one.text) for one in self.marks if one.line == line and one.column < column)
        return column - shift

    def kept(self) -> dict[str, Any]:
        """All but the text, as JSON: for `recall`."""
        told = {**self._asdict(), "marks": [list(mark) for mark in self.marks]}
        del told["feed"]
        return told


def recall(code: str, kept: Mapping[str, Any]) -> Reading:
    """The reading of `code` that was `kept`; another version of this module might read it in another way."""
    marks = tuple(Mark(*mark) for mark in kept["marks"])
    feed = _marked(code, marks)
    if kept["named"]:
        feed = f"{feed}\n{RESULT}"
    return Reading(feed)._replace(**{**kept, "marks": marks})


def read(code: str, *, far: bool) -> Reading:
    """How to run `code` in a session in which `result` may (not) be set from `far`."""
    return _remembered(code, far) if len(code) <= _MAX_REMEMBERED else _read(code, far)


@lru_cache(maxsize=256)
def _remembered(code: str, far: bool) -> Reading:
    """Agents run the same code again: after a failure, in a loop, in a replay."""
    return _read(code, far)


def _read(code: str, far: bool) -> Reading:
    text = code if code.isascii() else normalize("NFKC", code)  # as the engine does with names
    if not _MENTION.search(text):
        return Reading(code, watched=far)
    if _plainly_named(text):
        return Reading(f"{code}\n{RESULT}", named=True)
    tree = scope.parse(code)
    if tree is None:
        return _unread(code, text)
    try:
        return _studied(code, tree, far)
    except RecursionError:
        return _unread(code, text)


def _plainly_named(code: str) -> bool:
    """Whether `result = …` surely is a statement of its own at the top level, found without parsing it all."""
    starts = [found.start() for found in _ASSIGNMENT.finditer(code)]
    if not starts or _TRICKY.search(code):
        return False
    last = starts[-1]
    if last == 0:
        return True
    before, tail = code[:last], code[last:]
    if len(tail) > _MAX_TAIL or _OPEN.search(before):
        return False
    # Inside brackets, the rest of the text would close what it did not open.
    tree = scope.parse(tail)
    return tree is not None and isinstance(tree.body[0], ast.Assign)


def _unread(code: str, text: str) -> Reading:
    """What to do with code that the host can't parse: newer syntax than its own, or simply wrong."""
    tricky = {found.group() for found in _TRICKY.finditer(text)}
    if "def " in text:
        tricky.discard("return")
    surely = not tricky and _ASSIGNMENT.search(text) is not None
    return Reading(code, watched=True, surely=surely, far=bool(tricky))


def _studied(code: str, tree: ast.Module, far: bool) -> Reading:
    functions = list(scope.globals_in(tree, RESULT)) if "global" in code else []
    dynamic = bool(functions) or (
        bool(_DYNAMIC_MENTION.search(code)) and scope.mentions(tree, _DYNAMIC)
    )
    if scope.surely_binds(tree.body, RESULT) and not _slips(tree):
        marks = _marks(code, functions)
        return Reading(f"{_marked(code, marks)}\n{RESULT}", named=True, far=dynamic, marks=marks)
    if not dynamic and not far and not any(scope.bindings(tree.body, _ONLY)):
        return Reading(code)
    marks = _marks(code, (tree, *functions))
    return Reading(_marked(code, marks), watched=True, far=dynamic, marks=marks)


def _slips(tree: ast.Module) -> bool:
    """Whether the run may end early, or unbind `result` after it was set."""
    for stmt in scope.statements(tree.body):
        # The engine knows a `return` at the top level.
        if isinstance(stmt, ast.Return):
            return True
        if isinstance(stmt, ast.Try) and any(one.name == RESULT for one in stmt.handlers):
            return True
    return False


def _marks(code: str, bodies: Iterable[ast.Module | scope.Function]) -> tuple[Mark, ...]:
    """A mark behind every plain assignment to the global `result` in these scopes."""
    lines = _LINES.findall(code)
    found: list[Mark] = []
    for body in bodies:
        for stmt in scope.statements(body.body):
            if scope.binds_directly(stmt, RESULT):
                found.append(_behind(stmt, lines, _MARK))
            elif isinstance(stmt, ast.Global) and RESULT in stmt.names:
                found.append(_behind(stmt, lines, _GLOBAL_MARK))
    return tuple(sorted(found, key=lambda one: (one.line, one.column)))


def _behind(stmt: ast.stmt, lines: list[str], text: str) -> Mark:
    line = stmt.end_lineno or stmt.lineno
    return Mark(line, scope.column(lines[line - 1], stmt.end_col_offset or 0), text)


def _marked(code: str, marks: tuple[Mark, ...]) -> str:
    lines = _LINES.findall(code)
    for mark in reversed(marks):
        line, at = lines[mark.line - 1], mark.column - 1
        lines[mark.line - 1] = f"{line[:at]}{mark.text}{line[at:]}"
    return "".join(lines)


def unmarked(line: str) -> str:
    """A line of fed text as the agent wrote it."""
    return line.replace(_MARK, "").replace(_GLOBAL_MARK, "") if SET in line else line


def rebound(code: str, inputs: frozenset[str]) -> tuple[str, Span] | None:
    """The first place at which the code binds one of its inputs, if the host can read it."""
    tree = scope.parse(code)
    if tree is None:
        return None
    found = list(scope.bindings(tree.body, inputs))
    if "global" in code:
        for name in inputs:
            for function in scope.globals_in(tree, name):
                found.extend(scope.bindings(function.body, frozenset((name,))))
    lines = _LINES.findall(code)
    places = [(name, _span(node, lines)) for name, node in found]
    return min(places, key=lambda one: (one[1].line, one[1].column), default=None)


def _span(node: ast.AST, lines: list[str]) -> Span:
    # Whatever binds a name has a place.
    place: ast.expr = node  # pyright: ignore[reportAssignmentType]
    return scope.span(place, lines)


def last_expression(code: str) -> str | None:
    """The final expression, if it is so plain that evaluating it once more does nothing and gives the same."""
    tree = scope.parse(code)
    if tree is None or not tree.body or not isinstance(tree.body[-1], ast.Expr):
        return None
    value = tree.body[-1].value
    plain = (ast.Name, ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.expr_context)
    if not all(isinstance(node, plain) for node in ast.walk(value)):
        return None
    return ast.get_source_segment(code, value)

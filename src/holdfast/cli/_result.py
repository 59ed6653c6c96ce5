"""A `RunResult` for people: what the code printed, its result, and errors with the place they point to."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.pretty import Pretty
from rich.text import Text

from holdfast.cli import _output

if TYPE_CHECKING:
    from holdfast.contracts import Diagnostic, RunResult, Span

_STYLES = {"error": "bold red", "warning": "bold yellow", "info": "bold blue"}
_TAB = 4


def show(result: RunResult, code: str, session_id: str, *, footer: bool = True) -> None:
    """Print it: output and result on stdout, everything about the run on stderr."""
    out = _output.console()
    _write(out.file, result.stdout)
    if result.result is not None:
        if isinstance(result.result, str):
            out.print(_output.visible(result.result))
        else:
            out.print(Pretty(result.result, expand_all=False))
    out.file.flush()
    if result.plan_id is not None:
        _show_plan(result)
    _write(sys.stderr, _without_traceback(result.stderr))
    for diagnostic in result.diagnostics:
        _explain(diagnostic, code)
    if footer:
        _output.console(stderr=True).print(_metrics(result, session_id), style="dim")


def _show_plan(result: RunResult) -> None:
    from holdfast.cli._inbox import effects_table

    out = _output.console()
    if not result.plan:
        out.print("It would call nothing but reads.", style="dim")
        return
    out.print(effects_table([one.model_dump(mode="json") for one in result.plan]))
    out.print(f"holdfast approvals approve {result.plan_id}", style="dim")
    out.print(f"then run the same code with --plan {result.plan_id}", style="dim")


def _without_traceback(stderr: str) -> str:
    """What the code printed there; the traceback stays only when it tells more than the excerpt below it."""
    said, _, traceback = stderr.rpartition("Traceback (most recent call last):\n")
    return said if traceback.count("\n  File ") + traceback.startswith("  File ") == 1 else stderr


def _write(stream: object, text: str) -> None:
    if text:
        print(_output.visible(text), end="" if text.endswith("\n") else "\n", file=stream)  # pyright: ignore[reportArgumentType]


def _explain(diagnostic: Diagnostic, code: str) -> None:
    err = _output.console(stderr=True)
    severity = diagnostic.severity.value
    err.print(f"{severity} {diagnostic.code}: ", style=_STYLES[severity], end="")
    err.print(_output.visible(diagnostic.message))
    if diagnostic.span is not None:
        err.print(excerpt(code, diagnostic.span))
    if diagnostic.hint:
        _output.tell_hint(diagnostic.hint)


def excerpt(code: str, span: Span) -> Text:
    """The line the span starts in, with carets under it."""
    lines = code.splitlines()
    if not 1 <= span.line <= len(lines):
        return Text(f"  at line {span.line}, column {span.column}", style="dim")
    line = lines[span.line - 1]
    before = _cells(line[: span.column - 1])
    last = span.end_column if span.end_line in (None, span.line) else None
    inside = _cells(line[span.column - 1 : len(line) if last is None else last - 1])
    if span.end_column is None:
        inside = 1
    number = str(span.line)
    gutter = " " * len(number)
    text = Text()
    text.append(f"  {number} │ ", style="blue")
    text.append(_shown(line) + "\n")
    text.append(f"  {gutter} │ ", style="blue")
    text.append(" " * before + "^" * max(1, inside), style="bold red")
    text.append(f" line {span.line}, column {span.column}", style="dim")
    return text


def _shown(line: str) -> str:
    return _output.visible(line.replace("\t", " " * _TAB))


def _cells(text: str) -> int:
    return cell_len(_shown(text))


def _metrics(result: RunResult, session_id: str) -> str:
    used = result.metrics
    parts = [result.status.value, f"{used.duration_ms} ms"]
    if used.memory_peak_bytes:
        parts.append(f"{_output.size(used.memory_peak_bytes)} peak")
    if used.external_calls_count:
        parts.append(f"{used.external_calls_count} calls")
    if session_id:
        parts.append(f"session {session_id}")
    if result.run_id:
        parts.append(result.run_id)
    return " · ".join(parts)

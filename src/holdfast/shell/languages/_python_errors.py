"""What the engine raises, told to the agent that must repair its code: a stable code, a place, a way out."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from pydantic_monty import (
    Frame,
    MontyCrashedError,
    MontyError,
    MontyRuntimeError,
    MontySyntaxError,
)

from holdfast.contracts import ErrorObject, SessionLimits, Span
from holdfast.shell.languages._python_capture import Reading, unmarked
from holdfast.shell.languages._python_raised import odd_exception
from holdfast.shell.languages._python_subset import BUILTINS, MODULES, instead, nearest

_MAX_MESSAGE = 2000
_MAX_LINE = 200
_SHOWN_FRAMES = 4

_UNSUPPORTED = "The monty syntax parser does not yet support "
_TOO_DEEP = "maximum recursion depth exceeded"
_MEMORY = re.compile(
    r"memory limit exceeded: \d+ bytes > \d+ bytes|the worker exceeded its memory limit"
)
_WORD = re.compile(r"[^\W\d]\w*")
_UNDEFINED = re.compile(r"name '(\w+)' is not defined")
_ONE_ARGUMENT = "exceptions can only be called with zero or one string argument"
_NO_MODULE = "No module named "
_STALLED = "asyncio scheduler stalled"
_SYNCHRONOUS = re.compile(r"external function '(\w+)' cannot suspend in this synchronous context")

_BREACHES: dict[str, tuple[str, str]] = {
    "TIMEOUT_CPU": (
        "The code computed for more than {cpu_ms} ms.",
        "Look for a loop that does not end; do less in one run, or allow more `cpu_ms`.",
    ),
    "TIMEOUT_WALL": (
        "The run took more than {wall_ms} ms.",
        "Call less, or allow more `wall_ms`.",
    ),
    "MEMORY_EXCEEDED": (
        "The code used more than {memory_mb} MiB.",
        "Hold less at a time, or allow more `memory_mb`.",
    ),
    "STDOUT_EXCEEDED": (
        "The code printed far more than {max_stdout_bytes} bytes.",
        "Print a summary; give data back as `result`.",
    ),
    "EXTERNAL_CALLS_EXCEEDED": (
        "The code made more than {max_external_calls} calls.",
        "Ask for more with each call, or allow more `max_external_calls`.",
    ),
    "STACK_OVERFLOW": (
        "Calls were nested more than {max_stack_depth} deep.",
        "Check what ends the recursion, use a loop, or allow more `max_stack_depth`.",
    ),
}


@dataclass(frozen=True)
class Text:
    """The code as the agent wrote it, and how the engine got it."""

    code: str
    limits: SessionLimits = field(default_factory=SessionLimits)
    reading: Reading = field(default_factory=lambda: Reading(""))
    skipped: int = 0
    """Lines put before the code."""
    names: Iterable[str] = ()
    """Functions the code may call."""
    raised: Mapping[str, ErrorObject] = field(default_factory=dict[str, ErrorObject])
    """What it was told went wrong outside."""
    awaits: Mapping[tuple[int, int], tuple[int, int]] = field(
        default_factory=dict[tuple[int, int], tuple[int, int]]
    )
    """Calls that were fed without their `await`: where each starts, and where that stands."""

    @cached_property
    def lines(self) -> list[str]:
        """Its lines, as the engine counts them."""
        return re.split(r"\r\n|\r|\n", self.code)

    def span(self, frame: Frame) -> Span:
        """Where in the code a frame is."""
        end = frame.end_line
        line, column = self.awaits.get(at := (frame.line, frame.column), at)
        return Span(
            line=line - self.skipped,
            column=self.reading.column(line, column),
            end_line=end - self.skipped,
            end_column=self.reading.column(end, frame.end_column),
        )


class Failure(NamedTuple):
    """Why a run failed."""

    error: ErrorObject
    trace: str = ""
    """The traceback, for standard error."""
    kept: bool = True
    """Whether the session's state can still be used."""


def breached(code: str, limits: SessionLimits, span: Span | None = None) -> ErrorObject:
    """The error of a run that broke a limit."""
    message, hint = _BREACHES[code]
    return ErrorObject(code=code, message=message.format_map(vars(limits)), hint=hint, span=span)


def is_refusal(error: MontyError) -> bool:
    """Whether the engine refused the code before running any of it."""
    if not isinstance(error, MontySyntaxError | MontyRuntimeError):
        return False
    frames = error.traceback()
    if isinstance(error, MontySyntaxError) and not frames:
        return True
    refused = isinstance(error.exception(), SyntaxError | NotImplementedError | ImportError)
    return refused and len(frames) == 1 and frames[0].function_name is None


def explain(error: MontyError, text: Text) -> Failure:
    """Why a feed failed."""
    if isinstance(error, MontyCrashedError):
        return _crashed(error, text)
    if not isinstance(error, MontySyntaxError | MontyRuntimeError):
        return Failure(ErrorObject(code="INTERNAL_ERROR", message=_short(str(error))), kept=False)
    if is_refusal(error):
        return _refused(error, text)
    frames = error.traceback()
    span = _innermost(frames, text)
    said = error.display("msg")
    broken = _broken_limit(error, text, frames)
    if broken is not None:
        trace = _trace(frames, text, error) if frames else ""
        return Failure(breached(broken, text.limits, span), trace, broken == "STACK_OVERFLOW")
    told = text.raised.get(said)
    if told is not None:
        return Failure(told.model_copy(update={"span": span}), _trace(frames, text, error))
    uncaught = _uncaught(error, said, span, text)
    if (
        _ONE_ARGUMENT in said
    ):  # the engine says neither where, nor so that anybody would understand it
        place = odd_exception(text.code, text.lines)
        return Failure(uncaught.model_copy(update={"span": place}), f"{uncaught.message}\n")
    return Failure(uncaught, _trace(frames, text, error))


def _refused(error: MontySyntaxError | MontyRuntimeError, text: Text) -> Failure:
    frames, said = error.traceback(), error.display("msg")
    span = text.span(frames[0]) if frames else None
    if isinstance(error, MontySyntaxError):
        return Failure(ErrorObject(code="SYNTAX_ERROR", message=_short(said), span=span))
    what = said.removeprefix(_UNSUPPORTED)
    message = f"Not supported: {_short(what)}." if what != said else _short(said)
    return Failure(
        ErrorObject(code="UNSUPPORTED_FEATURE", message=message, hint=instead(said), span=span)
    )


def _crashed(error: MontyCrashedError, text: Text) -> Failure:
    said = str(error)
    # Nobody but the kernel kills a worker unasked, and it does so for want of memory.
    if error.exit_status == 137 or "SIGKILL" in said or "signal: 9" in said:
        found = breached("MEMORY_EXCEEDED", text.limits)
        message = f"{found.message} The machine ran out of memory and killed the worker."
        return Failure(found.model_copy(update={"message": message}), kept=False)
    message = f"The engine's process died: {_short(said)}"
    hint = "The session is as it was before this run; run something simpler."
    return Failure(ErrorObject(code="INTERNAL_ERROR", message=message, hint=hint), kept=False)


def _broken_limit(
    error: MontySyntaxError | MontyRuntimeError, text: Text, frames: Sequence[Frame]
) -> str | None:
    """The limit of the engine that was hit, unless the code or a capability raised such an exception."""
    raised, said = error.exception(), error.display("msg")
    kind = type(raised).__name__
    if frames and _source(frames[-1]).startswith(kind):
        return None
    if isinstance(raised, RecursionError) and said.startswith(_TOO_DEEP):
        return "STACK_OVERFLOW"
    if isinstance(raised, MemoryError) and _MEMORY.match(said):
        return "MEMORY_EXCEEDED"
    late = isinstance(raised, TimeoutError) and "time limit exceeded" in said
    if late and said not in text.raised:
        return "TIMEOUT_CPU"
    return None


def _uncaught(error: MontyError, said: str, span: Span | None, text: Text) -> ErrorObject:
    raised = error.exception()
    message = _short(_type_and_message(error))
    if isinstance(raised, ModuleNotFoundError) and said.startswith(_NO_MODULE):
        hint = f"Modules that can be imported: {', '.join(MODULES)}."
        return ErrorObject(
            code="UNSUPPORTED_FEATURE", message=f"{_short(said)}.", hint=hint, span=span
        )
    hint = None
    if isinstance(raised, NameError) and (undefined := _UNDEFINED.match(said)):
        hint = _nearest(undefined[1], text)
    elif _STALLED in said:
        message, hint = (
            "RuntimeError: the code awaits a call that was made in an earlier run.",
            "Await a call in the run that makes it.",
        )
    elif isinstance(raised, NotImplementedError) and (called := _SYNCHRONOUS.match(said)):
        message = f"NotImplementedError: a built-in function can't call `{called[1]}`."
        hint = f"Call `{called[1]}` in a loop or a comprehension, and use its results."
    elif _ONE_ARGUMENT in said:
        message, hint = (
            "RuntimeError: an exception was given other than one text argument.",
            ("Raise exceptions with one text argument, or none."),
        )
    return ErrorObject(code="RUNTIME_ERROR", message=message, hint=hint, span=span)


def _nearest(name: str, text: Text) -> str:
    if name in dir(builtins) and name not in BUILTINS:
        return f"The built-in `{name}` is not part of the supported subset."
    near = nearest(name, (*BUILTINS, *text.names, *_WORD.findall(text.code[:100_000])))
    return (
        f"Did you mean `{near}`?"
        if near
        else "Define it first: no earlier run of this session did."
    )


def _innermost(frames: Sequence[Frame], text: Text) -> Span | None:
    """Where in this run's code it happened; the innermost frame may be a function of an earlier run."""
    own = [frame for frame in frames if _is_own(frame, frames[0], text)]
    return text.span(own[-1]) if own else None


def _is_own(frame: Frame, first: Frame, text: Text) -> bool:
    if frame.filename != first.filename or not 0 < frame.line - text.skipped <= len(text.lines):
        return False
    # A traceback starts in the module; one that does not may be all of an earlier run.
    source = unmarked((frame.source_line or "").partition("\n")[0])
    return first.function_name == "<module>" or source == text.lines[frame.line - text.skipped - 1]


def _trace(frames: Sequence[Frame], text: Text, error: MontyError) -> str:
    shown: list[str] = []
    hidden = len(frames) - 2 * _SHOWN_FRAMES
    for number, frame in enumerate(frames):
        if hidden > 0 and _SHOWN_FRAMES <= number < _SHOWN_FRAMES + hidden:
            if number == _SHOWN_FRAMES:
                shown.append(f"  … {hidden} more …")
            continue
        own = _is_own(frame, frames[0], text)
        where = (
            "<code>" if own else "<string>" if frame.filename == "<string>" else "<earlier code>"
        )
        line = frame.line - text.skipped if own else frame.line
        shown.append(f'  File "{where}", line {line}, in {frame.function_name or "<module>"}')
        said = unmarked((frame.source_line or "").partition("\n")[0])
        # As the agent wrote it, wherever we know that: what was fed may differ (`_python_direct.py`).
        source = (text.lines[line - 1] if own else said).strip()
        if source:
            shown.append(f"    {_short(source, _MAX_LINE)}")
    head = ["Traceback (most recent call last):"] if shown else []
    return "\n".join([*head, *shown, _short(_type_and_message(error))]) + "\n"


def _source(frame: Frame) -> str:
    """The text of the expression a frame points at, as far as it is on one line."""
    line = (frame.source_line or "").partition("\n")[0]
    return line[frame.column - 1 :]


def _type_and_message(error: MontyError) -> str:
    display: Callable[[str], str] | None = getattr(error, "display", None)
    return display("type-msg") if display is not None else str(error)


def _short(text: str, most: int = _MAX_MESSAGE) -> str:
    return text if len(text) <= most else f"{text[:most]}…"

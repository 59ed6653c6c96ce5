"""What the code reaches outside its box: the functions given to it, and a machine that refuses everything else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial
from time import monotonic
from types import MappingProxyType
from typing import Any

from pydantic_monty import AsyncFunctionSnapshot

from holdfast.contracts import (
    CallStatus,
    ErrorObject,
    ExternalCallRecord,
    Json,
    SideEffect,
    digest,
    digest_json,
)
from holdfast.errors import HoldfastError
from holdfast.shell.box import Call, Progress
from holdfast.shell.languages._python_guard import Guard
from holdfast.shell.languages._python_values import ENDINGS, Doubt, NotJson, disguised, to_json

_MAX_REMEMBERED = 1000
_SMALL = 1 << 63
_SHORT = 1 << 16
_NO_ARGUMENTS = digest(b"null")
"""The digest of arguments that have none because they are not JSON."""

# Which exception of the code's own language a refusal becomes; any other is a `RuntimeError`.
_RAISED: dict[str, type[Exception]] = {
    "INVALID_ARGUMENT": ValueError,
    "PERMISSION_DENIED": PermissionError,
    "SIGN_IN_REQUIRED": PermissionError,
    "TIMEOUT_TOOL": TimeoutError,
    "UNKNOWN_TOOL": ValueError,
}
# Exceptions of host functions that the code sees as they are.
_PASSED: frozenset[type[Exception]] = frozenset(
    {ArithmeticError, FileNotFoundError, IndexError, KeyError, LookupError, NotImplementedError}
    | {
        OSError,
        PermissionError,
        RuntimeError,
        TimeoutError,
        TypeError,
        ValueError,
        ZeroDivisionError,
    }
)
# Exceptions that the engine knows. Those that mean something to it or to us (a limit, the end of a run) are not among
# them: no capability can make a run look as if it had hit a limit.
_KINDS = frozenset(kind.__name__ for kind in _PASSED) | {
    "AssertionError",
    "AttributeError",
    "Exception",
    "FileExistsError",
    "IsADirectoryError",
    "NotADirectoryError",
    "OverflowError",
}
_STATUS = {"PERMISSION_DENIED": CallStatus.DENIED, "TIMEOUT_TOOL": CallStatus.TIMEOUT}
# Errors that end a run as what they are; any other ends it as the failure of a capability.
_OWN_STATUS = frozenset(
    (
        "BUDGET_EXCEEDED",
        "PERMISSION_DENIED",
        "RATE_LIMITED",
        "REQUEST_TOO_LARGE",
        "RESPONSE_TOO_LARGE",
        "SIGN_IN_REQUIRED",
        "TIMEOUT_TOOL",
    )
)

_DENIED = (
    (("time.time", "datetime.now", "date.today"), "the clock", "Take the time from an input."),
    (("time.sleep", "asyncio.sleep", "system."), "sleeping", "Go on without waiting."),
    (
        ("os.urandom",),
        "randomness",
        "Call random.seed(n) first: the numbers are then reproducible.",
    ),
    (("os.getenv", "os.environ"), "the environment", "Take the value from an input."),
)
_FILES = ("files", "Take the content from an input, or use a capability (see list_tools()).")
_INNER_NAME = re.compile(r"^\S*<locals>\.")
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Unfit(TypeError):
    """An argument is not JSON: the code's own mistake, not a capability's."""


class Outside:
    """Answers what the runs of one box ask for, and keeps the record. Called from threads of the engine.

    A run that was cut off may still have a call under way. Its box is dead then, so no other run begins here.
    """

    __slots__ = (
        "_allowed",
        "_guard",
        "_looked",
        "_lookup",
        "_names",
        "_open",
        "count",
        "number",
        "raised",
        "records",
    )

    def __init__(self) -> None:
        self._lookup: dict[str, Any] = {}
        self._looked: tuple[object, object] = (None, None)
        """What it was made of."""

    def begin(self, guard: Guard, names: Mapping[str, Call], allowed: int) -> None:
        """From now on it is this run that asks."""
        self._guard = guard
        self._names = names
        self._allowed = allowed
        self._open: tuple[str, str, float] | None = None
        self.count = 0
        """Calls so far, those of the host included."""
        self.number: int | None = None
        """The engine's number of the call being answered; `None` when nobody but us answers any."""
        self.records: list[tuple[int, ExternalCallRecord]] = []
        self.raised: dict[str, ErrorObject] = {}
        """What the code was told went wrong, by the message it saw."""

    def lookup(self, beyond: Mapping[str, Any] = _NOTHING) -> dict[str, Any]:
        """The functions as the engine wants them; those `beyond` it must know, but not ask us for."""
        names, (looked, looked_beyond) = self._names, self._looked
        if names is not looked or beyond is not looked_beyond:
            self._looked = (names, beyond)
            self._lookup = {name: partial(self._answer, name) for name in (*names, *beyond)}
        return self._lookup

    def unanswered(self) -> tuple[tuple[int, ExternalCallRecord], ...]:
        """Every call; one that was under way when the run was cut off has run out of time."""
        if self._open is not None:
            name, request, started = self._open
            self._record(name, CallStatus.TIMEOUT, request, monotonic() - started)
        return tuple(self.records)

    def made(self) -> int:
        """How many calls were made; the one too many was not."""
        return min(self.count, self._allowed)

    def wanted(self, at: AsyncFunctionSnapshot) -> tuple[tuple[Json, ...], dict[str, Json]]:
        """The arguments of a call that the host answers, as JSON; raises `Unfit`, and `Breach` for one too many."""
        self.count += 1
        self.number = at.call_id
        if self.count > self._allowed:
            raise self._guard.refuse("EXTERNAL_CALLS_EXCEEDED")
        name = at.function_name
        try:
            return self.arguments(name, at.args, at.kwargs)
        except Unfit as why:
            self._record(name, CallStatus.ERROR, _NO_ARGUMENTS, 0, error=_failure(why)[0])
            raise

    def arguments(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Json, ...], dict[str, Json]]:
        """Arguments as JSON; raises `Unfit`."""
        if _plain(args) and _plain(kwargs.values()):
            return args, kwargs
        given = _arguments(name, args, kwargs)
        return tuple(given["args"]), given["kwargs"]

    def take_over(self, progress: Progress) -> None:
        """Go on from what the run was answered elsewhere."""
        self.count = progress.calls
        self.records = list(progress.own)
        self.raised = dict(progress.raised)

    def thrown(self, error: ErrorObject, kind: str | None) -> tuple[str, str]:
        """The exception the code sees for the failure of a call, and its message."""
        if kind not in _KINDS:
            kind = _RAISED.get(error.code, RuntimeError).__name__
        return kind, self._told(error)

    def refuse(self, *, name: str, args: tuple[Any, ...], **_: Any) -> Any:
        """No part of the machine is granted: `os=` of a feed."""
        what, hint = _what(name)
        of = f" {str(args[0])[:200]!r}" if what == "files" and args else ""
        error = ErrorObject(
            code="PERMISSION_DENIED",
            message=f"Not granted to this session: {what} ({name}{of}).",
            hint=hint,
        )
        raise PermissionError(self._told(error))

    def _answer(self, name: str, /, *args: Any, **kwargs: Any) -> Json:
        self.count += 1
        if self.count > self._allowed:
            # The code may catch this and try again: it is being cut off, and nothing more is called.
            self._guard.stop("EXTERNAL_CALLS_EXCEEDED")
            raise RuntimeError("too many calls")
        started = self._guard.call_begins()
        request = _NO_ARGUMENTS
        try:
            given = _arguments(name, args, kwargs)
            request = digest_json(given)
            self._open = (name, request, started)
            answer = self._names[name](*given["args"], **given["kwargs"])
            response = digest_json(answer)
        except Exception as why:  # noqa: BLE001 - whatever a host function raises is for the code to see
            error, seen = _failure(why)
            status = _STATUS.get(error.code, CallStatus.ERROR)
            self._record(name, status, request, self._guard.call_ends(), error=error)
            raise seen(error.message if isinstance(why, Unfit) else self._told(error)) from None
        self._record(name, CallStatus.OK, request, self._guard.call_ends(), response=response)
        return answer

    def _told(self, error: ErrorObject) -> str:
        if len(self.raised) >= _MAX_REMEMBERED:
            self.raised.clear()
        ends_as = error
        if error.code not in _OWN_STATUS:
            message = (
                error.message if error.code == "TOOL_ERROR" else f"{error.code}: {error.message}"
            )
            ends_as = error.model_copy(update={"code": "TOOL_ERROR", "message": message})
        self.raised[error.message] = ends_as
        return error.message

    def _record(
        self,
        name: str,
        status: CallStatus,
        request: str,
        took: float,
        *,
        response: str | None = None,
        error: ErrorObject | None = None,
    ) -> None:
        self._open = None
        record = ExternalCallRecord(
            name=name,
            side_effect=SideEffect.NONE,
            duration_ms=int(took * 1000),
            status=status,
            request_digest=request,
            response_digest=response,
            error=error,
        )
        self.records.append((self.count - 1 if self.number is None else self.number, record))


def _arguments(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments as JSON, as they are digested and handed on."""
    try:
        value = to_json({"args": args, "kwargs": kwargs})
        if value.doubt is Doubt.LIKELY:
            raise NotJson(*disguised(value.of))
    except NotJson as why:
        raise Unfit(f"{name}() takes JSON values, not {why.kind}. {why.hint}") from None
    given: Any = value.json
    return given


def _plain(values: Iterable[Any]) -> bool:
    """Whether these surely are JSON, at a glance: most arguments are short text and small numbers."""
    room = _SHORT
    for value in values:
        if isinstance(value, str):
            room -= len(value)
            if room < 0 or value[-1:] in ENDINGS:
                return False
        elif isinstance(value, int):  # a bool too
            if not -_SMALL < value < _SMALL:
                return False
        elif value is not None:
            return False
    return True


def _failure(why: Exception) -> tuple[ErrorObject, type[Exception]]:
    """The error on record, and the type the code sees it as."""
    if isinstance(why, HoldfastError):
        return ErrorObject.of(why), _RAISED.get(why.code, RuntimeError)
    if isinstance(why, Unfit):
        return ErrorObject(code="INVALID_ARGUMENT", message=str(why)), TypeError
    kind = type(why)
    text = _INNER_NAME.sub("", str(why)) or kind.__name__
    if kind in _PASSED:
        return ErrorObject(code="TOOL_ERROR", message=text), kind
    return ErrorObject(code="TOOL_ERROR", message=f"{kind.__name__}: {text}"), RuntimeError


def _what(name: str) -> tuple[str, str]:
    for names, what, hint in _DENIED:
        if name.startswith(names):
            return what, hint
    return _FILES

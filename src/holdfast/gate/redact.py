"""Secrets, replaced by their names at the one exit to the journal, the logs, prompts and errors.

Redaction goes by value: whatever is live is looked for, in the spellings of `_redact_forms`, in every text that
passes. It is the net under a mistake (a capability that prints its configuration, an error that quotes a URL),
not a wall against code that wants to leak: the wall is that code never sees a secret.

Almost no text holds one, so the usual case is one linear search for the first characters of all spellings at
once; only a text where that finds something is looked at closely. Where spellings overlap, all of it goes.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, cast

from holdfast.contracts import Json
from holdfast.contracts.canonical import not_json
from holdfast.errors import CallerError
from holdfast.gate._expression_patterns import escaped, searcher
from holdfast.gate._redact_forms import Form, forms

MIN_CHARS = 6
"""Shorter values are refused: they would be found everywhere."""

HEAD = 16
"""So much of each spelling is searched for first."""

ANONYMOUS = "[***]"
"""Stands for a secret whose name would give one away. Shorter than any live value."""

ROUNDS = 8
"""So often a text is looked at before all of it is given up."""

_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,64}")


class _Span(NamedTuple):
    start: int
    end: int
    name: str


class _Index:
    """All spellings of all live secrets, ready to be searched for."""

    __slots__ = ("_maybe", "_numeric", "forms", "live", "longest", "markers")

    def __init__(self, live: Mapping[str, tuple[str, ...]]) -> None:
        self.live = live
        every = [(name, value) for name, values in live.items() for value in values]
        self.forms = sorted(
            (form for name, value in every for form in forms(name, value)),
            key=lambda form: -len(form.text),
        )
        self.longest = len(self.forms[0].text)
        values = [value for _, value in every]
        self.markers = {name: _marker(name, values) for name, _ in every}
        self._numeric = any(value.strip("0123456789+-.eE") == "" for value in values)
        self._maybe = _prefilter({form.text[:HEAD] for form in self.forms})

    def spans(self, text: str) -> list[_Span]:
        """Where secrets are, overlapping ones joined, in order."""
        if _is_unicode(text) and not self._maybe(text):
            return []
        every = (span for form in self.forms for span in _occurrences(form, text))
        found = sorted(every, key=lambda span: (span.start, -span.end))
        joined: list[_Span] = []
        for span in found:
            if joined and span.start < joined[-1].end:
                last = joined.pop()
                span = _Span(last.start, max(last.end, span.end), last.name)
            joined.append(span)
        return joined

    def text(self, text: str) -> str:
        """`text` without secrets."""
        # Again until nothing is found: a marker and what stands beside it can spell another secret.
        for _ in range(ROUNDS):
            if not (spans := self.spans(text)):
                return text
            text = self._replaced(text, spans)
        return ANONYMOUS

    def _replaced(self, text: str, spans: Iterable[_Span]) -> str:
        """`text` with the markers in place of the spans."""
        parts: list[str] = []
        at = 0
        for span in spans:
            parts += (text[at : span.start], self.markers[span.name])
            at = span.end
        return "".join((*parts, text[at:]))

    def json(self, value: Json) -> Json:
        """`value` without secrets; the same object where there are none."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            items = [self.json(item) for item in value]
            return items if any(map(_differ, items, value)) else value
        if isinstance(value, dict):
            return self._object(value)
        if self._numeric and isinstance(value, int | float) and not isinstance(value, bool):
            spelled = repr(value)
            clean = self.text(spelled)
            return value if clean == spelled else clean
        return value

    def _object(self, value: dict[str, Json]) -> dict[str, Json]:
        found: dict[str, Json] = {}
        changed = False
        for key, item in value.items():
            clean = name = self.text(key)
            count = 1
            while name in found:
                count += 1
                name = f"{clean}#{count}"
            found[name] = self.json(item)
            changed = changed or name != key or found[name] is not item
        return found if changed else value

    def held_back(self, text: str) -> int:
        """Where the longest end of `text` begins that could be the beginning of a secret."""
        at = len(text)
        for form in self.forms:
            start = max(0, len(text) - len(form.text) + 1)
            while (start := text.find(form.text[0], start, at)) >= 0:
                if form.text.startswith(text[start:]):
                    at = start
                    break
                start += 1
        return at


def _differ(one: object, other: object) -> bool:
    return one is not other


def _marker(name: str, values: Iterable[str]) -> str:
    marker = f"[secret:{name}]"
    return ANONYMOUS if any(value in marker for value in values) else marker


def _is_unicode(text: str) -> bool:
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def _prefilter(heads: Iterable[str]) -> Callable[[str], bool]:
    """Whether a Unicode text holds one of the heads."""
    return searcher("|".join(escaped(head) for head in sorted(heads) if _is_unicode(head)))


def _occurrences(form: Form, text: str) -> Iterable[_Span]:
    start = text.find(form.text)
    while start >= 0:
        end = start + len(form.text)
        first = start - (start > 0 and text[start - 1] in form.before)
        last = end + (end < len(text) and text[end] in form.after)
        yield _Span(first, last, form.name)
        start = text.find(form.text, start + 1)


class Redactor:
    """Knows the live secrets and replaces them by `[secret:NAME]`. Shows none of them itself."""

    __slots__ = ("_index", "_live")

    def __init__(self) -> None:
        self._live: dict[str, tuple[str, ...]] = {}
        self._index: _Index | None = None

    def add(self, name: str, value: str) -> None:
        """From now on `value` is replaced; earlier values of the name, too, until it is removed."""
        if not _NAME.fullmatch(name):
            raise CallerError(
                "INVALID_ARGUMENT",
                "The name of a secret can't be used.",
                hint="Use 1 to 64 letters, digits, `_`, `-` or `.`.",
            )
        if len(value) < MIN_CHARS:
            raise CallerError(
                "INVALID_ARGUMENT",
                f"Secret `{name}` is shorter than {MIN_CHARS} characters.",
                hint="It would be found in ordinary text; use a longer one.",
            )
        try:
            value.encode(errors="surrogateescape")
        except UnicodeEncodeError:
            raise CallerError("INVALID_ARGUMENT", f"Secret `{name}` is no Unicode text.") from None
        known = self._live.get(name, ())
        if value not in known:
            self._live = {**self._live, name: (*known, value)}

    def remove(self, name: str) -> None:
        """The values of the name are no longer replaced."""
        self._live = {known: values for known, values in self._live.items() if known != name}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of what is live."""
        return tuple(self._live)

    def text(self, text: str) -> str:
        """`text` without secrets; the same object if there are none."""
        return self._ready().text(text) if self._live else text

    def json(self, value: Json) -> Json:
        """`value` without secrets in any text, key or number; the same object if there are none."""
        if not self._live:
            return value
        try:
            return self._ready().json(value)
        except RecursionError:
            raise not_json("it is nested too deep") from None

    def bytes_(self, data: bytes) -> bytes:
        """`data` without secrets, also if it is not text."""
        if not self._live:
            return data
        text = data.decode(errors="surrogateescape")
        clean = self._ready().text(text)
        return data if clean is text else clean.encode(errors="surrogateescape")

    def stream(self) -> Stream:
        """For a text that comes in pieces: a secret that is split between two is found as well."""
        return Stream(self)

    def split(self, text: str) -> tuple[str, str]:
        """What of `text` can be shown now, without secrets, and what must wait for more."""
        if not self._live:
            return text, ""
        index = self._ready()
        spans = index.spans(text)
        cut = index.held_back(text)
        for span in reversed(spans):
            # What may grow waits; but not for ever, or a text that only repeats a secret would fill the memory.
            if span.start < cut and span.end >= cut and (span.end > cut or span.end == len(text)):
                grows_too_long = len(text) - span.start > 4 * index.longest
                cut = span.end if grows_too_long else span.start
        return index.text(text[:cut]), text[cut:]

    def _ready(self) -> _Index:
        # Made when it is first needed, not for each of many secrets that are added in a row. Threads may make
        # it twice, from the same secrets or newer ones.
        index = self._index
        if index is None or index.live is not self._live:
            index = self._index = _Index(self._live)
        return index

    def __repr__(self) -> str:
        return f"Redactor({', '.join(self._live)})"


class Stream:
    """One text in pieces, without secrets. Holds back only an end that may be the beginning of one."""

    __slots__ = ("_held", "_redactor")

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = ""

    def feed(self, piece: str) -> str:
        """What can be shown now."""
        shown, self._held = self._redactor.split(self._held + piece)
        return shown

    def close(self) -> str:
        """The rest."""
        held, self._held = self._held, ""
        return self._redactor.text(held)

    def __repr__(self) -> str:
        return f"Stream({self._redactor!r})"


class RedactingFilter(logging.Filter):
    """Takes secrets out of log records. Put it on handlers: a logger's filters do not see its children's records."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def filter(self, record: logging.LogRecord) -> bool:
        """Always true; the record's message, arguments, traceback and extras are clean afterwards."""
        if self._redactor.names:
            self._message(record)
            self._traceback(record)
            for key, value in vars(record).items():
                setattr(record, key, self._clean(value))
        return True

    def _clean(self, value: object) -> object:
        if isinstance(value, str):
            return self._redactor.text(value)
        if isinstance(value, tuple):
            return tuple(map(self._clean, cast("tuple[object, ...]", value)))
        if not isinstance(value, list | dict):
            return value
        try:
            return self._redactor.json(cast("Json", value))
        except CallerError:
            return ANONYMOUS

    def _message(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 - a wrong format string: logging reports it, without the arguments
            record.args = ()
            return
        clean = self._redactor.text(message)
        if clean is not message:
            record.msg, record.args = clean, ()

    def _traceback(self, record: logging.LogRecord) -> None:
        if not record.exc_info:
            return
        told = record.exc_text or logging.Formatter().formatException(record.exc_info)
        clean = self._redactor.text(told)
        if clean is not told:
            # The exception itself still holds the secret; handlers that print it from there must not get it.
            record.exc_info, record.exc_text = None, clean

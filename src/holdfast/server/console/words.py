"""Values in words and figures, for templates: times, durations, sizes, money, names."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime
from typing import Any

_SECOND = 1000
_MINUTE = 60 * _SECOND
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
_SHOWN = 6
_ROWS, _COLUMNS = 14, 100
"""What a text may fill of a page before it is cut: a little more than `.long` of the stylesheet leaves of it."""
_TOUCHES = {
    "none": "touches nothing",
    "read": "reads",
    "write": "writes",
    "external_system": "acts on another system",
    "model": "asks a model",
}
_OURS = re.compile(r"([a-z:]+)_([0-9a-f]{14,})((?:_\d+)*)")
"""Ids that holdfast makes."""
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)
"""Characters that can't be seen, or turn others around: with them, a text is not what it looks like."""


def now_ms() -> int:
    """Unix milliseconds."""
    return time.time_ns() // 1_000_000


def iso(ms: int) -> str:
    """A moment for machines: `2026-11-16T15:30:00Z`."""
    return _moment(ms).strftime("%Y-%m-%dT%H:%M:%SZ")


def clock(ms: int) -> str:
    """A moment in full, for people."""
    return _moment(ms).strftime("%Y-%m-%d %H:%M:%S UTC")


def ago(ms: int | None, now: int | None = None) -> str:
    """How long ago: `just now`, `5 min ago`; or how soon: `in 5 min`."""
    if ms is None:
        return "never"
    gone = (now_ms() if now is None else now) - ms
    if abs(gone) < 5 * _SECOND:
        return "just now"
    return f"in {span(-gone)}" if gone < 0 else f"{span(gone)} ago"


def span(ms: int) -> str:
    """A stretch of time in one figure: `40 s`, `5 min`, `3 h`, `12 d`."""
    for size, unit in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if ms >= size:
            return f"{ms // size} {unit}"
    return f"{ms // _SECOND} s"


def duration(ms: float | None) -> str:
    """How long something took: `12 ms`, `1.25 s`, `2 min 05 s`."""
    if ms is None:
        return "–"
    if ms < _SECOND:
        return f"{ms:.0f} ms"
    if ms < 10 * _SECOND:
        return f"{ms / _SECOND:.2f} s"
    if ms < _MINUTE:
        return f"{ms / _SECOND:.1f} s"
    if ms < _HOUR:
        return f"{ms // _MINUTE:.0f} min {ms % _MINUTE // _SECOND:02.0f} s"
    return f"{ms // _HOUR:.0f} h {ms % _HOUR // _MINUTE:02.0f} min"


def size(count: float) -> str:
    """Bytes: `512 B`, `1.5 KiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return ""


def money(micros: int) -> str:
    """Millionths of a US dollar: `$0.0042`, `$12.30`."""
    if micros == 0:
        return "$0"
    return f"${micros / 1e6:.2f}" if micros >= 1_000_000 else f"${micros / 1e6:.4f}"


def count(value: int) -> str:
    """A number with thin spaces: `12 345`."""
    return f"{value:,}".replace(",", "\u2009")


# `Any`: whatever JSON can express.
def as_json(value: Any, indent: int | None = 2) -> str:
    """JSON to read; the order of keys is kept."""
    return json.dumps(value, indent=indent, ensure_ascii=False)


def short(name: str | None) -> str:
    """An id that can still be told from others: `run_…7c0016`. Names that people gave are left whole."""
    if name is None:
        return "–"
    found = _OURS.fullmatch(name)
    return name if found is None else f"{found[1]}_…{found[2][-_SHOWN:]}{found[3]}"


def words(token: str) -> str:
    """A token of ours as words: `waiting_for_approval` → `waiting for approval`."""
    return token.replace("_", " ")


def touches(side_effect: str) -> str:
    """What a call may touch, in the same words on every page."""
    return _TOUCHES.get(side_effect, words(side_effect))


def is_long(text: str) -> bool:
    """Whether a text would fill a page: then only its beginning is shown at first, with how long it is."""
    rows = 0
    for line in text[: _ROWS * _COLUMNS + 1].split("\n"):
        rows += 1 + len(line) // _COLUMNS
    return rows > _ROWS


def shortened(text: str, most: int = 48) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text[: 2 * most].split())
    return line if len(line) <= most and len(text) <= 2 * most else f"{line[: most - 1]}…"


def visible(text: str) -> str:
    """A text of others with what can't be seen in it spelled out; line ends and tabs stay."""
    return _HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


FILTERS: dict[str, Any] = {
    "ago": ago,
    "iso": iso,
    "time": clock,
    "span": span,
    "duration": duration,
    "bytes": size,
    "money": money,
    "count_": count,
    "json": as_json,
    "short": short,
    "words": words,
    "visible": visible,
    "touches": touches,
    "is_long": is_long,
    "shortened": shortened,
}
"""As templates know them."""

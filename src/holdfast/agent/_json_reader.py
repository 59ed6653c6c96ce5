"""JSON as models write it, read piece by piece: one grammar for a whole answer and for one that is still coming.

The grammar is JSON, and beside it the slips whose meaning is beyond doubt (`REPAIRS`): each one that is made use of
is noted in `Reader.repairs`. What could mean two things is not guessed. The reader gets stuck there, says where and
why, and keeps what it has; it never raises. A value costs time in proportion to its length, however small the
pieces are in which it comes: a piece that ends in the middle of a token leaves at most that token to be read again.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from holdfast.agent._json_tokens import HALF, NO_VALUE, Fail, More, escape, is_bare_key, scalar
from holdfast.contracts import Json

MAX_DEPTH: Final = 64
"""Levels that a value may have."""
_MAX_WORD = 1024

_OPEN, _KEY, _COLON, _VALUE, _NEXT, _DONE = "open", "key", "colon", "value", "next", "done"

# A closing quote is never guessed from what follows it: the first one ends the string.
_QUOTES = {'"': '"', "'": "'", "“": "”“", "”": "”", "„": "“”", "‘": "’", "’": "’"}
_PLAIN = {
    closers: re.compile(rf"[^\\\x00-\x1f\ud800-\udfff{closers}]+")
    for closers in set(_QUOTES.values())
}
_SPACE = re.compile(r"[ \t\r\n]+")
_ODD_SPACE = re.compile(r"[\s\ufeff\u200b\u2060]+")
_WORD = re.compile(r"[\w.+$-]+")
_LINE = re.compile(r"[^\r\n]*")


class Stuck(NamedTuple):
    """Where the reader could not go on."""

    at: int
    """How many characters into the text."""
    why: str
    """What is wrong there; the same words for the same mistake."""


class _Frame:
    """A container that is still open."""

    __slots__ = ("held", "key")

    def __init__(self, held: dict[str, Json] | list[Json]) -> None:
        self.held = held
        self.key: str | None = None
        """In an object, the key whose value is being read."""


class Reader:
    """One JSON value, as far as it has come."""

    def __init__(self) -> None:
        self.repairs: dict[str, None] = {}
        """What was repaired so far, in the order in which it was met."""
        self.stuck: Stuck | None = None
        """Why nothing more is read."""
        self.version = 0
        """Changes whenever `value` does."""
        self._mode = _VALUE
        self._stack: list[_Frame] = []
        self._root: Json = None
        self._found = False
        self._rest: str = ""
        self._at = 0
        self._ended = False
        # While a string is open: what closes it, whether it is a key, its pieces.
        self._closers = ""
        self._is_key = False
        self._pieces: list[str] = []
        # While a comment is open: whether it is of the kind that ends with its line.
        self._comment: bool | None = None
        self._last = ""
        self._new_line = False

    # -- what there is ----------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """Whether the value is complete."""
        return self._mode is _DONE

    @property
    def at(self) -> int:
        """How many characters were read; once it is done, where the value ends."""
        return self._at

    @property
    def found(self) -> bool:
        """Whether there is anything to show."""
        return self._found or bool(self._closers and not self._is_key)

    @property
    def rest(self) -> str:
        """What was fed and not read."""
        return self._rest

    @property
    def closable(self) -> bool:
        """Whether nothing but closing brackets is missing."""
        if self.stuck or self._closers or self._comment is not None:
            return False
        return self._mode is _NEXT

    def value(self) -> Json:
        """The value so far, as nobody will change it any more: what is still open is copied, the rest is shared.

        Numbers, literals and keys count once they are complete; a string that is still coming counts as it is.
        """
        pending: Any = None
        has_pending = bool(self._closers) and not self._is_key
        if has_pending:
            self._pieces = ["".join(self._pieces)]
            pending = self._pieces[0]
        for frame in reversed(self._stack):
            if isinstance(frame.held, dict):
                copy: Any = dict(frame.held)
                if has_pending and frame.key is not None:
                    copy[frame.key] = pending
            else:
                copy = [*frame.held, pending] if has_pending else list(frame.held)
            pending, has_pending = copy, True
        return pending if has_pending else self._root

    # -- more of it -------------------------------------------------------------------------------------

    def feed(self, text: str) -> None:
        """Read on. What comes after the value is left alone."""
        if self.stuck or self.done:
            return
        text = self._rest + text if self._rest else text
        pos = 0
        try:
            while pos < len(text) and self._mode is not _DONE:
                pos = self._step(text, pos)
        except More:
            pass
        except Fail as why:
            pos = self._at_failure(pos, why)
        self._at += pos
        self._rest = text[pos:]

    def finish(self) -> None:
        """There is nothing more to come: what was waiting for its next character is complete."""
        self._ended = True
        if self._comment:
            self._comment = None
        if self._rest and not self.stuck:
            rest, self._rest = self._rest, ""
            self.feed(rest)

    def close(self) -> None:
        """Close what is open; only if `closable`."""
        self.repairs["closed_end"] = None
        while self._stack:
            self._leave()

    def _note(self, repair: str | None) -> None:
        if repair is not None:
            self.repairs[repair] = None

    def _at_failure(self, pos: int, why: Fail) -> int:
        self.stuck = Stuck(self._at + pos, str(why))
        return pos

    # -- one token --------------------------------------------------------------------------------------

    def _step(self, text: str, pos: int) -> int:
        if self._closers:
            return self._string(text, pos)
        if self._comment is not None:
            return self._in_comment(text, pos)
        char = text[pos]
        if char in " \t\r\n":
            return self._space(text, pos)
        if char in "/#":
            return self._comment_start(text, pos)
        if char.isspace() or char in "\ufeff\u200b\u2060":
            self.repairs["space"] = None
            return self._space(text, pos)
        after = self._token(char, text, pos)
        self._new_line = False
        return after

    def _token(self, char: str, text: str, pos: int) -> int:
        if char in "}]":
            return self._closing(char, pos)
        match self._mode:
            case "open" | "value":
                return self._value(char, text, pos)
            case "key":
                return self._key(char, text, pos)
            case "colon":
                if char != ":":
                    raise Fail("expected `:` after a key")
                self._mode = _VALUE
                return pos + 1
            case _:
                return self._next(char, text, pos)

    def _space(self, text: str, pos: int) -> int:
        found = _ODD_SPACE.match(text, pos) or _SPACE.match(text, pos)
        end = found.end() if found else pos + 1
        space = text[pos:end]
        if space.strip(" \t\r\n"):
            self.repairs["space"] = None
        self._new_line = self._new_line or "\n" in space
        return end

    def _value(self, char: str, text: str, pos: int) -> int:
        if char in "{[":
            if len(self._stack) >= MAX_DEPTH:
                raise Fail(f"more than {MAX_DEPTH} levels of brackets")
            self._stack.append(_Frame({} if char == "{" else []))
            # An array may end at once, an object waits for a key; both look for their closing bracket.
            self._mode = _KEY if char == "{" else _OPEN
            self._last = char
            return pos + 1
        if char in _QUOTES:
            return self._open_string(char, pos, is_key=False)
        word, end = self._word(text, pos)
        found = scalar(word)
        self._put(found.value)
        self._note(found.repair)
        self._last = "word"
        return end

    def _key(self, char: str, text: str, pos: int) -> int:
        if char in _QUOTES:
            return self._open_string(char, pos, is_key=True)
        word, end = self._word(text, pos)
        if not is_bare_key(word):
            raise Fail("expected a key in double quotes")
        self.repairs["bare_key"] = None
        self._put_key(word)
        return end

    def _next(self, char: str, text: str, pos: int) -> int:
        held = self._stack[-1].held
        if char == ",":
            self._last = ","
            self._mode = _KEY if isinstance(held, dict) else _VALUE
            return pos + 1
        if isinstance(held, dict):
            # After a string only on a new line: on the same one it may be a quote that belongs to the string.
            begins = char in _QUOTES or char.isalpha() or char in "_$"
            if begins and (self._last != "string" or self._new_line):
                self.repairs["missing_comma"] = None
                self._mode = _KEY
                return self._key(char, text, pos)
            raise Fail("expected `,` or `}` after a member")
        if self._last + char in ("}{", "]["):
            self.repairs["missing_comma"] = None
            self._mode = _VALUE
            return self._value(char, text, pos)
        raise Fail("expected `,` or `]` after an item")

    def _closing(self, char: str, pos: int) -> int:
        if not self._stack:
            raise Fail(f"`{char}` closes nothing")
        due = "}" if isinstance(self._stack[-1].held, dict) else "]"
        if char != due:
            raise Fail(f"found `{char}` where `{due}` was due")
        if self._mode is _COLON or (self._mode is _VALUE and self._last != ","):
            raise Fail("a key has no value")
        if self._last == ",":
            self.repairs["trailing_comma"] = None
        self._leave()
        self._last = char
        return pos + 1

    # -- values -----------------------------------------------------------------------------------------

    def _leave(self) -> None:
        self._put(self._stack.pop().held)

    def _put(self, value: Json) -> None:
        self.version += 1
        if not self._stack:
            self._root, self._found, self._mode = value, True, _DONE
            return
        frame = self._stack[-1]
        if isinstance(frame.held, dict):
            frame.held[frame.key or ""] = value
            frame.key = None
        else:
            frame.held.append(value)
        self._found = True
        self._mode = _NEXT

    def _put_key(self, key: str) -> None:
        frame = self._stack[-1]
        if key in frame.held:
            raise Fail(f"the key `{key[:80]}` is there twice")
        frame.key = key
        self._mode = _COLON
        self._last = "key"

    def _word(self, text: str, pos: int) -> tuple[str, int]:
        found = _WORD.match(text, pos)
        if not found:
            wanted = "a key in double quotes" if self._mode is _KEY else "a value"
            raise Fail(f"expected {wanted}, found {text[pos]!r}")
        if found.end() - pos > _MAX_WORD:
            raise Fail(f"a word of more than {_MAX_WORD} characters")
        if found.end() == len(text) and not self._ended:
            raise More
        return found[0], found.end()

    # -- strings ----------------------------------------------------------------------------------------

    def _open_string(self, char: str, pos: int, *, is_key: bool) -> int:
        if char != '"':
            self.repairs["quotes"] = None
        self._closers, self._is_key, self._pieces = _QUOTES[char], is_key, []
        self.version += not is_key
        return pos + 1

    def _string(self, text: str, pos: int) -> int:
        if plain := _PLAIN[self._closers].match(text, pos):
            self._pieces.append(plain[0])
            self.version += not self._is_key
            return plain.end()
        char = text[pos]
        if char in self._closers:
            return self._close_string(pos)
        if char == "\\":
            piece, end, repair = escape(text, pos)
            self._note(repair)
        elif "\ud800" <= char <= "\udfff":
            raise Fail(HALF)
        else:
            self.repairs["control"] = None
            piece, end = char, pos + 1
        self._pieces.append(piece)
        self.version += not self._is_key
        return end

    def _close_string(self, pos: int) -> int:
        found = "".join(self._pieces)
        self._closers, self._pieces = "", []
        if self._is_key:
            self._put_key(found)
        else:
            self._put(found)
            self._last = "string"
        return pos + 1

    # -- comments ---------------------------------------------------------------------------------------

    def _comment_start(self, text: str, pos: int) -> int:
        if pos + 1 == len(text) and not self._ended:
            raise More
        start = text[pos : pos + 2]
        # `#fff` is a colour that lacks its quotes, not a remark.
        if start not in ("//", "/*") and (start[0] != "#" or start.strip() != "#"):
            raise Fail(NO_VALUE if start[0] == "#" else "`/` stands for nothing in JSON")
        self._comment = start != "/*"
        self.repairs["comment"] = None
        return pos + (1 if start[0] == "#" else 2)

    def _in_comment(self, text: str, pos: int) -> int:
        if self._comment:
            found = _LINE.match(text, pos)
            end = found.end() if found else pos
            if end < len(text):
                self._comment = None
            return end
        end = text.find("*/", pos)
        if end >= 0:
            self._comment = None
            return end + 2
        # A star at the very end may be the first half of the comment's end.
        if text.endswith("*") and not self._ended:
            if pos == len(text) - 1:
                raise More
            return len(text) - 1
        return len(text)

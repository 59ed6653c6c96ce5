"""The keyboard between runs: history and completion. And while one is under way: lines typed meanwhile."""

from __future__ import annotations

import codecs
import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

_ERASE, _KILL, _ESCAPE = "\x7f\x08", "\x15", "\x1b"


class Keyboard:
    """History and completion, where the interpreter has them."""

    def __init__(self, file: Path, words: Callable[[], Iterable[str]]) -> None:
        """`file` keeps what was typed; `words` can be completed."""
        self._file = file
        self._words = words
        self._found: list[str] = []

    def ask(self, prompt: str, begun: str = "") -> str:
        """What is typed; `begun` is there already. As `input`, it raises `EOFError` and `KeyboardInterrupt`."""
        if not begun:
            return input(prompt)
        try:
            import readline
        except ImportError:
            return begun + input(prompt + begun)
        readline.set_startup_hook(lambda: readline.insert_text(begun))
        try:
            return input(prompt)
        finally:
            readline.set_startup_hook(None)

    def __enter__(self) -> Keyboard:
        try:
            import readline
        except ImportError:
            return self
        with suppress(OSError):
            self._file.touch(mode=0o600, exist_ok=True)
            readline.read_history_file(self._file)
        readline.set_history_length(1000)
        readline.set_completer(self._complete)
        readline.parse_and_bind("tab: complete")
        return self

    def __exit__(self, *_: object) -> None:
        try:
            import readline
        except ImportError:
            return
        with suppress(OSError):
            readline.write_history_file(self._file)
        readline.set_completer(None)

    def _complete(self, text: str, at: int) -> str | None:
        if at == 0:
            self._found = sorted(one for one in self._words() if one.startswith(text))
        return self._found[at] if at < len(self._found) else None


class Meanwhile:
    """What is typed while something else is on the screen, line by line. Ctrl-C stays what it is."""

    def __init__(self, *, quiet: bool) -> None:
        """With `quiet` nothing is echoed, and `line` is known while it is typed: whoever draws the screen shows it."""
        self.line = ""
        """What was typed of the next one."""
        self._quiet = quiet
        self._file = sys.stdin.fileno()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._before: list[Any] = []

    def __enter__(self) -> Meanwhile:
        if self._quiet:
            self._before = termios.tcgetattr(self._file)
            tty.setcbreak(self._file, termios.TCSANOW)
        return self

    def __exit__(self, *_: object) -> None:
        if self._quiet:
            termios.tcsetattr(self._file, termios.TCSANOW, self._before)

    def wait(self, seconds: float) -> list[str]:
        """The lines that were ended within that time; returns sooner when something was typed."""
        if not select.select([self._file], [], [], seconds)[0]:
            return []
        *lines, self.line = self._typed(self._decoder.decode(os.read(self._file, 4096)))
        return [line for line in lines if line.strip()]

    def _typed(self, text: str) -> list[str]:
        if text.startswith(_ESCAPE):
            text = ""  # an arrow or a function key: there is nothing it could do here
        for one in text.replace("\r", "\n"):
            if one in _ERASE:
                self.line = self.line[:-1]
            elif one == _KILL:
                self.line = ""
            elif one == "\n" or one.isprintable():
                self.line += one
        return self.line.split("\n")

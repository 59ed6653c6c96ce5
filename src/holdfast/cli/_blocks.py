"""Lines put together to blocks of code, by the rules of Python's own prompt.

A simple statement is a block. A compound one ends with an empty line or, which is what text that was pasted or
piped needs, with the first line that is neither indented nor goes on with it (`else`, `except` …).
"""

from __future__ import annotations

import ast
import codeop
import re
import warnings

_GOES_ON = re.compile(r"(elif|else|except|finally|case)\b")
_BROKEN = (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError)


class Blocks:
    """Takes lines, gives blocks."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._compile = codeop.CommandCompiler()
        self._compile.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT

    @property
    def pending(self) -> bool:
        """Whether a block has begun and not ended."""
        return bool(self._lines)

    def add(self, line: str) -> list[str]:
        """The blocks that end with, or before, this line."""
        found: list[str] = []
        if self._lines and self._ends_before(line):
            found.append(self._taken())
        if self._lines or line.strip():
            self._lines.append(line)
            if self._is_whole():
                found.append(self._taken())
        return found

    def rest(self) -> str | None:
        """What is left at the end, whole or not."""
        return self._taken() if self._lines else None

    def drop(self) -> None:
        """Forget what has begun."""
        self._lines.clear()

    def _ends_before(self, line: str) -> bool:
        if not line.strip() or line[0].isspace() or _GOES_ON.match(line):
            return False
        try:
            ast.parse("\n".join(self._lines) + "\n")
        except _BROKEN:
            return False
        return True

    def _is_whole(self) -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return self._compile("\n".join(self._lines), "<repl>", "single") is not None
            except _BROKEN:
                return True  # it can't be mended by another line; the box says what is wrong

    def _taken(self) -> str:
        block = "\n".join(self._lines).rstrip()
        self._lines.clear()
        return f"{block}\n"

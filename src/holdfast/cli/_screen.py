"""Where a run is told while it goes on: text as it comes, blocks between it, and what is going on now.

On a terminal the last lines are kept in motion (what is being said, a spinner, what somebody types); elsewhere
everything is written as it comes, the model's words to stdout and the rest to stderr.
"""

from __future__ import annotations

import sys
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from holdfast.cli import _output


class Screen(Protocol):
    """Shows a run."""

    moves: bool
    """Whether it shows what somebody types: then the terminal need not."""

    def text(self, more: str) -> None:
        """More of what the model says."""
        ...

    def block(self, what: RenderableType, style: str | None = None) -> None:
        """Something on lines of its own."""
        ...

    def status(self, what: str) -> None:
        """What is going on now."""
        ...

    def typed(self, line: str) -> None:
        """What somebody types meanwhile."""
        ...

    def __enter__(self) -> Screen: ...

    def __exit__(self, *_: object) -> None: ...


def screen() -> Screen:
    """The one for where we are."""
    out = Console(markup=False, highlight=False, emoji=False)
    return Moving(out) if out.is_terminal and not out.is_dumb_terminal else Plain()


class Plain:
    """Everything as it comes."""

    moves = False

    def __init__(self, rest: Console | None = None) -> None:
        """`rest`: where all but the words go; default: stderr."""
        self._rest = rest or _output.console(stderr=True)
        self._inside = False

    def text(self, more: str) -> None:
        """More of what the model says."""
        sys.stdout.write(_output.visible(more))
        sys.stdout.flush()
        self._inside = not more.endswith("\n")

    def block(self, what: RenderableType, style: str | None = None) -> None:
        """Something on lines of its own."""
        self._end_line()
        self._rest.print(what, style=style)

    def status(self, what: str) -> None:
        """Nobody looks."""

    def typed(self, line: str) -> None:
        """Nobody types."""

    def _end_line(self) -> None:
        if self._inside:
            sys.stdout.write("\n")
            sys.stdout.flush()
        self._inside = False

    def __enter__(self) -> Plain:
        return self

    def __exit__(self, *_: object) -> None:
        self._end_line()


class Paper(Plain):
    """Everything on stdout: to read a run afterwards."""

    def __init__(self) -> None:
        super().__init__(_output.console())


class Moving:
    """On a terminal."""

    moves = True

    def __init__(self, out: Console) -> None:
        self._out = out
        self._line = ""
        self._typed = ""
        self._spinner = Spinner("dots", style="cyan")
        self._live = Live(console=out, refresh_per_second=10, transient=True)

    def text(self, more: str) -> None:
        """More of what the model says."""
        *whole, self._line = (self._line + _output.visible(more)).split("\n")
        for line in whole:
            self._out.print(line, soft_wrap=True)
        self._show()

    def block(self, what: RenderableType, style: str | None = None) -> None:
        """Something on lines of its own."""
        self._end_line()
        self._out.print(what, style=style, soft_wrap=isinstance(what, str | Text))

    def status(self, what: str) -> None:
        """What is going on now."""
        self._spinner.update(text=Text(what, style="dim", no_wrap=True, overflow="ellipsis"))
        self._show()

    def typed(self, line: str) -> None:
        """What somebody types meanwhile."""
        self._typed = line
        self._show()

    def _end_line(self) -> None:
        if self._line:
            line, self._line = self._line, ""
            self._show()
            self._out.print(line, soft_wrap=True)

    def _show(self) -> None:
        parts: list[RenderableType] = []
        if self._line:
            # Of a line that is longer than the terminal is high, only the end can be kept in motion.
            room = self._out.width * max(1, self._out.height - 4)
            parts.append(Text(self._line[-room:]))
        parts.append(self._spinner)
        if self._typed:
            parts.append(Text(f"› {_output.visible(self._typed)}▏", style="bold"))
        self._live.update(Group(*parts))

    def __enter__(self) -> Moving:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end_line()
        self._live.update(Text(""))
        self._live.stop()

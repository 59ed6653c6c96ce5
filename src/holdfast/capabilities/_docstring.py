"""What a docstring in Google style says about a function and its parameters."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

_SECTION = re.compile(
    r"(Args|Arguments|Parameters|Returns?|Raises|Yields?|Examples?|Notes?|Attributes):\s*$"
)
_ARGS = frozenset(("Args", "Arguments", "Parameters"))
_PARAMETER = re.compile(r"(\s+)\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")


class Documented(NamedTuple):
    """A docstring, taken apart."""

    text: str
    """Everything before the first section."""
    parameters: dict[str, str]
    """What it says about each parameter, on one line."""


def documented(docstring: str | None) -> Documented:
    """The parts of a docstring; sections other than that of the parameters are left out."""
    lines = inspect.cleandoc(docstring or "").splitlines()
    heads = [at for at, line in enumerate(lines) if _SECTION.match(line)]
    text = "\n".join(lines[: heads[0]] if heads else lines).strip()
    for at, following in pairwise([*heads, len(lines)]):
        if lines[at].partition(":")[0] in _ARGS:
            return Documented(text, _parameters(lines[at + 1 : following]))
    return Documented(text, {})


def _parameters(lines: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    name, indent = "", ""
    for line in lines:
        head = _PARAMETER.match(line)
        # What is indented further goes on about the parameter above, whatever it looks like.
        if head and (not indent or head[1] == indent):
            indent, name = head[1], head[2]
            found[name] = head[3].strip()
        elif name and line.strip():
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found

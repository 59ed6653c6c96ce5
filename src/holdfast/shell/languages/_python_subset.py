"""What the engine's Python has and has not: for hints. `tests/shell/test_box_python.py` asks the engine."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

MODULES = (
    "asyncio base64 binascii bisect collections copy csv dataclasses datetime decimal functools hashlib"
    " itertools json math os os.path pathlib posixpath random re sys time tomllib typing unicodedata"
).split()
"""Every module that can be imported."""

BUILTINS = (
    "ArithmeticError AssertionError AttributeError BaseException Ellipsis Exception FileExistsError"
    " FileNotFoundError ImportError IndexError IsADirectoryError KeyError KeyboardInterrupt LookupError"
    " MemoryError ModuleNotFoundError NameError NotADirectoryError NotImplemented NotImplementedError"
    " OSError OverflowError PermissionError RecursionError RuntimeError StopIteration SyntaxError"
    " SystemExit TimeoutError TypeError UnboundLocalError UnicodeDecodeError UnicodeEncodeError"
    " ValueError ZeroDivisionError abs all any bin bool bytes chr complex dict divmod enumerate eval"
    " exec filter float format frozenset getattr hasattr hash hex id int isinstance iter len list"
    " locals map max min next object oct open ord pow print property range repr reversed round set"
    " setattr slice sorted str sum tuple type zip"
).split()
"""Every built-in name."""

MAX_NAME = 80
"""Longer names are neither guessed at nor told in full."""

_MAX_NAMES = 10_000
_INSTEAD = (
    ("yield", "Build a list and return it, or use a generator expression."),
    (
        "class inheritance",
        "Use plain classes, dataclasses or functions; raise built-in exceptions.",
    ),
    ("'del'", "Assign None, or use dict.pop() and list.pop()."),
    ("async with", "Use a plain `with`, or try/finally."),
    ("async for", "Use a plain loop, and await inside it."),
    ("async comprehensions", "Use a plain loop, and await inside it."),
    ("exception groups", "Use a plain `except`."),
    ("type aliases", "Assign the type to a name."),
    ("template strings", "Use an f-string."),
    ("Wildcard", "Name what you import."),
    ("relative import", "Only the modules of the subset can be imported."),
)


def told() -> str:
    """What code can't use, in words for whoever writes it."""
    missing = ", ".join(
        word.strip("'") for word, _ in _INSTEAD if word[0].islower() or word[0] == "'"
    )
    return (
        f"Python without: {missing}. Importable: {', '.join(MODULES)}."
        " Files, sleep, time and randomness only through functions you are given."
    )


def instead(unsupported: str) -> str | None:
    """What to write in place of a construct that the engine's message names."""
    return next((hint for word, hint in _INSTEAD if word in unsupported), None)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Which of `known` was probably meant. Comparing takes quadratic time, so long names are left out."""
    if len(name) > MAX_NAME:
        return None
    short = sorted(one for one in {*known} if len(one) <= MAX_NAME and one != name)
    return next(iter(get_close_matches(name, short[:_MAX_NAMES], n=1)), None)


def shown(name: str) -> str:
    """A name as it is told: the code may have made it as long as it likes."""
    return name if len(name) <= MAX_NAME else f"{name[:MAX_NAME]}…"

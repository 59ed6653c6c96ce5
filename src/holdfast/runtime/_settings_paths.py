"""Relative paths in a settings file: they mean the same from whatever folder below it holdfast is started."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, TypeAlias, cast

_SQLITE = "sqlite:///"
_SCRIPTED = "scripted:"
_EACH = "*"

_How: TypeAlias = Callable[[str, Path], str]
"""What is written, and the folder of the file, to what is meant."""


def anchored(found: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """What a file in `folder` says, with its relative paths spelled out; what is no path stays as it is."""
    settings: Any = dict(found)
    for steps, how in _PLACES:
        settings = _at(settings, steps.split(), how, folder)
    surfaces = settings.get("surfaces")
    if isinstance(surfaces, dict):
        every = cast("dict[str, Any]", surfaces)
        settings["surfaces"] = {name: _starting(one, folder) for name, one in every.items()}
    return settings


def _starting(surface: Any, folder: Path) -> Any:
    """A program that says nothing else starts beside the settings, so that its arguments may be relative, too."""
    said = cast("dict[str, Any]", surface) if isinstance(surface, dict) else {}
    if "command" not in said or said.get("jail"):  # in a jail, there is no such folder
        return cast("object", surface)
    return {"cwd": str(folder), **said}


def _at(value: Any, steps: list[str], how: _How, folder: Path) -> Any:
    """The value with what is found by going these steps into it made absolute; whether it fits, others check."""
    if not steps:
        return how(value, folder) if isinstance(value, str) and value else value
    step, rest = steps[0], steps[1:]
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        wanted = table if step == _EACH else (step,)
        return table | {key: _at(table[key], rest, how, folder) for key in wanted if key in table}
    if isinstance(value, list):
        items = cast("list[Any]", value)
        count = len(items) if step == _EACH else int(step.isdigit())
        return [_at(one, rest, how, folder) for one in items[:count]] + items[count:]
    return value


def _path(given: str, folder: Path) -> str:
    # A home folder and a variable are somewhere else already.
    return given if given[0] in "~$" else os.path.normpath(folder / given)


def _program(given: str, folder: Path) -> str:
    """A name without a slash is looked for on the `PATH`."""
    return _path(given, folder) if "/" in given else given


def _database(given: str, folder: Path) -> str:
    file = given.removeprefix(_SQLITE)
    return f"{_SQLITE}{_path(file, folder)}" if file and file != given else given


def _document(given: str, folder: Path) -> str:
    return given if "://" in given else _path(given, folder)


def _model(given: str, folder: Path) -> str:
    """Only a script is a file."""
    script = given.removeprefix(_SCRIPTED)
    if script == given or not script:
        return given
    where, colon, attribute = script.partition(":")
    found = _path(where, folder) + colon + attribute if where.endswith(".json") else None
    return f"{_SCRIPTED}{found or _reference(script, folder)}"


def _reference(given: str, folder: Path) -> str:
    """`file.py:attribute`, or a module that lies beside the settings and is not installed."""
    where, colon, attribute = given.partition(":")
    if where.endswith(".py"):
        return f"{_path(where, folder)}{colon}{attribute}"
    file = folder / f"{where}.py"
    if where.isidentifier() and file.is_file() and not _installed(where, folder):
        return f"{file}{colon}{attribute}"
    return given


def _installed(name: str, folder: Path) -> bool:
    here = ("", ".", os.getcwd(), str(folder))
    elsewhere = [one for one in sys.path if one not in here]
    return name in sys.builtin_module_names or PathFinder.find_spec(name, elsewhere) is not None


_SETUP: tuple[tuple[str, _How], ...] = (
    ("capabilities *", _reference),
    ("mounts * host", _path),
    ("databases * url", _database),
)
_PLACES: tuple[tuple[str, _How], ...] = (
    ("home", _path),
    ("journal url", _database),
    *((f"session {steps}", how) for steps, how in _SETUP),
    *((f"agents * setup {steps}", how) for steps, how in _SETUP),
    ("agent model", _model),
    ("agent fallbacks *", _model),
    ("agents * model", _model),
    ("agents * fallbacks *", _model),
    ("approvals command 0", _program),
    ("hooks * command 0", _program),
    ("vault command 0", _program),
    ("vault key_file", _path),
    ("surfaces * command", _program),
    ("surfaces * cwd", _path),
    ("surfaces * mounts *", _path),
    ("surfaces * reference", _reference),
    ("surfaces * document", _document),
)
"""Where in the settings there are paths, and of what kind."""

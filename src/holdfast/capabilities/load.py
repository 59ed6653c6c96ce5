"""Capabilities by reference: `module:attribute`, `module`, `path/to/file.py:attribute`, `file.py`."""

from __future__ import annotations

import importlib
import importlib.util
import os.path
import sys
import traceback
from collections.abc import Mapping
from types import ModuleType
from typing import Any, cast

from holdfast.capabilities.declare import Declared
from holdfast.contracts import digest
from holdfast.errors import CallerError, HoldfastError

_HERE = os.path.dirname(__file__)
_HINT = "Write `module:attribute`, `module`, `path/to/file.py:attribute` or `path/to/file.py`."


def load(reference: str) -> list[Declared[..., Any]]:
    """The capabilities that a reference names, in the order they are defined; raises `INVALID_ARGUMENT`.

    An attribute may be a capability, or a list, tuple or dict of them. Without one: every capability that
    the module holds.
    """
    where, _, attribute = reference.partition(":")
    if not where or (":" in reference and not attribute):
        raise _refused(f"`{reference[:200]}` names no capability", _HINT)
    module = _from_file(where) if where.endswith(".py") else _from_name(where)
    if attribute:
        return _flat(_attribute(module, attribute, where), reference)
    found = _declared_in(module)
    if not found:
        raise _refused(
            f"`{where}` declares no capability", "Mark functions in it with `@capability`."
        )
    return found


def home_of(reference: str) -> str:
    """The name under which `sys.modules` has the module of a reference once it is loaded."""
    where = reference.partition(":")[0]
    return _name_of_file(os.path.realpath(where)) if where.endswith(".py") else where


def _name_of_file(whole: str) -> str:
    # A file is loaded once, under a name that no import can meet.
    return f"holdfast_loaded_{digest(whole.encode())[:16]}"


def _from_name(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise _refused(f"`{name[:200]}` is not the name of a module", _HINT)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as why:
        if why.name is None or not (name == why.name or name.startswith(f"{why.name}.")):
            raise _broken(name, why) from why
        raise _refused(
            f"There is no module `{name}`",
            "Install it, or start where it is: it is looked for on the import path.",
        ) from None
    except Exception as why:
        raise _broken(name, why) from why


def _from_file(path: str) -> ModuleType:
    whole = os.path.realpath(path)
    name = _name_of_file(whole)
    known = sys.modules.get(name)
    if known is not None:
        return known
    if not os.path.isfile(whole):
        raise _refused(f"There is no file `{path}`", f"It was looked for at `{whole}`.")
    spec = importlib.util.spec_from_file_location(name, whole)
    if spec is None or spec.loader is None:
        raise _refused(f"`{path}` can't be loaded", _HINT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # types in hints are looked up there
    try:
        spec.loader.exec_module(module)
    except BaseException as why:
        del sys.modules[name]
        if isinstance(why, Exception):
            raise _broken(path, why) from why
        raise
    return module


def _attribute(module: ModuleType, attribute: str, where: str) -> object:
    found: object = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            names = [one for one, value in vars(module).items() if isinstance(value, Declared)]
            hint = f"Its capabilities are: {', '.join(names)}." if names else "It declares none."
            raise _refused(f"`{where}` has no `{attribute}`", hint)
        found = getattr(found, part)
    return found


def _flat(value: object, reference: str) -> list[Declared[..., Any]]:
    """The capabilities in a value, however they are put together."""
    if isinstance(value, Declared):
        return [cast("Declared[..., Any]", value)]
    if isinstance(value, Mapping):
        parts = list(cast("Mapping[object, object]", value).values())
    elif isinstance(value, list | tuple):
        parts = list(cast("list[object]", value))
    elif isinstance(value, ModuleType):
        return _declared_in(value)
    else:
        kind = type(value).__name__
        hint = "Mark the function with `@capability`." if callable(value) else _HINT
        raise _refused(f"`{reference}` is no capability but a `{kind}`", hint)
    return [one for part in parts for one in _flat(part, reference)]


def _declared_in(module: ModuleType) -> list[Declared[..., Any]]:
    found: dict[int, Declared[..., Any]] = {}
    for value in vars(module).values():
        if isinstance(value, Declared):
            one = cast("Declared[..., Any]", value)
            found.setdefault(id(one), one)
    return list(found.values())


def _broken(where: str, why: Exception) -> CallerError:
    """The refusal of a module that can't be imported, with the line of the module at which it failed."""
    if isinstance(why, SyntaxError):
        at = f"{why.filename}:{why.lineno}"
    else:
        frames = [
            one
            for one in traceback.extract_tb(why.__traceback__)
            if not one.filename.startswith("<frozen") and os.path.dirname(one.filename) != _HERE
        ]
        # The innermost line may be a library's; whoever has to act knows the one that called it.
        own = [one for one in frames if "site-packages" not in one.filename] or frames
        at = f"{own[-1].filename}:{own[-1].lineno}" if own else where
    said = why.message if isinstance(why, HoldfastError) else f"{type(why).__name__}: {why}"
    return _refused(f"`{where}` can't be imported: {said[:300].rstrip('.')} ({at})", _repair(why))


def _repair(why: Exception) -> str:
    hint = why.hint if isinstance(why, HoldfastError) else None
    return hint or "Repair that line, or install what it imports."


def _refused(why: str, hint: str) -> CallerError:
    return CallerError("INVALID_ARGUMENT", f"{why}.", hint=hint)

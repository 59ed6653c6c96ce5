"""What a session is opened with, as options: the same ones wherever a session may be opened.

A session remembers what it was opened with, by reference, and another process in another folder opens it again.
So whatever is relative to the working folder is made absolute here. An option that is given replaces that part of
what the session remembers; the rest stays.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    NamedTuple,
    NoReturn,
    ParamSpec,
    TypeVar,
    cast,
    get_type_hints,
)

import typer

from holdfast.errors import CallerError

if TYPE_CHECKING:
    from holdfast.contracts import Setup
    from holdfast.runtime import Runtime

P = ParamSpec("P")
R = TypeVar("R")

_SQLITE = "sqlite:///"

UNITS = ("calls", "tokens", "cost_micros", "wall_ms")
"""What a budget counts."""


class Flags(NamedTuple):
    """The options as they were given; `None` for those that were not."""

    capabilities: Annotated[
        list[str] | None,
        typer.Option(
            "--capabilities",
            metavar="REF",
            help="module:attr, module, or file.py: what code may call; repeatable.",
        ),
    ] = None
    mounts: Annotated[
        list[str] | None,
        typer.Option(
            "--mount",
            metavar="V=HOST[:rw]",
            help="A folder for code: /workspace=./data; repeatable.",
        ),
    ] = None
    allow_hosts: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="H", help="A host code may fetch from; repeatable."),
    ] = None
    databases: Annotated[
        list[str] | None,
        typer.Option(
            "--database",
            metavar="NAME=URL[:rw]",
            help="A database code may query: books=sqlite:///books.db; repeatable.",
        ),
    ] = None
    clock: Annotated[
        bool | None,
        typer.Option("--clock/--no-clock", help="Let code ask for the time.", show_default=False),
    ] = None
    randomness: Annotated[
        bool | None,
        typer.Option(
            "--randomness/--no-randomness",
            help="Let code ask for random numbers.",
            show_default=False,
        ),
    ] = None
    policy: Annotated[
        str | None,
        typer.Option("--policy", metavar="FILE", help="TOML with [[rules]] that are stricter."),
    ] = None
    budget: Annotated[
        list[str] | None,
        typer.Option(
            "--budget",
            metavar="NAME=N",
            help="What all runs together may use: calls, tokens, cost_micros, wall_ms; repeatable.",
        ),
    ] = None
    ttl: Annotated[
        int | None,
        typer.Option("--ttl", metavar="MS", min=1, help="Destroy the session when unused so long."),
    ] = None

    def fields(self) -> dict[str, Any]:
        """The parts of a `Setup` that were given, checked as far as that needs nothing opened."""
        given: dict[str, Any] = {
            "capabilities": _each(self.capabilities, capability_reference),
            "mounts": _each(self.mounts, _mount),
            "allow_hosts": _each(self.allow_hosts, str),
            "databases": _each(self.databases, _database),
            "clock": self.clock,
            "randomness": self.randomness,
            "rules": None if self.policy is None else rules_of(self.policy),
            "budget": budget_of(self.budget),
            "ttl_ms": self.ttl,
        }
        return {name: value for name, value in given.items() if value is not None}


def with_setup(command: Callable[P, R]) -> Callable[..., R]:
    """The command with an option for each field of `Flags`; it gets them as `flags`."""
    return with_options(command, "flags", Flags)


def with_options(command: Callable[..., R], name: str, kind: type[Any]) -> Callable[..., R]:
    """The command with an option for each field of `kind`, a named tuple; it gets them as `name`."""
    own = inspect.signature(command, eval_str=True)
    kept = [one for one in own.parameters.values() if one.name != name]
    added = [
        inspect.Parameter(
            field,
            inspect.Parameter.KEYWORD_ONLY,
            default=kind._field_defaults[field],
            annotation=hint,
        )
        for field, hint in get_type_hints(kind, include_extras=True).items()
    ]

    def wrapped(*args: Any, **kwargs: Any) -> R:
        given = kind(**{one.name: kwargs.pop(one.name, one.default) for one in added})
        return command(*args, **{**kwargs, name: given})

    # What typer reads: the name, the help, and the options with their types.
    wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
    every = [*kept, *added]
    wrapped.__signature__ = own.replace(parameters=every)
    wrapped.__annotations__ = {one.name: one.annotation for one in every}
    return wrapped


async def setup_for(hf: Runtime, session_id: str, fields: dict[str, Any]) -> Setup | None:
    """What the session is opened with now: what it remembers, and over that what was given."""
    from holdfast.contracts import Setup, parse

    if not fields:
        return None
    known = await hf.shell.remembers(session_id)
    return parse(Setup, {**known.model_dump(exclude_unset=True), **fields})


def rules_of(name: str) -> list[Any]:
    """The rules in a TOML file; what they say is checked by whoever uses them."""
    import tomllib

    try:
        with open(name, "rb") as file:
            found = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as why:
        told = getattr(why, "strerror", None) or why
        _refuse(f"The policy `{name}` can't be read: {told}.", "It must be TOML with [[rules]].")
    table = found.get("policy", found)
    rules = cast("dict[str, Any]", table).get("rules") if isinstance(table, dict) else None
    if not isinstance(rules, list):
        _refuse(f"The policy `{name}` has no [[rules]].", "See docs/guides/policy.md.")
    return cast("list[Any]", rules)


def import_from_here() -> None:
    """Let capabilities be named by the modules of the working folder, however the program was started."""
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)


# -- one option ---------------------------------------------------------------------------------------


def _each(given: list[str] | None, parse: Callable[[str], Any]) -> list[Any] | None:
    return None if not given else [parse(one) for one in given]


def capability_reference(reference: str) -> str:
    """The reference so that it means the same in every folder."""
    where, colon, attribute = reference.partition(":")
    if where.endswith(".py"):
        path = os.path.realpath(where)
        if not os.path.isfile(path):
            _refuse(f"There is no file `{where}`.", f"It was looked for at `{path}`.")
        return f"{path}{colon}{attribute}"
    # A module that lies in this folder and nowhere else is found elsewhere only by its file.
    path = os.path.realpath(f"{where}.py")
    if where.isidentifier() and os.path.isfile(path) and _is_found_at(where, path):
        return f"{path}{colon}{attribute}"
    return reference


def _is_found_at(name: str, path: str) -> bool:
    from importlib.util import find_spec

    import_from_here()
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None and os.path.realpath(spec.origin) == path


def _mount(given: str) -> dict[str, Any]:
    path, equals, host = given.partition("=")
    writable = host.endswith(":rw")
    host = host.removesuffix(":rw").removesuffix(":ro")
    if not (equals and path and host):
        _refuse(
            f"`--mount {given[:80]}` is not V=HOST[:rw].", "Such as --mount /workspace=./data:rw."
        )
    return {"path": path, "host": os.path.realpath(os.path.expanduser(host)), "writable": writable}


def _database(given: str) -> dict[str, Any]:
    name, equals, url = given.partition("=")
    writable = url.endswith(":rw")
    url = url.removesuffix(":rw").removesuffix(":ro")
    if not (equals and name and url):
        _refuse(
            f"`--database {given[:80]}` is not NAME=URL[:rw].",
            "Such as --database books=sqlite:///books.db.",
        )
    from urllib.parse import urlsplit

    password = urlsplit(url).password
    if password and not password.startswith("$"):
        _refuse(
            f"`--database {name}`: the URL holds a password, which the session would remember.",
            "Put it into the environment and write $NAME in its place.",
        )
    file = url.removeprefix(_SQLITE)
    if url.startswith(_SQLITE) and file and not file.startswith("$"):
        url = f"{_SQLITE}{os.path.realpath(os.path.expanduser(file))}"
    return {"name": name, "url": url, "writable": writable}


def budget_of(given: list[str] | None, option: str = "--budget") -> dict[str, int] | None:
    """`NAME=N`, several of them, as numbers by name."""
    if not given:
        return None
    found: dict[str, int] = {}
    for one in given:
        name, _, text = one.partition("=")
        if name not in UNITS:
            _refuse(f"`{option} {one[:80]}` names no budget.", f"Use {', '.join(UNITS)}.")
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            _refuse(f"`{option} {one[:80]}` is not NAME=NUMBER.", f"Such as {option} calls=100.")
        found[name] = int(text)
    return found


def _refuse(message: str, hint: str | None = None) -> NoReturn:
    raise CallerError("INVALID_ARGUMENT", message, hint=hint)

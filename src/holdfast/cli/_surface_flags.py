"""A tool surface as options, for `holdfast mcp add`.

What is added is recorded, and a process in another folder connects to it. So whatever is relative to the working folder
is made absolute here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer

from holdfast.cli._options import refuse
from holdfast.cli._setup import capability_reference, with_options

if TYPE_CHECKING:
    from holdfast.contracts.surface import SurfaceSpec

R = TypeVar("R")

_WAYS = "Give `-- COMMAND ARGS…`, `--url URL`, `--module REF` or `--openapi DOC`."
_PROGRAM, _ADDRESS, _MODULE, _DOCUMENT = "stdio", "http", "module", "openapi"
_ONLY = {
    "env": (_PROGRAM,),
    "cwd": (_PROGRAM,),
    "jail": (_PROGRAM,),
    "mount": (_PROGRAM,),
    "header": (_ADDRESS, _DOCUMENT),
    "auth": (_ADDRESS, _DOCUMENT),
    "base-url": (_DOCUMENT,),
    "sampling": (_PROGRAM, _ADDRESS),
    "roots": (_PROGRAM, _ADDRESS),
    "trust": (_PROGRAM, _ADDRESS),
}
"""Option → the kinds that it says something about; all others go with every kind."""
_CALLED = {
    _PROGRAM: "a program that is started here",
    _ADDRESS: "an MCP server at an address",
    _MODULE: "a Python module",
    _DOCUMENT: "an OpenAPI document",
}


class SurfaceFlags(NamedTuple):
    """The options as they were given; `None` for those that were not."""

    url: Annotated[
        str | None,
        typer.Option("--url", metavar="URL", help="An MCP server at an address."),
    ] = None
    module: Annotated[
        str | None,
        typer.Option(
            "--module",
            metavar="REF",
            help="A Python module of capabilities: module, file.py, entry_points:NAME.",
        ),
    ] = None
    openapi: Annotated[
        str | None,
        typer.Option("--openapi", metavar="DOC", help="An OpenAPI document: a file or an address."),
    ] = None
    base_url: Annotated[
        str | None,
        typer.Option("--base-url", metavar="URL", help="Where the document's operations are."),
    ] = None
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            metavar="K=V",
            help="Sent with every request; $NAME in V comes from the environment; repeatable.",
        ),
    ] = None
    auth: Annotated[
        str | None,
        typer.Option("--auth", metavar="oauth|KEY", help="Sign in there, or use this credential."),
    ] = None
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            metavar="K=V",
            help="For the program; $NAME in V comes from our environment; repeatable.",
        ),
    ] = None
    cwd: Annotated[
        str | None,
        typer.Option("--cwd", metavar="DIR", help="Where the program starts.  [default: here]"),
    ] = None
    jail: Annotated[
        bool | None,
        typer.Option("--jail", help="No network, and no files but its own and --mount."),
    ] = None
    mount: Annotated[
        list[str] | None,
        typer.Option(
            "--mount", metavar="DIR[:rw]", help="A folder that it sees in its jail; repeatable."
        ),
    ] = None
    prefix: Annotated[
        str | None,
        typer.Option(
            "--prefix", metavar="TEXT", help="Starts the names of its tools.  [default: NAME_]"
        ),
    ] = None
    include: Annotated[
        list[str] | None,
        typer.Option(
            "--include", metavar="TOOL", help="Only these of its tools; * is any text; repeatable."
        ),
    ] = None
    exclude: Annotated[
        list[str] | None,
        typer.Option("--exclude", metavar="TOOL", help="None of these; repeatable."),
    ] = None
    side_effect: Annotated[
        list[str] | None,
        typer.Option(
            "--side-effect",
            metavar="TOOL=EFFECT",
            help="What a tool may touch, such as search=read; repeatable.",
        ),
    ] = None
    timeout: Annotated[
        int | None,
        typer.Option("--timeout", metavar="MS", min=1, help="How long one call may take."),
    ] = None
    connect_timeout: Annotated[
        int | None,
        typer.Option(
            "--connect-timeout", metavar="MS", min=1, help="How long it may take to come up."
        ),
    ] = None
    sampling: Annotated[
        bool | None,
        typer.Option("--sampling", help="It may have a model asked, on the caller's budget."),
    ] = None
    roots: Annotated[
        bool | None,
        typer.Option(
            "--roots/--no-roots",
            help="Whether it is told which folders are mounted.",
            show_default=False,
        ),
    ] = None
    trust: Annotated[
        bool | None,
        typer.Option(
            "--trust/--no-trust",
            help="Whether what it says about its tools counts.",
            show_default=False,
        ),
    ] = None

    def spec(self, command: list[str]) -> SurfaceSpec:
        """What is to be added; raises `INVALID_ARGUMENT` that names the option."""
        from holdfast.runtime._surface_specs import spec_of

        kind = self._kind(command)
        self._check(kind)
        given: dict[str, Any] = {
            "prefix": self.prefix,
            "include": self.include or None,
            "exclude": self.exclude or None,
            "side_effects": pairs("--side-effect", self.side_effect, "search=read"),
            "timeout_ms": self.timeout,
            "connect_timeout_ms": self.connect_timeout,
            "headers": pairs("--header", self.header, "X-Team=sales"),
            "auth": self.auth,
            "sampling": self.sampling,
            "roots": self.roots,
            "trust_annotations": self.trust,
            **self._where(kind, command),
        }
        return spec_of({name: value for name, value in given.items() if value is not None})

    def _kind(self, command: list[str]) -> str:
        ways = {
            _PROGRAM: bool(command),
            _ADDRESS: self.url is not None,
            _MODULE: self.module is not None,
            _DOCUMENT: self.openapi is not None,
        }
        kinds = [kind for kind, given in ways.items() if given]
        if not kinds:
            refuse("It is not said what to connect to.", _WAYS)
        if len(kinds) > 1:
            said = " and ".join(_CALLED[kind] for kind in kinds)
            refuse(f"It can't be {said} at once.", _WAYS)
        return kinds[0]

    def _check(self, kind: str) -> None:
        for option, kinds in _ONLY.items():
            if getattr(self, option.replace("-", "_")) is not None and kind not in kinds:
                fitting = " or ".join(_CALLED[one] for one in kinds)
                refuse(f"`--{option}` is for {fitting}; this is {_CALLED[kind]}.")

    def _where(self, kind: str, command: list[str]) -> dict[str, Any]:
        """What only one kind has."""
        if kind == _PROGRAM:
            return self._program(command)
        if kind == _ADDRESS:
            return {"kind": kind, "url": _address("--url", str(self.url))}
        if kind == _MODULE:
            return {"kind": kind, "reference": capability_reference(str(self.module))}
        document = str(self.openapi)
        if "://" not in document:
            document = _folder(document)
        base = None if self.base_url is None else _address("--base-url", self.base_url)
        return {"kind": kind, "document": document, "base_url": base}

    def _program(self, command: list[str]) -> dict[str, Any]:
        program, *args = command
        if os.sep in program:
            program = os.path.abspath(os.path.expanduser(program))
        # In its jail the folder we are in is not there, unless it is mounted.
        cwd = self.cwd if self.cwd is not None or self.jail else "."
        if self.mount and not self.jail:
            refuse("`--mount` says what a jail shows.", "Give `--jail`, too.")
        return {
            "kind": _PROGRAM,
            "command": program,
            "args": args or None,
            "env": pairs("--env", self.env, "TOKEN=$MY_TOKEN"),
            "cwd": None if cwd is None else _folder(cwd),
            "jail": self.jail,
            "mounts": [_mount(one) for one in self.mount] if self.mount else None,
        }


def with_surface(command: Callable[..., R]) -> Callable[..., R]:
    """The command with an option for each field of `SurfaceFlags`; it gets them as `flags`."""
    return with_options(command, "flags", SurfaceFlags)


def pairs(option: str, given: list[str] | None, such_as: str) -> dict[str, str] | None:
    """`NAME=VALUE`, several of them, by name."""
    if not given:
        return None
    found: dict[str, str] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not (equals and name):
            # The value may be a secret that somebody mistyped: it is not repeated.
            refuse(f"`{option}` is not NAME=VALUE.", f"Such as {option} '{such_as}'.")
        if name in found:
            refuse(f"`{option} {name[:80]}` is given twice.")
        found[name] = value
    return found


def _address(option: str, url: str) -> str:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
    except ValueError:
        refuse(f"`{option}` is no address.", "Such as https://mcp.example.com/mcp.")
    if parts.password:
        refuse(
            f"`{option}` holds a password, which would be recorded.",
            "Use `--auth`, or a `--header` with $NAME in it.",
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        refuse(f"`{option} {url[:80]}` is no address.", "Such as https://mcp.example.com/mcp.")
    return url


def _folder(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def _mount(given: str) -> str:
    writable = given.endswith(":rw")
    return _folder(given.removesuffix(":rw").removesuffix(":ro")) + (":rw" if writable else "")

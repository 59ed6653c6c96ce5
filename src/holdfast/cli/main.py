"""The program `holdfast`: its commands, and how each way of ending becomes output and an exit code.

Exit codes: 0 fine, 1 it failed, 2 bad usage, 3 waiting for approval, 4 needs attention, 130 after Ctrl-C.

`holdfast --help` must answer at once. So a command's module is imported when the command is asked for, and the
modules of this package import nothing heavy at their top: what a command needs is imported when it runs.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer

from holdfast._version import __version__
from holdfast.cli import _output
from holdfast.errors import CallerError, HoldfastError, InternalError, OperatorError

PIPE_CLOSED = 141
"""What a program that dies of a closed pipe exits with: nobody reads on, and that is no failure to talk about."""

PATIENCE = 0.5
"""Seconds that threads get at the end of the process."""

HELP = "The runtime an AI agent can be trusted with: code in a box, on an append-only journal."
EPILOG = "Settings come from options, then HOLDFAST_*, then the nearest holdfast.toml."


class Command(NamedTuple):
    """Where a command is, and what the list of commands says about it."""

    module: str
    """In this package."""
    help: str
    group: bool = False
    """Whether it has commands of its own."""


COMMANDS = {
    "demo": Command("demo", "See what holdfast promises, proven on this machine."),
    "run": Command("run", "Run code in a session and print what it gave."),
    "validate": Command("run", "Check code without running any of it."),
    "repl": Command("repl", "Talk to a session at the keyboard."),
    "ask": Command("ask", "Ask an agent to do something, and see it work."),
    "chat": Command("chat", "Talk with an agent, and watch what it does."),
    "session": Command("sessions", "Sessions: list, show, create, snapshot, fork …", True),
    "tools": Command("tools", "What a session may call: list, describe, search.", True),
    "mcp": Command("mcp", "Tool servers: add, remove, reload, list, test …", True),
    "resources": Command("resources", "Big things by URI: read a part, search, list.", True),
    "runs": Command("runs", "Runs: list, show, resume, cancel, resolve.", True),
    "approvals": Command("approvals", "What waits for a person: list, approve, deny …", True),
    "auth": Command("auth", "Credentials: login, status, logout.", True),
    "journal": Command("journal", "The audit: show, verify, export, backup, sweep …", True),
    "replay": Command("replay", "Run a recorded run again, offline."),
    "daemon": Command("daemon", "Serve JSON-RPC 2.0 on a socket or a pipe."),
    "serve": Command("serve", "Serve HTTP, events, JSON-RPC, MCP and the console."),
    "token": Command("token", "Tokens of the server: create, list, rotate, revoke …", True),
    "machines": Command("machines", "The lifecycles: list, show, explore.", True),
    "doctor": Command("doctor", "Look for what is missing or wrong."),
}


def app(*names: str) -> typer.Typer:
    """The program with these commands; the others are only named, which is what the list of commands needs."""
    found = typer.Typer(
        help=HELP,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    found.callback(epilog=EPILOG)(options)
    for name, command in COMMANDS.items():
        if name not in names:
            found.command(name, help=command.help)(_named)
            continue
        module = import_module(f"holdfast.cli.{command.module}")
        if command.group:
            found.add_typer(module.app, name=name)
        else:
            found.command(name, short_help=command.help)(getattr(module, name))
    return found


def _named() -> None:
    """In the place of a command that was not asked for."""


def _asked_for(arguments: Sequence[str]) -> str:
    """The command a line names, as far as that is clear before it is parsed."""
    rest = iter(arguments)
    for one in rest:
        if one in ("--home", "--url"):
            next(rest, None)
        elif not one.startswith("-"):
            return one
    return ""


def _show_version(asked: bool) -> None:
    if asked:
        print(f"holdfast {__version__}")
        raise typer.Exit


def options(
    home: Annotated[
        str | None,
        typer.Option(
            "--home", metavar="DIR", help="Where state lives.  [$HOLDFAST_HOME, ~/.holdfast]"
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--url", metavar="URL", help="The journal: sqlite:///path or memory:  [$HOLDFAST_URL]"
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """What goes for every command."""
    # By way of the environment, so that the processes a command starts see the same.
    if home is not None:
        os.environ["HOLDFAST_HOME"] = home
    if url is not None:
        os.environ["HOLDFAST_URL"] = url


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; what to exit with. Without arguments it is the program, and ends the process."""
    if arguments is not None:
        return _main(list(arguments))
    code = _main(sys.argv[1:])
    _leave(code)
    return code


def _leave(code: int) -> None:
    """End the process although a capability that was given up on still runs in a thread."""
    deadline = time.monotonic() + PATIENCE
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                with suppress(OSError, ValueError):
                    sys.stdout.flush()
                    sys.stderr.flush()
                os._exit(code)


def _main(asked: list[str]) -> int:
    _output.prepare()
    try:
        code = _invoke(asked or ["--help"])
        sys.stdout.flush()
        return code
    except typer.Exit as done:
        return done.exit_code
    except BrokenPipeError:
        _close_stdout()
        return PIPE_CLOSED
    except KeyboardInterrupt:
        return _output.INTERRUPTED
    except Exception as why:  # noqa: BLE001 - every failure is told in one form
        return _tell(_output.only(why), as_json=_output.as_json(_flag(asked)))


def _invoke(arguments: list[str]) -> int:
    command = typer.main.get_command(app(_asked_for(arguments)))
    with command.make_context("holdfast", arguments) as context:
        # `Any`: a command returns its exit code, or nothing when all is well.
        code: Any = command.invoke(context)
    return code or 0


def _tell(why: BaseException, *, as_json: bool) -> int:
    from holdfast.cli._stop import Stopped

    if isinstance(why, KeyboardInterrupt):
        return _output.INTERRUPTED
    error = _as_error(why.error if isinstance(why, Stopped) else why)
    try:
        if isinstance(error, InternalError):
            traceback.print_exception(why)
        _output.tell_error(error, as_json=as_json)
        sys.stdout.flush()
    except OSError:
        _close_stdout()
        with suppress(OSError):  # else there is nobody left to tell
            _output.tell_error(error, as_json=False)
    return why.exit_code if isinstance(why, Stopped) else error.exit_code


def _as_error(why: BaseException) -> HoldfastError:
    match why:
        case HoldfastError():
            return why
        case typer.TyperException():
            context = getattr(why, "ctx", None)
            path = "holdfast" if context is None else context.command_path
            message = why.format_message() or "The command line can't be understood."
            return CallerError("INVALID_ARGUMENT", message, hint=f"See `{path} --help`.")
        case OSError():
            return OperatorError("IO_ERROR", f"{why.strerror or why}.", hint=_of_file(why))
        case _:
            return InternalError(f"{type(why).__name__}: {why}")


def _of_file(why: OSError) -> str | None:
    return None if why.filename is None else f"It happened with `{why.filename}`."


def _flag(arguments: list[str]) -> bool | None:
    """What a command line says about its output; it may be one that can't be parsed."""
    if "--json" in arguments:
        return True
    return False if "--no-json" in arguments else None


def _close_stdout() -> None:
    """Keep the interpreter from complaining, at exit, that it can't flush."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)

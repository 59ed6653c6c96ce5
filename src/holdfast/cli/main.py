"""The program `holdfast`: its commands, and how each way of ending becomes output and an exit code.

Exit codes: 0 fine, 1 it failed, 2 bad usage, 3 waiting for approval, 4 needs attention, 130 after Ctrl-C.

`holdfast --help` must answer at once, so the modules of this package import nothing heavy at their top: what a
command needs is imported when it runs.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any

import typer

from holdfast._version import __version__
from holdfast.cli import (
    _output,
    approvals,
    daemon,
    demo,
    doctor,
    journal,
    machines,
    repl,
    replay,
    run,
    runs,
    sessions,
    tools,
)
from holdfast.errors import CallerError, HoldfastError, InternalError, OperatorError

PIPE_CLOSED = 141
"""What a program that dies of a closed pipe exits with: nobody reads on, and that is no failure to talk about."""

app = typer.Typer(
    help="The runtime an AI agent can be trusted with: code in a box, on an append-only journal.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run.run)
app.command("validate")(run.validate)
app.command("repl")(repl.repl)
app.add_typer(sessions.app, name="session")
app.add_typer(runs.app, name="runs")
app.add_typer(approvals.app, name="approvals")
app.add_typer(tools.app, name="tools")
app.add_typer(journal.app, name="journal")
app.add_typer(machines.app, name="machines")
app.command("replay")(replay.replay)
app.command("daemon")(daemon.daemon)
app.command("doctor")(doctor.doctor)
app.command("demo")(demo.demo)


def _show_version(asked: bool) -> None:
    if asked:
        print(f"holdfast {__version__}")
        raise typer.Exit


@app.callback(epilog="Settings come from options, then HOLDFAST_*, then the nearest holdfast.toml.")
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
    """Run one command line; what to exit with."""
    asked = list(sys.argv[1:] if arguments is None else arguments)
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
    command = typer.main.get_command(app)
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

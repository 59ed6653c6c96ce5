"""`holdfast run` and `holdfast validate`: code in, a `RunResult` out."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn, TypeAlias

import typer

from holdfast.cli import _exit, _options, _output
from holdfast.cli._options import WAIT_MS, refuse
from holdfast.cli._setup import Flags, setup_for, with_setup
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.contracts import Json, RunResult
    from holdfast.runtime import Runtime

MAX_FILE_BYTES = 16 << 20
"""Where reading a file stops; far more than code may have, so that the shell's own refusal is the one seen."""

Code = Annotated[str | None, typer.Option("--code", "-e", metavar="CODE", help="The code itself.")]
File = Annotated[
    str | None,
    typer.Option("--file", "-f", metavar="FILE", help="A file with the code; - is standard input."),
]
LanguageName = Annotated[
    str, typer.Option("--language", metavar="L", help="What the code is written in.")
]
Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", metavar="NAME=JSON", help="A variable for the code; repeatable."),
]
Timeout = Annotated[
    int | None,
    typer.Option("--timeout", metavar="MS", help="Longest time it may take, this once."),
]


@with_setup
def run(
    code: Code = None,
    file: File = None,
    session_id: _options.SessionId = "default",
    language: LanguageName = "python",
    timeout: Timeout = None,
    inputs: Inputs = None,
    limits: _options.Limit = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Make no call but reads; print the plan of the others."),
    ] = False,
    plan: Annotated[
        str | None,
        typer.Option("--plan", metavar="ID", help="An approved plan: its calls and no other."),
    ] = None,
    wait: _options.Wait = WAIT_MS,
    as_json: _output.JsonFlag = None,
    *,
    flags: Flags,
) -> int:
    """Run code in a session and print what it gave.

    The session keeps its variables for the next run, whichever process that is in, and remembers what it
    was opened with. Exit codes: 0 ok, 1 the run failed, 2 bad usage, 3 waiting for approval, 4 needs attention.
    """

    async def work(hf: Runtime, asked: _Asked) -> RunResult:
        from holdfast.cli._work import user

        return await hf.shell.run(
            asked.code,
            session=session_id,
            language=language,
            timeout_ms=timeout,
            inputs=asked.inputs,
            limits=asked.limits,
            dry_run=dry_run,
            plan=plan,
            setup=await setup_for(hf, session_id, asked.setup),
            actor=user(),
            wait_ms=wait,
        )

    def ask() -> _Asked:
        limited = _options.limits_of(limits)
        return _Asked(_code(code, file), _inputs(inputs or []), limited, flags.fields())

    return _main(ask, work, session_id, _output.as_json(as_json))


@with_setup
def validate(
    code: Code = None,
    file: File = None,
    session_id: _options.SessionId = "default",
    language: LanguageName = "python",
    timeout: Timeout = None,
    inputs: Inputs = None,
    limits: _options.Limit = None,
    as_json: _output.JsonFlag = None,
    *,
    flags: Flags,
) -> int:
    """Check code without running any of it.

    Exit codes: 0 it would be run, 1 it would be refused, 2 bad usage.
    """

    async def work(hf: Runtime, asked: _Asked) -> RunResult:
        return await hf.shell.run(
            asked.code,
            session=session_id,
            language=language,
            timeout_ms=timeout,
            inputs=asked.inputs,
            limits=asked.limits,
            validate_only=True,
            setup=await setup_for(hf, session_id, asked.setup),
        )

    def ask() -> _Asked:
        limited = _options.limits_of(limits)
        return _Asked(_code(code, file), _inputs(inputs or []), limited, flags.fields())

    return _main(ask, work, session_id, _output.as_json(as_json))


class _Asked(NamedTuple):
    """What the arguments say, checked before anything is opened or made."""

    code: str
    inputs: dict[str, Json]
    limits: dict[str, int]
    setup: dict[str, Any]


Work: TypeAlias = "Callable[[Runtime, _Asked], Coroutine[Any, Any, RunResult]]"


def _main(ask: Callable[[], _Asked], work: Work, session_id: str, as_json: bool) -> int:
    from holdfast.cli._stop import Stopped
    from holdfast.cli._work import on_runtime, without_result

    text, code = "", None
    try:
        asked = ask()
        text = asked.code
        result = on_runtime(lambda hf: work(hf, asked))
    except Stopped as stop:
        result, code = without_result(stop.error), stop.exit_code
    except HoldfastError as refusal:
        if refusal.status is None:
            raise
        result = without_result(refusal)
    tell(result, text, session_id, as_json=as_json)
    return _exit.of_result(result) if code is None else code


def tell(result: RunResult, code: str, session_id: str, *, as_json: bool) -> None:
    """Print what a run gave."""
    if as_json:
        _output.print_json(result)
    else:
        from holdfast.cli._result import show

        show(result, code, session_id)


# -- arguments ----------------------------------------------------------------------------------------


def _code(code: str | None, file: str | None) -> str:
    if code is not None and file is None:
        return code
    if file is not None and code is None:
        return _decode(_read(file), file)
    refuse("Give the code with `-e CODE` or with `-f FILE`, and not with both.")


def _read(name: str) -> bytes:
    try:
        if name == "-":
            data = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        else:
            with open(name, "rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
    except OSError as why:
        refuse(f"The file `{name}` can't be read: {why.strerror}.")
    if len(data) > MAX_FILE_BYTES:
        refuse(f"The file `{name}` is over {MAX_FILE_BYTES} bytes.")
    return data


def _decode(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as why:
        refuse(f"The file `{name}` is not UTF-8 text: its byte {why.start + 1} can't be read.")


def _inputs(given: list[str]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for one in given:
        name, equals, text = one.partition("=")
        if not (equals and name.isidentifier()):
            refuse(f"`--input {one[:80]}` is not NAME=JSON.", "Such as --input 'name=\"Ada\"'.")
        if name in found:
            refuse(f"`--input {name}` is given twice.")
        try:
            found[name] = json.loads(text, parse_constant=_no_constant)
        except (ValueError, RecursionError) as why:
            refuse(
                f"`--input {name}`: what follows the `=` is not JSON: {why}.",
                f"Text needs quotes: --input '{name}=\"…\"'.",
            )
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")

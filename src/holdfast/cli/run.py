"""`holdfast run` and `holdfast validate`: code in, a `RunResult` out."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn, TypeAlias

import typer

from holdfast.cli import _output
from holdfast.errors import CODES, CallerError, HoldfastError

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
SessionId = Annotated[
    str, typer.Option("--session-id", metavar="S", help="The session; made on first use.")
]
LanguageName = Annotated[
    str, typer.Option("--language", metavar="L", help="What the code is written in.")
]


def run(
    code: Code = None,
    file: File = None,
    session_id: SessionId = "default",
    language: LanguageName = "python",
    timeout: Annotated[
        int | None,
        typer.Option("--timeout", metavar="MS", help="Longest time it may take, this once."),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="NAME=JSON", help="A variable for the code; repeatable."),
    ] = None,
    limits: Annotated[
        list[str] | None,
        typer.Option(
            "--limit", metavar="NAME=N", help="Such as cpu_ms=500 or memory_mb=128; repeatable."
        ),
    ] = None,
    wait: Annotated[
        int,
        typer.Option(
            "--wait",
            metavar="MS",
            min=0,
            help="How long to wait while another run has the session.",
        ),
    ] = 30_000,
    as_json: _output.JsonFlag = None,
) -> int:
    """Run code in a session and print what it gave.

    The session keeps its variables for the next run, whichever process that is in.
    Exit codes: 0 ok, 1 the run failed, 2 bad usage, 3 waiting for approval, 4 interrupted.
    """

    async def work(hf: Runtime, asked: _Asked) -> RunResult:
        return await hf.shell.run(
            asked.code,
            session=session_id,
            language=language,
            timeout_ms=timeout,
            inputs=asked.inputs,
            limits=asked.limits,
            wait_ms=wait,
        )

    def ask() -> _Asked:
        return _Asked(_code(code, file), _inputs(inputs or []), _limits(limits or []))

    return _main(ask, work, session_id, _output.as_json(as_json))


def validate(
    code: Code = None,
    file: File = None,
    session_id: SessionId = "default",
    language: LanguageName = "python",
    as_json: _output.JsonFlag = None,
) -> int:
    """Check code without running any of it.

    Exit codes: 0 it would be run, 1 it would be refused, 2 bad usage.
    """

    async def work(hf: Runtime, asked: _Asked) -> RunResult:
        return await hf.shell.run(
            asked.code, session=session_id, language=language, validate_only=True
        )

    def ask() -> _Asked:
        return _Asked(_code(code, file), {}, {})

    return _main(ask, work, session_id, _output.as_json(as_json))


class _Asked(NamedTuple):
    """What the arguments say, checked before anything is opened or made."""

    code: str
    inputs: dict[str, Json]
    limits: dict[str, int]


Work: TypeAlias = "Callable[[Runtime, _Asked], Coroutine[Any, Any, RunResult]]"


def _main(ask: Callable[[], _Asked], work: Work, session_id: str, as_json: bool) -> int:
    import anyio

    from holdfast.cli._stop import Stopped
    from holdfast.contracts import RunResult

    text, code = "", None
    try:
        asked = ask()
        text = asked.code
        # Printed after the runtime is closed: what the user has seen is on the disk.
        result: RunResult = anyio.run(_in_runtime, work, asked)
    except Stopped as stop:
        result, code = _without(RunResult, stop.error), stop.exit_code
    except HoldfastError as refusal:
        if refusal.status is None:
            raise
        result = _without(RunResult, refusal)
    if as_json:
        _output.print_json(result)
    else:
        from holdfast.cli._result import show

        show(result, text, session_id)
    return _exit_code(result) if code is None else code


async def _in_runtime(work: Work, asked: _Asked) -> RunResult:
    from holdfast import runtime
    from holdfast.cli._stop import until_stopped

    async with runtime.open() as hf:
        return await until_stopped(lambda: work(hf, asked))


def _without(model: type[RunResult], error: HoldfastError) -> RunResult:
    """The result of a run that gave none."""
    told = error.to_json()
    remark = {**told, "severity": "error"}
    return model.model_validate({"status": error.status, "error": told, "diagnostics": [remark]})


def _exit_code(result: RunResult) -> int:
    if result.error is None:
        return 0
    # A capability may fail with a code of its own, which is in nobody's table.
    known = CODES.get(result.error.code)
    return known.exit_code if known else 1


# -- arguments ----------------------------------------------------------------------------------------


def _code(code: str | None, file: str | None) -> str:
    if code is not None and file is None:
        return code
    if file is not None and code is None:
        return _decode(_read(file), file)
    _refuse("Give the code with `-e CODE` or with `-f FILE`, and not with both.")


def _read(name: str) -> bytes:
    try:
        if name == "-":
            data = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        else:
            with open(name, "rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
    except OSError as why:
        _refuse(f"The file `{name}` can't be read: {why.strerror}.")
    if len(data) > MAX_FILE_BYTES:
        _refuse(f"The file `{name}` is over {MAX_FILE_BYTES} bytes.")
    return data


def _decode(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as why:
        _refuse(f"The file `{name}` is not UTF-8 text: its byte {why.start + 1} can't be read.")


def _inputs(given: list[str]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for one in given:
        name, equals, text = one.partition("=")
        if not (equals and name.isidentifier()):
            _refuse(f"`--input {one[:80]}` is not NAME=JSON.", "Such as --input 'name=\"Ada\"'.")
        if name in found:
            _refuse(f"`--input {name}` is given twice.")
        try:
            found[name] = json.loads(text, parse_constant=_no_constant)
        except (ValueError, RecursionError) as why:
            _refuse(
                f"`--input {name}`: what follows the `=` is not JSON: {why}.",
                f"Text needs quotes: --input '{name}=\"…\"'.",
            )
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _limits(given: list[str]) -> dict[str, int]:
    from holdfast.contracts import SessionLimits

    found: dict[str, int] = {}
    for one in given:
        name, _, text = one.partition("=")
        if name not in SessionLimits.model_fields:
            _refuse(
                f"`--limit {one[:80]}` names no limit.",
                f"The limits are {', '.join(SessionLimits.model_fields)}.",
            )
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            _refuse(f"`--limit {one[:80]}` is not NAME=NUMBER.", "Such as --limit cpu_ms=500.")
        if name in found:
            _refuse(f"`--limit {name}` is given twice.")
        found[name] = int(text)
    return found


def _refuse(message: str, hint: str | None = None) -> NoReturn:
    raise CallerError("INVALID_ARGUMENT", message, hint=hint)

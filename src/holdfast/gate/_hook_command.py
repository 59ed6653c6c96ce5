"""A hook that is a program: the question on its standard input, the answer on its standard output, both JSON."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from typing import cast

from anyio import (
    BrokenResourceError,
    CancelScope,
    ClosedResourceError,
    EndOfStream,
    create_task_group,
    open_process,
)
from anyio.abc import ByteReceiveStream, ByteSendStream, Process

from holdfast.contracts.hook_config import HookConfig
from holdfast.errors import OperatorError
from holdfast.gate._hook_call import Hook
from holdfast.gate._hook_rules import invalid
from holdfast.gate._hook_view import HookInput

MAX_ANSWER_BYTES = 1 << 20
"""The longest answer a program or a URL may give."""

_ALWAYS = ("PATH", "LANG", "HOME")


def command_hook(config: HookConfig) -> Hook:
    """The hook that asks the program of `config`; raises `HOOK_INVALID` when there is none.

    The program gets a process group of its own. Whatever ends the question (the answer, the deadline, too long
    an answer) ends the whole group.
    """
    argv = config.command or ()
    if not argv or shutil.which(argv[0]) is None:
        name = argv[0] if argv else ""
        raise invalid(config.id, f"its program `{name}` is not there, or not executable")

    async def asked(question: HookInput) -> bytes:
        return await _run(argv, _environment(config), question.model_dump_json().encode())

    return Hook(config.spec(), asked)


def _environment(config: HookConfig) -> dict[str, str]:
    names = (*_ALWAYS, *config.env)
    return {name: os.environ[name] for name in names if name in os.environ}


async def _run(argv: tuple[str, ...], env: dict[str, str], question: bytes) -> bytes:
    process = await open_process(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=env,
        start_new_session=True,
    )
    try:
        return await _converse(process, question)
    finally:
        # It may have children that outlive it; and a cancelled wait must not leave a zombie.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with CancelScope(shield=True):
            await process.aclose()


async def _converse(process: Process, question: bytes) -> bytes:
    answer, code = b"", 0
    async with create_task_group() as group:
        group.start_soon(_tell, cast(ByteSendStream, process.stdin), question)
        answer = await _hear(cast(ByteReceiveStream, process.stdout))
        if len(answer) <= MAX_ANSWER_BYTES:
            code = await process.wait()
        group.cancel_scope.cancel()
    if len(answer) > MAX_ANSWER_BYTES:
        raise OperatorError("HOOK_FAILED", f"Its answer is over {MAX_ANSWER_BYTES} bytes.")
    if code != 0:
        raise OperatorError("HOOK_FAILED", f"Its program ended with exit code {code}.")
    return answer


async def _tell(stdin: ByteSendStream, question: bytes) -> None:
    # A program need not read the question to answer it.
    with suppress(BrokenResourceError, ClosedResourceError):
        await stdin.send(question)
        await stdin.aclose()


async def _hear(stdout: ByteReceiveStream) -> bytes:
    """All it says, or the beginning of what is too long."""
    heard = bytearray()
    with suppress(EndOfStream):
        while len(heard) <= MAX_ANSWER_BYTES:
            heard += await stdout.receive()
    return bytes(heard)

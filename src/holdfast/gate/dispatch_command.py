"""Asks a program: it reads the request as JSON on its standard input, and writes a decision as JSON."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from typing import Any, cast

import anyio

from holdfast.contracts import ApprovalDecision, ApprovalView, Decision
from holdfast.gate.dispatch import Filled, NoAnswer, understood

MAX_ANSWER = 64 * 1024


class AskCommand:
    """Asks a program of the host's. It ends with the answer; the deadline ends it."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._argv = tuple(argv)

    async def dispatch(self, request: ApprovalView) -> ApprovalDecision | Filled | NoAnswer:
        """Run it; exit 0 and `{"decision": …}` is an answer, anything else is none."""
        told = request.model_dump_json().encode()
        environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin")}
        async with await anyio.open_process(
            self._argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        ) as process:
            try:
                said = await _talk(process, told)
            except BaseException:
                process.kill()
                raise
        if process.returncode != 0 or said is None:
            return NoAnswer("unavailable", "approval.command_failed")
        return _decided(said)


async def _talk(process: anyio.abc.Process, told: bytes) -> bytes | None:
    """Write the question, read the answer; `None` when it is too long to be one."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        await process.stdin.send(told)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass  # it did not want to know
    await process.stdin.aclose()
    found = b""
    async for piece in process.stdout:
        found += piece
        if len(found) > MAX_ANSWER:
            process.kill()
            return None
    await process.wait()
    return found


def _decided(said: bytes) -> ApprovalDecision | Filled | NoAnswer:
    try:
        found: Any = json.loads(said)
    except ValueError:
        return NoAnswer("unavailable", "approval.command_failed")
    if not isinstance(found, dict):
        return NoAnswer("unavailable", "approval.command_failed")
    answer = cast("dict[str, Any]", found)
    actor = str(answer.get("actor") or "command")
    decision = understood(str(answer.get("decision", "")), actor=actor, via="command")
    if isinstance(decision, ApprovalDecision) and answer.get("reason"):
        reason = str(answer["reason"])[:500]
        decision = decision.model_copy(update={"reason": reason})
    if isinstance(decision, ApprovalDecision) and decision.decision is Decision.DENIED:
        code = str(answer.get("reason_code") or decision.reason_code)
        decision = decision.model_copy(update={"reason_code": code})
    elif isinstance(decision, ApprovalDecision) and "content" in answer:
        return Filled(answer["content"], decision)
    return decision

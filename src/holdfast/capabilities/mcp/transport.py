"""Which way to a server, by its surface."""

from __future__ import annotations

import shutil
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from anyio import to_thread

from holdfast.capabilities.mcp.answers import Answers
from holdfast.capabilities.mcp.environment import environment, filled
from holdfast.capabilities.mcp.errlog import ErrorLog
from holdfast.capabilities.mcp.failures import failed
from holdfast.capabilities.mcp.http import Note, http
from holdfast.capabilities.mcp.jail import jailed, jailed_environment
from holdfast.capabilities.mcp.services import Services
from holdfast.capabilities.mcp.stdio import stdio
from holdfast.contracts.surface import HttpSurface, StdioSurface


async def transport(
    surface: str,
    spec: StdioSurface | HttpSurface,
    services: Services,
    log: ErrorLog,
    note: Note,
    answers: Answers | None,
) -> AbstractAsyncContextManager[tuple[Any, Any]]:
    """The streams to and from the server, once they are entered."""
    if isinstance(spec, HttpSurface):
        headers = filled(surface, spec.headers, services)
        return http(spec.url, headers, services, note, spec.timeout_ms)
    env = environment(surface, spec.env, services)
    program = shutil.which(spec.command, path=env.get("PATH"))
    if program is None and spec.cwd is not None:
        program = shutil.which(str(Path(spec.cwd, spec.command)))
    if program is None:
        raise failed(
            surface,
            f"its program `{spec.command}` is not there, or not executable",
            hint="Install it, or name it by its full path.",
        )
    if not spec.jail:
        return stdio([program, *spec.args], env, spec.cwd, log, answers)
    argv = await to_thread.run_sync(jailed, spec, program)
    return stdio(argv, jailed_environment(env), None, log, answers)

"""Calling a tool of a surface, to try it: a run like any other, through the gate and on record."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, cast

from holdfast.cli import _exit
from holdfast.cli._options import refuse
from holdfast.cli._surfaces import definitions
from holdfast.cli._work import on_runtime, user
from holdfast.cli.run import tell
from holdfast.contracts import RunResult, Setup
from holdfast.errors import NotFound, OperatorError
from holdfast.runtime import Runtime
from holdfast.shell.services import setup_of

_SUCH_AS = 'Such as --args \'{"city": "Rome"}\'.'
_NAMED = 20


class Call(NamedTuple):
    """A call of a tool, to try it."""

    surface: str
    tool: str
    """What the server calls it, or what code does."""
    arguments: dict[str, Any]
    session: str


def arguments_of(given: str | None) -> dict[str, Any]:
    """`--args`, read."""
    try:
        found: Any = json.loads(given or "{}")
    except (ValueError, RecursionError) as why:
        refuse(f"`--args` is not JSON: {why}.", _SUCH_AS)
    if not isinstance(found, dict):
        refuse("`--args` is no JSON object.", _SUCH_AS)
    return cast("dict[str, Any]", found)


def call(asked: Call, *, as_json: bool) -> int:
    """Make the call and print what the run gave; what to exit with."""
    result, code = on_runtime(lambda hf: _called(hf, asked))
    tell(result, code, asked.session, as_json=as_json)
    return _exit.of_result(result)


async def _called(hf: Runtime, asked: Call) -> tuple[RunResult, str]:
    (await definitions(hf.settings)).get(asked.surface)
    try:
        await hf.surfaces.wait_ready([asked.surface])
    except OperatorError as why:
        hint = f"`holdfast mcp test {asked.surface}` shows what it says."
        raise OperatorError(why.code, why.message, hint=hint) from None
    code = _code(hf, asked)
    result = await hf.shell.run(
        code,
        session=asked.session,
        inputs={"arguments": asked.arguments},
        setup=await _seeing(hf, asked),
        actor=user(),
    )
    return result, code


def _code(hf: Runtime, asked: Call) -> str:
    """What calls it."""
    tools = hf.surfaces.tools(Setup(surfaces=(asked.surface,)))
    for one in tools:
        if asked.tool in (one.tool, one.capability.name):
            called = f"{one.capability.name}(**arguments)"
            return f"await {called}" if one.capability.asynchronous else called
    names = ", ".join(f"`{one.tool}`" for one in tools[:_NAMED])
    raise NotFound(
        "NOT_FOUND",
        f"`{asked.surface}` offers no tool `{asked.tool[:80]}`.",
        hint=f"It offers {names}." if names else "It offers none.",
    )


async def _seeing(hf: Runtime, asked: Call) -> Setup | None:
    """What the session is opened with: a new one sees this surface alone, one that is there sees it as well."""
    row = await hf.journal.row("sessions", asked.session)
    if row is None or row["status"] != "open":
        return hf.settings.session.model_copy(update={"surfaces": (asked.surface,)})
    known = setup_of(hf.shell.services, row)
    if known.surfaces is None or asked.surface in known.surfaces:
        return None
    return known.model_copy(update={"surfaces": (*known.surfaces, asked.surface)})

"""`holdfast mcp`: tool servers, and everything else that tools come from: added, looked at, tried."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Protocol, runtime_checkable

import typer

from holdfast.cli import _mcp_serve, _output
from holdfast.cli._options import refuse
from holdfast.cli._surface_flags import SurfaceFlags, pairs, with_surface
from holdfast.errors import HoldfastError, OperatorError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from holdfast.capabilities.connection import Connection, ResourceLine
    from holdfast.capabilities.mcp import PromptLine
    from holdfast.cli._surfaces import Definitions
    from holdfast.contracts import Json
    from holdfast.contracts.surface import SurfaceSpec
    from holdfast.runtime import Settings
    from holdfast.runtime.surfaces import Surfaces

app = typer.Typer(
    help="Tool servers: add, remove, reload, list, test, resources, prompts.", rich_markup_mode=None
)

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
TAKEN = "A running holdfast takes it at its next boundary."

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The surface's name.", show_default=False)
]
CommandLine = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="-- COMMAND ARGS",
        help="An MCP server that is started here.",
        show_default=False,
    ),
]
Check = Annotated[
    bool, typer.Option("--check/--no-check", help="Connect once, and add only what is there.")
]


app.command("serve")(_mcp_serve.serve)


@app.command()
@with_surface
def add(
    name: Name,
    command: CommandLine = None,
    check: Check = True,
    as_json: _output.JsonFlag = None,
    *,
    flags: SurfaceFlags,
) -> None:
    """Add a tool server, a module or an OpenAPI document; one of that name is replaced.

    It is on record: every holdfast with this journal takes it at its next boundary, and after a restart it is there.
    """
    import anyio

    if not _NAME.fullmatch(name):
        refuse(
            f"`{name[:80]}` can't be a surface's name: it starts the names of its tools.",
            "Use lower-case letters, digits and `_`, at most 40, and a letter first.",
        )
    spec = flags.spec(command or [])
    replaced, found = anyio.run(_add, name, spec, check)
    if _output.as_json(as_json):
        told = {"replaced": replaced, "spec": spec.model_dump(mode="json"), "found": found}
        _output.print_json({"name": name, "op": "add", **told})
        return
    from holdfast.cli._surface_tell import show_found

    if found is not None:
        show_found(found)
    done = f"`{name}` is replaced." if replaced else f"`{name}` is added."
    _output.console().print(f"{done} {TAKEN}")


@app.command()
def remove(name: Name, as_json: _output.JsonFlag = None) -> None:
    """Want it no more: calls under way may end, new ones are refused."""
    _stage(name, "remove", "is removed", as_json)


@app.command()
def reload(name: Name, as_json: _output.JsonFlag = None) -> None:
    """Connect it anew; if that fails, the connection there is goes on."""
    _stage(name, "reload", "is connected anew", as_json)


@app.command("list")
def list_(
    connect: Annotated[
        bool, typer.Option("--connect", help="Connect to each: is it there, what does it offer?")
    ] = False,
    as_json: _output.JsonFlag = None,
) -> None:
    """List the surfaces there are, who defined them, and how they fared."""
    import anyio

    known, found = anyio.run(_list, connect)
    if _output.as_json(as_json):
        items = [
            {
                "name": one.name,
                "kind": one.spec.kind,
                "from": one.origin,
                "spec": one.spec.model_dump(mode="json"),
                "last": one.last,
                **({"found": found[one.name]} if connect else {}),
            }
            for one in known.known.values()
        ]
        _output.print_json({"items": items, "next": None, "removed": known.removed})
        return
    _tell_list(known, found if connect else None)


@app.command("test")
def try_(
    name: Name,
    tool: Annotated[
        str | None,
        typer.Argument(metavar="TOOL", help="Call this one, too.", show_default=False),
    ] = None,
    args: Annotated[
        str | None,
        typer.Option("--args", metavar="JSON", help="What to call it with: one JSON object."),
    ] = None,
    session_id: Annotated[
        str | None,
        typer.Option("--session-id", metavar="S", help="Where to call it.  [default: mcp-NAME]"),
    ] = None,
    as_json: _output.JsonFlag = None,
) -> int:
    """Connect to a surface and show what it offers and says; with TOOL, call it through the gate.

    A call is a run of its session like any other: it is recorded, may be asked about, and exits as `run` does.
    """
    if tool is None:
        if args is not None or session_id is not None:
            refuse("`--args` and `--session-id` are for a call.", "Name the TOOL, too.")
        return _test(name, _output.as_json(as_json))
    from holdfast.cli._surface_call import Call, arguments_of, call

    asked = Call(name, tool, arguments_of(args), session_id or f"mcp-{name}")
    return call(asked, as_json=_output.as_json(as_json))


@app.command()
def resources(name: Name, as_json: _output.JsonFlag = None) -> None:
    """List what a server has to read; `holdfast resources read mcp://NAME/URI` reads it."""
    found = _asked(name, lambda connection: connection.resources())
    items = [_resource(one) for one in found]
    if _output.as_json(as_json):
        _output.print_json({"items": items, "next": None})
        return
    from holdfast.cli._surface_tell import show_resources

    show_resources(items)


@app.command()
def prompts(
    name: Name,
    prompt: Annotated[
        str | None,
        typer.Argument(metavar="PROMPT", help="Fill this one in.", show_default=False),
    ] = None,
    arg: Annotated[
        list[str] | None,
        typer.Option("--arg", metavar="K=V", help="An argument of the prompt; repeatable."),
    ] = None,
    as_json: _output.JsonFlag = None,
) -> None:
    """List the prompts a server has; with PROMPT, its messages, filled in."""
    given = pairs("--arg", arg, "city=Rome") or {}
    if prompt is None:
        if given:
            refuse("`--arg` is for a prompt.", "Name the PROMPT, too.")
        found = _asked(name, lambda connection: _prompting(name, connection).prompts())
        _tell_prompts([_prompt(one) for one in found], _output.as_json(as_json))
        return
    messages: Any = _asked(
        name, lambda connection: _prompting(name, connection).get_prompt(prompt, given)
    )
    if _output.as_json(as_json):
        _output.print_json({"name": prompt, "messages": messages})
        return
    from holdfast.cli._surface_tell import show_messages

    show_messages(messages)


# -- what is wanted -----------------------------------------------------------------------------------


async def _add(name: str, spec: SurfaceSpec, check: bool) -> tuple[bool, dict[str, Any] | None]:
    from holdfast.cli._surface_wish import check_journal, on_journal
    from holdfast.cli._surfaces import definitions
    from holdfast.runtime import Settings

    settings = Settings.load()
    check_journal(settings)
    found = None
    if check:
        found = await _tried(settings, name, spec)
        # One that asks who is there is there: somebody signs in when it is called, if not before.
        if found["status"] == "failed":
            raise _refused(found)
    replaced = name in (await definitions(settings)).known

    async def work(surfaces: Surfaces) -> None:
        await surfaces.add(name, spec)

    await on_journal(settings, work)
    return replaced, found


async def _tried(settings: Settings, name: str, spec: SurfaceSpec) -> dict[str, Any]:
    from holdfast.cli._stop import until_stopped
    from holdfast.cli._surfaces import trial

    async def work() -> dict[str, Any]:
        async with trial(settings, {name: spec}) as trying:
            return await trying.found(name)

    return await until_stopped(work)


def _refused(found: Mapping[str, Any]) -> HoldfastError:
    error = found["error"]
    hint = error.get("hint")
    more = "`--no-check` adds it all the same."
    return OperatorError(
        "SURFACE_FAILED", error["message"], hint=f"{hint} {more}" if hint else more
    )


def _stage(name: str, op: str, done: str, as_json: bool | None) -> None:
    import anyio

    async def work() -> None:
        from holdfast.cli._surface_wish import check_journal, on_journal
        from holdfast.cli._surfaces import definitions
        from holdfast.runtime import Settings

        settings = Settings.load()
        check_journal(settings)
        (await definitions(settings)).get(name)

        async def staged(surfaces: Surfaces) -> None:
            await (surfaces.remove(name) if op == "remove" else surfaces.reload(name))

        await on_journal(settings, staged)

    anyio.run(work)
    if _output.as_json(as_json):
        _output.print_json({"name": name, "op": op})
    else:
        taken = TAKEN.replace(" takes it ", " does so ")
        _output.console().print(f"`{name}` {done}. {taken}")


# -- looking ------------------------------------------------------------------------------------------


async def _list(connect: bool) -> tuple[Definitions, dict[str, dict[str, Any]]]:
    from holdfast.cli._stop import until_stopped
    from holdfast.cli._surfaces import definitions, trial
    from holdfast.runtime import Settings

    settings = Settings.load()
    known = await definitions(settings)
    if not connect:
        return known, {}

    async def work() -> dict[str, dict[str, Any]]:
        async with trial(settings, known.specs) as trying:
            return {name: await trying.found(name) for name in known.known}

    return known, await until_stopped(work)


def _tell_list(known: Definitions, found: Mapping[str, dict[str, Any]] | None) -> None:
    from holdfast.cli._surface_tell import definitions_table, show_found

    out = _output.console()
    if not known.known:
        out.print("No tool surfaces: `holdfast mcp add NAME -- COMMAND` adds an MCP server.")
    elif found is None:
        out.print(definitions_table([*known.known.values()]))
    else:
        for one in found.values():
            show_found(one)
    for name in known.removed:
        out.print(f"{name}: in the settings, and removed", style="dim")


def _test(name: str, as_json: bool) -> int:
    import anyio

    from holdfast.cli._surfaces import Heard

    with Heard() as heard:
        found = anyio.run(_looked_at, name)
    told = {**found, "log": heard.lines}
    if as_json:
        _output.print_json(told)
    else:
        from holdfast.cli._surface_tell import show_found, show_log

        show_log(heard.lines)
        show_found(found)
    return 0 if found["error"] is None else 1


async def _looked_at(name: str) -> dict[str, Any]:
    from holdfast.cli._surfaces import definitions
    from holdfast.runtime import Settings

    settings = Settings.load()
    return await _tried(settings, name, (await definitions(settings)).get(name).spec)


# `Any`: whatever the question gives.
def _asked(name: str, question: Callable[[Connection], Awaitable[Any]]) -> Any:
    """What a connection to a surface answers."""
    import anyio

    from holdfast.cli._stop import until_stopped

    async def work() -> Any:
        from holdfast.cli._surfaces import definitions, trial
        from holdfast.runtime import Settings

        settings = Settings.load()
        spec = (await definitions(settings)).get(name).spec
        async with trial(settings, {name: spec}) as trying:
            return await question(await trying.connection(name))

    return anyio.run(until_stopped, work)


@runtime_checkable
class _Prompting(Protocol):
    """A connection that has prompts."""

    async def prompts(self) -> Sequence[PromptLine]: ...

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> Json: ...


def _prompting(name: str, connection: Connection) -> _Prompting:
    if not isinstance(connection, _Prompting):
        refuse(f"`{name}` is no MCP server: it has no prompts.")
    return connection


def _resource(one: ResourceLine) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(one)


def _prompt(one: PromptLine) -> dict[str, Any]:
    arguments = [{"name": name, "required": required} for name, required in one.arguments]
    return {"name": one.name, "description": one.description, "arguments": arguments}


def _tell_prompts(items: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        _output.print_json({"items": items, "next": None})
        return
    from holdfast.cli._surface_tell import show_prompts

    show_prompts(items)

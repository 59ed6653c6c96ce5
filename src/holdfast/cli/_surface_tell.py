"""Tool surfaces for people."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from rich.table import Table
from rich.text import Text

from holdfast.cli import _output

if TYPE_CHECKING:
    from holdfast.cli._surfaces import Defined
    from holdfast.contracts.surface import SurfaceSpec

_STYLES = {"connected": "green", "sign_in_required": "bold yellow", "failed": "bold red"}
_LINE = 80


def what(spec: SurfaceSpec) -> str:
    """What it is connected to, in a line."""
    match spec.kind:
        case "stdio":
            return shlex.join((spec.command, *spec.args))
        case "http":
            return spec.url
        case "module":
            return spec.reference
        case "openapi":
            return spec.document


def definitions_table(found: Sequence[Defined]) -> Table:
    """Every surface that there is to be, and what became of it last."""
    table = Table("name", "kind", "from", "what", "last", box=None, pad_edge=False)
    for one in found:
        shown = _short(what(one.spec))
        table.add_row(one.name, one.spec.kind, one.origin, shown, _last(one.last))
    return table


def _last(last: Mapping[str, Any] | None) -> str:
    if last is None:
        return "not connected yet"
    parts = [f"{last['op']} {last['phase']}", _output.clock(last["time"])]
    if last["tools"]:
        parts.insert(1, f"{last['tools']} tools")
    if last["detail"] is not None:
        parts.append(_short(last["detail"]))
    return " · ".join(parts)


def show_found(found: Mapping[str, Any]) -> None:
    """How a surface is, and what it offers."""
    out = _output.console()
    status = found["status"]
    out.print(f"{found['name']}: ", end="")
    out.print(status.replace("_", " "), style=_STYLES[status], end="")
    facts = [found["kind"], found["server"], _protocol(found), _ping(found)]
    out.print(_output.visible("".join(f" · {one}" for one in facts if one)))
    error = found["error"]
    if error is not None:
        out.print(f"  {_output.visible(error['message'])}")
        if error.get("hint"):
            out.print(f"  → {_output.visible(error['hint'])}", style="cyan")
        return
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for one in found["tools"]:
        effect = Text(one["side_effect"], style="dim")
        table.add_row(f"  {one['name']}", effect, _short(one["description"]))
    if found["tools"]:
        out.print(table)
    for tool, why in found["refused"].items():
        out.print(f"  refused: {_output.visible(tool)}: {_output.visible(why)}", style="yellow")
    out.print(f"  {_count(found['tools'])}, about {found['tokens']} tokens of stubs", style="dim")


def _protocol(found: Mapping[str, Any]) -> str | None:
    return None if found["protocol"] is None else f"MCP {found['protocol']}"


def _ping(found: Mapping[str, Any]) -> str | None:
    return None if found["ping_ms"] is None else f"{found['ping_ms']} ms"


def _count(tools: Sequence[object]) -> str:
    return "1 tool" if len(tools) == 1 else f"{len(tools)} tools"


def show_log(lines: Sequence[str]) -> None:
    """What servers said, which is theirs, and no output of ours."""
    aside = _output.console(stderr=True)
    for line in lines:
        aside.print(_output.visible(line), style="dim")


def show_resources(items: Sequence[Mapping[str, Any]]) -> None:
    """What there is to read."""
    table = Table("uri", "mime", "bytes", "name", box=None, pad_edge=False)
    for one in items:
        size = "" if one["size"] is None else str(one["size"])
        uri = _output.visible(one["uri"]) + (" (template)" if one["template"] else "")
        table.add_row(uri, _output.visible(one["mime"] or ""), size, _short(one["name"]))
    _output.console().print(table if items else "It has nothing to read.")


def show_prompts(items: Sequence[Mapping[str, Any]]) -> None:
    """The prompts there are."""
    table = Table("prompt", "arguments", "for", box=None, pad_edge=False)
    for one in items:
        given = [arg["name"] if arg["required"] else f"[{arg['name']}]" for arg in one["arguments"]]
        shown = _output.visible(" ".join(given))
        table.add_row(_output.visible(one["name"]), shown, _short(one["description"]))
    _output.console().print(table if items else "It has no prompts.")


def show_messages(messages: Sequence[Mapping[str, Any]]) -> None:
    """A prompt that is filled in."""
    import json

    out = _output.console()
    for one in messages:
        content = one["content"]
        text = cast("dict[str, Any]", content).get("text") if isinstance(content, dict) else content
        said = text if isinstance(text, str) else json.dumps(content, ensure_ascii=False)
        out.print(f"{one['role']}: ", style="bold", end="")
        out.print(_output.visible(said))


def _short(text: str) -> str:
    """The first line of it, if that is not too long."""
    line = _output.visible(" ".join(text.split()))
    return line if len(line) <= _LINE else f"{line[: _LINE - 1]}…"

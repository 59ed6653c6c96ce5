"""The tools that every client has: what each takes, who may, and the method of JSON-RPC that does it."""

from __future__ import annotations

from typing import Any, NamedTuple

from mcp_types import Tool, ToolAnnotations
from pydantic import BaseModel

from holdfast.contracts._described import Described
from holdfast.server.callers import Caller, Scope
from holdfast.server.mcp import params as p

STDIO = "mcp:stdio"
"""How a client comes in that started this program."""


class BuiltIn(NamedTuple):
    """One of them."""

    description: str
    """For the model."""
    params: type[BaseModel]
    scope: Scope
    """What a caller needs for it."""
    method: str | None = None
    """Of JSON-RPC; `None`: it is done here."""
    reads: bool = False
    """Whether it changes nothing."""
    destroys: bool = False
    """Whether it takes something away, or lets something happen."""


_DECIDE = (
    "Give a person's answer to something that waits in `approvals_list`, such as a call that needs approval."
    " Only ever pass on what a person has decided; never decide yourself. The run goes on: `run_resume` gives its result."
)
_RUN = (
    "Run Python in a sandbox that has no files, no network and no packages. Variables and functions stay in the session"
    " for the next run. The result is the value of the last expression, or of the variable `result`. Beside plain Python,"
    " code may call the capabilities that `search_tools` lists, as functions. A call that a person has to approve makes the"
    " run wait: then `status` is `waiting_for_approval`, and `run_resume` gives the result once it is decided."
)

BUILT_IN: dict[str, BuiltIn] = {
    "run_code": BuiltIn(_RUN, p.RunCode, "run"),
    "validate_code": BuiltIn(
        "Check Python against what the session has, without running any of it.",
        p.ValidateCode,
        "run",
        reads=True,
    ),
    "run_resume": BuiltIn(
        "Go on with a run that waits or was interrupted, and get its result; one that is over gives its result again.",
        p.ResumeRun,
        "run",
    ),
    "search_tools": BuiltIn(
        "Find capabilities that code in `run_code` may call, by words; with their Python stubs.",
        p.SearchTools,
        "read",
        "tools.search",
        reads=True,
    ),
    "describe_tool": BuiltIn(
        "Everything about one capability: schemas, side effect, limits, when a person is asked.",
        p.DescribeTool,
        "read",
        "tools.describe",
        reads=True,
    ),
    "session_list": BuiltIn("List sessions.", p.ListSessions, "read", "session.list", reads=True),
    "session_show": BuiltIn("Show a session and its latest runs.", p.OfSession, "read", reads=True),
    "session_reset": BuiltIn(
        "Empty a session: its variables and functions are gone, its history stays.",
        p.OfSession,
        "run",
        "session.reset",
        destroys=True,
    ),
    "session_destroy": BuiltIn(
        "End a session and erase what it held.",
        p.OfSession,
        "run",
        "session.destroy",
        destroys=True,
    ),
    "session_snapshot": BuiltIn(
        "What is in a session, sealed, in base64.",
        p.OfSession,
        "run",
        "session.snapshot",
        reads=True,
    ),
    "session_fork": BuiltIn(
        "Make another session that goes on from where this one is.",
        p.ForkSession,
        "run",
        "session.fork",
    ),
    "approvals_list": BuiltIn(
        "What waits for a person: calls that need approval, and questions.",
        p.Approvals,
        "read",
        "approvals.list",
        reads=True,
    ),
    "approvals_decide": BuiltIn(_DECIDE, p.Decide, "approve", "approvals.decide", destroys=True),
}


def tool_of(name: str) -> Tool:
    """A tool as clients are told about it."""
    known = BUILT_IN[name]
    return Tool(
        name=name,
        title=name.replace("_", " ").capitalize(),
        description=known.description,
        input_schema=schema_of(known.params),
        annotations=ToolAnnotations(
            read_only_hint=known.reads,
            destructive_hint=None if known.reads else known.destroys,
            open_world_hint=name == "run_code",
        ),
    )


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """What a tool takes, as JSON Schema; without titles, which say no more than the names."""
    schema = model.model_json_schema(schema_generator=Described)
    schema.pop("title", None)
    schema.pop("description", None)
    for one in schema.get("properties", {}).values():
        one.pop("title", None)
    return schema


def named_for(caller: Caller) -> list[str]:
    """The tools that somebody may use."""
    return [name for name in BUILT_IN if caller.may(scope_of(name, caller))]


def scope_of(name: str, caller: Caller) -> Scope:
    """What somebody needs for a tool.

    Over standard input nobody chose a token: there, a model would decide what it asked for itself. The person at the
    client is asked by elicitation, and whoever wants the tool all the same says so with `--scope admin`.
    """
    if name == "approvals_decide" and caller.via == STDIO and "admin" not in caller.scopes:
        return "admin"
    return BUILT_IN[name].scope

"""What calling a tool does: a built-in one, an agent, or a capability. The last two, and code, are runs."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from anyio.abc import TaskGroup
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    GetPromptRequestParams,
    InputRequiredResult,
    InputResponseRequestParams,
    LoggingLevel,
    ReadResourceRequestParams,
    Tool,
)

from holdfast.contracts import (
    Capability,
    ErrorObject,
    Json,
    RunResult,
    RunStatus,
    Setup,
    new_id,
    parse,
)
from holdfast.contracts.agent import AgentResult
from holdfast.errors import HoldfastError, ModelError, NotFound
from holdfast.gate.executor import Toolbox
from holdfast.runtime import Runtime
from holdfast.server import views
from holdfast.server.agents import Served
from holdfast.server.mcp import exposed
from holdfast.server.mcp import params as p
from holdfast.server.mcp.client import Client, Context
from holdfast.server.mcp.content import told
from holdfast.server.mcp.offers import Offers, offers_of
from holdfast.server.mcp.resources import Shown
from holdfast.server.mcp.running import Asked, Errand, Result, pending_of
from holdfast.server.mcp.sampling import asking
from holdfast.server.mcp.tools import BUILT_IN, scope_of
from holdfast.server.methods import Methods
from holdfast.server.rights import check_within
from holdfast.server.rpc import Call, encoded
from holdfast.server.work import Job, Work

DAY_MS = 86_400_000

Note = Callable[[str], None]
"""Says which run a request is about."""


@dataclass(frozen=True, slots=True)
class Given:
    """What a capability gave."""

    capability: Capability
    value: Json


class Calls:
    """Calls of tools. One for a service."""

    def __init__(self, hf: Runtime, work: Work, background: TaskGroup, *, expose: bool) -> None:
        self._hf = hf
        self._work = work
        self._background = background
        self._expose = expose

    # -- what there is --------------------------------------------------------------------------------

    async def tools(self, client: Client) -> list[Tool]:
        """Tools that are not built in: agents, and capabilities where they are exposed."""
        if not client.caller.may("run"):
            return []
        found = [
            exposed.agent_tool(_agent_tool(name), agent.definition.spec.instructions)
            for name, agent in self._work.agents.items()
        ]
        if self._expose:
            taken = self.offers().taken
            toolbox = await self._toolbox()
            found += [exposed.tool_of(o) for o in toolbox.all() if o.name not in taken]
        return found

    def offers(self) -> Offers:
        """Prompts and resources of modules."""
        return offers_of(self._hf.shell.services.setup)

    def values(self, prompt: str, argument: str) -> list[str]:
        """The values that an argument of a prompt may have, where its schema says."""
        capability = self.offers().prompts.get(prompt)
        schema = None if capability is None else exposed.fields(capability).get(argument)
        words = schema.get("enum") if isinstance(schema, dict) else None
        return [str(one) for one in words] if isinstance(words, list) else []

    async def _toolbox(self) -> Toolbox:
        services = self._hf.shell.services
        return await services.toolbox(services.setup)

    # -- calls ----------------------------------------------------------------------------------------

    async def call(
        self,
        ctx: Context,
        client: Client,
        level: LoggingLevel | None,
        params: CallToolRequestParams,
        note: Note,
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool. Raises refusals; what there is not is an error of the protocol."""
        name, given = params.name, params.arguments or {}
        errand = Errand(self._hf, self._work, ctx, client, level, note)
        known = BUILT_IN.get(name)
        if known is not None:
            client.caller.need(scope_of(name, client.caller))
            asking.set(ctx)
            asked = parse(known.params, given)
            check_within(asked, client.caller, self._hf.shell.services)
            match asked:
                case p.RunCode():
                    wanted = await self._code(client, asked)
                case p.ResumeRun():
                    wanted = await self._resumed(client, asked)
                case _:
                    return told(await self._built_in(client, name, asked))
            return _run_told(await errand.do(wanted, params), wanted.session)
        client.caller.need("run")
        asking.set(ctx)
        agents = {_agent_tool(one): agent for one, agent in self._work.agents.items()}
        if name in agents:
            wanted = self._agent(client, agents[name], parse(p.AskAgent, given))
            return _run_told(await errand.do(wanted, params), wanted.session)
        capability = await self._exposed(name)
        found = await self._do(errand, client, capability, given, params)
        return found if isinstance(found, InputRequiredResult) else exposed.told(capability, found)

    async def read(
        self,
        ctx: Context,
        client: Client,
        level: LoggingLevel | None,
        params: ReadResourceRequestParams,
        note: Note,
    ) -> Given | InputRequiredResult:
        """Read a resource of a module."""
        client.caller.need("run")
        found = self.offers().resource(str(params.uri))
        if found is None:
            raise NotFound("NOT_FOUND", f"There is no resource `{str(params.uri)[:200]}`.")
        offered, said = found
        errand = Errand(self._hf, self._work, ctx, client, level, note)
        return await self._give(errand, client, offered.capability, said, params)

    async def prompt(
        self,
        ctx: Context,
        client: Client,
        level: LoggingLevel | None,
        params: GetPromptRequestParams,
        note: Note,
    ) -> Given | InputRequiredResult:
        """Make a prompt of a module."""
        client.caller.need("run")
        capability = self.offers().prompts.get(params.name)
        if capability is None:
            raise NotFound("NOT_FOUND", f"There is no prompt `{params.name[:200]}`.")
        errand = Errand(self._hf, self._work, ctx, client, level, note)
        return await self._give(errand, client, capability, params.arguments or {}, params)

    # -- runs -----------------------------------------------------------------------------------------

    async def _code(self, client: Client, asked: p.RunCode) -> Asked:
        session = client.session(asked.session_id)
        own = session if asked.session_id is None else None
        go = partial(
            self._run,
            client,
            session,
            asked.code,
            setup=await self._setup(own),
            inputs=asked.inputs,
            timeout_ms=asked.timeout_ms,
            dry_run=asked.dry_run,
            plan=asked.plan_id,
        )
        return self._begun(session, go, dry=asked.dry_run)

    async def _resumed(self, client: Client, asked: p.ResumeRun) -> Asked:
        row = await self._hf.journal.row("runs", asked.run_id)
        client.caller.need_session(None if row is None else str(row["session_id"]))
        session = (await self._hf.runs.show(asked.run_id)).session_id
        return Asked(asked.run_id, session, partial(self._work.resume, asked.run_id))

    def _agent(self, client: Client, agent: Served, asked: p.AskAgent) -> Asked:
        session = client.session(asked.session_id)

        async def go(run_id: str) -> Result:
            await agent.ready(self._hf)
            return await self._hf.agents.run(
                agent.definition,
                asked.prompt,
                session=session,
                run_id=run_id,
                actor=client.caller.id,
            )

        return self._begun(session, go)

    async def _do(
        self,
        errand: Errand,
        client: Client,
        capability: Capability,
        arguments: Mapping[str, Json],
        params: InputResponseRequestParams,
    ) -> RunResult | InputRequiredResult:
        """Call a capability, as code would."""
        session = client.session(f"{client.own_session[: 64 - len(exposed.CALLS)]}{exposed.CALLS}")
        services = self._hf.shell.services
        limits = services.setup.limits or services.limits
        go = partial(
            self._run,
            client,
            session,
            exposed.code_of(capability),
            setup=await self._setup(session),
            inputs={"arguments": dict(arguments)},
            timeout_ms=exposed.time_of(capability, limits),
        )
        wanted = self._begun(session, go)
        found = await errand.do(wanted, params)
        assert not isinstance(found, AgentResult)  # it is code
        return found

    async def _give(
        self,
        errand: Errand,
        client: Client,
        capability: Capability,
        said: Mapping[str, str],
        params: InputResponseRequestParams,
    ) -> Given | InputRequiredResult:
        arguments = exposed.given_to(capability, said)
        found = await self._do(errand, client, capability, arguments, params)
        if isinstance(found, InputRequiredResult):
            return found
        if found.status is not RunStatus.OK:
            raise _failure(capability.name, found.error)
        return Given(capability, found.result)

    def _begun(
        self, session: str, go: Callable[[str], Awaitable[Result]], *, dry: bool = False
    ) -> Asked:
        run_id = new_id("run")

        async def begin() -> Job:
            return self._work.start(run_id, session, partial(go, run_id), dry=dry)

        return Asked(run_id, session, begin)

    async def _run(
        self, client: Client, session: str, code: str, run_id: str, **more: Any
    ) -> RunResult:
        return await self._hf.shell.run(
            code, session=session, run_id=run_id, actor=client.caller.id, durable=True, **more
        )

    async def _setup(self, own: str | None) -> Setup | None:
        """What a connection's session is opened with: as any other, and gone a day after its last use."""
        if own is None or await self._hf.journal.row("sessions", own) is not None:
            return None
        setup = self._hf.shell.services.setup
        return setup if setup.ttl_ms is not None else setup.model_copy(update={"ttl_ms": DAY_MS})

    async def _exposed(self, name: str) -> Capability:
        if self._expose:
            taken = self.offers().taken
            for one in (await self._toolbox()).all():
                if exposed.name_of(one.name) == name and one.name not in taken:
                    return one
        raise MCPError(INVALID_PARAMS, f"There is no tool `{name[:200]}`.")

    # -- what is no run -------------------------------------------------------------------------------

    async def _built_in(self, client: Client, name: str, asked: Any) -> Any:
        method = BUILT_IN[name].method
        if name == "validate_code":
            session = await self._there(client, asked.session_id)
            checked = await self._hf.shell.run(
                asked.code, session=session or client.own_session, validate_only=True
            )
            return checked.model_dump(mode="json")
        if name == "session_show" or method is None:
            shown = Shown(self._hf, client.caller)
            return await shown.session(client.session(asked.session_id))
        methods = Methods(
            self._hf,
            self._background,
            caller=client.caller,
            work=self._work,
        ).table
        fields = await self._fields(client, name, asked)
        wanted = parse(methods[method].params, fields)
        return json.loads(encoded(await methods[method].call(wanted, Call(_unheard, {}))))

    async def _fields(self, client: Client, name: str, asked: Any) -> dict[str, Any]:
        """What JSON-RPC takes for the same."""
        fields: dict[str, Any] = asked.model_dump(exclude_unset=True)
        if name == "approvals_decide":
            fields["id"] = fields.pop("approval_id")
        elif name in ("search_tools", "describe_tool"):
            fields["session_id"] = await self._there(client, asked.session_id)
        elif hasattr(asked, "session_id"):
            fields["session_id"] = client.session(asked.session_id)
        return fields

    async def _there(self, client: Client, named: str | None) -> str | None:
        """The session that is meant; `None` for the connection's own while there is none."""
        session = client.session(named)
        row = await self._hf.journal.row("sessions", session)
        return session if named is not None or row is not None else None


async def _unheard(method: str, params: dict[str, Any]) -> None:
    """Nobody subscribes here."""


def _agent_tool(name: str) -> str:
    return f"agent_{name}" if name in BUILT_IN else name


def _failure(name: str, error: ErrorObject | None) -> HoldfastError:
    if error is None:
        return ModelError("TOOL_ERROR", f"`{name}` gave nothing.")
    return ModelError(error.code, error.message, hint=error.hint)


def _run_told(
    found: Result | InputRequiredResult, session: str
) -> CallToolResult | InputRequiredResult:
    """A run's result, with the session it is of, and how to go on where it waits."""
    if isinstance(found, InputRequiredResult):
        return found
    shown: Any = views.result_of(found)
    view: dict[str, Any] = (
        shown.model_dump(mode="json") if isinstance(shown, RunResult) else dict(shown)
    )
    view["session_id"] = session
    waits = pending_of(found)
    if waits:
        view["approvals"] = [*waits]
        view["next"] = (
            "A person has to decide: `approvals_list` shows what, `approvals_decide` passes their answer on,"
            " and `run_resume` with this `run_id` gives the result."
        )
    status = str(getattr(found.status, "value", found.status))
    return told(view, failed=status not in ("ok", "completed", "waiting_for_approval"))

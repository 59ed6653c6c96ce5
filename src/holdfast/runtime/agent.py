"""`Agent`: a model, what it is told, what it may do. Define it once; run it anywhere."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, Unpack, cast, overload

from holdfast.agent.definition import Definition
from holdfast.contracts import Budget, Mount, Setup, new_id, parse
from holdfast.contracts.agent import AgentResult, AgentSpec, Compacting, Retrying
from holdfast.contracts.message import Message
from holdfast.contracts.model import ModelPrice, ModelSettings
from holdfast.contracts.view import Usage
from holdfast.models.base import Model
from holdfast.runtime._agent_given import check_stream, check_tools, id_of, names_of
from holdfast.runtime._agent_setup import setup_of, surface_names
from holdfast.runtime._blocking import blocking

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.runtime.embedded import Runtime
    from holdfast.runtime.settings import Settings
    from holdfast.runtime.stream import Leaving, Stream
    from holdfast.runtime.surfaces import Given

T = TypeVar("T")
_Fields = Mapping[str, Any]


class Options(TypedDict, total=False):
    """What an `Agent` can be told beside its model and its output."""

    instructions: str
    """What it is told before everything else."""
    capabilities: Sequence[object]
    """Functions of `@capability`, beside those of the session."""
    mounts: Mapping[str, str | Path] | Sequence[Mount]
    """Folders, by the path at which code finds them; `./data:rw` may be written."""
    setup: Setup | Mapping[str, Any] | None
    """Everything else a session can be opened with."""
    surfaces: Sequence[str | tuple[str, Given]]
    """The tool surfaces it sees, by name, and no others; with a definition, one is added unless it is there."""
    hooks: Sequence[Any]
    """For the runtime that is opened when none is handed to `run`."""
    budget: Budget | Mapping[str, Any] | None
    """What each run may use."""
    prices: Mapping[str, ModelPrice | Mapping[str, Any]]
    """What models cost, by their ids, where no list knows it or is wrong."""
    code_mode: bool
    """Whether it acts by writing code; else it calls each tool itself."""
    fallbacks: Sequence[str | Model]
    """Models to go on with, in order, once the one before can't be had."""
    name: str
    """What people call it."""
    settings: ModelSettings | Mapping[str, Any]
    """How models are asked."""
    retry: Retrying | Mapping[str, Any]
    """When a model call fails."""
    compact: Compacting | Mapping[str, Any] | None
    """When the conversation gets long; `None`: never shorten it."""
    max_turns: int
    """Model calls a run may make."""
    timeout_ms: int | None
    """How long a run may take, waiting for people not counted."""
    output_retries: int
    """How often it may repair an output that does not fit."""
    view_bytes: int
    """How much of a result a model is shown."""
    url: str | None
    """The journal of the runtime that is opened when none is handed to `run`."""
    config: Mapping[str, Any] | str | Path | None
    """Its settings."""


_OWN = frozenset("capabilities mounts setup surfaces hooks code_mode fallbacks url config".split())
"""Options that are not fields of the `AgentSpec` as they are."""


class Agent(Generic[T]):
    """A model, its instructions and what it may do. It holds no state: that is in sessions."""

    @overload
    def __init__(
        self: Agent[str], model: str | Model, *, output: None = None, **options: Unpack[Options]
    ) -> None: ...
    @overload
    def __init__(
        self, model: str | Model, *, output: type[T], **options: Unpack[Options]
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[Any],
        model: str | Model,
        *,
        output: Mapping[str, Any],
        **options: Unpack[Options],
    ) -> None: ...

    def __init__(
        self, model: str | Model, *, output: Any = None, **options: Unpack[Options]
    ) -> None:
        """`model` is `provider:name` or a model object; `output` is a type, or a JSON Schema. See `Options`."""
        fallbacks = options.get("fallbacks", ())
        self._given = (model, *fallbacks)
        self._capabilities = tuple(options.get("capabilities", ()))
        self._hooks = tuple(options.get("hooks", ()))
        check_tools(self._capabilities, self._hooks)
        self._url, self._config = options.get("url"), options.get("config")
        self._shape = None if output is str else output  # its words are what a model gives anyway
        self._surfaces = tuple(options["surfaces"]) if "surfaces" in options else None
        self._setup = setup_of(
            options.get("setup"), options.get("mounts", ()), surface_names(self._surfaces)
        )
        self._made: Definition | None = None
        said = {name: value for name, value in options.items() if name not in _OWN}
        self.spec: AgentSpec = parse(
            AgentSpec,
            {
                **said,
                "model": id_of(model),
                "fallbacks": tuple(id_of(one) for one in fallbacks),
                "mode": "code" if options.get("code_mode", True) else "tools",
            },
        )
        """The agent, as far as it can be written down."""

    def definition(self) -> Definition:
        """The agent with all it takes to run it; made once."""
        if self._made is None:
            from holdfast.agent.output import output_of

            output = None if self._shape is None else output_of(self._shape)
            spec = self.spec
            if output is not None:
                spec = spec.model_copy(update={"output": output.stored})
            if self._capabilities:
                spec = spec.model_copy(update={"brings": names_of(self._capabilities)})
            self._made = Definition(spec, self._given, self._capabilities, self._setup, output)
        return self._made

    async def run(
        self,
        prompt: str | None = None,
        *,
        session: str | None = None,
        runtime: Runtime | None = None,
        actor: str | None = None,
        account: str | None = None,
        wait_ms: int = 30_000,
    ) -> Run[T]:
        """Run it until it is done, must stop, or waits for somebody; `session` is the conversation to go on with.

        It begins with what waits in the session (`hf.agents.say`), then the prompt; without a prompt, with what waits
        alone. Without `runtime`, one is opened for this run.
        """
        session = new_id("ses") if session is None else session
        async with self._opened(runtime) as hf:
            found = await hf.agents.run(
                self.definition(),
                prompt,
                session=session,
                actor=actor,
                account=account,
                wait_ms=wait_ms,
            )
            return await self._run(hf, found, runtime)

    def stream(
        self,
        prompt: str | None = None,
        *,
        run: Run[T] | str | None = None,
        after: int | None = None,
        session: str | None = None,
        runtime: Runtime | None = None,
        actor: str | None = None,
        account: str | None = None,
        leaving: Leaving = "cancel",
        wait_ms: int = 30_000,
    ) -> AbstractAsyncContextManager[Stream[T]]:
        """Run it, and tell what happens as it does: `async with agent.stream("…") as events: async for event in …`.

        As with `run`, the run begins with what waits in the session. Instead of a prompt, `run` is a run to go on with, and `after` the seq of its last event that you had. The
        events end when the run does, or stands. A slow watcher does not hold the run up. A block that is left before
        cancels the run; with `leaving="finish"`, leaving waits for it. To watch without a hold on it, see
        `hf.agents.events`.
        """
        from holdfast.runtime.stream import streaming

        check_stream(prompt, run, after, session)
        run_id = new_id("run") if run is None else run if isinstance(run, str) else run.id

        async def begin(hf: Runtime) -> Run[T]:
            if run is not None:
                found = await hf.agents.resume(run_id, self.definition(), wait_ms=wait_ms)
            else:
                found = await hf.agents.run(
                    self.definition(),
                    prompt,
                    session=new_id("ses") if session is None else session,
                    run_id=run_id,
                    actor=actor,
                    account=account,
                    wait_ms=wait_ms,
                )
            return await self._run(hf, found, runtime)

        async def recorded(hf: Runtime) -> Run[T]:
            found = await hf.runs.result_any(run_id)
            return await self._run(hf, cast("AgentResult", found), runtime)

        opened = self._opened(runtime)
        return streaming(opened, begin, recorded, run_id=run_id, after=after, leaving=leaving)

    async def drain(self, session: str, *, runtime: Runtime | None = None) -> list[Run[T]]:
        """Run it until nothing waits in a session any more, or a run does not complete; the runs, in order."""
        runs: list[Run[T]] = []
        async with self._opened(runtime) as hf:
            while await hf.agents.waiting(session):
                run = await self.run(session=session, runtime=hf)
                runs.append(replace(run, runtime=runtime))
                if run.status != "completed":
                    break
        return runs

    def run_sync(self, prompt: str | None = None, **options: Any) -> Run[T]:
        """The same, for programs that are not asynchronous."""
        return blocking(lambda: self.run(prompt, **options), "run")

    async def resume(
        self,
        run: Run[T] | str,
        *,
        runtime: Runtime | None = None,
        wait_ms: int = 30_000,
    ) -> Run[T]:
        """Go on with a run, as this agent is now; one that still waits is left as it is."""
        async with self._opened(runtime) as hf:
            run_id = run if isinstance(run, str) else run.id
            found = await hf.agents.resume(run_id, self.definition(), wait_ms=wait_ms)
            return await self._run(hf, found, runtime)

    def resume_sync(self, run: Run[T] | str, **options: Any) -> Run[T]:
        """The same, for programs that are not asynchronous."""
        return blocking(lambda: self.resume(run, **options), "resume")

    # -- parts ----------------------------------------------------------------------------------------

    def settings(self) -> Settings:
        """The settings of the runtime that is opened when none is handed to `run`."""
        from holdfast.runtime.settings import Settings

        found = Settings.load(self._config)
        if self._url is None:
            return found
        journal = found.journal.model_copy(update={"url": self._url})
        return found.model_copy(update={"journal": journal})

    @asynccontextmanager
    async def _opened(self, runtime: Runtime | None) -> AsyncGenerator[Runtime]:
        if runtime is not None:
            await self.offer(runtime)
            yield runtime
            return
        from holdfast.runtime.embedded import open as open_runtime

        async with open_runtime(self._url, self._config, hooks=self._hooks) as hf:
            await self.offer(hf)
            yield hf

    async def offer(self, hf: Runtime) -> None:
        """See to it that its surfaces are wanted; they are connected when its session is held."""
        for one in self._surfaces or ():
            if isinstance(one, str):
                await hf.surfaces.check([one])
            else:
                await hf.surfaces.ensure(*one)

    async def _run(self, hf: Runtime, found: AgentResult, runtime: Runtime | None) -> Run[T]:
        """What the caller gets; the output in the type it asked for."""
        output: Any = found.output
        shape = self.definition().output
        if shape is not None and found.output_error is None and found.status == "completed":
            output = shape.parse(found.output) if found.output is not None else None
        transcript = await hf.agents.messages(found.session_id)
        return Run(self, found, cast("T", output), tuple(transcript.messages), runtime)


@dataclass(frozen=True, slots=True)
class Run(Generic[T]):
    """A run of an agent, as it stood when this was made."""

    agent: Agent[T]
    """The agent."""
    result: AgentResult
    """All there is to know, as it is recorded."""
    output: T
    """What it gave: the type that was asked for, else its words. Check `status` first."""
    messages: tuple[Message, ...] = field(repr=False)
    """The conversation."""
    runtime: Runtime | None = field(default=None, repr=False)
    """Where it ran, if that was handed in."""

    @property
    def id(self) -> str:
        """Its name."""
        return self.result.run_id

    @property
    def session_id(self) -> str:
        """The conversation it is part of."""
        return self.result.session_id

    @property
    def status(self) -> str:
        """`completed failed cancelled waiting_for_approval needs_attention interrupted`."""
        return self.result.status

    @property
    def text(self) -> str:
        """The last thing the model said in words."""
        return self.result.text

    @property
    def usage(self) -> Usage:
        """Tokens, money, calls."""
        return self.result.usage

    @property
    def approvals(self) -> tuple[str, ...]:
        """The questions it waits for."""
        return self.result.approvals

    @property
    def error(self) -> Any:
        """Why it did not complete."""
        return self.result.error

    async def resume(self) -> Run[T]:
        """Go on with it after a decision."""
        return await self.agent.resume(self, runtime=self.runtime)

    def resume_sync(self) -> Run[T]:
        """The same, for programs that are not asynchronous."""
        return self.agent.resume_sync(self, runtime=self.runtime)

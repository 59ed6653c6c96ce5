"""Everything in this process: what `holdfast.open()` gives you."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.capabilities.declare import Declared
from holdfast.capabilities.registry import capability_of
from holdfast.contracts import Language, new_id
from holdfast.contracts.agent import AgentResult
from holdfast.errors import OperatorError
from holdfast.gate.approvals import Approvals
from holdfast.gate.dispatch import Callback
from holdfast.gate.gate import Gate
from holdfast.gate.guards import HOOKS
from holdfast.gate.hooks import Hook
from holdfast.gate.policy import Policy
from holdfast.gate.redact import Redactor
from holdfast.journal import Journal
from holdfast.runtime import wiring
from holdfast.runtime._surface_sign_in import SignIns
from holdfast.runtime.settings import Settings, file_of
from holdfast.runtime.surfaces import Surfaces
from holdfast.shell import Shell
from holdfast.shell.box import Boxes
from holdfast.shell.runs import Runs
from holdfast.shell.services import Services
from holdfast.shell.sessions import Sessions

if TYPE_CHECKING:
    from holdfast.agent.agents import Agents
    from holdfast.agent.work import Work
    from holdfast.capabilities.mcp.services import Step
    from holdfast.leases import Broker as Leases
    from holdfast.models.base import Model
    from holdfast.resources import Resources


@dataclass(frozen=True, slots=True)
class Runtime:
    """An open holdfast. Leaving its `async with` parks and saves everything."""

    journal: Journal
    """The append-only truth."""
    shell: Shell
    """Code sessions."""
    sessions: Sessions
    """The same, to look at."""
    runs: Runs
    """Their runs."""
    approvals: Approvals
    """What waits for a person."""
    policy: Policy
    """The operator's rules."""
    settings: Settings
    """What is in force."""
    surfaces: Surfaces
    """Tools that come and go."""
    _thinking: Thinking
    _credentials: Credentials

    @property
    def leases(self) -> Leases:
        """Credentials."""
        return self._credentials.leases

    @property
    def resources(self) -> Resources:
        """Big things by URI, as far as the settings grant them; as the operator reads them."""
        return wiring.own_resources(self.settings, self.journal, self.surfaces)

    @property
    def agents(self) -> Agents:
        """Runs of agents."""
        return self._thinking.agents


class Credentials:
    """The leases of a runtime, made on first use: most runs need none."""

    def __init__(self, settings: Settings, journal: Journal, redactor: Redactor) -> None:
        self._parts = (settings, journal, redactor)
        self._leases: Leases | None = None

    @property
    def leases(self) -> Leases:
        """Credentials."""
        if self._leases is None:
            self._leases = wiring.make_leases(*self._parts)
        return self._leases

    async def restore(self) -> None:
        """What is kept must appear nowhere from now on. A vault that does not open gives nothing away."""
        path = wiring.vault_path(self._parts[0])
        if path is not None and path.exists():
            with suppress(OperatorError):
                await self.leases.restore()


class Thinking:
    """The agents of a runtime, made on first use: who only runs code need not wait for their import."""

    def __init__(self, shell: Shell, agents: Agents | None = None) -> None:
        self._shell = shell
        self._agents = agents

    @property
    def agents(self) -> Agents:
        """Runs of agents."""
        if self._agents is None:
            from holdfast.agent.agents import Agents

            self._agents = Agents(self._shell, model=wiring.find_model)
        return self._agents

    def working(self, session_id: str) -> Work | None:
        """What the agent works with that has a session here."""
        return None if self._agents is None else self._agents.working(session_id)

    def model(self, id_: str) -> Model:
        """A model by its id."""
        return self.agents.model(id_)

    def step(self, step: Step) -> None:
        """Tell whoever watches the run of an agent how far a call of its is."""
        work = self.working(step.session_id)
        if work is not None and work.feed is not None:
            work.feed.step(step.run_id, step.effect_id, step.progress, step.total, step.message)

    async def resume(self, run_id: str, *, setup: Any = None, wait_ms: int = 30_000) -> AgentResult:
        """Go on with a run of an agent."""
        return await self.agents.resume(run_id, setup=setup, wait_ms=wait_ms)

    async def close(self) -> None:
        """End the connections to models."""
        if self._agents is not None:
            await self._agents.close()


@asynccontextmanager
async def open(
    url: str | Journal | None = None,
    config: Mapping[str, Any] | str | Path | None = None,
    *,
    capabilities: Sequence[Declared[..., Any]] = (),
    hooks: Sequence[Hook] = (),
    on_approval: Callback | None = None,
    secrets: Mapping[str, str] | None = None,
) -> AsyncGenerator[Runtime]:
    """Open a journal and everything on it.

    `url` is `sqlite:///path` or `memory:` (default: the journal in `$HOLDFAST_HOME`), or an open journal; `config` is a mapping or
    a file instead of the nearest `holdfast.toml`. `capabilities` can be called in every session of this runtime;
    a process that resumes its runs needs them too. `on_approval` is asked before a run is parked. `secrets` are
    values, by name, that must appear nowhere.
    """
    for one in capabilities:
        capability_of(one)
    settings = _settings(url, config)
    async with AsyncExitStack() as rest:
        ground = await _ground(rest, settings, url, hooks, on_approval, secrets or {})
        surfaces = await rest.enter_async_context(
            _surfaces(ground, file_of(config), lambda: thinking)
        )
        services = Services(
            journal=ground.journal,
            boxes=ground.boxes,
            key=ground.key,
            limits=settings.shell.limits,
            gate=ground.gate,
            approvals=ground.approvals,
            policy=ground.policy,
            setup=settings.session,
            tools=wiring.make_tools(capabilities, ground.redactor, ground.journal, surfaces),
            owner=ground.owner,
            surfaces=surfaces,
        )
        shell = await rest.enter_async_context(Shell.open(services))
        thinking = Thinking(shell)
        rest.push_async_callback(thinking.close)
        yield Runtime(
            journal=ground.journal,
            shell=shell,
            sessions=Sessions(ground.journal),
            runs=Runs(ground.journal, shell, thinking),
            approvals=ground.approvals,
            policy=ground.policy,
            settings=settings,
            surfaces=surfaces,
            _thinking=thinking,
            _credentials=ground.credentials,
        )


def _settings(url: str | Journal | None, config: Mapping[str, Any] | str | Path | None) -> Settings:
    """What is in force; a journal that is named counts for the one in the settings."""
    settings = Settings.load(config)
    if not isinstance(url, str):
        return settings
    journal = settings.journal.model_copy(update={"url": url})
    return settings.model_copy(update={"journal": journal})


@dataclass(frozen=True, slots=True)
class _Ground:
    """What the surfaces and the shell of a runtime stand on."""

    settings: Settings
    journal: Journal
    key: bytes
    redactor: Redactor
    credentials: Credentials
    approvals: Approvals
    policy: Policy
    gate: Gate
    boxes: dict[Language, Boxes]
    owner: str


async def _ground(
    rest: AsyncExitStack,
    settings: Settings,
    url: str | Journal | None,
    hooks: Sequence[Hook],
    on_approval: Callback | None,
    secrets: Mapping[str, str],
) -> _Ground:
    """Open the journal and what comes before anything can be called; `rest` closes it."""
    if isinstance(url, Journal):
        journal = url
    else:
        journal = wiring.open_journal(settings)
        rest.push_async_callback(journal.close)
    key = wiring.state_key(settings)
    redactor = wiring.make_redactor(settings, secrets)
    rest.enter_context(wiring.redacted_logs(redactor))
    credentials = Credentials(settings, journal, redactor)
    await credentials.restore()
    approvals = Approvals(journal, redact=redactor.text)
    policy = wiring.make_policy(settings)
    asked = await rest.enter_async_context(wiring.make_hooks(settings, hooks, journal))
    if asked.specs:
        await journal.append(HOOKS, asked.registered("runtime"), durable=False)
    gate = wiring.make_gate(settings, journal, approvals, asked, redactor, on_approval)
    boxes = wiring.open_boxes(settings)
    for one in boxes.values():
        await rest.enter_async_context(one)
    return _Ground(
        settings=settings,
        journal=journal,
        key=key,
        redactor=redactor,
        credentials=credentials,
        approvals=approvals,
        policy=policy,
        gate=gate,
        boxes=boxes,
        owner=new_id("shell"),
    )


def _surfaces(
    ground: _Ground, file: Path | None, thinking: Callable[[], Thinking]
) -> AbstractAsyncContextManager[Surfaces]:
    """Tools that come and go; `file` is where the settings are, `thinking` are the agents once there are any."""
    settings, redactor = ground.settings, ground.redactor
    return Surfaces.open(
        ground.journal,
        wiring.make_sources(
            settings, redactor, lambda: ground.credentials.leases, ground.gate, thinking
        ),
        settings.surfaces,
        file=None if file is None else file.absolute(),
        owner=ground.owner,
        redact=redactor.text,
        sign_ins=SignIns(
            ground.journal,
            ground.approvals,
            timeout_ms=settings.approvals.timeout_ms,
            redact=redactor.text,
        ),
    )

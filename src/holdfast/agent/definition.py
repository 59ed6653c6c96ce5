"""What an agent is: what is on record of it, and all it takes to run it here."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.agent.output import Output
from holdfast.contracts import Body, Setup, canonical_json
from holdfast.contracts.agent import AgentSpec
from holdfast.errors import NotFound
from holdfast.models.base import Model


@dataclass(frozen=True, slots=True)
class Definition:
    """An agent with all it takes to run it here."""

    spec: AgentSpec
    models: tuple[str | Model, ...]
    """The one to ask, and those to go on with; one that is named by its id is found where it runs."""
    capabilities: tuple[object, ...] = ()
    """Of its own, beside those of the session."""
    setup: Setup | None = None
    """What its sessions are opened with."""
    output: Output | None = None
    """The shape of what it must give."""

    @classmethod
    def recorded(cls, spec: AgentSpec | None) -> Definition:
        """The agent as it is on record."""
        if spec is None:
            raise NotFound("NOT_FOUND", "The run's agent is not on record.")
        output = Output.restored(spec.output) if spec.output is not None else None
        return cls(spec, (spec.model, *spec.fallbacks), output=output)

    def body(self) -> Body:
        """What is recorded of it."""
        data = canonical_json(self.spec.model_dump(mode="json"))
        return Body.of(data, role="agent", mime="application/json")

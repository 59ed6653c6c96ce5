"""Agents that others may run by their name."""

from __future__ import annotations

import importlib
import os.path
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from holdfast.errors import CallerError

if TYPE_CHECKING:
    from holdfast.agent.agents import Definition
    from holdfast.runtime import Runtime, Settings
    from holdfast.runtime.agent import Agent

_HINT = "Write `module:attribute`, where the attribute is an `Agent`, or a list or dict of them."


@dataclass(frozen=True)
class Served:
    """An agent under the name it is served by. Its runs carry that name, so that they find it again."""

    name: str
    agent: Agent[Any]

    @cached_property
    def definition(self) -> Definition:
        """All it takes to run it."""
        found = self.agent.definition()
        return replace(found, spec=found.spec.model_copy(update={"name": self.name}))

    async def ready(self, hf: Runtime) -> None:
        """See to it that its tool surfaces are wanted."""
        await self.agent.offer(hf)


def served(agents: Mapping[str, Agent[Any]]) -> dict[str, Served]:
    """Agents under their names."""
    return {name: Served(name, agent) for name, agent in agents.items()}


def agents_of(settings: Settings, references: Iterable[str] = ()) -> dict[str, Agent[Any]]:
    """The agents that the settings describe, and those that are named; raises `INVALID_ARGUMENT`."""
    found = {name: _configured(settings, name) for name in settings.agents}
    for reference in references:
        for name, agent in load_agents(reference).items():
            if name in found:
                raise _refused(f"Two agents are called `{name}`", "Give one of them another name.")
            found[name] = agent
    return found


def _configured(settings: Settings, name: str) -> Agent[Any]:
    from holdfast.runtime.agent import Agent

    said = settings.agents[name]
    model = said.model or settings.agent.model
    if model is None:
        raise _refused(f"Agent `{name}` has no model", f'Write model = "…" under [agents.{name}].')
    return Agent(
        model,
        name=name,
        fallbacks=said.fallbacks,
        instructions=said.instructions,
        budget=said.budget,
        prices=said.prices,
        setup=said.setup,
        code_mode=said.code_mode,
        max_turns=said.max_turns,
    )


def load_agents(reference: str) -> dict[str, Agent[Any]]:
    """The agents that `module:attribute`, `module` or `file.py:attribute` names."""
    where, _, attribute = reference.partition(":")
    module = _module(where, reference)
    value: object = module
    for part in filter(None, attribute.split(".")):
        if not hasattr(value, part):
            raise _refused(f"`{where}` has no `{attribute}`", _HINT)
        value = getattr(value, part)
    found = _in(vars(value) if value is module else value, whole=value is module)
    if not found:
        raise _refused(f"`{reference[:200]}` names no agent", _HINT)
    return found


def _module(where: str, reference: str) -> object:
    """The module, imported once; a file is found by its name, in its folder."""
    if not where:
        raise _refused(f"`{reference[:200]}` names no agent", _HINT)
    if where.endswith(".py"):
        folder, file = os.path.split(os.path.realpath(where))
        if folder not in sys.path:
            sys.path.insert(0, folder)
        where = file.removesuffix(".py")
    try:
        return importlib.import_module(where)
    except Exception as why:
        said = f"{type(why).__name__}: {why}"[:300].rstrip(".")
        raise _refused(f"`{where[:200]}` can't be imported: {said}", _HINT) from why


def _in(value: object, *, whole: bool) -> dict[str, Agent[Any]]:
    """The agents in a value; of a whole module, those of its names that are agents."""
    from holdfast.runtime.agent import Agent

    if isinstance(value, Agent):
        agent = cast("Agent[Any]", value)
        return {agent.spec.name: agent}
    if isinstance(value, Mapping):
        names = cast("Mapping[str, object]", value)
        return {
            name: cast("Agent[Any]", one) for name, one in names.items() if isinstance(one, Agent)
        }
    if isinstance(value, list | tuple) and not whole:
        parts = [cast("Agent[Any]", one) for one in cast("list[object]", value)]
        return {one.spec.name: one for one in parts if isinstance(one, Agent)}  # pyright: ignore[reportUnnecessaryIsInstance] - users' code
    return {}


def _refused(why: str, hint: str) -> CallerError:
    return CallerError("INVALID_ARGUMENT", f"{why}.", hint=hint)

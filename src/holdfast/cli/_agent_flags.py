"""Which agent: its options, wherever one is asked or goes on, and what becomes of them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer

from holdfast.cli._options import refuse
from holdfast.cli._setup import budget_of, with_options

if TYPE_CHECKING:
    from holdfast.agent.definition import Definition
    from holdfast.contracts import Setup
    from holdfast.contracts.agent import AgentSpec
    from holdfast.runtime import Runtime, Settings

R = TypeVar("R")

_SCRIPTED = "scripted:"


class AgentFlags(NamedTuple):
    """The options as they were given; `None` for those that were not."""

    model: Annotated[
        str | None,
        typer.Option("--model", metavar="M", help="provider:name.  [$HOLDFAST_MODEL, settings]"),
    ] = None
    fallbacks: Annotated[
        list[str] | None,
        typer.Option("--fallback", metavar="M", help="When that can't be had; repeatable."),
    ] = None
    instructions: Annotated[
        str | None,
        typer.Option("--instructions", metavar="TEXT", help="What it is told before all else."),
    ] = None
    tools: Annotated[
        bool | None,
        typer.Option(
            "--tools/--code",
            help="It calls each capability itself, instead of writing code.",
            show_default=False,
        ),
    ] = None
    run_budget: Annotated[
        list[str] | None,
        typer.Option(
            "--run-budget",
            metavar="NAME=N",
            help="What this run may use: tokens, cost_micros, calls, wall_ms; repeatable.",
        ),
    ] = None
    max_turns: Annotated[
        int | None,
        typer.Option("--max-turns", metavar="N", min=1, help="Times the model may be asked."),
    ] = None
    run_timeout: Annotated[
        int | None,
        typer.Option("--timeout", metavar="MS", min=1, help="Longest time it may take."),
    ] = None

    def fields(self) -> dict[str, Any]:
        """The parts of an `AgentSpec` that were given."""
        given: dict[str, Any] = {
            "model": None if self.model is None else model_id(self.model),
            "fallbacks": self.fallbacks and tuple(model_id(one) for one in self.fallbacks),
            "instructions": self.instructions,
            "mode": None if self.tools is None else "tools" if self.tools else "code",
            "budget": budget_of(self.run_budget, "--run-budget"),
            "max_turns": self.max_turns,
            "timeout_ms": self.run_timeout,
        }
        return {name: value for name, value in given.items() if value is not None}


def with_agent(command: Callable[..., R]) -> Callable[..., R]:
    """The command with an option for each field of `AgentFlags`; it gets them as `agent`."""
    return with_options(command, "agent", AgentFlags)


def agent_of(
    settings: Settings, fields: dict[str, Any], setup: Setup | None, output: Any = None
) -> Definition:
    """The agent that the options and the settings describe; raises `INVALID_ARGUMENT` without a model."""
    from holdfast.runtime.agent import Agent

    said = settings.agent
    known: dict[str, Any] = {
        "model": said.model and model_id(said.model),
        "fallbacks": said.fallbacks,
        "instructions": said.instructions,
        "budget": said.budget,
        "prices": said.prices,
    }
    given = {**known, **fields}
    model = given.pop("model") or _no_model()
    code_mode = given.pop("mode", "code") == "code"
    agent: Agent[Any] = Agent(model, setup=setup, output=output, code_mode=code_mode, **given)
    return agent.definition()


async def agent_again(
    hf: Runtime, session_id: str, fields: dict[str, Any], setup: Setup | None
) -> Definition | None:
    """The agent of a session's newest run, and over that what was given; `None`: as it is on record."""
    from holdfast.agent.definition import Definition
    from holdfast.agent.history import history_of
    from holdfast.agent.output import Output
    from holdfast.contracts import parse
    from holdfast.contracts.agent import AgentSpec
    from holdfast.models.catalog import model

    known: AgentSpec | None = None
    if fields:
        known = (await history_of(hf.journal, session_id)).spec
    if known is None:
        return None
    spec = parse(AgentSpec, {**known.model_dump(exclude_unset=True), **fields})
    output = None if spec.output is None else Output.restored(spec.output)
    models = tuple(model(one) for one in (spec.model, *spec.fallbacks))
    return Definition(spec, models, setup=setup, output=output)


def schema_of(name: str | None) -> dict[str, Any] | None:
    """The JSON Schema in a file."""
    from holdfast.cli import _files

    if name is None:
        return None
    try:
        found: Any = json.loads(_files.read(name))
    except (ValueError, RecursionError) as why:
        refuse(f"The schema `{name}` is not JSON: {why}.", "It must be a JSON Schema.")
    if not isinstance(found, dict):
        refuse(f"The schema `{name}` is no JSON object.", "It must be a JSON Schema.")
    return found  # pyright: ignore[reportUnknownVariableType] - the agent checks what is in it


def _no_model() -> str:
    refuse(
        "No model is set.",
        "Say --model openai:gpt-5-mini (or anthropic:, google:, ollama:), set HOLDFAST_MODEL, or write"
        ' model = "…" under [agent] in holdfast.toml.',
    )


def model_id(id_: str) -> str:
    """The id so that it means the same in every folder: a script that is a file is named by its whole path."""
    where = id_.removeprefix(_SCRIPTED)
    if where == id_:
        return id_
    file, colon, attribute = where.rpartition(":") if ".py:" in where else (where, "", "")
    path = os.path.realpath(file)
    return f"{_SCRIPTED}{path}{colon}{attribute}" if os.path.isfile(path) else id_

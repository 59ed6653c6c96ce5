"""What a model is asked: the conversation, its instructions and its tools; and what policy and the record see of it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from holdfast.agent.questions import capability_of
from holdfast.agent.tools import tools_of
from holdfast.agent.work import Work
from holdfast.contracts import Body, Capability, Json, canonical_json
from holdfast.contracts.canonical import digest_json
from holdfast.contracts.model import ModelRequest
from holdfast.errors import HoldfastError
from holdfast.gate.crossing import arguments_body
from holdfast.models.base import Model

_SHAPE = "Once you are done, answer with nothing but JSON that fits this schema:\n{schema}"


class _Base(NamedTuple):
    """A question, and what it was put together for."""

    toolbox: object
    model: Model
    request: ModelRequest


class Told(NamedTuple):
    """What is recorded of a question beside the conversation."""

    arguments: dict[str, Json]
    body: Body | None
    """The same, ready to be recorded; `None`: it can't be, and the gate says why."""


class Wording:
    """Of the questions of one run; most are the same from turn to turn, but for the conversation."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._capabilities: dict[tuple[str, int | None], Capability] = {}
        self._arguments: tuple[object, Told] | None = None
        self._base: _Base | None = None

    def usual(self) -> ModelRequest:
        """What is asked: the conversation as it is, instructions and tools as they always are."""
        work = self._work
        toolbox, messages = work.session.toolbox, work.transcript.messages
        known = self._base
        if (
            known is None
            or known.toolbox is not toolbox
            or known.model is not work.model
            or known.request.messages is not messages
        ):
            tools = tools_of(toolbox, work.spec.mode, unsupported=work.session.boxes.unsupported)
            work.tools = tools
            request = ModelRequest(
                messages=messages,
                instructions=_instructions(work, tools.index),
                tools=tools.specs,
                settings=work.spec.settings,
                attempt=1,
            )
            known = self._base = _Base(toolbox, work.model, request)
        if work.transcript.shortened:
            return replace(known.request, answered=work.transcript.answers)
        return known.request

    def capability(self, request: ModelRequest) -> Capability:
        """The model as policy and limits see it; the same for every question, so that consent to it holds."""
        timeout = request.settings.timeout_ms
        key = (self._work.model.id, timeout)
        found = self._capabilities.get(key)
        if found is None:
            if len(self._capabilities) > 64:
                self._capabilities.clear()
            found = self._capabilities[key] = capability_of(self._work.model, timeout)
        return found

    def told(self, request: ModelRequest) -> Told:
        """What is recorded of a question beside the conversation; the same from turn to turn."""
        known = self._arguments
        if known is None or known[0] is not request:
            told: dict[str, Json] = {
                "instructions": request.instructions,
                "tools": digest_json([[one.name, one.schema] for one in request.tools]),
                "settings": request.settings.model_dump(mode="json", exclude_defaults=True),
            }
            if request.output is not None:
                told["output"] = digest_json(request.output.schema)
            body = None
            with suppress(HoldfastError):
                body = arguments_body(canonical_json(told))
            known = self._arguments = (request, Told(told, body))
        return known[1]


def _instructions(work: Work, index: str) -> str:
    """What a model is told before everything else."""
    parts = [work.spec.instructions.strip(), index]
    if work.output is not None:
        parts.append(_SHAPE.format(schema=work.output.schema_text))
    return "\n\n".join(part for part in parts if part)

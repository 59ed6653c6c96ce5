"""What stands where things would happen, in a replay: capabilities that can't act, a model and hooks that repeat.

None of them holds a function, a client or a connection: there is nothing in a replay that could act.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any

from holdfast.agent._tape import Tape, TapedCall
from holdfast.capabilities.foreign import Foreign
from holdfast.capabilities.registry import CapabilitySet
from holdfast.contracts import Capability, Json, Setup, SideEffect
from holdfast.contracts.hook import HookFailure, HookPoint
from holdfast.contracts.hook_response import HookResponse, ResponseClass
from holdfast.contracts.model import ModelAnswer, ModelDelta, ModelProfile, ModelRequest
from holdfast.errors import InternalError, ModelFailure
from holdfast.gate.executor import Context
from holdfast.gate.hooks import Hook, HookInput, hook
from holdfast.gate.past import stored_json

_ROOMY = 1 << 50
"""Tokens that no conversation has."""

_PATIENCE_MS = 10_000


async def _never(arguments: dict[str, Any], context: Context) -> Json:
    raise InternalError("A replay tried to execute a capability.")


class StandIns:
    """The toolbox of a replay: contracts without functions, whatever setup a session is opened with."""

    def __init__(self, tape: Tape, contracts: Sequence[Capability], *, given: bool) -> None:
        """`given`: somebody wants it tried with these; else what is missing is made up from the calls on record."""
        found = {one.name: one for one in contracts}
        known = CapabilitySet(*(Foreign(one, _never) for one in found.values()))
        self.known = given or known.digest == tape.toolbox
        """Whether all of them are known, so that what the model is told about them means something."""
        if not self.known:
            for name, made_up in _from_calls(tape).items():
                found.setdefault(name, made_up)
        self._set = CapabilitySet(*(Foreign(one, _never) for one in found.values()))

    def __call__(self, setup: Setup, more: Sequence[object] = ()) -> CapabilitySet:
        """The one there is."""
        return self._set


class TapedBoundaries:
    """The boundaries of a replay: its tools stay as they are, and its model is told what it was told."""

    epoch = 0
    quiet = True

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    async def boundary(self, setup: Setup, *, wait: bool = True) -> None:
        """Nothing is connected."""

    def news(
        self, setup: Setup, before: object, tools: Iterable[Capability], turn: int
    ) -> tuple[object, list[str]]:
        """What was said then."""
        return None, self._tape.notices.get(turn, [])


def _from_calls(tape: Tape) -> dict[str, Capability]:
    """What a run could call, as far as its agent and its calls tell."""
    found = {name: Capability(name=name, description="") for name in tape.spec.brings}
    for call in tape.calls:
        intent, asked = call.past.intent, call.past.approval
        if intent is not None and intent.policy_refs == ("default.unknown",):
            continue  # there was no such thing
        effect = intent.side_effect if intent else asked.side_effect if asked else SideEffect.NONE
        found[call.past.name] = Capability(
            name=call.past.name,
            description="",
            side_effect=effect,
            asynchronous=intent.awaited if intent is not None else _overtaken(call, tape),
        )
    return found


def _overtaken(call: TapedCall, tape: Tape) -> bool:
    """Whether its program called something else while it waited: then it was awaited."""
    return any(
        one.call_id == call.call_id and one.past.ordinal > call.past.ordinal for one in tape.calls
    )


class TapedModel:
    """A `Model` that says again what was said. The gate of a replay puts the next answer in its mouth."""

    def __init__(self, id: str, tape: Tape, *, first: bool) -> None:
        self.id = id
        self.next: ModelAnswer | ModelFailure | None = None
        """What it says when it is asked."""
        self._tape = tape
        # One that the run passed over when it looked for another model had no room, or no tools.
        self._fits = first or id in tape.switched

    @property
    def profile(self) -> ModelProfile:
        """As the record shows it: it had no more room when the run asked it for a summary, and room before."""
        if not self._fits:
            return ModelProfile(context_tokens=0, tools=False)
        return ModelProfile(context_tokens=1 if self._tape.sums_up else _ROOMY, structured=True)

    async def request(self, request: ModelRequest) -> ModelAnswer:
        """The recorded answer, or the recorded failure."""
        said, self.next = self.next, None
        if said is None:
            raise InternalError("A replay asked a model past its gate.")
        if isinstance(said, ModelFailure):
            raise said
        return said

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta | ModelAnswer]:
        """The same, in one piece."""
        yield await self.request(request)


# -- hooks ------------------------------------------------------------------------------------------------


async def taped_hooks(tape: Tape) -> list[Hook]:
    """Hooks that answer what those of the recorded run answered about the same things, and look on else."""
    points: dict[tuple[str, str], _TapedHook] = {}
    for said in tape.hooks:
        what: Mapping[str, Any] = said["payload"]
        if what["type"] == "hook_registered":
            continue
        key = (str(said["hook_id"]), str(said["point"]))
        one = points.setdefault(key, _TapedHook(tape))
        await one.learn(said, what)
    return [
        hook(
            HookPoint(point),
            id=hook_id,
            rights=sorted(one.rights),
            order=100 + place,
            timeout_ms=_PATIENCE_MS,
            failure=one.failure,
            blocking=True,
        )(one)
        for place, ((hook_id, point), one) in enumerate(points.items())
    ]


class _TapedHook:
    """One hook at one point."""

    def __init__(self, tape: Tape) -> None:
        self.rights: set[ResponseClass] = set()
        self.failure: HookFailure | None = None
        self._tape = tape
        self._runs: dict[str, str] = {}
        self._answers: dict[str, HookResponse | str] = {}

    async def learn(self, said: Mapping[str, Any], what: Mapping[str, Any]) -> None:
        """Take note of what it did about one thing."""
        if said.get("response"):
            body: Any = await stored_json(self._tape.journal, str(said["response"]))
            response = HookResponse.model_validate(body)
            self.rights.add(response.response_class)
            self._answers[str(said["subject"])] = response
        elif "failure_policy" in what:
            self.failure = HookFailure(what["failure_policy"])
            self._answers[str(said["subject"])] = str(what.get("redacted_summary", "too slow"))

    async def __call__(self, asked: HookInput) -> HookResponse | None:
        """What it answered then."""
        found = self._answers.get(self._as_recorded(asked.subject, asked.run_id))
        if isinstance(found, str):
            raise RuntimeError(found)
        return found

    def _as_recorded(self, subject: str, run_id: str) -> str:
        """What it is about, by the name it had: programs have other names this time, and come in the same order."""
        if run_id == self._tape.run_id:
            return subject
        places = [*self._runs.values()]
        left = [one for one in self._tape.children if one not in places]
        if run_id not in self._runs and left:
            self._runs[run_id] = left[0]
        return subject.replace(run_id, self._runs.get(run_id, run_id))

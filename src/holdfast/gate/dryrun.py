"""What a dry run answers in place of a call it does not make, and the plan that comes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, cast

from holdfast.contracts import EffectStatus, Json, PlannedEffect, Verdict
from holdfast.gate.crossing import Crossing, Outcome, Wish, call_record
from holdfast.gate.passing import Passing
from holdfast.gate.past import Pasts

_DEPTH = 8
_BLANK: dict[str, Json] = {
    "string": "",
    "integer": 0,
    "number": 0,
    "boolean": False,
    "null": None,
}


def sample(schema: Mapping[str, Any]) -> Json:
    """A small value of the shape a schema describes: code that goes on with it finds the fields it expects."""
    return _sample(schema, schema, 0)


def _sample(schema: Any, root: Mapping[str, Any], depth: int) -> Json:
    if not isinstance(schema, dict) or depth > _DEPTH:
        return None
    known = cast("dict[str, Any]", schema)
    for key in ("const", "default"):
        if key in known:
            return known[key]
    if known.get("enum"):
        return known["enum"][0]
    if "$ref" in known:
        return _sample(_referred(root, str(known["$ref"])), root, depth + 1)
    for key in ("anyOf", "oneOf", "allOf"):
        if known.get(key):
            return _sample(known[key][0], root, depth + 1)
    kind: Any = known.get("type")
    if isinstance(kind, list):
        kind = cast("list[Any]", kind)[0] if kind else None
    if kind == "object" or "properties" in known:
        fields: dict[str, Any] = known.get("properties") or {}
        return {name: _sample(inner, root, depth + 1) for name, inner in fields.items()}
    return [] if kind == "array" else _BLANK.get(str(kind))


def _referred(root: Mapping[str, Any], ref: str) -> Any:
    found: Any = root
    for part in ref.removeprefix("#/").split("/"):
        found = cast("dict[str, Any]", found).get(part) if isinstance(found, dict) else None
    return found


def planned_effect(crossing: Crossing, passing: Passing, wanted: Wish | None) -> PlannedEffect:
    """A call that a dry run does not make, as its plan lists it."""
    verdict = passing.ruling.verdict
    if verdict is Verdict.ALLOW and wanted is not None:
        verdict = Verdict.ASK
    return PlannedEffect(
        ordinal=crossing.ordinal,
        name=crossing.name,
        arguments=passing.arguments,
        side_effect=passing.capability.side_effect,
        verdict=verdict.value,
        rule=passing.ruling.rule_id,
        request_digest=passing.body.ref.digest,
        capability=passing.capability.digest,
    )


def pretended(crossing: Crossing, passing: Passing) -> Outcome:
    """What the code of a dry run gets: a value of the right shape."""
    capability = passing.capability
    crossing.ordered(crossing.desk.next_order())
    record = call_record(crossing.name, capability.side_effect, passing.request)
    return Outcome(record, sample(capability.output_schema), pretended=True)


class ApprovedPlan:
    """The calls a run may make because they were approved together; each as often as it was planned."""

    def __init__(self, plan_id: str, effects: Iterable[PlannedEffect]) -> None:
        self.id = plan_id
        self._left = Counter((one.name, one.request_digest, one.capability) for one in effects)

    def take(self, name: str, arguments: str, capability: str) -> bool:
        """Use up one planned call, by what it is called with and what it was; False when there is none left."""
        if self._left[name, arguments, capability] <= 0:
            return False
        self._left[name, arguments, capability] -= 1
        return True

    def took(self, pasts: Pasts) -> None:
        """Use up what a run that is taken up again has called before."""
        for past in pasts.calls.values():
            status = None if past.result is None else past.result.terminal_status
            if past.intent is not None and status is not EffectStatus.DENIED_BEFORE_EXECUTION:
                self.take(past.name, past.arguments, past.intent.capability or "")

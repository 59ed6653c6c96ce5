"""Typed output: the shape an answer must have, what a model's text is worth against it, and when to stop asking.

    output = output_of(Invoice)
    repairs = Repairs(output)
    reading = read(text, output)               # parsed, mended where there is no doubt, checked
    repairs, verdict = repairs.judge(reading)  # Good: take it. Again: send its message. Stopped: give up, and why

Everything here is a pure function of the answers so far: whoever resumes a run reads and judges the recorded
answers again, and is where it was.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

from pydantic import ValidationError

from holdfast.agent._faults import (
    MAX_FAULTS,
    NOT_REPAIRABLE,
    Explainer,
    Fault,
    compiled,
    fault,
)
from holdfast.agent._json_repair import find_json
from holdfast.agent._json_tokens import LOSSY, REPAIRS
from holdfast.agent._output_types import made, refused, semantic_faults, shape_of
from holdfast.agent._partial_json import Partial
from holdfast.agent._schema_guard import schema_fault, target
from holdfast.contracts import Json, digest_json
from holdfast.contracts.model import OutputSpec
from holdfast.machines.texts import extraction_retry

__all__ = [
    "Again",
    "Fault",
    "Good",
    "Output",
    "Partial",
    "Reading",
    "Repairs",
    "Stopped",
    "Verdict",
    "output_of",
    "read",
    "tool_calls_instead",
    "LOSSY",
    "MAX_CANDIDATE_BYTES",
    "MAX_FAULTS",
    "MAX_REPAIRS",
    "REPAIRS",
]

MAX_CANDIDATE_BYTES: Final = 32 * 1024
"""How long an answer may be, unless its reader says otherwise."""
MAX_REPAIRS: Final = 2
"""How often a model is asked again, unless somebody says otherwise."""
_MAX_SAID = 200


# -- the shape ------------------------------------------------------------------------------------------


class Output:
    """The shape an answer must have, and the way from JSON to the caller's type. Made by `output_of`."""

    spec: OutputSpec
    """What a model is told."""
    digest: str
    """The same for the same name and schema, in every process."""
    is_object: bool
    """Whether every answer is a JSON object."""
    is_text: bool
    """Whether every answer is a string: then a model's words need not be in quotes."""

    def __init__(self, name: str, schema: dict[str, Json], adapter: Any = None) -> None:
        self._validator = _compiled(schema)
        self._adapter = adapter
        self._explain = Explainer(schema)
        said = schema.get("description")
        self.spec = OutputSpec(name, schema, said if isinstance(said, str) else None)
        self.digest = digest_json({"name": name, "schema": schema})
        top = _top(schema)
        self.is_object = top.get("type") == "object"
        self.is_text = top.get("type") == "string"
        declared = top.get("properties")
        self._declares_name = isinstance(declared, dict) and name in declared
        self._closed = not self.is_object or top.get("additionalProperties") is False

    @property
    def stored(self) -> dict[str, Json]:
        """What a record keeps. The schema is text in it, so that its properties stay in their order."""
        return {"name": self.spec.name, "schema": self.schema_text}

    @classmethod
    def restored(cls, stored: Mapping[str, Any]) -> Output:
        """The output of a record, in any process. Its values are plain JSON: the caller's type is not on record."""
        name, text = stored.get("name"), stored.get("schema")
        try:
            schema = json.loads(text) if isinstance(text, str) else None
        except (ValueError, RecursionError):
            schema = None
        if not isinstance(schema, dict):
            raise refused("on record is damaged", "Give the output type again.")
        return output_of(cast("dict[str, Any]", schema), name=name if isinstance(name, str) else "")

    def renamed(self, name: str) -> Output:
        """The same shape under another name."""
        return Output(shape_of(self.spec.schema, name).name, self.spec.schema, self._adapter)

    @property
    def schema_text(self) -> str:
        """The schema as JSON, on one line."""
        return json.dumps(self.spec.schema, ensure_ascii=False)

    def parse(self, value: Json) -> object:
        """A value that fits, as the caller's type has it; raises what that type's own validators raise."""
        return value if self._adapter is None else made(self._adapter, value)

    def fits(self, value: Json) -> bool:
        """Whether `value` fits the schema."""
        try:
            return self._validator.is_valid(value)
        except (ValueError, TypeError, RecursionError):
            return False

    def faults(self, value: Json) -> tuple[Fault, ...]:
        """What is wrong with `value` against the schema, at most 32; none when it fits."""
        if self.fits(value):
            return ()
        try:
            found = self._explain.faults(value)
        except RecursionError:
            found = []
        return tuple(found or [fault("constraint_violation", "", "does not fit the schema")])

    def unwrap(self, value: Json, *, complete: bool = True) -> Json:
        """What is inside `{name: …}` when the schema knows no such key and the inside is what it describes."""
        name = self.spec.name
        if not isinstance(value, dict) or list(value) != [name] or self._declares_name:
            return value
        inner = value[name]
        if not complete:
            return inner if self._closed else value
        if self.fits(value):
            return value
        better = self.fits(inner) or len(self.faults(inner)) < len(self.faults(value))
        return inner if better else value


def output_of(shape: Any, *, name: str | None = None) -> Output:
    """The output of a pydantic model, dataclass, TypedDict, any other type pydantic knows, or a JSON Schema.

    Members that a class does not declare are denied, unless it says otherwise. Raises `INVALID_ARGUMENT` for what is
    no type and no schema, and for a schema that is too large, nested too deep, or refers out of itself.
    """
    if isinstance(shape, Output):
        return shape if name is None else shape.renamed(name)
    found = shape_of(shape, name)
    return Output(found.name, found.schema, found.adapter)


def _compiled(schema: dict[str, Json]) -> Any:
    wrong = schema_fault(schema)
    if wrong is not None:
        raise refused(
            f"schema is refused ({wrong.code}) at `{wrong.path}`: {wrong.why}",
            "Write it in JSON Schema 2020-12, keep it small, and refer only to its own `#/$defs/…`.",
        )
    try:
        return compiled(schema)
    except (ValueError, TypeError, RecursionError) as why:
        said = getattr(why, "message", None) or str(why)
        where = "".join(f"/{one}" for one in getattr(why, "instance_path", ()))
        raise refused(
            f"schema is refused (schema_contract_violation) at `{where or '/'}`: {said[:_MAX_SAID]}",
            "Write it in JSON Schema 2020-12; patterns have no look-around and no back-references.",
        ) from None


def _top(schema: dict[str, Json]) -> dict[str, Json]:
    """The schema behind the references at its top."""
    found: Any = schema
    while isinstance(found, dict) and isinstance(
        ref := cast("dict[str, Json]", found).get("$ref"), str
    ):
        found = target(ref, schema)
    return cast("dict[str, Json]", found) if isinstance(found, dict) else {}


# -- one answer -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reading:
    """What one answer is worth."""

    text: str
    """The answer."""
    found: bool = False
    """Whether `json` holds anything; `null` is a value too."""
    json: Json = None
    """Its JSON value, whether or not it fits; as much of it as there is when it is broken."""
    value: object = None
    """The value as the caller's type has it; only when `ok`."""
    faults: tuple[Fault, ...] = ()
    """What is wrong with it, at most 32."""
    repairs: tuple[str, ...] = ()
    """What was mended to get `json`: keys of `REPAIRS`."""
    unwrapped: bool = False
    """Whether the value stood inside an object with the output's name as its only key."""

    @property
    def ok(self) -> bool:
        """Whether it can be used."""
        return not self.faults

    @property
    def repaired(self) -> bool:
        """Whether the text was not quite JSON."""
        return bool(self.repairs)

    @property
    def lossy(self) -> bool:
        """Whether what was mended may hide that something is missing."""
        return not LOSSY.isdisjoint(self.repairs)

    @property
    def repairable(self) -> bool:
        """Whether another answer could be better."""
        return bool(self.faults) and not any(one.code in NOT_REPAIRABLE for one in self.faults)

    @property
    def error(self) -> str | None:
        """What is wrong in one sentence without its full stop; `None` when nothing is."""
        if not self.faults:
            return None
        first, more = self.faults[0], len(self.faults) - 1
        if first.code in _NO_JSON:
            return f"Invalid JSON: {first.message}"
        others = f" (and {more} more)" if more else ""
        return f"Schema validation failed: {first.message}{others}"


_NO_JSON = frozenset({"invalid_json", "candidate_too_large"})


def read(
    text: str, output: Output, *, cut: bool = False, max_bytes: int = MAX_CANDIDATE_BYTES
) -> Reading:
    """What `text` is worth as an answer of this shape. Never raises, whatever the text is.

    `cut` says that the answer ended at its length limit: then nothing at its end is closed, because something may
    be missing. An answer of more than `max_bytes` is not looked at.
    """
    size = len(text.encode(errors="replace"))
    if size > max_bytes:
        rule = f"the answer must have at most {max_bytes} bytes"
        message = f"{rule}, but has {size}"
        return Reading(text, faults=(Fault("candidate_too_large", "/", rule, message),))
    found = find_json(text, lambda value: output.fits(output.unwrap(value)), cut=cut)
    is_json = found.ok and "prose" not in found.repairs
    if output.is_text and not is_json and not cut and (words := text.strip()):
        spoken = _checked(Reading(text, True, words), output)
        if spoken.ok:
            return spoken
    if not found.ok:
        message = f"{found.where}: {found.rule}" if found.where else found.rule
        return Reading(
            text, found.partial, found.value,
            faults=(Fault("invalid_json", "/", found.rule, message),), repairs=found.repairs,
        )  # fmt: skip
    value = output.unwrap(found.value)
    reading = Reading(text, True, value, repairs=found.repairs, unwrapped=value is not found.value)
    return _checked(reading, output)


def _checked(reading: Reading, output: Output) -> Reading:
    faults = output.faults(reading.json)
    if faults:
        return replace(reading, faults=faults)
    try:
        return replace(reading, value=output.parse(reading.json))
    except ValidationError as why:
        return replace(reading, faults=tuple(semantic_faults(why)[:MAX_FAULTS]))
    except Exception as why:  # noqa: BLE001 -- the caller's code: it has no verdict, and the run goes on without one
        rule = f"can't be judged: the output type raised {type(why).__name__}"
        return replace(reading, faults=(fault("semantic_validator_unavailable", "", rule),))


def tool_calls_instead(names: Sequence[str]) -> str:
    """Why there is no typed output when the model called tools instead of answering."""
    return f"structured output extraction returned tool calls instead of JSON: {', '.join(names)}"


# -- asking again ---------------------------------------------------------------------------------------


class Good(NamedTuple):
    """The answer can be used."""

    reading: Reading


class Again(NamedTuple):
    """The model is to be asked again."""

    message: str
    """What to send."""
    attempt: int
    """Which repair it is, from 1."""


class Stopped(NamedTuple):
    """There will be no typed output."""

    reason: Literal["exhausted", "same_error", "not_repairable"]
    """Every repair was used; two answers in a row had the same faults; or no answer could be right."""
    error: str
    """What is wrong with the last answer."""
    attempts: int
    """Answers that were no good."""
    last_output: str
    """The last answer."""
    faults: tuple[Fault, ...]
    """What is wrong with it."""
    best: Reading
    """The answer with the fewest faults: what there is, for whoever can use a part."""


Verdict: TypeAlias = Good | Again | Stopped


@dataclass(frozen=True, slots=True)
class Repairs:
    """How often a model is asked again, and when that has no point. A value: judging gives a new one."""

    output: Output
    """The shape that is asked for."""
    allowed: int = MAX_REPAIRS
    """How often it may be asked again."""
    attempts: int = 0
    """Answers so far that were no good."""
    last: Reading | None = None
    """The newest of them."""
    best: Reading | None = None
    """The one with the fewest faults, the newest of equals."""

    def judge(self, reading: Reading) -> tuple[Repairs, Verdict]:
        """What to do about an answer, and the policy for the next one."""
        if reading.ok:
            return self, Good(reading)
        after = replace(
            self, attempts=self.attempts + 1, last=reading, best=_better(self.best, reading)
        )
        if not reading.repairable:
            return after, after._stopped(reading, "not_repairable")
        if self.last is not None and _mistakes(self.last) == _mistakes(reading):
            return after, after._stopped(reading, "same_error")
        if after.attempts > self.allowed:
            return after, after._stopped(reading, "exhausted")
        return after, Again(self._message(reading), after.attempts)

    def _stopped(
        self, reading: Reading, reason: Literal["exhausted", "same_error", "not_repairable"]
    ) -> Stopped:
        return Stopped(
            reason, reading.error or "", self.attempts, reading.text, reading.faults,
            self.best or reading,
        )  # fmt: skip

    def _message(self, reading: Reading) -> str:
        faults = "\n".join(f"- {one.message}." for one in reading.faults)
        return (
            f"{extraction_retry(reading.error or '')}\n\n"
            f"What is wrong:\n{faults}\n\nThe schema:\n{self.output.schema_text}"
        )


def _mistakes(reading: Reading) -> frozenset[tuple[str, str, str]]:
    """What is wrong with an answer, whatever it gave instead."""
    return frozenset((one.code, one.path, one.rule) for one in reading.faults)


def _better(one: Reading | None, other: Reading) -> Reading:
    """The better of two answers: one that fits the more, then one of which there is anything, then the newer."""
    if one is None:
        return other
    return other if _worth(other) >= _worth(one) else one


def _worth(reading: Reading) -> tuple[bool, bool, int]:
    is_json = not any(one.code in _NO_JSON for one in reading.faults)
    return is_json, reading.found, -len(reading.faults)

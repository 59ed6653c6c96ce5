"""Rules, read and made ready to be asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from holdfast.contracts import Capability, Json, SideEffect, parse
from holdfast.contracts.policy import Provenance, Rule
from holdfast.errors import CallerError
from holdfast.gate._expression_patterns import WILD, Matcher, glob
from holdfast.gate.expression import Expression, Facts, parse_expression

SAMPLING = "sampling:"
"""How the name begins under which policy knows questions to a model that a tool server wants asked."""

RESERVED = ("default.", "capability.", "session.")
"""How the ids begin that are ours to give."""


class Call(NamedTuple):
    """A call, as policy sees it: the final arguments, after all hooks."""

    tool: str
    """The name that was called."""
    capability: Capability | None
    """What it names in the session's set; `None` if nothing."""
    arguments: Mapping[str, Json]
    """By name."""
    session_id: str = "default"
    """Whose session."""
    provenance: Provenance = Provenance.CODE
    """Where the call comes from."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A rule with its patterns and its expression made ready."""

    rule: Rule
    """As it was written."""
    id: str
    """As it goes on record."""
    tool: Matcher
    """Of the capability's name."""
    session: Matcher
    """Of the session id."""
    where: Expression | None
    """Of the call."""

    @property
    def names_one_tool(self) -> bool:
        """Whether it was written for one capability."""
        return not any(char in self.rule.tool for char in WILD)

    @property
    def means_models(self) -> bool:
        """Whether it is about questions to models, too: a rule about tools is written without them in mind."""
        named = self.rule.tool.startswith(("model:", SAMPLING))
        return named or Provenance.MODEL in self.rule.provenance

    def objection(self, call: Call, effect: SideEffect, facts: Facts) -> str | None:
        """Why the rule does not apply; `None` if it does."""
        rule = self.rule
        if call.provenance is Provenance.MODEL and not self.means_models:
            return "it is a question to a model, which the rule does not mean"
        if not self.tool(call.tool):
            return f"`{call.tool}` is not `{rule.tool}`"
        if rule.side_effect and effect not in rule.side_effect:
            return f"its side effect is `{effect.value}`"
        if rule.provenance and call.provenance not in rule.provenance:
            return f"it comes from `{call.provenance.value}`"
        if not self.session(call.session_id):
            return f"session `{call.session_id}` is not `{rule.session}`"
        told = self.where.tell(facts) if self.where else True
        if isinstance(told, str):
            return f"`where` can't be told: {told}"
        return None if told else "`where` is false"


def parse_rules(data: object, *, at: str = "policy.rules") -> tuple[Rule, ...]:
    """The rules of an array of tables; raises `POLICY_INVALID` that names the rule by id or by index."""
    if not isinstance(data, Sequence) or isinstance(data, str | bytes):
        raise invalid(f"`{at}` is not a list.", f"Write each rule as `[[{at}]]`.")
    return tuple(
        _parsed(each, f"{at}[{i}]") for i, each in enumerate(cast("Sequence[object]", data))
    )


def _parsed(data: object, at: str) -> Rule:
    name = cast("Mapping[str, object]", data).get("id") if isinstance(data, Mapping) else None
    try:
        return parse(Rule, cast("object", data))
    except CallerError as why:
        label = f"Rule `{name}` ({at})" if isinstance(name, str) else f"`{at}`"
        raise invalid(f"{label}: {why.message}", why.hint) from None


def ready(rules: Sequence[Rule], at: str, prefix: str) -> tuple[Ready, ...]:
    """The rules, ready, their ids on record with `prefix`; raises `POLICY_INVALID` for one that can't be used."""
    seen: set[str] = set()
    found: list[Ready] = []
    for index, rule in enumerate(rules):
        if rule.id in seen:
            raise invalid(f"`{at}[{index}]`: there is another rule `{rule.id}`.", "Rename one.")
        if rule.id.startswith(RESERVED):
            raise invalid(f"Rule `{rule.id}` ({at}[{index}]) has an id of ours.", "Rename it.")
        seen.add(rule.id)
        found.append(
            Ready(rule, prefix + rule.id, glob(rule.tool), glob(rule.session), _where(rule))
        )
    return tuple(found)


def _where(rule: Rule) -> Expression | None:
    if rule.where is None:
        return None
    try:
        return parse_expression(rule.where)
    except CallerError as why:
        raise CallerError(
            why.code, f"`where` of rule `{rule.id}`: {why.message}", hint=why.hint, span=why.span
        ) from None


def invalid(message: str, hint: str | None) -> CallerError:
    """The refusal of a rule."""
    return CallerError("POLICY_INVALID", message, hint=hint)

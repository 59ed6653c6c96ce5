"""Whether a call may pass: the rules of the operator, those of the session, the capability's own, the defaults.

The order, for a call of a capability that exists (any other is denied):

1. The settings' rules, from first to last; the first all of whose conditions hold decides. A rule that says
   `allow` does not silence a capability that wants a person asked, unless it names the capability, without `*`
   or `?`: a wide rule is written without this one capability in mind.
2. Without such a rule, the capability's own approval: `manual` asks, `auto` allows or asks.
3. Without that either, the default: what touches nothing or only reads is allowed, and so is a question to a
   model, unless a tool server wants it asked (`sampling:…`); everything else asks.
4. The session's rules, likewise first to last. Whoever opened the session is not the operator, so they can make
   the outcome stricter (deny > ask > allow), and each limit smaller, and nothing else.

`decide` and `explain` walk the same path; `explain` takes notes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, cast

from holdfast.contracts import Capability, CapabilityLimits, Json, SideEffect, digest_json
from holdfast.contracts.capability import Risk
from holdfast.contracts.policy import Provenance, Rule, Verdict
from holdfast.errors import CallerError
from holdfast.gate._policy_rules import SAMPLING, Call, Ready, invalid, parse_rules, ready
from holdfast.gate.expression import Facts, parse_expression
from holdfast.gate.recovery import HARMLESS

__all__ = [
    "Call",
    "Considered",
    "Explanation",
    "Policy",
    "Ruling",
    "parse_rules",
    "stricter",
]

_REMEMBERED = 4096
"""Rulings that are kept."""

_STRICTNESS = {Verdict.ALLOW: 0, Verdict.ASK: 1, Verdict.DENY: 2}
_SEVERITY = {risk: at for at, risk in enumerate(Risk)}
_SAYS = {Verdict.ALLOW: "allows it", Verdict.ASK: "wants a person asked", Verdict.DENY: "denies it"}

Source = Literal["settings", "session", "capability", "default"]


@dataclass(frozen=True, slots=True)
class Ruling:
    """What policy says about one call."""

    verdict: Verdict
    """What follows."""
    rule_id: str
    """The rule that decided, or `default.…` or `capability.…`."""
    reason: str
    """Why, for whoever is refused or asked."""
    limits: CapabilityLimits
    """What the call may use: the capability's limits, each made smaller by the rules that matched."""
    risk: Risk
    """How much harm a mistake would do."""
    timeout_ms: int | None = None
    """How long a person has to answer; `None`: as the settings say."""
    auto: str | None = None
    """The capability's own expression, if it was asked."""
    rule_ids: tuple[str, ...] = ()
    """Everything that had a say, in order: goes on record with the effect."""


class Considered(NamedTuple):
    """One thing that was looked at on the way to a ruling."""

    source: Source
    """Whose it is."""
    id: str
    """Its id."""
    matched: bool
    """Whether it applied."""
    why: str
    """Why it did, or did not."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A ruling, and how it came about."""

    ruling: Ruling
    """What policy says."""
    considered: tuple[Considered, ...]
    """In the order in which it was looked at; what comes after a rule that decided is not looked at."""


@dataclass(slots=True)
class _Notes:
    """What `explain` wants to know and `decide` does not."""

    taken: list[Considered] = field(default_factory=list[Considered])

    def add(self, source: Source, rule_id: str, matched: bool, why: str) -> None:
        self.taken.append(Considered(source, rule_id, matched, why))


class Policy:
    """The rules in force. It does not change; `within` gives that of one session."""

    def __init__(
        self,
        rules: Sequence[Rule] = (),
        *,
        default: Verdict = Verdict.ASK,
        session: Sequence[Rule] = (),
    ) -> None:
        self.rules = tuple(rules)
        """The settings' rules."""
        self.session_rules = tuple(session)
        """The session's."""
        self.default = default
        """What follows for a call that no rule decides and that does more than read."""
        self._settings = ready(self.rules, "policy.rules", "")
        self._session = ready(self.session_rules, "rules", "session.")
        self._looks_inside = any(one.where for one in (*self._settings, *self._session))
        self._rulings: dict[tuple[int, str, str, str], tuple[Capability, Ruling]] = {}
        self.digest = digest_json(self._described())
        """Names these rules: it changes whenever one of them does."""

    @classmethod
    def load(cls, data: Mapping[str, object]) -> Policy:
        """The policy of a `[policy]` table; raises `POLICY_INVALID` that names the rule."""
        if unknown := data.keys() - {"rules", "default"}:
            raise invalid(f"`policy.{min(unknown)}` is no setting.", "Use `rules` and `default`.")
        default = data.get("default", Verdict.ASK.value)
        if default not in list(Verdict):
            raise invalid("`policy.default` is not a verdict.", "Use `allow`, `ask` or `deny`.")
        return cls(parse_rules(data.get("rules", ())), default=Verdict(default))

    def within(self, rules: Sequence[Rule]) -> Policy:
        """The policy of a session with rules of its own, which can only be stricter."""
        return Policy(self.rules, default=self.default, session=rules) if rules else self

    def decide(self, call: Call) -> Ruling:
        """What follows for the call. Raises nothing."""
        capability = call.capability
        key = (id(capability), call.tool, call.session_id, call.provenance._value_)
        known = self._rulings.get(key)
        if known is not None and known[0] is capability:
            return known[1]
        ruling = self._rule(call, None)
        if capability is None or self._looks_inside:
            return ruling
        if isinstance(capability.approval_policy, str):
            # Nobody looked at the arguments, so the next call like this one is ruled on alike.
            if len(self._rulings) >= _REMEMBERED:
                self._rulings.clear()
            self._rulings[key] = (capability, ruling)
        return ruling

    def explain(self, call: Call) -> Explanation:
        """What `decide` says, and everything that was looked at on the way."""
        notes = _Notes()
        ruling = self._rule(call, notes)
        return Explanation(ruling, tuple(notes.taken))

    def describe(self) -> dict[str, Json]:
        """The policy as JSON, for whoever must live with it."""
        return {"digest": self.digest, **self._described()}

    def _described(self) -> dict[str, Json]:
        return {
            "default": self.default.value,
            "rules": [_as_json(rule) for rule in self.rules],
            "session_rules": [_as_json(rule) for rule in self.session_rules],
        }

    def _rule(self, call: Call, notes: _Notes | None) -> Ruling:
        capability = call.capability
        if capability is None:
            return _unknown(call, notes)
        facts = _facts(call, capability)
        found = _first(self._settings, "settings", call, capability.side_effect, facts, notes)
        ruling = self._own(call, capability, found, facts, notes)
        if self._session:
            found = _first(self._session, "session", call, capability.side_effect, facts, notes)
            ruling = _narrowed(ruling, found) if found else ruling
        return ruling

    def _own(
        self,
        call: Call,
        capability: Capability,
        found: Ready | None,
        facts: Facts,
        notes: _Notes | None,
    ) -> Ruling:
        """The ruling without the session's rules."""
        if found is None:
            ruling = _by_capability(capability, facts, notes)
            return ruling or self._by_default(call, capability, notes)
        ruling = _by_rule(capability, found)
        if found.rule.then is not Verdict.ALLOW or found.names_one_tool:
            return ruling
        own = _by_capability(capability, facts, notes)
        if own is None or own.verdict is Verdict.ALLOW:
            return ruling
        return replace(
            ruling,
            verdict=own.verdict,
            rule_id=own.rule_id,
            reason=own.reason,
            auto=own.auto,
            rule_ids=(found.id, own.rule_id),
        )

    def _by_default(self, call: Call, capability: Capability, notes: _Notes | None) -> Ruling:
        effect = capability.side_effect
        if call.tool.startswith(SAMPLING):
            # What a tool server wants a model asked, and with whose money: nobody has said so before.
            verdict = Verdict.DENY if self.default is Verdict.DENY else Verdict.ASK
            rule_id = "default.sampling"
        elif call.provenance is Provenance.MODEL:
            verdict, rule_id = Verdict.ALLOW, "default.model"
        elif effect in HARMLESS:
            verdict, rule_id = Verdict.ALLOW, "default.read"
        else:
            verdict, rule_id = self.default, f"default.{self.default.value}"
        why = f"No rule decides about `{capability.name}`, and its side effect is `{effect.value}`."
        if notes is not None:
            notes.add("default", rule_id, True, f"its side effect is `{effect.value}`")
        return _ruling(capability, verdict, rule_id, why)


def _as_json(rule: Rule) -> Json:
    # What a rule does not say it leaves as it is, so only what was said tells two rules apart.
    return cast("Json", rule.model_dump(mode="json", exclude_unset=True))


# -- deciding -----------------------------------------------------------------------------------------


def _facts(call: Call, capability: Capability) -> Facts:
    return Facts(
        args=call.arguments,
        tool=call.tool,
        side_effect=capability.side_effect.value,
        session=call.session_id,
        provenance=call.provenance.value,
        risk=capability.harm.value,
    )


def _first(
    rules: Sequence[Ready],
    source: Source,
    call: Call,
    effect: SideEffect,
    facts: Facts,
    notes: _Notes | None,
) -> Ready | None:
    for each in rules:
        objection = each.objection(call, effect, facts)
        if notes is not None:
            notes.add(source, each.id, objection is None, objection or _SAYS[each.rule.then])
        if objection is None:
            return each
    return None


def _ruling(capability: Capability, verdict: Verdict, rule_id: str, reason: str) -> Ruling:
    return Ruling(verdict, rule_id, reason, capability.limits, capability.harm, rule_ids=(rule_id,))


def _unknown(call: Call, notes: _Notes | None) -> Ruling:
    if notes is not None:
        notes.add("default", "default.unknown", True, f"there is no capability `{call.tool}`")
    return Ruling(
        Verdict.DENY,
        "default.unknown",
        f"The session has no capability `{call.tool}`.",
        CapabilityLimits(),
        Risk.CRITICAL,
        rule_ids=("default.unknown",),
    )


def _by_capability(capability: Capability, facts: Facts, notes: _Notes | None) -> Ruling | None:
    approval = capability.approval_policy
    if approval == "none":
        return None
    if isinstance(approval, str):
        if notes is not None:
            notes.add("capability", "capability.manual", True, _SAYS[Verdict.ASK])
        why = f"`{capability.name}` wants a person asked about every call."
        return _ruling(capability, Verdict.ASK, "capability.manual", why)
    rule = approval.auto.rule
    told = _told(rule, facts)
    verdict = Verdict.ALLOW if told is True else Verdict.ASK
    how = (
        f"can't be told: {told}" if isinstance(told, str) else "holds" if told else "does not hold"
    )
    if notes is not None:
        notes.add("capability", "capability.auto", True, f"`{rule}` {how}")
    why = f"The rule of `{capability.name}`, `{rule}`, {how}."
    return replace(_ruling(capability, verdict, "capability.auto", why), auto=rule)


def _told(rule: str, facts: Facts) -> bool | str:
    # `check_approval` refuses a bad rule when the capability is declared; here it must not let anything pass.
    try:
        return parse_expression(rule).tell(facts)
    except CallerError as why:
        return why.message.rstrip(".")


def _by_rule(capability: Capability, found: Ready) -> Ruling:
    rule = found.rule
    return Ruling(
        verdict=rule.then,
        rule_id=found.id,
        reason=rule.reason or f"Rule `{found.id}` {_SAYS[rule.then]}.",
        limits=stricter(capability.limits, rule.limits),
        risk=rule.risk or capability.harm,
        timeout_ms=rule.timeout_ms,
        rule_ids=(found.id,),
    )


def _narrowed(ruling: Ruling, found: Ready) -> Ruling:
    """The ruling, made stricter by a rule of the session where that is stricter."""
    rule = found.rule
    narrowed = replace(
        ruling,
        limits=stricter(ruling.limits, rule.limits),
        risk=max(ruling.risk, rule.risk or ruling.risk, key=_SEVERITY.__getitem__),
        timeout_ms=_smaller(ruling.timeout_ms, rule.timeout_ms),
        rule_ids=(found.id, *ruling.rule_ids),
    )
    if _STRICTNESS[rule.then] <= _STRICTNESS[ruling.verdict]:
        return narrowed
    reason = rule.reason or f"Rule `{found.id}` {_SAYS[rule.then]}."
    return replace(narrowed, verdict=rule.then, rule_id=found.id, reason=reason)


def stricter(limits: CapabilityLimits, other: CapabilityLimits | None) -> CapabilityLimits:
    """`limits`, each replaced by the one that `other` names, where that is smaller."""
    if other is None:
        return limits
    changed: dict[str, int] = {}
    for name in other.model_fields_set:
        mine, theirs = getattr(limits, name), getattr(other, name)
        if theirs is not None and (mine is None or theirs < mine):
            changed[name] = theirs
    return limits.model_copy(update=changed) if changed else limits


def _smaller(one: int | None, other: int | None) -> int | None:
    return min((each for each in (one, other) if each is not None), default=None)

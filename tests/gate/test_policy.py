"""Policy: which rule decides, who can overrule whom, and what is said about it."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.contracts import Capability, CapabilityLimits, Json, SideEffect
from holdfast.contracts.capability import ApprovalPolicy, AutoApproval, AutoRule, Risk
from holdfast.contracts.policy import Provenance, Rule, Verdict
from holdfast.errors import CallerError
from holdfast.gate.policy import Call, Policy, parse_rules, stricter

STRICTNESS = [Verdict.ALLOW, Verdict.ASK, Verdict.DENY]


def auto(rule: str) -> AutoApproval:
    return AutoApproval(auto=AutoRule(rule=rule))


def tool(
    effect: str = "write", approval: ApprovalPolicy = "none", name: str = "pay", **more: Any
) -> Capability:
    return Capability(
        name=name,
        description="",
        side_effect=SideEffect(effect),
        approval_policy=approval,
        **more,
    )


def call(capability: Capability | None = None, **args: Json) -> Call:
    capability = capability or tool()
    return Call(capability.name, capability, args, "s-1", Provenance.CODE)


def rule(then: str, id: str = "r", **more: Any) -> Rule:
    return Rule(id=id, then=Verdict(then), **more)


def said(policy: Policy, asked: Call) -> tuple[str, str]:
    ruling = policy.decide(asked)
    return ruling.verdict.value, ruling.rule_id


# -- defaults -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", list(SideEffect))
def test_by_default_reads_pass_and_everything_else_asks(effect: SideEffect):
    harmless = effect in (SideEffect.NONE, SideEffect.READ)
    expected = ("allow", "default.read") if harmless else ("ask", "default.ask")
    assert said(Policy(), call(tool(effect.value))) == expected


def test_an_unknown_tool_is_denied_whatever_the_rules_say():
    policy = Policy([rule("allow")], default=Verdict.ALLOW)
    ruling = policy.decide(Call("nothing", None, {}))
    assert (ruling.verdict, ruling.rule_id) == (Verdict.DENY, "default.unknown")
    assert "`nothing`" in ruling.reason


@pytest.mark.parametrize("default", list(Verdict))
def test_default_is_enforced(default: Verdict):
    policy = Policy(default=default)
    assert said(policy, call(tool("write"))) == (default.value, f"default.{default.value}")
    assert said(policy, call(tool("read"))) == ("allow", "default.read")
    assert said(policy, call(tool("read", "manual"))) == ("ask", "capability.manual")


def test_a_capability_that_wants_a_person_asks_even_to_read():
    assert said(Policy(), call(tool("none", "manual"))) == ("ask", "capability.manual")


def test_an_automatic_approval_allows_or_asks():
    capability = tool("external_system", auto("cents <= 100"))
    policy = Policy()
    assert said(policy, call(capability, cents=100)) == ("allow", "capability.auto")
    assert said(policy, call(capability, cents=101)) == ("ask", "capability.auto")
    assert said(policy, call(capability)) == ("ask", "capability.auto")
    assert policy.decide(call(capability, cents=1)).auto == "cents <= 100"
    assert "can't be told" in policy.decide(call(capability)).reason


def test_an_automatic_approval_that_is_no_expression_asks():
    assert said(Policy(), call(tool("read", auto("cents <=")))) == ("ask", "capability.auto")


# -- rules --------------------------------------------------------------------------------------------


def test_the_first_rule_that_matches_decides():
    policy = Policy([rule("allow", "a", where="cents < 5"), rule("deny", "b"), rule("ask", "c")])
    assert said(policy, call(cents=1)) == ("allow", "a")
    assert said(policy, call(cents=9)) == ("deny", "b")


@pytest.mark.parametrize(
    ("condition", "matches"),
    [
        ({"tool": "pay"}, True),
        ({"tool": "p?y"}, True),
        ({"tool": "p*"}, True),
        ({"tool": "pa"}, False),
        ({"tool": "PAY"}, False),
        ({"side_effect": ("read", "write")}, True),
        ({"side_effect": ("read",)}, False),
        ({"provenance": ("model", "code")}, True),
        ({"provenance": ("model",)}, False),
        ({"session": "s-*"}, True),
        ({"session": "t-*"}, False),
        ({"where": "cents == 1 and tool == 'pay' and session == 's-1'"}, True),
        ({"where": "side_effect == 'write' and risk == 'medium'"}, True),
        ({"where": "provenance == 'code'"}, True),
        ({"where": "cents > 1"}, False),
        ({"where": "euros > 1"}, False),
        ({"tool": "pay", "side_effect": ("write",), "session": "x"}, False),
    ],
)
def test_every_condition_of_a_rule_is_enforced(condition: dict[str, Any], matches: bool):
    policy = Policy([rule("deny", **condition)])
    assert said(policy, call(cents=1)) == (("deny", "r") if matches else ("ask", "default.ask"))


def test_an_allow_lifts_the_default():
    assert said(Policy([rule("allow")]), call(tool("external_system"))) == ("allow", "r")


@pytest.mark.parametrize(
    ("pattern", "approval", "expected"),
    [
        ("*", "manual", ("ask", "capability.manual", ("r", "capability.manual"))),
        ("pa?", "manual", ("ask", "capability.manual", ("r", "capability.manual"))),
        ("pay", "manual", ("allow", "r", ("r",))),
        ("*", auto("cents > 5"), ("ask", "capability.auto", ("r", "capability.auto"))),
        ("*", auto("cents < 5"), ("allow", "r", ("r",))),
        ("pay", auto("cents > 5"), ("allow", "r", ("r",))),
    ],
)
def test_only_a_rule_that_names_the_capability_silences_it(
    pattern: str, approval: ApprovalPolicy, expected: tuple[str, str, tuple[str, ...]]
):
    policy = Policy([rule("allow", tool=pattern, limits=CapabilityLimits(concurrency=1))])
    ruling = policy.decide(call(tool("write", approval), cents=1))
    assert (ruling.verdict.value, ruling.rule_id, ruling.rule_ids) == expected
    assert ruling.limits.concurrency == 1


@pytest.mark.parametrize("then", ["ask", "deny"])
def test_an_automatic_approval_does_not_lift_a_rule(then: str):
    assert said(Policy([rule(then)]), call(tool("read", auto("true")))) == (then, "r")


def test_what_a_rule_says_beside_its_verdict_is_enforced():
    policy = Policy(
        [rule("ask", risk="critical", reason="Ask Ann.", timeout_ms=5, limits={"timeout_ms": 7})]
    )
    ruling = policy.decide(call())
    assert (ruling.risk, ruling.reason, ruling.timeout_ms) == (Risk.CRITICAL, "Ask Ann.", 5)
    assert ruling.limits == CapabilityLimits(timeout_ms=7)
    plain = Policy([rule("ask")]).decide(call())
    assert (plain.risk, plain.reason) == (Risk.MEDIUM, "Rule `r` wants a person asked.")
    assert (plain.timeout_ms, plain.limits) == (None, CapabilityLimits())


def test_limits_change_only_where_a_rule_says_a_smaller_one():
    mine = CapabilityLimits(timeout_ms=60_000, concurrency=4, rate_per_min=9)
    assert stricter(mine, None) is mine
    assert stricter(mine, CapabilityLimits()) is mine
    assert stricter(mine, CapabilityLimits(rate_per_min=None, concurrency=8)) is mine
    tight = stricter(mine, CapabilityLimits(rate_per_min=3, timeout_ms=5000))
    assert tight == CapabilityLimits(timeout_ms=5000, concurrency=4, rate_per_min=3)
    assert stricter(CapabilityLimits(), CapabilityLimits(rate_per_min=3)).rate_per_min == 3


# -- the session's rules ------------------------------------------------------------------------------


@pytest.mark.parametrize("base", ["allow", "ask", "deny"])
@pytest.mark.parametrize("own", ["allow", "ask", "deny"])
def test_a_session_can_only_be_stricter(base: str, own: str):
    policy = Policy([rule(base, "b", tool="pay", reason="base")])
    ruling = policy.within([rule(own, "s", reason="own")]).decide(call(tool("write", "manual")))
    stricter_one = max(base, own, key=lambda each: STRICTNESS.index(Verdict(each)))
    assert ruling.verdict.value == stricter_one
    decided = own != base and stricter_one == own
    assert ruling.rule_id == ("session.s" if decided else "b")
    assert ruling.reason == ("own" if decided else "base")
    assert ruling.rule_ids == ("session.s", "b")


def test_a_session_makes_limits_smaller_and_risk_greater_and_nothing_else():
    policy = Policy([rule("ask", "b", risk="high", timeout_ms=50, limits={"concurrency": 4})])
    loose = policy.within(
        [rule("allow", risk="low", timeout_ms=99, limits={"concurrency": 8, "rate_per_min": 2})]
    ).decide(call())
    assert (loose.risk, loose.timeout_ms) == (Risk.HIGH, 50)
    assert (loose.limits.concurrency, loose.limits.rate_per_min) == (4, 2)
    tight = policy.within([rule("allow", risk="critical", timeout_ms=9)]).decide(call())
    assert (tight.risk, tight.timeout_ms) == (Risk.CRITICAL, 9)
    plain = policy.within([rule("deny", tool="other")]).decide(call())
    assert plain == policy.decide(call())
    assert policy.within([rule("deny", "s")]).decide(call()).reason == "Rule `session.s` denies it."


def test_a_session_without_rules_has_the_policy_itself():
    policy = Policy([rule("ask")])
    assert policy.within([]) is policy


# -- reading ------------------------------------------------------------------------------------------

TOML = """
[policy]
default = "deny"

[[policy.rules]]
id = "small-invoices"
tool = "send_invoice"
where = "args.cents <= 5000"
then = "allow"
limits = { rate_per_min = 10 }

[[policy.rules]]
id = "no-network"
side_effect = ["network"]
provenance = ["model"]
then = "deny"
"""


def test_it_is_read_from_toml():
    policy = Policy.load(tomllib.loads(TOML)["policy"])
    assert [each.id for each in policy.rules] == ["small-invoices", "no-network"]
    assert policy.default is Verdict.DENY
    assert said(policy, call(tool(name="send_invoice"), cents=5000)) == ("allow", "small-invoices")
    assert said(policy, call(tool(name="send_invoice"), cents=5001)) == ("deny", "default.deny")
    assert Policy.load({}).digest == Policy().digest


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"ruls": []}, "`policy.ruls` is no setting"),
        ({"default": "perhaps"}, "`policy.default` is not a verdict"),
        ({"default": ["ask"]}, "`policy.default` is not a verdict"),
        ({"rules": "all"}, "`policy.rules` is not a list"),
        ({"rules": 1}, "`policy.rules` is not a list"),
        ({"rules": [1]}, "`policy.rules[0]`: "),
        ({"rules": [{"then": "ask"}]}, "`policy.rules[0]`: `id`"),
        ({"rules": [{"id": "a", "then": "sometimes"}]}, "Rule `a` (policy.rules[0]): `then`"),
        (
            {"rules": [{"id": "a", "then": "ask", "when": "x"}]},
            "Rule `a` (policy.rules[0]): `when`",
        ),
        (
            {"rules": [{"id": "a", "then": "ask"}] * 2},
            "`policy.rules[1]`: there is another rule `a`",
        ),
        ({"rules": [{"id": "default.x", "then": "ask"}]}, "an id of ours"),
        ({"rules": [{"id": "a", "then": "ask", "where": "x =="}]}, "`where` of rule `a`: "),
        (
            {"rules": [{"id": "a", "then": "ask", "limits": {"timeout_ms": 0}}]},
            "Rule `a` (policy.rules[0]): `limits.timeout_ms`",
        ),
    ],
)
def test_a_bad_policy_is_refused_by_name(data: dict[str, Any], says: str):
    with pytest.raises(CallerError) as caught:
        Policy.load(data)
    assert caught.value.code == "POLICY_INVALID"
    assert says in caught.value.message
    assert caught.value.hint


def test_a_session_may_use_an_id_of_the_settings():
    policy = Policy([rule("ask", "a")]).within([rule("deny", "a")])
    assert policy.decide(call()).rule_ids == ("session.a", "a")


def test_rules_of_a_session_are_named_by_where_they_are():
    with pytest.raises(CallerError, match=r"Rule `a` \(setup.rules\[0\]\)"):
        parse_rules([{"id": "a", "then": "never"}], at="setup.rules")


# -- telling ------------------------------------------------------------------------------------------


def test_the_digest_names_the_rules():
    policies = [
        Policy(),
        Policy(default=Verdict.DENY),
        Policy([rule("ask", "a")]),
        Policy([rule("deny", "a")]),
        Policy([rule("ask", "a"), rule("ask", "b")]),
        Policy([rule("ask", "b"), rule("ask", "a")]),
        Policy([rule("ask", "a", limits=CapabilityLimits(timeout_ms=5000))]),
        Policy().within([rule("ask", "a")]),
    ]
    assert len({policy.digest for policy in policies}) == len(policies)
    assert Policy([rule("ask", "a")]).digest == policies[2].digest


def test_it_describes_itself():
    policy = Policy([rule("ask", "a", limits={"rate_per_min": 3})]).within([rule("deny", "b")])
    assert policy.describe() == {
        "digest": policy.digest,
        "default": "ask",
        "rules": [{"id": "a", "then": "ask", "limits": {"rate_per_min": 3}}],
        "session_rules": [{"id": "b", "then": "deny"}],
    }
    again = Policy(parse_rules(policy.describe()["rules"])).within(
        parse_rules(policy.describe()["session_rules"])
    )
    assert again.digest == policy.digest


def test_it_explains_itself():
    policy = Policy(
        [
            rule("deny", "tool", tool="other"),
            rule("deny", "effect", side_effect=("read",)),
            rule("deny", "from", provenance=("peer",)),
            rule("deny", "session", session="x"),
            rule("deny", "false", where="cents > 5"),
            rule("deny", "missing", where="euros > 5"),
            rule("allow", "yes"),
            rule("deny", "never reached"),
        ]
    ).within([rule("deny", "s", tool="other"), rule("ask", "t")])
    asked = call(tool("write", auto("cents == 1")), cents=1)
    found = policy.explain(asked)
    assert [tuple(each) for each in found.considered] == [
        ("settings", "tool", False, "`pay` is not `other`"),
        ("settings", "effect", False, "its side effect is `write`"),
        ("settings", "from", False, "it comes from `code`"),
        ("settings", "session", False, "session `s-1` is not `x`"),
        ("settings", "false", False, "`where` is false"),
        ("settings", "missing", False, "`where` can't be told: there is no argument `euros`"),
        ("settings", "yes", True, "allows it"),
        ("capability", "capability.auto", True, "`cents == 1` holds"),
        ("session", "session.s", False, "`pay` is not `other`"),
        ("session", "session.t", True, "wants a person asked"),
    ]
    assert found.ruling == policy.decide(asked)


def test_it_explains_defaults():
    def last(asked: Call) -> tuple[str, str]:
        found = Policy().explain(asked).considered[-1]
        return found.source, found.id

    assert last(call(tool("read"))) == ("default", "default.read")
    assert last(call(tool("write"))) == ("default", "default.ask")
    assert last(call(tool("read", "manual"))) == ("capability", "capability.manual")
    assert last(Call("x", None, {})) == ("default", "default.unknown")


# -- properties ---------------------------------------------------------------------------------------

verdicts = st.sampled_from(["allow", "ask", "deny"])
conditions = st.fixed_dictionaries(
    {},
    optional={
        "tool": st.sampled_from(["*", "pay", "p*", "other"]),
        "side_effect": st.sampled_from([(), ("write",), ("read", "none")]),
        "where": st.sampled_from(["x > 1", "x == 'a'", "not y", "true"]),
        "session": st.sampled_from(["*", "s-1", "t"]),
        "provenance": st.sampled_from([(), ("code",), ("peer",)]),
        "limits": st.sampled_from([{}, {"rate_per_min": 2}, {"concurrency": 1}]),
    },
)
rule_lists = st.lists(st.tuples(verdicts, conditions), max_size=4).map(
    lambda found: [rule(then, f"r{i}", **more) for i, (then, more) in enumerate(found)]
)
capabilities = st.builds(
    tool,
    st.sampled_from([each.value for each in SideEffect]),
    st.sampled_from(["none", "manual", auto("x > 1")]),
)
arguments = st.fixed_dictionaries(
    {}, optional={"x": st.integers(0, 3) | st.just("a"), "y": st.booleans() | st.none()}
)


@given(rule_lists, rule_lists, capabilities, arguments)
def test_no_session_gets_more_than_the_settings_give(
    base: list[Rule], own: list[Rule], capability: Capability, args: dict[str, Json]
):
    policy = Policy(base)
    asked = call(capability, **args)
    before, after = policy.decide(asked), policy.within(own).decide(asked)
    assert STRICTNESS.index(after.verdict) >= STRICTNESS.index(before.verdict)
    for name in CapabilityLimits.model_fields:
        old, new = getattr(before.limits, name), getattr(after.limits, name)
        assert old is None or new <= old
    assert policy.within(own).explain(asked).ruling == after
    assert after.rule_ids[-len(before.rule_ids) :] == before.rule_ids


@given(rule_lists, capabilities, arguments)
def test_nothing_that_does_more_than_read_passes_unless_somebody_said_so(
    base: list[Rule], capability: Capability, args: dict[str, Json]
):
    ruling = Policy(base).decide(call(capability, **args))
    if ruling.verdict is Verdict.ALLOW and capability.side_effect not in ("none", "read"):
        assert ruling.rule_id == "capability.auto" or ruling.rule_id in [
            each.id for each in base if each.then is Verdict.ALLOW
        ]

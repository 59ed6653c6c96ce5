"""Sets of capabilities: versions, digests, differences, duplicates, foreign contracts."""

from typing import Any

import pytest

from holdfast.capabilities import CapabilitySet, Difference, Foreign, capability
from holdfast.contracts import Capability, Json
from holdfast.errors import CallerError, ModelError, NotFound
from holdfast.gate.executor import Context, Toolbox


@capability
def alpha(a: int) -> int:
    """First."""
    return a


@capability
async def beta(b: str) -> str:
    """Second."""
    return b


@capability(name="alpha")
def other_alpha(a: str) -> str:
    """Not the first."""
    return a


CONTEXT = Context(effect_id="e", attempt=1, session_id="s", run_id="r")


def foreign(schema: Any = None, output: Any = None, name: str = "far") -> Foreign:
    async def act(arguments: dict[str, Any], context: Context) -> Json:
        return [arguments, context.effect_id]

    made = Capability(
        name=name, description="", input_schema=schema or {}, output_schema=output or {}
    )
    return Foreign(made, act)


def test_a_set_is_a_toolbox():
    tools: Toolbox = CapabilitySet(beta, alpha)
    assert [one.name for one in tools.all()] == ["alpha", "beta"]
    assert tools.get("alpha") is alpha
    assert tools.get("gamma") is None
    assert [one.name for one in tools.search("second")] == ["beta"]
    assert "def alpha(a: int) -> int:" in tools.stubs()
    assert "alpha" not in tools.stubs(["beta"])


def test_the_digest_is_that_of_the_contracts():
    assert CapabilitySet(alpha, beta).digest == CapabilitySet(beta, alpha).digest
    assert CapabilitySet(alpha).digest != CapabilitySet(other_alpha).digest
    assert CapabilitySet(alpha).digest != CapabilitySet().digest


def test_changes_make_new_versions():
    first = CapabilitySet(alpha)
    second = first.with_(beta)
    third = second.without("alpha")
    assert [len(one) for one in (first, second, third)] == [1, 2, 1]
    assert [one.version for one in (first, second, third)] == [1, 2, 3]
    assert "alpha" in second
    assert "alpha" not in third
    assert list(second) == [alpha, beta]


def test_difference():
    before, after = CapabilitySet(alpha, beta), CapabilitySet(other_alpha, foreign())
    assert before.diff(after) == Difference(added=("far",), removed=("beta",), changed=("alpha",))
    assert before.diff(before) == Difference((), (), ())


def test_two_of_one_name_are_refused_with_their_origins():
    with pytest.raises(CallerError) as refused:
        CapabilitySet(alpha, other_alpha)
    assert refused.value.code == "INVALID_ARGUMENT"
    assert "test_registry:alpha and" in refused.value.message
    assert "test_registry:other_alpha" in refused.value.message


@pytest.mark.parametrize("act", [lambda s: s.without("alpa"), lambda s: s.stubs(["alpa"])])
def test_names_that_are_not_there(act: Any):
    with pytest.raises(NotFound) as refused:
        act(CapabilitySet(alpha))
    assert refused.value.code == "NOT_FOUND"
    assert refused.value.hint == "Did you mean `alpha`?"


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "objct"}, "`type`"),
        ({"properties": []}, "`properties`"),
        ({"$ref": "https://example.com/x"}, "example.com"),
        ({"$ref": "#/$defs/nowhere"}, "nowhere"),
        ({"pattern": "("}, "`pattern`"),
    ],
)
def test_schemas_that_are_none_are_refused(schema: Any, said: str):
    for make in (lambda: foreign(schema), lambda: foreign(None, schema)):
        with pytest.raises(CallerError) as refused:
            make()
        assert refused.value.code == "INVALID_ARGUMENT"
        assert "put schema of `far` is not a JSON Schema" in refused.value.message
        assert said in refused.value.message


def test_an_executor_of_another_make_is_checked_too():
    class Odd:
        capability = Capability(name="odd", description="", input_schema={"type": 5})
        reconciles = False

    with pytest.raises(CallerError, match="input schema of `odd`"):
        CapabilitySet(Odd())  # type: ignore[arg-type]


async def test_foreign_capabilities_are_checked_against_their_schemas():
    far = foreign(
        {
            "type": "object",
            "properties": {"user-id": {"type": "integer"}, "q": {"type": "string"}},
            "required": ["user-id"],
        },
        {"type": "array"},
    )
    bound = far.bind([], {"user-id": 5, "q": "x"})
    far.check(bound)
    value = await far.execute(bound, CONTEXT)
    far.check_result(value)
    assert value == [{"user-id": 5, "q": "x"}, "e"]
    assert (await far.reconcile(bound, CONTEXT)).status == "unknown"
    with pytest.raises(CallerError, match="takes 0 arguments by position"):
        far.bind([5], {})
    with pytest.raises(CallerError, match=r'`\["user-id"\]`: expected integer'):
        far.check({"user-id": "x"})
    with pytest.raises(ModelError, match="expected array"):
        far.check_result({})


async def test_a_contract_that_says_nothing_takes_everything():
    far = foreign()
    assert far.bind([], {"a": 1}) == {"a": 1}
    far.check({"a": 1})
    far.check_result({"any": "thing"})

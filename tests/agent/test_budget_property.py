"""Whatever a model says, as long as its provider counts as we do: a budget is never overrun."""

from typing import Any

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agent.loop_support import consistent, opened, records, tools

from holdfast import capability
from holdfast.contracts.model import ModelAnswer, ModelRequest, ModelUsage
from holdfast.models.script import Line
from holdfast.models.scripted import Scripted
from holdfast.models.tokens import request_tokens
from holdfast.testing import call, fail, together

COSTS = 7


@capability(side_effect="write", idempotent=True, cost_micros=COSTS)
async def act(n: int) -> str:
    """Do something."""
    return "дело " * n


def obeys(plan: list[tuple[int, int, bool]]) -> Any:
    """A model that says as much as it is allowed to, or as it wants, and sometimes fails."""
    left = list(plan)

    def author(request: ModelRequest) -> Any:
        calls, wants, fails = left.pop(0) if left else (0, 10, False)
        if fails:
            return fail("MODEL_OVERLOADED")
        limit = request.settings.max_tokens
        out = wants if limit is None else min(wants, limit)
        usage = ModelUsage(input_tokens=request_tokens(request), output_tokens=out)
        if not calls:
            cut = limit is not None and wants > limit
            text = [{"kind": "text", "text": "слово"}]
            said = {"parts": text, "finish": "length" if cut else "stop", "usage": usage}
            return ModelAnswer.model_validate(said)
        return together(*[_call(n) for n in range(calls)], usage=usage)

    return Scripted(author)


def _call(n: int) -> Line:
    return call("act", n=n)


STEP = st.tuples(st.integers(0, 6), st.integers(1, 500), st.booleans())
PRICES = {"scripted:script": {"input_micros": 300_000, "output_micros": 2_000_000}}


@settings(max_examples=60)
@given(
    plan=st.lists(STEP, max_size=8),
    tokens=st.integers(1, 6000),
    calls=st.integers(0, 12),
    cost=st.integers(0, 4000),
)
def test_no_limit_is_ever_crossed(
    plan: list[tuple[int, int, bool]], tokens: int, calls: int, cost: int
) -> None:
    async def main() -> None:
        async with opened() as (hf, _):
            budget = {"tokens": tokens, "calls": calls, "cost_micros": cost}
            agent = tools(obeys(plan), act, budget=budget, prices=PRICES)
            run = await agent.run("Дело.", session="s", runtime=hf)
            assert run.status in ("completed", "needs_attention", "failed")
            row: Any = await hf.journal.row("budgets", f"run:{run.id}") or {}
            for unit, limit in budget.items():
                assert row.get(unit, 0) <= limit, unit
                assert row.get(f"held_{unit}", 0) == 0
            assert len(await records(hf, "s", "run_parked")) == (run.status == "needs_attention")
            await consistent(hf, "s")

    anyio.run(main)

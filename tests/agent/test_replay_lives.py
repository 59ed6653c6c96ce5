"""Whatever happens to a run while it is lived, its record replays: to its end, or to where it was stopped."""

import functools
from collections import Counter

import anyio
import pytest
from hypothesis import given, settings
from tests.agent.lives import Plot, lived
from tests.agent.test_interleavings import plots

from holdfast.testing import replay_async


@pytest.mark.timeout(300)
def test_every_life_replays_the_same() -> None:
    found: Counter[str] = Counter()

    async def again(plot: Plot) -> None:
        life = await lived(plot)
        replayed = await replay_async(life.journal, run=life.name)
        assert replayed.check().before is not None
        found[replayed.before.status if replayed.before else ""] += 1

    @settings(max_examples=25)
    @given(plots())
    def any_life(plot: Plot) -> None:
        anyio.run(functools.partial(again, plot))

    any_life()
    assert found["completed"] >= 3
    assert found["cancelled"] >= 3

"""An agent's run killed with SIGKILL at its points, resumed in new processes: nothing lost, nothing twice."""

import pytest
from tests.crash.matrix import Least, killed


@pytest.mark.parametrize(("tale", "every"), [("agent-code", 16), ("agent-tools", 9)])
def test_run_killed_anywhere_ends_the_same(tale: str, every: int) -> None:
    """At all points, each by its name: `scripts/crash_matrix.py agent-code agent-tools --list`; here, at some."""
    killed(tale, every=every, shift=5, least=Least(passed=150, points=15, steps=5, twice=4))

"""A run killed with SIGKILL at its points, resumed in new processes: nothing lost, nothing twice."""

import pytest
from tests.crash.matrix import Least, killed


@pytest.mark.parametrize("tale", ["row", "mixed"])
def test_run_killed_anywhere_ends_the_same(tale: str) -> None:
    """At all points, each by its name: `scripts/crash_matrix.py --list`; here, at every eighth."""
    killed(tale, every=8, shift=3, least=Least(passed=120, points=15, steps=10, twice=8))

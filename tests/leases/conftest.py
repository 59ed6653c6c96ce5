from collections.abc import Iterator

import pytest
from tests.leases.server import Guard, running


@pytest.fixture
def guard() -> Iterator[Guard]:
    """An authorization server, and an API that it guards."""
    with running(Guard()) as found:
        yield found

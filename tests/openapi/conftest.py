"""What tests of OpenAPI surfaces get."""

from collections.abc import Iterator

import pytest
from tests.openapi.support import Web, ok, running


@pytest.fixture(scope="module")
def server() -> Iterator[Web]:
    """One server for all tests of a module."""
    with running() as web:
        yield web


@pytest.fixture
def web(server: Web) -> Web:
    """The server, knowing nothing of the tests before."""
    server.asked.clear()
    server.answers = ok
    return server

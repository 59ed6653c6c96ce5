"""The REST interface: every operation, in the order of the document."""

from starlette.routing import Route

from holdfast.server.rest.approvals import APPROVALS
from holdfast.server.rest.endpoint import Endpoint
from holdfast.server.rest.journal import JOURNAL
from holdfast.server.rest.runs import RUNS
from holdfast.server.rest.sessions import SESSIONS
from holdfast.server.rest.tools import TOOLS

__all__ = ["ENDPOINTS", "Endpoint", "routes"]

ENDPOINTS: tuple[Endpoint, ...] = (*SESSIONS, *RUNS, *APPROVALS, *JOURNAL, *TOOLS)
"""All operations."""


def routes() -> list[Route]:
    """The routes of all operations."""
    return [one.route() for one in ENDPOINTS]

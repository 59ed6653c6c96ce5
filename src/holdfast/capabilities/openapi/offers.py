"""Which operations of a document are offered, under which names, and why others are not."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.capabilities._contract import Contract
from holdfast.capabilities.connection import Offer, Offers
from holdfast.capabilities.offering import Offering
from holdfast.capabilities.openapi._failures import Unusable
from holdfast.capabilities.openapi.document import Document
from holdfast.capabilities.openapi.operations import Found, Operation, found_in, read_operation
from holdfast.capabilities.words import one_line
from holdfast.contracts import Capability
from holdfast.contracts.capability import CapabilityLimits
from holdfast.contracts.surface import OpenApiSurface
from holdfast.errors import HoldfastError

MAX_TOOLS = 1000
"""Operations of one document that are offered; `include` and `exclude` choose among more."""
MAX_REFUSED = 200
"""Operations that are named with the reason why they can't be offered."""
MAX_RESPONSE_BYTES = 1024 * 1024
"""Of one answer, unpacked."""

# As JSON, text can take more room than it had.
_ROOM = 4


def offers_of(
    name: str, spec: OpenApiSurface, document: Document, headers: Mapping[str, str]
) -> tuple[Offers, dict[str, Operation]]:
    """What is offered, and the operations behind it, by what the document calls them."""
    offering = Offering(name, spec)
    chosen, refusals = _chosen(offering, document)
    given = frozenset(one.lower() for one in headers)
    names = offering.names(chosen)
    tools: list[Offer] = []
    operations: dict[str, Operation] = {}
    for tool, found in chosen.items():
        try:
            operation = read_operation(
                document,
                found,
                given=given,
                signs=spec.auth is not None,
                elsewhere=spec.base_url is not None,
            )
            made = _capability(names[tool], offering, spec, operation, found)
        except (Unusable, ValueError, RecursionError) as why:
            refusals[tool] = one_line(str(why))
        except HoldfastError as why:
            refusals[tool] = one_line(why.message)
        else:
            tools.append(Offer(tool, made))
            operations[tool] = operation
    return Offers(tuple(tools), _few(refusals)), operations


def _chosen(offering: Offering, document: Document) -> tuple[dict[str, Found], dict[str, str]]:
    chosen: dict[str, Found] = {}
    refusals: dict[str, str] = {}
    for found in found_in(document):
        if not offering.sees(found.tool, found.place):
            continue
        if found.tool in chosen:
            refusals[found.place] = f"another operation is called `{found.tool[:80]}`, too"
        elif len(chosen) >= MAX_TOOLS:
            refusals[found.tool] = f"more than {MAX_TOOLS} are chosen; see `include` and `exclude`"
        else:
            chosen[found.tool] = found
    return chosen, refusals


def _capability(
    name: str, offering: Offering, spec: OpenApiSurface, operation: Operation, found: Found
) -> Capability:
    made = Capability(
        name=name,
        description=operation.description,
        input_schema=operation.input_schema,
        output_schema=operation.output_schema,
        side_effect=offering.side_effect(found.tool, found.place) or operation.side_effect,
        limits=CapabilityLimits(
            timeout_ms=spec.timeout_ms, max_response_bytes=MAX_RESPONSE_BYTES * _ROOM
        ),
        idempotent=operation.idempotent,
        asynchronous=True,
    )
    Contract(made)  # both schemas are some, or it is refused
    return made


def _few(refusals: dict[str, str]) -> dict[str, str]:
    shown = {one_line(tool, 200): why for tool, why in list(refusals.items())[:MAX_REFUSED]}
    left = len(refusals) - len(shown)
    return {**shown, f"{left} more": "they can't be offered either"} if left else shown

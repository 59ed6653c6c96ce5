"""Every machine of holdfast, by name."""

from __future__ import annotations

from typing import Any

from holdfast.machines.approval import APPROVAL
from holdfast.machines.barrier import BARRIER
from holdfast.machines.claim import CLAIM
from holdfast.machines.context import CONTEXT
from holdfast.machines.drain import DRAIN
from holdfast.machines.effect import EFFECT
from holdfast.machines.grant import GRANT
from holdfast.machines.inbound import INBOUND
from holdfast.machines.inputs import INPUT
from holdfast.machines.kernel import Machine
from holdfast.machines.lease import LEASE
from holdfast.machines.live import LIVE
from holdfast.machines.operations import OPERATION
from holdfast.machines.outbound import OUTBOUND
from holdfast.machines.reconnect import RECONNECT
from holdfast.machines.routing import ROUTING
from holdfast.machines.run import RUN
from holdfast.machines.spine import SPINE
from holdfast.machines.surface import SURFACE
from holdfast.machines.turn import TURN

MACHINES: dict[str, Machine[Any]] = {
    machine.name: machine
    for machine in (
        EFFECT,
        APPROVAL,
        GRANT,
        RUN,
        TURN,
        INPUT,
        OPERATION,
        BARRIER,
        SPINE,
        DRAIN,
        SURFACE,
        LEASE,
        OUTBOUND,
        INBOUND,
        CLAIM,
        CONTEXT,
        ROUTING,
        LIVE,
        RECONNECT,
    )
}
"""Name → machine, in the order of the reference."""

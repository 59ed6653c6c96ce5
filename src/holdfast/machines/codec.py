"""A machine's state as JSON and back. A state that breaks an invariant is not loaded."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import TypeAdapter

from holdfast.machines.kernel import Machine


@cache
def _adapter(state: type) -> TypeAdapter[Any]:
    return TypeAdapter(state)


def dump(state: object) -> bytes:
    """The state as JSON."""
    return _adapter(type(state)).dump_json(state)


def load(machine: Machine[Any], data: bytes) -> Any:
    """The state of JSON; raises `InvariantBroken` when it could not have come from the machine."""
    initial: Any = machine.initial
    return machine.check(_adapter(initial.__class__).validate_json(data))

"""What changed in the variables of a session."""

from __future__ import annotations

from pydantic import Field

from holdfast.contracts import SessionLimits
from holdfast.contracts._base import Told
from holdfast.shell.box import Boxes, Ran
from holdfast.shell.snapshot import Snapshot

_MAX_SHOWN = 200
_ROOM = SessionLimits(memory_mb=256, cpu_ms=10_000, wall_ms=20_000, max_stdout_bytes=0)


class Changed(Told):
    """A variable that has another value."""

    before: str
    """As Python would write it; cut where it is long."""
    after: str
    """As Python would write it; cut where it is long."""


class Difference(Told):
    """What is in one state of a session and not in another."""

    added: dict[str, str] = Field(default_factory=dict)
    """New variables, and their values."""
    removed: dict[str, str] = Field(default_factory=dict)
    """Variables that are gone, and the values they had."""
    changed: dict[str, Changed] = Field(default_factory=dict)
    """Variables with another value."""


async def difference(boxes: Boxes, then: Snapshot, now: Snapshot) -> Difference:
    """From `then` to `now`."""
    before, after = await _values(boxes, then), await _values(boxes, now)
    return Difference(
        added={name: _cut(after[name]) for name in sorted(after.keys() - before.keys())},
        removed={name: _cut(before[name]) for name in sorted(before.keys() - after.keys())},
        changed={
            name: Changed(before=_cut(before[name]), after=_cut(after[name]))
            for name in sorted(before.keys() & after.keys())
            if before[name] != after[name]
        },
    )


async def _values(boxes: Boxes, snapshot: Snapshot) -> dict[str, str]:
    """Every variable as Python would write it, read in a box of its own: the session is not touched."""
    limits = SessionLimits.model_validate(snapshot.limits or {})
    box = await boxes.open(limits, snapshot.state)
    try:
        wide = _ROOM.model_copy(
            update={"memory_mb": limits.memory_mb, "max_stack_depth": limits.max_stack_depth}
        )
        ran = await box.run(_look(snapshot.names), inputs={}, limits=wide, names={})
    finally:
        await box.close()
    if not isinstance(ran, Ran) or not isinstance(ran.value, dict):
        return {}
    return {name: str(value) for name, value in ran.value.items()}


def _look(names: tuple[str, ...]) -> str:
    lines = ["__holdfast_seen = {}"]
    for name in names:
        lines += [
            "try:",
            f"    __holdfast_seen[{name!r}] = repr({name})",
            "except Exception:",
            "    pass",
        ]
    return "\n".join([*lines, "__holdfast_seen"])


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"

"""Public helpers for tests: conformance suites, a fake clock, faults on demand. Needs pytest; imported lazily."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.testing.boxes import BoxConformance, ParkingBoxConformance
    from holdfast.testing.clock import FakeClock
    from holdfast.testing.faults import Died, FaultyJournal
    from holdfast.testing.journals import JournalConformance, PersistentJournalConformance

__all__ = [
    "BoxConformance",
    "Died",
    "FakeClock",
    "FaultyJournal",
    "JournalConformance",
    "ParkingBoxConformance",
    "PersistentJournalConformance",
]

_EXPORTS: dict[str, str] = {
    "BoxConformance": "holdfast.testing.boxes",
    "Died": "holdfast.testing.faults",
    "FakeClock": "holdfast.testing.clock",
    "FaultyJournal": "holdfast.testing.faults",
    "JournalConformance": "holdfast.testing.journals",
    "ParkingBoxConformance": "holdfast.testing.boxes",
    "PersistentJournalConformance": "holdfast.testing.journals",
}


# Hidden from type checkers, which would otherwise believe in any name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _EXPORTS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_EXPORTS[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""Public helpers for tests: conformance suites (they need pytest), a scripted model, a fake clock, faults on demand."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.testing.boxes import BoxConformance, ParkingBoxConformance
    from holdfast.testing.clock import FakeClock
    from holdfast.testing.faults import Died, FaultyJournal
    from holdfast.testing.journals import JournalConformance, PersistentJournalConformance
    from holdfast.testing.models import ModelConformance
    from holdfast.testing.providers import ProviderServer
    from holdfast.testing.replays import (
        Difference,
        Recording,
        Replay,
        replay,
        replay_async,
        save,
        save_async,
    )
    from holdfast.testing.scripted import (
        ScriptedModel,
        after,
        call,
        cut,
        fail,
        garble,
        say,
        together,
        write_code,
    )

__all__ = [
    "BoxConformance",
    "Died",
    "Difference",
    "FakeClock",
    "FaultyJournal",
    "JournalConformance",
    "ModelConformance",
    "ParkingBoxConformance",
    "PersistentJournalConformance",
    "ProviderServer",
    "Recording",
    "Replay",
    "ScriptedModel",
    "after",
    "call",
    "cut",
    "fail",
    "garble",
    "replay",
    "replay_async",
    "save",
    "save_async",
    "say",
    "together",
    "write_code",
]

_EXPORTS: dict[str, str] = {
    "BoxConformance": "holdfast.testing.boxes",
    "Died": "holdfast.testing.faults",
    "Difference": "holdfast.testing.replays",
    "FakeClock": "holdfast.testing.clock",
    "FaultyJournal": "holdfast.testing.faults",
    "JournalConformance": "holdfast.testing.journals",
    "ModelConformance": "holdfast.testing.models",
    "ParkingBoxConformance": "holdfast.testing.boxes",
    "PersistentJournalConformance": "holdfast.testing.journals",
    "ProviderServer": "holdfast.testing.providers",
    "Recording": "holdfast.testing.replays",
    "Replay": "holdfast.testing.replays",
    "ScriptedModel": "holdfast.testing.scripted",
    "after": "holdfast.testing.scripted",
    "call": "holdfast.testing.scripted",
    "cut": "holdfast.testing.scripted",
    "fail": "holdfast.testing.scripted",
    "garble": "holdfast.testing.scripted",
    "replay": "holdfast.testing.replays",
    "replay_async": "holdfast.testing.replays",
    "save": "holdfast.testing.replays",
    "save_async": "holdfast.testing.replays",
    "say": "holdfast.testing.scripted",
    "together": "holdfast.testing.scripted",
    "write_code": "holdfast.testing.scripted",
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

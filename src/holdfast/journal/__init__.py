"""The append-only truth. `log.py` is the seam; `memory.py` and `sqlite.py` are the stores."""

from holdfast.journal.chain import Bad, ChainCheck, Report, Stored
from holdfast.journal.log import Appended, Found, Head, Holding, Journal, Lease, Row
from holdfast.journal.memory import MemoryJournal
from holdfast.journal.retention import sweep

__all__ = [
    "Appended",
    "Bad",
    "ChainCheck",
    "Found",
    "Head",
    "Holding",
    "Journal",
    "Lease",
    "MemoryJournal",
    "Report",
    "Row",
    "Stored",
    "sweep",
]

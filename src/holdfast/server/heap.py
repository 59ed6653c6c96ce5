"""How a program that runs for months deals with memory.

glibc gives each thread a heap of its own, eight for every core. What threads free stays in the heap it came from, so
a server whose threads take turns keeps a little more of each every minute, although nothing is held. The threads here
share one interpreter lock; heaps of their own would buy them nothing.

CPython looks for cycles whenever 700 more objects are there than before, and time and again at all there are. With a
thousand sessions at once that is a fifth of a server's time, for next to nothing: hardly anything here is a cycle.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys

_M_ARENA_MAX = -8
"""As in glibc's `malloc.h`."""

_THRESHOLDS = (10_000, 20, 50)
"""So many objects more, so many looks at the newest, so many at those that stayed, until it looks further."""


def share_one_heap() -> bool:
    """Have all threads from here on use the same heap; False where there is no glibc, or the operator has chosen.

    It is for the process, so a program calls it and a library does not.
    """
    if not sys.platform.startswith("linux") or "MALLOC_ARENA_MAX" in os.environ:
        return False
    try:
        return ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1) == 1
    except (OSError, AttributeError):
        return False


def collect_seldom() -> None:
    """Look for cycles less often from here on, and never again at what is there by now: modules, models, settings.

    It is for the process, too: call it once everything is imported and open.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)

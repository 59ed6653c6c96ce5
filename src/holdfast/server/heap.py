"""How a program that runs for months asks the C library for memory.

glibc gives each thread a heap of its own, eight for every core. What threads free stays in the heap it came from, so
a server whose threads take turns keeps a little more of each every minute, although nothing is held. The threads here
share one interpreter lock; heaps of their own would buy them nothing.
"""

from __future__ import annotations

import ctypes
import os
import sys

_M_ARENA_MAX = -8
"""As in glibc's `malloc.h`."""


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

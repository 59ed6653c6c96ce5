"""The process behind a box, seen from outside: how much memory it took, and how to end it."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from pathlib import Path

_OFTEN = 0.05


class Worker:
    """A worker process by its id, and the processes between: a jail has its own around the engine's."""

    def __init__(self, pid: int | None) -> None:
        self._pid = pid
        self._handle = _handle(pid)
        self._status: int | None = None
        self.last_peak = 0
        """What `peak` said last."""
        self._looked = 0.0

    def kill(self) -> None:
        """End it at once, even while the pool waits for an answer of ours."""
        self.peak()
        if self._handle is not None:
            # A handle never names another process that got the same id since.
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def alive(self) -> bool:
        """Whether it still runs, as far as that can be told."""
        if self._handle is None:
            return True
        waiting = select.poll()
        waiting.register(self._handle, select.POLLIN)
        return not waiting.poll(0)  # a handle can be read once its process is gone

    def glance(self, now: float) -> None:
        """Look at its memory, unless that was done just now: each look lets other threads go first."""
        if now - self._looked > _OFTEN:
            self._looked = now
            self.peak()

    def peak(self) -> int:
        """Most resident memory it ever had, in bytes; 0 where that can't be told."""
        if self._status is None:
            self._status = _open_status(self._pid)
        if self._status >= 0:
            # Once the process is gone, the last reading stays.
            with suppress(OSError, ValueError, IndexError):
                said = os.pread(self._status, 4096, 0)
                at = said.index(b"VmHWM:") + 6
                self.last_peak = int(said[at : said.index(b"kB", at)]) << 10
        return self.last_peak

    def close(self) -> None:
        """Let go of it."""
        for handle in (self._handle, self._status):
            if handle is not None and handle >= 0:
                os.close(handle)
        self._handle, self._status = None, -1


def _handle(pid: int | None) -> int | None:
    try:
        return None if pid is None else os.pidfd_open(pid)
    except OSError:
        return None  # an old kernel, or none: the pool ends its workers itself


def _open_status(pid: int | None) -> int:
    """The status file of the innermost process, or -1."""
    try:
        return -1 if pid is None else os.open(f"/proc/{innermost(pid)}/status", os.O_RDONLY)
    except OSError:
        return -1


def innermost(pid: int) -> int:
    """The process that has no children: the engine itself, inside whatever is around it."""
    while True:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_bytes().split()
        if not children:
            return pid
        pid = int(children[0])

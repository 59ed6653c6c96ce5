"""A run that has a session here: whoever wants it stopped, or has something to say to it, finds it by this."""

from __future__ import annotations

from holdfast.agent.loop import Loop
from holdfast.shell.drive import CancelMode


class Holding:
    """An agent's run that has a session."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.loop: Loop | None = None
        self.over = False
        """Whether it can't be stopped any more: it has ended, or stands."""
        self._early: tuple[CancelMode, str | None] | None = None
        self._nudged = False

    def cancel(self, mode: CancelMode, run_id: str | None, reason: str | None) -> bool:
        """Stop it, if it is the one that is meant."""
        if self.over or run_id not in (None, self.run_id):
            return False
        if self.loop is None:
            self._early = (mode, reason)
        else:
            self.loop.cancel(mode, reason)
        return True

    def nudge(self) -> None:
        """Somebody said something to it."""
        if self.loop is None:
            self._nudged = True
        else:
            self.loop.work.nudged = True

    def begin(self, loop: Loop) -> None:
        """It is under way."""
        self.loop = loop
        loop.work.nudged = loop.work.nudged or self._nudged
        if self._early is not None:
            loop.cancel(*self._early)

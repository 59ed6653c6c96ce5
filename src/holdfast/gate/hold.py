"""Where effects are held back once the host is about to stop: those under way end, and no other begins."""

from __future__ import annotations

import anyio


class Hold:
    """`with` it around an effect, from its intent on, once `passed` let it in. Open unless it was shut."""

    def __init__(self) -> None:
        self.closed = False
        """Whether nobody is let in."""
        self._inside = 0
        self._left = anyio.Event()

    async def emptied(self) -> None:
        """Return once no effect is under way; after `shut`."""
        while self._inside:
            self._left = anyio.Event()
            await self._left.wait()

    def shut(self) -> None:
        """Let nobody in any more: who comes waits until the process is gone. Its run is on record, and goes on elsewhere."""
        self.closed = True

    def lift(self) -> None:
        """Let those in that come from now on: the host does not stop after all."""
        self.closed = False

    async def passed(self) -> None:
        """Wait for ever, if it is shut."""
        if self.closed:
            await anyio.sleep_forever()

    def __enter__(self) -> None:
        """An effect begins."""
        self._inside += 1

    def __exit__(self, *_: object) -> None:
        """The effect has ended."""
        self._inside -= 1
        if self.closed:
            self._left.set()

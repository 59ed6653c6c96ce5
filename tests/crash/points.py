"""Where a process can be told to die: every place has a name, and is counted.

A process that is to die sets `target` to one of the labels that an undisturbed process has listed. A label is a name
and how often it has been passed, so it means the same place also when tasks and threads take turns differently.
"""

import asyncio
import functools
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw

from holdfast.contracts import Draft
from holdfast.journal.sqlite import SqliteJournal
from holdfast.shell.languages.python import PythonBox, PythonBoxes


class Points:
    """The places this process has passed."""

    def __init__(self, target: str | int | None = None, note: Path | None = None) -> None:
        """`target`: a label, or the number of a step of the event loop; `note`: where to write down who died where."""
        self.target = target
        self.labels: list[str] = []
        self.steps = 0
        """Steps of the event loop: what a task does between two awaits is one."""
        self._note = note
        self._passed: Counter[str] = Counter()
        self._lock = threading.Lock()

    def label(self, name: str) -> str:
        """Pass a place; what it is called this time."""
        with self._lock:
            self._passed[name] += 1
            label = f"{name} #{self._passed[name]}"
            self.labels.append(label)
        return label

    def here(self, name: str) -> None:
        """Pass a place, and die if it is the one."""
        if self.label(name) == self.target:
            self.die()

    def step(self) -> None:
        """Pass from one task to the next."""
        self.steps += 1
        if self.steps == self.target:
            self.die()

    def die(self) -> None:
        """As a machine would end us."""
        if self._note is not None:
            self._note.write_text(self.labels[-1] if self.labels else "")
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)  # it takes a moment to arrive in a thread


points = Points()


def here(name: str) -> None:
    """A place inside a capability."""
    points.here(name)


def watch(target: str | int | None, note: Path | None = None) -> Points:
    """Count from here on, in this process, which ends with it."""
    global points  # capabilities find it here
    points = Points(target, note)
    for box, name in ((PythonBox, "run"), (PythonBox, "resume"), (PythonBox, "dump")):
        _watch_method(box, name, f"box.{name}")
    for name in ("open", "reopen"):
        _watch_method(PythonBoxes, name, f"boxes.{name}")
    return points


def watch_steps() -> None:
    """Count the steps of every task too."""
    handle = asyncio.events.Handle
    run = handle._run

    def counted(self: asyncio.Handle) -> None:
        points.step()
        run(self)

    handle._run = counted


def _watch_method(owner: Any, name: str, called: str) -> None:
    real = getattr(owner, name)

    @functools.wraps(real)
    async def watched(*args: Any, **kwargs: Any) -> Any:
        here(f"{called}: before")
        found = await real(*args, **kwargs)
        here(f"{called}: after")
        return found

    setattr(owner, name, watched)


class WatchedJournal(SqliteJournal):
    """Every operation on the journal is a place: before it is handed to the store, and once it is acknowledged."""

    def append_now(self, *args: Any, **kwargs: Any) -> Any:
        """Never: whether it could depends on the disk, and the places must be the same each time."""
        return None

    async def append(self, stream: str, records: Sequence[Draft], **rest: Any) -> Any:
        """Two places."""
        name = f"append {_kinds(records)}"
        here(f"{name}: before")
        found = await super().append(stream, records, **rest)
        here(f"{name}: acknowledged")
        return found

    def post(
        self,
        stream: str,
        make: Callable[[], Sequence[Draft]],
        *,
        expected_pos: int | None = None,
        **rest: Any,
    ) -> None:
        """Three places: nobody waits for it, so between handing in and being written there is one more."""
        drafts = make()
        name = f"post {_kinds(drafts)}"
        here(f"{name}: before")
        super().post(stream, lambda: drafts, expected_pos=expected_pos, **rest)
        here(f"{name}: handed in")
        if points.label(f"{name}: written") == points.target:
            self._die_once_written(stream, (expected_pos or 0) + len(drafts))

    def _die_once_written(self, stream: str, pos: int) -> None:
        db = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READONLY)
        db.set_busy_timeout(5000)
        give_up = time.monotonic() + 5
        while time.monotonic() < give_up:
            for (there,) in db.execute("select pos from streams where name=?", (stream,)):
                if there >= pos:
                    points.die()
            time.sleep(0.001)
        raise AssertionError("what was handed in is not written")


def _kinds(drafts: Sequence[Draft]) -> str:
    return "+".join(_kind(draft) for draft in drafts)


def _kind(draft: Draft) -> str:
    name = draft.payload.get("name") or draft.payload.get("tool")
    effect = str(draft.payload.get("effect_id") or "")
    what = name or effect.rpartition("_")[2]
    return f"{draft.kind}({what})" if what else draft.kind


def _watch_async(name: str) -> None:
    real = getattr(SqliteJournal, name)

    @functools.wraps(real)
    async def watched(*args: Any, **kwargs: Any) -> Any:
        here(f"{name}: before")
        found = await real(*args, **kwargs)
        here(f"{name}: after")
        return found

    setattr(WatchedJournal, name, watched)


for _name in "claim renew release erase content row rows page".split():
    _watch_async(_name)

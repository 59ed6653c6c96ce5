"""Where the demo plays: a home of its own, real `holdfast` processes in it, and a teller of what happens."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import anyio

from holdfast.cli import _output
from holdfast.contracts import Record
from holdfast.journal import Journal
from holdfast.runtime import Settings, wiring

BOOK = "HOLDFAST_DEMO_BOOK"
"""Where the capabilities of the demo find the shop's book."""

PATIENCE = 60
"""Seconds that one command of the demo may take."""


@dataclass(slots=True)
class Scene:
    """What one step of the demo did and proved."""

    title: str
    ok: bool = True
    seconds: float = 0.0
    commands: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    checks: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


class Done(NamedTuple):
    """A command that has ended."""

    code: int
    pid: int
    said: dict[str, Any]
    """Its JSON. `Any`: each command has its own, and a scene that misreads it fails its check."""


class Stage:
    """Plays scenes, tells them as they happen unless `quiet`, and keeps what they did."""

    def __init__(self, folder: Path, *, quiet: bool) -> None:
        self.folder = folder
        self.scenes: list[Scene] = []
        self._out = None if quiet else _output.console()
        for name in ("home", "tmp"):
            (folder / name).mkdir(mode=0o700)
        own = {"HOLDFAST_HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp")}
        kept = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
        self.book = folder / "shop.db"
        self._environment = {**kept, **own, BOOK: str(self.book)}

    def play(self, title: str, scene: Callable[[Stage], None]) -> None:
        """Play one scene; whatever goes wrong in it is a check that does not hold."""
        self.scenes.append(Scene(title))
        self.say("")
        self.say(f"{len(self.scenes)}. {title}", "bold")
        started = time.monotonic()
        try:
            scene(self)
        except (
            KeyError,
            IndexError,
            TypeError,
            ValueError,
            OSError,
            subprocess.SubprocessError,
        ) as why:
            self.check(f"the scene was played to its end ({type(why).__name__}: {why})", False)
        self.scenes[-1].seconds = round(time.monotonic() - started, 3)

    def say(self, text: str, style: str | None = None) -> None:
        """Tell the audience something."""
        if self._out is not None:
            self._out.print(_output.visible(text), style=style)

    @property
    def width(self) -> int:
        """Columns to fill."""
        return 100 if self._out is None else self._out.width

    def check(self, what: str, holds: bool) -> None:
        """State a fact and whether it holds."""
        scene = self.scenes[-1]
        scene.checks.append({"what": what, "ok": holds})
        scene.ok = scene.ok and holds
        self.say(f"   {'✓' if holds else '✗ NOT SO:'} {what}", "green" if holds else "bold red")

    def holdfast(self, *arguments: str, told: bool = True) -> Done:
        """Run `holdfast` in a process of its own."""
        process = self.start(*arguments, told=told)
        try:
            output, _ = process.communicate(timeout=PATIENCE)
        finally:
            kill(process)
        self.scenes[-1].commands[-1]["exit_code"] = process.returncode
        return Done(process.returncode, process.pid, json.loads(output))

    def start(
        self, *arguments: str, told: bool = True, talk: bool = False, **env: str
    ) -> subprocess.Popen[bytes]:
        """Start `holdfast` in a process of its own; with `talk`, one that is spoken to."""
        command = f"holdfast {shlex.join(arguments)}"
        self.scenes[-1].commands.append({"command": command})
        if told:
            self.say("   $ " + command.replace("\n", "\n     "), "cyan")
        pipe = subprocess.PIPE if talk else subprocess.DEVNULL
        return self._process(*arguments, *([] if talk else ["--json"]), stdin=pipe, **env)

    def _process(self, *arguments: str, stdin: int, **env: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "holdfast", *arguments],
            cwd=self.folder,
            env={**self._environment, **env},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def repl(self, *blocks: str, options: Sequence[str] = ()) -> list[dict[str, Any]]:
        """Say several blocks of code to one `holdfast repl`; what each of them gave."""
        command = shlex.join(["holdfast", "repl", *options])
        self.scenes[-1].commands.append({"command": command})
        self.say(f"   $ {command}", "cyan")
        process = self._process("repl", "--json", *options, stdin=subprocess.PIPE)
        try:
            text = "".join(f"{block}\n\n" for block in blocks)
            output, _ = process.communicate(text.encode(), timeout=PATIENCE)
        finally:
            kill(process)
        self.scenes[-1].commands[-1]["exit_code"] = process.returncode
        return [json.loads(line) for line in output.splitlines()]

    def rows(self, projection: str, **wanted: object) -> list[dict[str, Any]]:
        """What the journal has, looked up without another process."""
        return anyio.run(self._rows, projection, wanted)

    def records(self, session: str, kind: str | None = None) -> list[Record]:
        """The records of a session, looked up without another process."""
        return anyio.run(self._records, session, kind)

    @asynccontextmanager
    async def _journal(self) -> AsyncGenerator[Journal]:
        settings = Settings.load({"journal": {"url": f"sqlite:///{self.folder}/home/journal.db"}})
        journal = wiring.open_journal(settings, read_only=True)
        try:
            yield journal
        finally:
            await journal.close()

    async def _rows(self, projection: str, wanted: dict[str, object]) -> list[dict[str, Any]]:
        async with self._journal() as journal:
            rows: list[dict[str, Any]] = [row.value for row in await journal.rows(projection)]
        return [row for row in rows if all(row[name] == wanted[name] for name in wanted)]

    async def _records(self, session: str, kind: str | None) -> list[Record]:
        async with self._journal() as journal:
            return [one async for one in journal.read(session) if kind in (None, one.kind)]

    def as_json(self) -> list[dict[str, Any]]:
        """What was played."""
        return [asdict(scene) for scene in self.scenes]


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a process at once, as a crash or a power cut would; harmless when it has ended."""
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()

"""Where the demo plays: a home of its own, real `holdfast` processes in it, and a teller of what happens."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.cli import _output

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
        self._environment = {**kept, **own}

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

    def show(self, renderable: object) -> None:
        """Show the audience something that is more than text."""
        if self._out is not None:
            self._out.print(renderable)

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

    def start(self, *arguments: str, told: bool = True) -> subprocess.Popen[bytes]:
        """Start `holdfast` in a process of its own."""
        command = f"holdfast {shlex.join(arguments)}"
        self.scenes[-1].commands.append({"command": command})
        if told:
            self.say("   $ " + command.replace("\n", "\n     "), "cyan")
        return subprocess.Popen(
            [sys.executable, "-m", "holdfast", *arguments, "--json"],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def as_json(self) -> list[dict[str, Any]]:
        """What was played."""
        return [asdict(scene) for scene in self.scenes]


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a process at once, as a crash or a power cut would; harmless when it has ended."""
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
        process.wait()
    if process.stdout is not None:
        process.stdout.close()

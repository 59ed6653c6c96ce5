"""The real program in a process of its own, in a home of its own, piped or on a terminal."""

import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import anyio
import pytest

from holdfast import runtime
from holdfast.cli.main import main


@dataclass
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Program:
    """`holdfast` with a home."""

    home: Path

    @property
    def journal(self) -> Path:
        return self.home / "journal.db"

    def environment(self, **more: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
        return {**kept, "HOLDFAST_HOME": str(self.home), "COLUMNS": "160", **more}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "holdfast", *arguments]

    def __call__(
        self, *arguments: str, stdin: bytes = b"", wrap: tuple[str, ...] = (), **env: str
    ) -> Done:
        """Run it to its end, with its output in a pipe."""
        done = subprocess.run(
            [*wrap, *self.command(*arguments)],
            env=self.environment(**env),
            cwd=self.home.parent,
            input=stdin,
            capture_output=True,
            timeout=60,
            check=False,
        )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start it and let it run."""
        return subprocess.Popen(
            self.command(*arguments),
            env=self.environment(),
            cwd=self.home.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def on_terminal(self, *arguments: str, **env: str) -> Done:
        """Run it to its end on a terminal of its own; stdout and stderr come as one."""
        leader, follower = pty.openpty()
        process = subprocess.Popen(
            self.command(*arguments),
            env=self.environment(TERM="xterm", **env),
            cwd=self.home.parent,
            stdin=follower,
            stdout=follower,
            stderr=follower,
        )
        os.close(follower)
        shown = b""
        while True:
            try:
                data = os.read(leader, 65536)
            except OSError:  # Linux says so when the other side is closed
                break
            if not data:
                break
            shown += data
        os.close(leader)
        return Done(process.wait(60), shown.decode().replace("\r\n", "\n"), "")


@pytest.fixture
def holdfast(tmp_path: Path) -> Program:
    """The program with a fresh home, which is not made yet."""
    return Program(tmp_path / "home")


@pytest.fixture
def in_process(
    holdfast: Program, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """The same program inside this process: quick, for the many ways in which it does not even start."""

    def run(*arguments: str, stdin: bytes = b"") -> Done:
        monkeypatch.setenv("HOLDFAST_HOME", str(holdfast.home))
        monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(stdin)))
        code = main(arguments)
        out, err = capsys.readouterr()
        return Done(code, out, err)

    return run


@pytest.fixture(scope="session")
def used(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """The program with a home that tests share and only look at: three sessions, five runs."""
    program = Program(tmp_path_factory.mktemp("used") / "home")
    anyio.run(_use, program.journal)
    return program


async def _use(journal: Path) -> None:
    async with runtime.open(f"sqlite:///{journal}", config={}) as hf:
        for session, code in [("a", "x = 1"), ("a", "x + 1"), ("a", "1/0"), ("b", "1"), ("c", "2")]:
            await hf.shell.run(code, session=session)


@pytest.fixture
def spoilt(used: Program, tmp_path: Path) -> Program:
    """The program with a copy of that home, to spoil."""
    home = tmp_path / "spoilt"
    shutil.copytree(used.home, home)
    return Program(home)

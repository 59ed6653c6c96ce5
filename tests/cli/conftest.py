"""The real program in a process of its own, in a home of its own, piped or on a terminal."""

import codecs
import fcntl
import json
import os
import pty
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import anyio
import apsw
import pytest
from tests.cli.spawning import Spawner

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
    spawner: Spawner

    @property
    def journal(self) -> Path:
        return self.home / "journal.db"

    def environment(self, **more: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
        return {**kept, "HOLDFAST_HOME": str(self.home), "COLUMNS": "160", **more}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "holdfast", *arguments]

    def __call__(
        self,
        *arguments: str,
        stdin: bytes = b"",
        wrap: tuple[str, ...] = (),
        cwd: Path | None = None,
        **env: str,
    ) -> Done:
        """Run it to its end, with its output in a file, or in a pipe where more than importing it matters."""
        if not (wrap or any(name.startswith(("PYTHON", "LC_", "LANG")) for name in env)):
            self.home.parent.mkdir(exist_ok=True)
            code, out, err = self.spawner.run(
                arguments,
                env=self.environment(**env),
                cwd=cwd or self.home.parent,
                stdin=stdin,
                timeout=60,
            )
            return Done(code, out.decode(), err.decode())
        done = subprocess.run(
            [*wrap, *self.command(*arguments)],
            env=self.environment(**env),
            cwd=cwd or self.home.parent,
            input=stdin,
            capture_output=True,
            timeout=60,
            check=False,
        )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *arguments: str, talk: bool = False) -> subprocess.Popen[bytes]:
        """Start it and let it run; with `talk`, its standard input is ours."""
        return subprocess.Popen(
            self.command(*arguments),
            env=self.environment(),
            cwd=self.home.parent,
            stdin=subprocess.PIPE if talk else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def on_terminal(self, *arguments: str, typed: str = "", **env: str) -> Done:
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
        os.write(leader, typed.encode())
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


class Terminal:
    """The program on a terminal of its own, typed at and read from as it goes."""

    def __init__(self, program: Program, *arguments: str, **env: str) -> None:
        self._leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
        self._process = subprocess.Popen(
            program.command(*arguments),
            env=program.environment(**{"TERM": "xterm-256color", **env}),
            cwd=program.home.parent,
            stdin=follower,
            stdout=follower,
            stderr=follower,
            start_new_session=True,
            # Its own terminal, so that the keys that make signals make them.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(follower)
        self.shown = ""
        self._read = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def expect(self, what: str) -> None:
        """Wait until this is shown, after what was waited for before."""
        deadline = time.monotonic() + 90
        while not self._saw(what):
            assert time.monotonic() < deadline, f"{what!r} is not shown: {self.shown!r}"
            assert self._more(0.1), f"it ended before {what!r}: {self.shown!r}"

    def interrupt_prompt(self, what: str) -> None:
        """Press Ctrl-C at a prompt until this is shown.

        The interpreter's line editor looks for signals and then waits for a key: one that comes between the two is
        heard with the next key only.
        """
        for _ in range(90):
            self.type("\x03")
            until = time.monotonic() + 1
            while time.monotonic() < until:
                assert self._more(0.1), f"it ended before {what!r}: {self.shown!r}"
                if self._saw(what):
                    return
        raise AssertionError(f"{what!r} is not shown: {self.shown!r}")

    def _saw(self, what: str) -> bool:
        at = self.shown.find(what, self._read)
        if at >= 0:
            self._read = at + len(what)
        return at >= 0

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._leader, text.encode())

    def end(self) -> int:
        """Wait until it has ended; what it exited with."""
        while self._more(0.1):
            pass
        return self._process.wait(60)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._leader)

    def _more(self, seconds: float) -> bool:
        if not select.select([self._leader], [], [], seconds)[0]:
            return self._process.poll() is None
        try:
            data = os.read(self._leader, 65536)
        except OSError:  # Linux says so when the other side is closed
            return False
        self.shown += self._decoder.decode(data).replace("\r\n", "\n")
        return bool(data)


TOOLS = str(Path(__file__).parent / "world.py")
SCRIPTS = Path(__file__).parent / "scripts.py"


@dataclass
class World:
    """What the capabilities of `world.py` did."""

    db: Path

    @property
    def done(self) -> list[str]:
        if not self.db.exists():
            return []
        db = apsw.Connection(str(self.db))
        try:
            db.set_busy_timeout(10_000)
            return [str(what) for (what,) in db.execute("select what from done order by rowid")]
        except apsw.SQLError:
            return []  # its table is not made yet
        finally:
            db.close()

    @property
    def stall(self) -> Path:
        """While this file is there, `ship` does not answer."""
        return self.db.with_name("stall")

    def wait_for(self, what: str) -> None:
        deadline = time.monotonic() + 60
        while what not in self.done:
            assert time.monotonic() < deadline, f"{what} is not done"
            time.sleep(0.02)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """The outside world of the processes of a test."""
    found = World(tmp_path / "world.db")
    monkeypatch.setenv("WORLD_DB", str(found.db))
    return found


@pytest.fixture
def tools() -> list[str]:
    """The options that open a session with `world.py`."""
    return ["--capabilities", TOOLS]


@pytest.fixture
def script() -> Callable[[str], list[str]]:
    """The options that ask a model of `scripts.py`."""
    return lambda name: ["--model", f"scripted:{SCRIPTS}:{name}"]


@pytest.fixture
def terminal(holdfast: Program) -> Iterator[Callable[..., Terminal]]:
    """Starts the program on a terminal of its own."""
    opened: list[Terminal] = []

    def start(*arguments: str, **env: str) -> Terminal:
        opened.append(Terminal(holdfast, *arguments, **env))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


@pytest.fixture(scope="session")
def spawner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spawner]:
    """Starts commands."""
    found = Spawner(tmp_path_factory.mktemp("spawner"))
    yield found
    found.close()


@pytest.fixture
def holdfast(tmp_path: Path, spawner: Spawner) -> Program:
    """The program with a fresh home, which is not made yet."""
    return Program(tmp_path / "home", spawner)


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
def used(tmp_path_factory: pytest.TempPathFactory, spawner: Spawner) -> Program:
    """The program with a home that tests share and only look at: three sessions, five runs."""
    program = Program(tmp_path_factory.mktemp("used") / "home", spawner)
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
    return Program(home, used.spawner)

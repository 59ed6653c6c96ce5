"""Starts the program without importing it anew each time: a process that has imported it forks one for each command.

What is forked is a process like any other, with its own standard streams, folder and environment. It only spares the
half second that importing takes, several hundred times in these tests. Commands on a terminal, under another program,
or with an environment that the interpreter reads as it starts are started in the ordinary way.

    python tests/cli/spawning.py SOCKET     is the process that forks
"""

from __future__ import annotations

import gc
import json
import os
import pkgutil
import selectors
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile

ROOT = Path(__file__).parents[2]
_LENGTH = struct.Struct("!I")


class Spawner:
    """The other side of it, for the tests of one worker."""

    def __init__(self, folder: Path) -> None:
        self._address = str(folder / "spawner")
        self._process = subprocess.Popen(
            [sys.executable, __file__, self._address],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def run(
        self,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        stdin: bytes,
        timeout: float,
    ) -> tuple[int, bytes, bytes]:
        """Run a command to its end: its exit code, and what it wrote."""
        asked = json.dumps({"arguments": [*arguments], "env": dict(env), "cwd": str(cwd)}).encode()
        with (
            TemporaryFile() as in_,
            TemporaryFile() as out,
            TemporaryFile() as err,
            socket.socket(socket.AF_UNIX) as conn,
        ):
            in_.write(stdin)
            in_.seek(0)
            conn.settimeout(timeout)
            conn.connect(self._address)
            handles = [in_.fileno(), out.fileno(), err.fileno()]
            socket.send_fds(conn, [_LENGTH.pack(len(asked))], handles)
            conn.sendall(asked)
            pid = int(_received(conn, 8))
            try:
                code = int(_received(conn, 4))
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise
            out.seek(0)
            err.seek(0)
            return code, out.read(), err.read()

    def close(self) -> None:
        """End the process that forks."""
        self._process.terminate()
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()


def _received(conn: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = conn.recv(size - len(data))
        if not part:
            raise ConnectionError("the process that forks is gone")
        data += part
    return data


# -- the process that forks ---------------------------------------------------------------------------


def serve(address: str) -> list[str]:
    """Fork for each request; returns in the child, with what it was asked to do."""
    _import_all()
    assert len(os.listdir("/proc/self/task")) == 1, "a thread would be lost in a fork"
    with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as events:
        listener.bind(address)
        listener.listen(64)
        events.register(listener, selectors.EVENT_READ)
        print("ready", flush=True)
        while True:
            for key, _ in events.select():
                if key.fileobj is not listener:
                    _ended(events, key)
                    continue
                conn, _ = listener.accept()
                head, handles, _, _ = socket.recv_fds(conn, _LENGTH.size, 3)
                asked = json.loads(_received(conn, *_LENGTH.unpack(head)))
                pid = os.fork()
                if pid == 0:
                    conn.close()
                    for other in events.get_map().values():
                        if other.data is not None:
                            os.close(other.fd)
                            other.data[1].close()
                    return _become(asked, handles)
                for handle in handles:
                    os.close(handle)
                conn.sendall(f"{pid:8d}".encode())
                events.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, conn))


def _import_all() -> None:

    import holdfast.cli
    import holdfast.journal.sqlite
    import holdfast.runtime
    import holdfast.shell.languages.python

    for module in pkgutil.iter_modules(holdfast.cli.__path__):
        import_module(f"holdfast.cli.{module.name}")
    gc.freeze()  # what is never freed need not be looked at in each of them


def _become(asked: dict[str, object], handles: list[int]) -> list[str]:
    for number, handle in enumerate(handles):
        os.dup2(handle, number)
        os.close(handle)
    os.chdir(str(asked["cwd"]))
    os.environ.clear()
    os.environ.update(asked["env"])  # type: ignore[call-overload]
    return list(asked["arguments"])  # type: ignore[call-overload]


def _ended(events: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    pid, conn = key.data
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    events.unregister(key.fileobj)
    os.close(key.fd)
    conn.sendall(f"{code:4d}".encode())
    conn.close()


if __name__ == "__main__":
    arguments = serve(sys.argv[1])
    from holdfast.cli.main import main

    sys.argv = ["holdfast", *arguments]
    sys.exit(main())

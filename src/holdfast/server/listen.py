"""Where clients of the daemon come in: a unix socket for this user alone, or standard input and output."""

from __future__ import annotations

import logging
import os
import socket
import stat
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import anyio
from anyio.abc import SocketStream

from holdfast.errors import CallerError
from holdfast.server.connections import Connections
from holdfast.server.pipes import CHUNK, MAX_LINE, read_stdin, taken_stdout, write
from holdfast.server.rpc import Connection, Method

_log = logging.getLogger(__name__)


# -- a unix socket ------------------------------------------------------------------------------------


async def serve_unix(
    path: Path, methods: Mapping[str, Method], clients: Connections, ready: anyio.Event
) -> None:
    """Answer everybody who connects, until cancelled. The socket is this user's alone, and removed at the end."""
    _make_way(path)
    # The mask, because a mode that is set after the socket is there is set too late.
    with _private():
        try:
            listener = await anyio.create_unix_listener(path)
        except OSError as why:
            raise _refused(path, why.strerror or str(why)) from None
    own = _inode(path)

    async def client(stream: SocketStream) -> None:
        try:
            async with stream:
                await _serve_stream(stream, methods, clients)
        except Exception:  # noqa: BLE001 - one client must not end the others
            _log.exception("A connection ended badly.")

    try:
        async with listener:
            ready.set()
            await listener.serve(client)
    finally:
        _remove(path, own)


async def _serve_stream(
    stream: SocketStream, methods: Mapping[str, Method], clients: Connections
) -> None:
    async def read() -> bytes:
        try:
            return await stream.receive(CHUNK)
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            return b""

    await _serve(Connection(methods, stream.send), clients, read)


def _make_way(path: Path) -> None:
    """Remove a socket that nobody listens on; refuse one that somebody does, and whatever is no socket."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    except OSError as why:
        raise _refused(path, why.strerror or str(why)) from None
    if not stat.S_ISSOCK(found.st_mode):
        raise _refused(path, "there is something else of this name")
    with socket.socket(socket.AF_UNIX) as trial:
        trial.settimeout(2)
        try:
            trial.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()  # of a daemon that died
            return
        except OSError as why:
            raise _refused(path, why.strerror or str(why)) from None
    raise _refused(path, "a daemon listens there")


@contextmanager
def _private() -> Generator[None]:
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)


def _remove(path: Path, own: tuple[int, int] | None) -> None:
    """Remove our socket, unless it is another's by now."""
    if own is not None and _inode(path) == own:
        path.unlink()


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _refused(path: Path, why: str) -> CallerError:
    return CallerError(
        "INVALID_ARGUMENT",
        f"Can't listen at `{path}`: {why}.",
        hint="Choose another path, or stop who has it.",
    )


def _too_long() -> CallerError:
    return CallerError("REQUEST_TOO_LARGE", f"A message has more than {MAX_LINE} bytes.")


# -- standard input and output ------------------------------------------------------------------------


async def serve_stdio(methods: Mapping[str, Method], clients: Connections) -> None:
    """Answer what comes on standard input until it ends, on standard output."""
    with taken_stdout() as output:
        connection = Connection(methods, lambda data: write(output, data))
        await _serve(connection, clients, read_stdin)


# -- lines --------------------------------------------------------------------------------------------


async def _serve(
    connection: Connection, clients: Connections, read: Callable[[], Awaitable[bytes]]
) -> None:
    lines = _Lines(read)

    async def receive() -> bytes | None:
        while True:
            try:
                return await lines.next()
            except CallerError as why:
                await connection.refuse(why)

    await clients.serve(connection, receive)


class _Lines:
    """The lines of what is read; what stands at the end without an end of line is one, too."""

    def __init__(self, read: Callable[[], Awaitable[bytes]]) -> None:
        self._read = read
        self._held = bytearray()
        self._searched = 0

    async def next(self) -> bytes | None:
        """The next line; `None` at the end. Raises for one that is too long, of which nothing is kept."""
        too_long = over = False
        while (end := self._held.find(b"\n", self._searched)) < 0 and not over:
            too_long = too_long or len(self._held) > MAX_LINE
            if too_long:
                self._held.clear()
            self._searched = len(self._held)
            data = await self._read()
            self._held += data
            over = not data
        line = self._taken(len(self._held) if end < 0 else end)
        if too_long:
            raise _too_long()
        return None if over and not line else line

    def _taken(self, end: int) -> bytes:
        line = bytes(self._held[:end])
        del self._held[: end + 1]
        self._searched = 0
        return line

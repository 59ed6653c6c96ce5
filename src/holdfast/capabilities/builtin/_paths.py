"""Virtual paths and the handles behind them. The only module that opens files for code.

A path is split into names once and then walked name by name: each folder is opened relative to the handle of
the one before, and no step follows a link. No string is resolved a second time, so there is no moment between
a check and an open in which somebody could put another file in the place of the checked one; what is checked
is the open handle. All symbolic links are refused, also those that stay inside: code can't see where one
leads, and one that is harmless today is retargeted tomorrow.
"""

from __future__ import annotations

import errno
import os
import stat
import unicodedata
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath

from holdfast.contracts.policy import Mount
from holdfast.errors import CallerError, ModelError

MAX_PATH_BYTES = 4096
MAX_NAME_BYTES = 255
PARTIAL = ".holdfast-partial"
"""How the name of a file ends that is not whole yet; code never sees one."""

# Control and formatting characters, lone surrogates, line and paragraph separators: what a person who is
# asked to approve a call could not see.
_UNSEEN = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

Names = tuple[str, ...]


def denied(message: str, hint: str | None = None) -> ModelError:
    """The refusal of what was not granted."""
    return ModelError("PERMISSION_DENIED", message, hint=hint)


def shown(names: Names) -> str:
    """The virtual path with these names."""
    return "/" + "/".join(names)


def reject(name: str) -> str | None:
    """Why no path has a part like this; None when one may."""
    if name == "..":
        return "has `..` in it"
    if any(unicodedata.category(char) in _UNSEEN for char in name):
        return "has an invisible character in it"
    if unicodedata.normalize("NFC", name) != name:
        return "is not in Unicode's composed form (NFC)"
    if len(name.encode()) > MAX_NAME_BYTES:
        return f"has a part of more than {MAX_NAME_BYTES} bytes"
    if name.endswith(PARTIAL):
        return f"ends with `{PARTIAL}`"
    return None


def split(path: str) -> Names:
    """The names of a virtual path, checked."""
    if not path.startswith("/"):
        raise denied(f"Not an absolute path: {_quoted(path)}.", "Start it with `/`.")
    # By characters: text with a lone surrogate has no bytes.
    if len(path) > MAX_PATH_BYTES:
        raise denied(f"A path has at most {MAX_PATH_BYTES} bytes: {_quoted(path)}.")
    names = tuple(name for name in path.split("/") if name not in ("", "."))
    for name in names:
        if why := reject(name):
            raise denied(f"The path {_quoted(path)} {why}.", "Write the path out in full.")
    return names


@dataclass(frozen=True, slots=True)
class Root:
    """One mount."""

    names: Names
    """Where code finds it."""
    host: Names
    """Where it is; no part of this was a link when the session was opened, and none may become one."""
    writable: bool
    """Whether code may write there."""


@dataclass(frozen=True, slots=True)
class Place:
    """A virtual path, and the mount it is in."""

    root: Root
    """The mount."""
    names: Names
    """The whole virtual path."""

    @property
    def inside(self) -> Names:
        """The part of the path below the mount."""
        return self.names[len(self.root.names) :]

    @property
    def parent(self) -> Place:
        """The folder it is in."""
        return Place(self.root, self.names[:-1])

    def __str__(self) -> str:
        return shown(self.names)


class Mounts:
    """All mounts of a session."""

    def __init__(self, mounts: Sequence[Mount]) -> None:
        """Check the mounts; raises `INVALID_ARGUMENT` for one that can't be."""
        self._roots: dict[Names, Root] = {}
        for mount in mounts:
            root = _root(mount)
            if root.names in self._roots:
                raise CallerError(
                    "INVALID_ARGUMENT", f"Two folders are mounted at `{shown(root.names)}`."
                )
            self._roots[root.names] = root

    @property
    def writable(self) -> bool:
        """Whether code may write anywhere."""
        return any(root.writable for root in self._roots.values())

    def find(self, path: str) -> Place:
        """The place of a path; the mount with the longest matching path has it."""
        return self.place(split(path))

    def place(self, names: Names) -> Place:
        """The place with these names; raises `PERMISSION_DENIED` when no mount has it."""
        for length in range(len(names), -1, -1):
            if root := self._roots.get(names[:length]):
                return Place(root, names)
        raise denied(f"No folder is granted at {_quoted(shown(names))}.", self._granted())

    def below(self, names: Names) -> Iterator[str]:
        """Names of the mounts directly in that folder."""
        return (root[-1] for root in self._roots if root[:-1] == names and root)

    def is_root(self, names: Names) -> bool:
        """Whether that is where a mount begins."""
        return names in self._roots

    def _granted(self) -> str:
        said = (
            f"{shown(root.names)} (read{' and write' if root.writable else ' only'})"
            for root in self._roots.values()
        )
        return f"Granted: {', '.join(said) or 'nothing'}."


@contextmanager
def folder(place: Place, *, make: bool = False) -> Generator[int]:
    """A handle of a folder to open things in; `make` creates what is missing of it below the mount."""
    handle = _mounted(place.root)
    try:
        for depth, name in enumerate(place.inside, len(place.root.names) + 1):
            below = enter(handle, name, shown(place.names[:depth]), make=make)
            os.close(handle)
            handle = below
        yield handle
    finally:
        os.close(handle)


@contextmanager
def file(place: Place) -> Generator[int]:
    """A handle to read an ordinary file by; never waits, whatever is there."""
    if not place.inside:
        raise IsADirectoryError(f"Is a directory: {place}")
    name = place.names[-1]
    with folder(place.parent) as parent:
        with told(place, parent):
            handle = os.open(name, _FILE, dir_fd=parent)
        try:
            check_file(os.fstat(handle), place)
            _check_spelling(parent, name, os.fstat(handle), str(place))
            yield handle
        finally:
            os.close(handle)


def look(place: Place) -> os.stat_result:
    """What is at a place, without opening it or following it."""
    if not place.inside:
        with folder(place) as handle:
            return os.fstat(handle)
    with folder(place.parent) as parent:
        name = place.names[-1]
        with told(place, parent):
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        _check_spelling(parent, name, found, str(place))
        return found


@contextmanager
def listing(handle: int) -> Generator[Iterator[os.DirEntry[str]]]:
    """The entries of an open folder, without those that no path can name."""
    # The handle may be one that can only be walked through.
    readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=handle)
    try:
        with os.scandir(readable) as entries:
            yield (entry for entry in entries if reject(entry.name) is None)
    finally:
        os.close(readable)


def sync(handle: int) -> None:
    """Bring the names in an open folder to the disk."""
    readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=handle)
    try:
        os.fsync(readable)
    finally:
        os.close(readable)


def kind_of(mode: int) -> str:
    """`file`, `dir`, `link` or `other`."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "dir"
    return "link" if stat.S_ISLNK(mode) else "other"


def check_file(found: os.stat_result, place: Place) -> None:
    """Refuse what is not an ordinary file."""
    match kind_of(found.st_mode):
        case "file":
            return
        case "dir":
            raise IsADirectoryError(f"Is a directory: {place}")
        case "link":
            raise _link(str(place))
        case _:
            raise denied(f"Not an ordinary file: {place}.", "Only files and folders can be used.")


@contextmanager
def told(place: Place, parent: int | None = None) -> Generator[None]:
    """Errors of the system as code may see them: the same kinds, with the virtual path."""
    try:
        yield
    except OSError as why:
        if why.errno is None:
            raise  # told already
        raise _told(why, str(place), parent, place.names[-1:]) from None


def _told(why: OSError, path: str, parent: int | None, last: Names) -> Exception:
    if why.errno in (errno.ELOOP, errno.ENOTDIR) and parent is not None and last:
        try:
            found = os.stat(last[0], dir_fd=parent, follow_symlinks=False)
        except OSError:
            return OSError(f"Changed while it was opened: {path}")
        # Only for the message: what is there now decides nothing.
        if stat.S_ISLNK(found.st_mode):
            return _link(path)
    if why.errno == errno.ENXIO:
        return denied(f"Not an ordinary file: {path}.", "Only files and folders can be used.")
    return type(why)(f"{why.strerror}: {path}")


def _link(path: str) -> ModelError:
    return denied(f"A symbolic link: {path}.", "Links are never followed; use the file's own path.")


def enter(parent: int, name: str, path: str, *, make: bool = False) -> int:
    """A handle of a folder in an open folder; never through a link."""
    try:
        handle = _open_folder(parent, name, make=make)
    except OSError as why:
        raise _told(why, path, parent, (name,)) from None
    try:
        _check_spelling(parent, name, os.fstat(handle), path)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _open_folder(parent: int, name: str, *, make: bool) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=parent)
    except FileNotFoundError:
        if not make:
            raise
    try:
        os.mkdir(name, dir_fd=parent)
        sync(parent)
    except FileExistsError:
        pass  # somebody else made it: just as well
    return os.open(name, _FOLDER, dir_fd=parent)


def _check_spelling(parent: int, name: str, found: os.stat_result, path: str) -> None:
    """Refuse another spelling of a name that a file system takes for the same.

    Rules and mounts are about names as they are written; `/workspace/Private` must not pass them and then open
    `private`. Where upper and lower case differ, which is nearly everywhere, this costs one look.
    """
    other = name.swapcase()
    if other == name:
        return
    try:
        same = os.path.samestat(found, os.stat(other, dir_fd=parent, follow_symlinks=False))
    except OSError:
        return
    if same:
        with listing(parent) as entries:
            if all(entry.name != name for entry in entries):
                raise denied(f"The path {path} is not spelled as the file is.", "Mind the case.")


def _root(mount: Mount) -> Root:
    try:
        names = split(mount.path)
    except ModelError as why:
        raise CallerError(
            "INVALID_ARGUMENT",
            f"Nothing can be mounted at {_quoted(mount.path)}: {why.message}",
            hint="Write it like `/workspace`.",
        ) from None
    # Links in what the operator wrote are resolved now, and only now.
    host = PurePosixPath(os.path.realpath(mount.host)).parts[1:]
    root = Root(names, host, mount.writable)
    try:
        os.close(_mounted(root))
    except (OSError, ModelError):
        raise CallerError(
            "INVALID_ARGUMENT",
            f"`{shown(names)}` can't be mounted: `{mount.host}` is not a folder that can be opened.",
            hint="Create the folder, or mount another one.",
        ) from None
    return root


def _mounted(root: Root) -> int:
    """A handle of the folder that is mounted."""
    handle = os.open("/", _FOLDER)
    for name in root.host:
        try:
            below = os.open(name, _FOLDER, dir_fd=handle)
        except OSError as why:
            raise _told(why, shown(root.names), handle, (name,)) from None
        finally:
            os.close(handle)
        handle = below
    return handle


def _quoted(path: str) -> str:
    """A path as given, short, and printable whatever is in it."""
    return f"`{path[:200].encode('unicode_escape').decode()}`" if not _plain(path) else f"`{path}`"


def _plain(path: str) -> bool:
    return len(path) <= 200 and path.isprintable()

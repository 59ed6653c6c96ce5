"""Attacks on the file capabilities: out of a mount by spelling, link, race or special file."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.capabilities.support import Box

from holdfast.capabilities.builtin import files
from holdfast.contracts.policy import Mount
from holdfast.errors import ModelError

SECRET = "the-secret-outside"
TOOLS = ["read_text", "list_dir", "glob", "stat"]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    path = tmp_path / "outside"
    path.mkdir()
    (path / "secret.txt").write_text(SECRET)
    return path


@pytest.fixture
def inside(tmp_path: Path, outside: Path) -> Path:
    path = tmp_path / "inside"
    (path / "sub").mkdir(parents=True)
    (path / "a.txt").write_text("alpha")
    return path


@pytest.fixture
def box(inside: Path) -> Box:
    return Box(files([Mount(path="/work", host=str(inside), writable=True)]))


def tree(folder: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in folder.rglob("*") if path.is_file()}


async def denied(box: Box, tool: str, *args: str) -> str:
    with pytest.raises(ModelError) as caught:
        await box(tool, *args)
    assert caught.value.code == "PERMISSION_DENIED"
    said = str(caught.value)
    assert SECRET not in said
    return said


ESCAPES = [
    "/etc/passwd",
    "/",
    "/work/../outside/secret.txt",
    "/work/sub/../../outside/secret.txt",
    "/work/..",
    "/work/sub/..",
    "/../work/a.txt",
    "/work/./../outside",
    "/work//..//outside",
    "../outside/secret.txt",
    "work/a.txt",
    "a.txt",
    "",
    ".",
    "~/x",
    "~root",
    "/workspace",
    "/work2/a.txt",
    "/WORK/a.txt",
    "/Work/a.txt",
    "//etc/passwd",
    "file:///etc/passwd",
    "/proc/self/environ",
    "/dev/zero",
    "C:\\Windows",
    "\\\\host\\share",
    "/work/a.txt\x00",
    "/work/\x00/../a.txt",
    "/work/a.txt\n",
    "/work/a\r.txt",
    "/work/\x1b[2J",
    "/work/\x7f",
    "/work/\u202etxt.a",  # right to left
    "/work/a\u200b.txt",  # zero width
    "/work/\ufeffa.txt",  # byte order mark
    "/work/\u2028",  # line separator
    "/work/e\u0301",  # decomposed
    "/work/\u212b",  # the sign for Angstrom, composed it is a letter
    "/work/" + "x" * 256,
    "/work/" + "é" * 200,
    "/work/" + "x/" * 3000,
    "/w\u00f6rk/a.txt",
    "/work/x.holdfast-partial",
]


@pytest.mark.parametrize("path", ESCAPES)
@pytest.mark.parametrize("tool", TOOLS)
async def test_no_spelling_leads_out(box: Box, outside: Path, tool: str, path: str):
    said = await denied(box, tool, path)
    assert str(outside.parent) not in said
    assert said.isprintable()


@pytest.mark.parametrize("path", ESCAPES)
async def test_no_spelling_writes_outside(box: Box, tmp_path: Path, path: str):
    before = tree(tmp_path)
    await denied(box, "write_text", path, "x")
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    "path",
    [
        "/work/%2e%2e/outside/secret.txt",
        "/work/..%2foutside",
        "/work/..\\outside\\secret.txt",
        "/work/．．／outside/secret.txt",
        "/work/…/outside",
        "/work/.. /outside/secret.txt",
        "/work/.../outside",
        "/work/ .. /x",
        "/work/~/x",
        "/work/$HOME/x",
        "/work/A.TXT",
    ],
)
@pytest.mark.parametrize("tool", ["read_text", "list_dir", "stat"])
async def test_what_only_looks_like_a_way_out_is_a_name(box: Box, tool: str, path: str):
    with pytest.raises(FileNotFoundError):
        await box(tool, path)


@given(
    parts=st.lists(
        st.sampled_from(["..", ".", "", "work", "sub", "outside", "~", "\\"]), max_size=8
    )
)
async def test_no_mix_of_parts_leads_out(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str]
):
    base = tmp_path_factory.mktemp("mix")
    (base / "inside" / "sub").mkdir(parents=True)
    (base / "secret.txt").write_text(SECRET)
    box = Box(files([Mount(path="/work", host=str(base / "inside"))]))
    try:
        assert await box("read_text", "/".join(["", *parts, "secret.txt"])) != SECRET
    except (ModelError, OSError):
        pass


LINKS = {
    "file": "{outside}/secret.txt",
    "relative": "../outside/secret.txt",
    "folder": "{outside}",
    "relative-folder": "../outside",
    "dangling": "{outside}/nothing",
    "root": "/",
    "itself": "link",
    "inside": "a.txt",
    "inside-folder": "sub",
    "proc": "/proc/self/root",
}


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("below", ["", "/secret.txt"])
async def test_links_are_never_followed(
    box: Box, inside: Path, outside: Path, link: str, below: str
):
    (inside / "link").symlink_to(LINKS[link].format(outside=outside))
    before = tree(outside)
    await denied(box, "read_text", f"/work/link{below}")
    await denied(box, "list_dir", f"/work/link{below}")
    await denied(box, "write_text", f"/work/link{below}", "x")
    if below:
        await denied(box, "stat", f"/work/link{below}")
    assert tree(outside) == before
    for pattern in ("/work/*", "/work/**", "/work/**/secret.txt", "/work/l*/*"):
        assert all("link" not in path for path in await box("glob", pattern))


async def test_a_link_on_the_way_is_not_followed_when_folders_are_made(
    box: Box, inside: Path, outside: Path
):
    (inside / "link").symlink_to(outside)
    with pytest.raises(ModelError):
        await box("write_text", "/work/link/new/x.txt", "x", make_dirs=True)
    assert sorted(os.listdir(outside)) == ["secret.txt"]


async def test_a_mounted_link_is_resolved_once(tmp_path: Path, inside: Path, outside: Path):
    """Whoever retargets the link later does not move the mount."""
    (tmp_path / "mount").symlink_to(inside)
    box = Box(files([Mount(path="/work", host=str(tmp_path / "mount"), writable=True)]))
    assert await box("read_text", "/work/a.txt") == "alpha"
    (tmp_path / "mount").unlink()
    (tmp_path / "mount").symlink_to(outside)
    assert await box("read_text", "/work/a.txt") == "alpha"
    with pytest.raises(FileNotFoundError):
        await box("read_text", "/work/secret.txt")


@pytest.mark.parametrize("above", [False, True])
async def test_a_mount_replaced_by_a_link_is_refused(tmp_path: Path, outside: Path, above: bool):
    folder = tmp_path / "top" / "mounted"
    folder.mkdir(parents=True)
    box = Box(files([Mount(path="/work", host=str(folder), writable=True)]))
    gone = folder.parent if above else folder
    gone.rename(tmp_path / "moved")
    (outside / "mounted").mkdir()
    (outside / "mounted" / "secret.txt").write_text(SECRET)
    gone.symlink_to(outside)
    said = await denied(box, "read_text", "/work/secret.txt")
    assert str(tmp_path) not in said
    await denied(box, "write_text", "/work/x", "x")
    await denied(box, "list_dir", "/work")


async def test_special_files_are_refused_at_once(box: Box, inside: Path):
    """A pipe without a writer would wait for ever."""
    os.mkfifo(inside / "pipe")
    listener = socket.socket(socket.AF_UNIX)
    # A relative name: the path of a socket must be short.
    here = os.open(inside, os.O_RDONLY)
    try:
        listener.bind(f"/proc/self/fd/{here}/socket")
    finally:
        os.close(here)
    try:
        for name in ("pipe", "socket"):
            await denied(box, "read_text", f"/work/{name}")
            await denied(box, "write_text", f"/work/{name}", "x")
            assert (await box("stat", f"/work/{name}"))["type"] == "other"
    finally:
        listener.close()
    assert await box("glob", "/work/*") == ["/work/a.txt", "/work/sub"]


@pytest.mark.parametrize(
    "name", [name for name in ("zero", "null", "tty") if os.path.exists(f"/dev/{name}")]
)
async def test_devices_are_refused(name: str):
    box = Box(files([Mount(path="/dev", host="/dev")]))
    assert f"/dev/{name}" in await denied(box, "read_text", f"/dev/{name}")


async def test_refusals_leave_no_handle_open(box: Box, inside: Path, outside: Path):
    (inside / "link").symlink_to(outside)
    calls = ["/work/link/x", "/work/none", "/work/sub", "/work/sub/none/x", "/work/a.txt/x"]
    await tried(box, "read_text", "/work/a.txt")
    before = len(os.listdir("/proc/self/fd"))
    for path in calls * 5:
        for tool in TOOLS:
            await tried(box, tool, path)
        await tried(box, "write_text", path, "x")
    assert len(os.listdir("/proc/self/fd")) <= before


async def test_another_case_of_a_name_is_refused(
    box: Box, inside: Path, monkeypatch: pytest.MonkeyPatch
):
    """A file system that ignores case, made of two names for one file of which only one is listed."""
    os.link(inside / "a.txt", inside / "A.TXT")
    assert await box("read_text", "/work/A.TXT") == "alpha"
    scandir = os.scandir

    @contextmanager
    def one_name(path: int) -> Iterator[Iterator[os.DirEntry[str]]]:
        with scandir(path) as entries:
            yield (entry for entry in entries if entry.name != "A.TXT")

    monkeypatch.setattr(os, "scandir", one_name)
    for tool in ("read_text", "stat"):
        assert "case" in await denied(box, tool, "/work/A.TXT")
    assert await box("read_text", "/work/a.txt") == "alpha"


@contextmanager
def flipping(flip: object) -> Iterator[None]:
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            flip()  # type: ignore[operator]

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


async def tried(box: Box, tool: str, *args: str) -> object:
    try:
        return await box(tool, *args)
    except (ModelError, OSError):
        return None


@pytest.mark.parametrize("what", ["folder", "file"])
async def test_a_swap_between_check_and_use_leads_nowhere(
    box: Box, inside: Path, outside: Path, what: str
):
    """What is honest one moment is a link out the next, all the time."""
    honest, evil, name = inside / "honest", inside / "evil", inside / "name"
    if what == "folder":
        honest.mkdir()
        (honest / "secret.txt").write_text("harmless")
        evil.symlink_to(outside)
        path = "/work/name/secret.txt"
    else:
        honest.write_text("harmless")
        evil.symlink_to(outside / "secret.txt")
        path = "/work/name"

    def flip() -> None:
        for one in (honest, evil):
            one.rename(name)
            name.rename(one)

    seen: set[object] = set()
    before = tree(outside)
    with flipping(flip):
        for _ in range(400):
            seen.add(await tried(box, "read_text", path))
            for found in await tried(box, "list_dir", "/work/name") or []:  # type: ignore[attr-defined]
                assert found["size"] != len(SECRET)
            assert len(SECRET) != (await tried(box, "stat", path) or {"size": 0})["size"]  # type: ignore[index]
    assert SECRET not in seen
    assert tree(outside) == before


async def test_a_swap_while_writing_leads_nowhere(box: Box, inside: Path, outside: Path):
    honest, evil, name = inside / "honest", inside / "evil", inside / "name"
    honest.mkdir()
    evil.symlink_to(outside)
    before = tree(outside)

    def flip() -> None:
        for one in (honest, evil):
            one.rename(name)
            name.rename(one)

    with flipping(flip):
        for _ in range(200):
            await tried(box, "write_text", "/work/name/secret.txt", "overwritten")
            await tried(box, "write_text", "/work/name/new.txt", "new")
    assert tree(outside) == before

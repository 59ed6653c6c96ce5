"""`read_text`, `write_text`, `list_dir`, `glob` and `stat`: what they give, on real folders."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.capabilities.support import CONTEXT, Box

from holdfast.capabilities.builtin import files
from holdfast.capabilities.builtin.files import MAX_READ_BYTES, MAX_WRITE_BYTES
from holdfast.contracts import SideEffect
from holdfast.contracts.policy import Mount
from holdfast.errors import CallerError, ModelError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    work = tmp_path / "host-folder"
    (work / "sub" / "deep").mkdir(parents=True)
    (work / "a.txt").write_text("alpha")
    (work / "sub" / "b.txt").write_text("beta")
    (work / "sub" / "deep" / "c.csv").write_text("x,y")
    return work


@pytest.fixture
def box(folder: Path) -> Box:
    return Box(files([Mount(path="/work", host=str(folder), writable=True)]))


def text_of(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


async def test_a_file_is_read(box: Box):
    assert await box("read_text", "/work/a.txt") == "alpha"
    assert await box("read_text", path="/work//./sub/b.txt") == "beta"


async def test_a_file_is_read_in_pieces(box: Box, folder: Path):
    text = "aé€😀" * 50
    (folder / "u.txt").write_text(text)
    start, pieces = 0, list[str]()
    while piece := await box("read_text", "/work/u.txt", start=start, max_bytes=7):
        pieces.append(piece)
        start += len(piece.encode())
    assert "".join(pieces) == text


async def test_max_bytes_is_enforced(box: Box, folder: Path):
    (folder / "big.txt").write_bytes(b"x" * (MAX_READ_BYTES + 1))
    with pytest.raises(ValueError, match="in pieces"):
        await box("read_text", "/work/big.txt")
    assert len(await box("read_text", "/work/big.txt", max_bytes=MAX_READ_BYTES)) == MAX_READ_BYTES
    assert len(await box("read_text", "/work/big.txt", start=2)) == MAX_READ_BYTES - 1
    for wrong in (3, MAX_READ_BYTES + 1):
        with pytest.raises(CallerError):
            await box("read_text", "/work/a.txt", max_bytes=wrong)


async def test_what_is_not_text_is_told(box: Box, folder: Path):
    (folder / "bin").write_bytes(b"ok\xff\x00")
    with pytest.raises(ValueError, match="Not UTF-8 text at byte 2: /work/bin"):
        await box("read_text", "/work/bin")
    (folder / "u.txt").write_text("é")
    with pytest.raises(ValueError, match="cut a character"):
        await box("read_text", "/work/u.txt", start=1)


@pytest.mark.parametrize(
    ("tool", "path", "error"),
    [
        ("read_text", "/work/none", FileNotFoundError),
        ("read_text", "/work/none/x", FileNotFoundError),
        ("read_text", "/work/sub", IsADirectoryError),
        ("read_text", "/work", IsADirectoryError),
        ("read_text", "/work/a.txt/x", NotADirectoryError),
        ("list_dir", "/work/a.txt", NotADirectoryError),
        ("list_dir", "/work/none", FileNotFoundError),
        ("stat", "/work/none", FileNotFoundError),
    ],
)
async def test_ordinary_errors_name_the_virtual_path(
    box: Box, folder: Path, tool: str, path: str, error: type[OSError]
):
    with pytest.raises(error) as caught:
        await box(tool, path)
    assert "/work" in str(caught.value)
    assert str(folder) not in f"{caught.value!r}{caught.value.__cause__!r}"
    assert caught.value.filename is None


async def test_a_file_is_written_whole(box: Box, folder: Path):
    assert await box("write_text", "/work/new.txt", "é") == {"path": "/work/new.txt", "bytes": 2}
    assert text_of(folder / "new.txt") == "é"
    (folder / "new.txt").chmod(0o640)
    await box("write_text", "/work/new.txt", "other")
    assert text_of(folder / "new.txt") == "other"
    assert (folder / "new.txt").stat().st_mode & 0o7777 == 0o640
    assert sorted(os.listdir(folder)) == ["a.txt", "new.txt", "sub"]


async def test_a_hard_link_is_not_written_through(box: Box, folder: Path, tmp_path: Path):
    outside = tmp_path / "outside"
    outside.write_text("keep")
    os.link(outside, folder / "linked")
    await box("write_text", "/work/linked", "new")
    assert (text_of(outside), text_of(folder / "linked")) == ("keep", "new")


async def test_make_dirs_is_enforced(box: Box, folder: Path):
    with pytest.raises(FileNotFoundError):
        await box("write_text", "/work/x/y/z.txt", "t")
    assert not (folder / "x").exists()
    await box("write_text", "/work/x/y/z.txt", "t", make_dirs=True)
    assert text_of(folder / "x" / "y" / "z.txt") == "t"


async def test_the_size_of_a_write_is_bounded(box: Box, folder: Path):
    with pytest.raises(ModelError) as caught:
        await box("write_text", "/work/big", "x" * (MAX_WRITE_BYTES + 1))
    assert caught.value.code == "REQUEST_TOO_LARGE"
    assert text_of(folder / "big") is None


async def test_a_failed_write_leaves_nothing(box: Box, folder: Path):
    with pytest.raises(IsADirectoryError):
        await box("write_text", "/work/sub", "x")
    assert sorted(os.listdir(folder)) == ["a.txt", "sub"]


async def test_writable_is_enforced(folder: Path):
    only = Box(files([Mount(path="/work", host=str(folder))]))
    assert sorted(only.declared) == ["glob", "list_dir", "read_text", "stat"]
    both = Box(
        files(
            [
                Mount(path="/work", host=str(folder), writable=True),
                Mount(path="/work/sub", host=str(folder / "sub")),
            ]
        )
    )
    with pytest.raises(ModelError, match=r"Read only: /work/sub/b\.txt"):
        await both("write_text", "/work/sub/b.txt", "x")
    with pytest.raises(IsADirectoryError):
        await both("write_text", "/work", "x")
    assert text_of(folder / "sub" / "b.txt") == "beta"


async def test_the_longest_mount_wins(folder: Path, tmp_path: Path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "b.txt").write_text("other")
    for mounts in (1, -1):
        box = Box(
            files(
                [
                    Mount(path="/work", host=str(folder)),
                    Mount(path="/work/sub", host=str(other)),
                    Mount(path="/work/extra", host=str(other)),
                ][::mounts]
            )
        )
        assert await box("read_text", "/work/sub/b.txt") == "other"
        assert [one["name"] for one in await box("list_dir", "/work")] == ["a.txt", "extra", "sub"]
        # What the inner mount hides has no name.
        assert await box("glob", "/work/**") == ["/work/a.txt"]
        assert await box("glob", "/work/sub/**") == ["/work/sub/b.txt"]


async def test_a_folder_is_listed(box: Box, folder: Path):
    (folder / "link").symlink_to("a.txt")
    os.mkfifo(folder / "pipe")
    assert await box("list_dir", "/work") == [
        {"name": "a.txt", "type": "file", "size": 5},
        {"name": "link", "type": "link", "size": 0},
        {"name": "pipe", "type": "other", "size": 0},
        {"name": "sub", "type": "dir", "size": 0},
    ]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("/work/*", ["/work/a.txt", "/work/sub"]),
        ("/work/**/*.txt", ["/work/a.txt", "/work/sub/b.txt"]),
        (
            "/work/**",
            [
                "/work/a.txt",
                "/work/sub",
                "/work/sub/b.txt",
                "/work/sub/deep",
                "/work/sub/deep/c.csv",
            ],
        ),
        ("/work/**/**/c.*", ["/work/sub/deep/c.csv"]),
        ("/work/*/*/?.csv", ["/work/sub/deep/c.csv"]),
        ("/work/[a-c].txt", ["/work/a.txt"]),
        ("/work/a.txt", ["/work/a.txt"]),
        ("/work/A.txt", []),
        ("/work/none/*", []),
        ("/work/a.txt/*", []),
    ],
)
async def test_files_are_found(box: Box, pattern: str, found: list[str]):
    assert await box("glob", pattern) == found


async def test_max_results_is_enforced(box: Box):
    with pytest.raises(ValueError, match="More than 2 paths"):
        await box("glob", "/work/**", max_results=2)
    with pytest.raises(CallerError):
        await box("glob", "/work/**", max_results=0)


async def test_many_stars_do_not_take_forever(box: Box, folder: Path):
    deep = folder.joinpath(*["a"] * 30)
    deep.mkdir(parents=True)
    (deep / ("a" * 200)).write_text("")
    pattern = "/work/" + "**/a/" * 12 + "*a" * 60 + "b"
    assert await box("glob", pattern) == []


async def test_stat_tells_what_is_there(box: Box, folder: Path):
    os.utime(folder / "a.txt", ns=(0, 1_700_000_000_123_456_789))
    assert await box("stat", "/work/a.txt") == {
        "path": "/work/a.txt",
        "type": "file",
        "size": 5,
        "modified_ms": 1_700_000_000_123,
    }
    assert (await box("stat", "/work"))["type"] == "dir"
    (folder / "link").symlink_to("/etc/passwd")
    assert (await box("stat", "/work/link"))["type"] == "link"


def test_side_effects(box: Box):
    effects = {name: one.capability.side_effect for name, one in box.declared.items()}
    assert effects.pop("write_text") == SideEffect.WRITE
    assert set(effects.values()) == {SideEffect.READ}
    assert all(one.capability.idempotent for one in box.declared.values())


async def test_a_write_in_doubt_is_found_out(box: Box, folder: Path):
    write = box.declared["write_text"]
    assert write.reconciles
    arguments = {"path": "/work/n.txt", "text": "new"}
    assert (await write.reconcile(arguments, CONTEXT)).status == "not_started"
    done = await write.execute(arguments, CONTEXT)
    found = await write.reconcile(arguments, CONTEXT)
    assert (found.status, found.value) == ("completed", done)
    (folder / "n.txt").write_text("newer")
    assert (await write.reconcile(arguments, CONTEXT)).status == "not_started"
    for path in ("/etc/passwd", "/work/sub", "/work/../x"):
        found = await write.reconcile({"path": path, "text": "new"}, CONTEXT)
        assert found.status == "not_started"


@pytest.mark.parametrize(
    "mount",
    [
        Mount(path="work", host="/tmp"),
        Mount(path="/a/../b", host="/tmp"),
        Mount(path="/wo\nrk", host="/tmp"),
        Mount(path="/work", host="/no/such/folder"),
        Mount(path="/work", host="/etc/passwd"),
    ],
)
def test_a_mount_that_cannot_be_is_refused(mount: Mount):
    with pytest.raises(CallerError) as caught:
        files([mount])
    assert caught.value.code == "INVALID_ARGUMENT"


def test_a_path_is_mounted_once(folder: Path):
    one = Mount(path="/work", host=str(folder))
    with pytest.raises(CallerError, match="/work"):
        files([one, Mount(path="/work/", host="/tmp")])


@given(text=st.text(max_size=200))
async def test_any_text_comes_back(tmp_path_factory: pytest.TempPathFactory, text: str):
    folder = tmp_path_factory.mktemp("any")
    box = Box(files([Mount(path="/work", host=str(folder), writable=True)]))
    await box("write_text", "/work/t", text)
    assert await box("read_text", "/work/t") == text

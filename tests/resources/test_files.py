"""`file:`: what is mounted can be read and listed, and every way out is shut."""

import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.resources.support import Box, box_of, mounted

from holdfast.contracts import Mount, Setup
from holdfast.errors import HoldfastError, ModelError
from holdfast.resources.resolvers.files import path_of, uri_of

SECRET = "top secret"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret.txt").write_text(SECRET)
    inside = tmp_path / "inside"
    (inside / "sub").mkdir(parents=True)
    (inside / "a b?.txt").write_text("hello")
    (inside / "sub" / "deep.txt").write_text("deep")
    return inside


@pytest.fixture
def box(folder: Path) -> Box:
    return box_of(mounted(folder))


async def denied(box: Box, uri: str) -> str:
    """Refused by both ways to read, without a word of what is there."""
    said = ""
    for tool, more in (("read_resource", {}), ("grep_resource", {"pattern": "."})):
        with pytest.raises((ModelError, OSError)) as caught:
            await box(tool, uri, **more)
        said = str(caught.value)
        assert SECRET not in said
        if isinstance(caught.value, ModelError):
            assert caught.value.code == "PERMISSION_DENIED"
    return said


async def test_files_are_read_by_their_encoded_path(box: Box):
    for uri in (
        "file:///workspace/a%20b%3F.txt",
        "FILE://localhost/workspace/./a%20b%3f.txt",
        "file:/workspace/a%20b%3F.txt",
    ):
        view = await box("read_resource", uri)
        assert (view["text"], view["byte_len"], view["next"]) == ("hello", 5, None)


@pytest.mark.parametrize(
    "uri",
    [
        "file:///workspace/../secret.txt",
        "file:///workspace/sub/../../secret.txt",
        "file:///workspace/%2e%2e/secret.txt",
        "file:///workspace/%2E./secret.txt",
        "file:///workspace/..%2fsecret.txt",
        "file:///workspace%2f..%2fsecret.txt",
        "file:///workspace/sub/%2e%2e/%2e%2e/secret.txt",
        "file:///workspace/sub%2Fdeep.txt",
        "file:///etc/passwd",
        "file:///",
        "file://",
        "file:",
        "file:workspace/a",
        "file:../secret.txt",
        "file://evil.example/workspace/x",
        "file://user@localhost/workspace/x",
        "file:////etc/passwd",
        "file:///workspace/a%00b",
        "file:///workspace/secret.txt%00.png",
        "file:///workspace/%ff%fe",
        "file:///workspace/a%0ab",
        "file:///workspace/%e2%80%ae",
        "file:///workspace/x?y",
        "file:///workspace/x#y",
        "file:///workspace/" + "a/" * 20_000,
        "file:///workspace/" + "a" * 300,
        "file:///proc/self/environ",
        "file:///dev/zero",
    ],
)
async def test_every_way_out_is_shut(box: Box, uri: str):
    await denied(box, uri)


async def test_double_encoding_is_decoded_once(box: Box):
    with pytest.raises(FileNotFoundError):
        await box("read_resource", "file:///workspace/%252e%252e/secret.txt")


async def test_links_are_never_followed(folder: Path, box: Box):
    (folder / "link").symlink_to("../secret.txt")
    (folder / "out").symlink_to("..")
    (folder / "in").symlink_to("sub")
    for uri in ("link", "out/secret.txt", "in/deep.txt", "out"):
        assert "symbolic link" in await denied(box, f"file:///workspace/{uri}")
    listed = await box("list_resources", "file:///workspace")
    assert [one["name"] for one in listed["items"]] == ["a b?.txt", "sub"]


async def test_what_is_swapped_after_the_open_is_not_read(folder: Path, box: Box):
    """The handle that was checked is the one that is read."""
    from holdfast.runtime._resource_sources import MountedFolders

    source = await MountedFolders([Mount(path="/w", host=str(folder))]).open("/w/a b?.txt")
    (folder / "a b?.txt").unlink()
    (folder / "a b?.txt").symlink_to("../secret.txt")
    assert await source.read(0, 100) == b"hello"
    await source.aclose()
    with pytest.raises(ValueError, match="closed"):
        await source.read(0, 1)


async def test_what_is_no_file_is_refused_at_once(folder: Path, box: Box):
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(folder / "socket"))
        for name in ("pipe", "socket"):
            assert "Not an ordinary file" in await denied(box, f"file:///workspace/{name}")
    for uri in ("file:///workspace", "file:///workspace/sub"):
        with pytest.raises(IsADirectoryError):
            await box("read_resource", uri)


async def test_no_handle_stays_open(folder: Path, box: Box):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        await box("read_resource", "file:///workspace/sub/deep.txt")
        await denied(box, "file:///workspace/../x")
    assert len(os.listdir("/proc/self/fd")) <= before


async def test_folders_are_listed_page_by_page(folder: Path, box: Box):
    many = folder / "many"
    many.mkdir()
    names = sorted(f"{n:03d} é" for n in range(25))
    for name in names:
        (many / name).write_text(name)
    found: list[str] = []
    after: dict[str, str] = {}
    while True:
        page = await box("list_resources", "file:///workspace/many", limit=10, **after)
        assert len(page["items"]) <= 10
        for one in page["items"]:
            assert (await box("read_resource", one["uri"]))["text"] == one["name"]
            assert one["size"] == len(one["name"].encode())
            found.append(one["name"])
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert found == names


async def test_a_list_begins_with_the_mounts(folder: Path, tmp_path: Path):
    other = tmp_path / "other"
    other.mkdir()
    mounts = (
        Mount(path="/workspace", host=str(folder)),
        Mount(path="/workspace/more", host=str(other)),
    )
    box = box_of(Setup(mounts=mounts))
    for prefix in ("", "file:", "file://", "file:///"):
        listed = await box("list_resources", prefix)
        assert [one["uri"] for one in listed["items"]] == [
            "file:///workspace",
            "file:///workspace/more",
        ]
    inside = await box("list_resources", "file:///workspace")
    assert [(one["name"], one["kind"]) for one in inside["items"]] == [
        ("a b?.txt", "resource"),
        ("more", "folder"),
        ("sub", "folder"),
    ]
    with pytest.raises(ModelError, match="No folder is granted"):
        await box("list_resources", "file:///etc")


@given(path=st.text(min_size=1, max_size=30).map(lambda text: f"/w/{text}"))
def test_a_path_and_its_uri_are_the_same(path: str):
    try:
        uri = uri_of(path)
    except UnicodeEncodeError:
        return  # a lone surrogate: no path has one
    if "/" in path[3:]:
        path = path[:3] + path[3:].replace("/", "")
        uri = uri_of(path)
    assert path_of(uri) == path


@given(rest=st.text(alphabet=st.sampled_from("./%2eEfF\\:@?#\0 aé"), max_size=30))
async def test_whatever_the_uri_nothing_outside_is_read(
    rest: str, tmp_path_factory: pytest.TempPathFactory
):
    empty = tmp_path_factory.getbasetemp() / "empty"
    empty.mkdir(exist_ok=True)
    with pytest.raises((HoldfastError, OSError)):
        await box_of(mounted(empty))("read_resource", f"file:///workspace/{rest}")

"""Resources in sessions: who gets which functions, and what calls keep beside their results."""

from pathlib import Path
from typing import Any

import pytest
from tests.mcp import modern
from tests.mcp.support import npm, web

import holdfast
from holdfast import Context, capability
from holdfast.contracts import Setup
from holdfast.contracts.resource import ListRequest, ResourceRequest
from holdfast.errors import HoldfastError
from holdfast.journal import Journal

FREE: dict[str, Any] = {"policy": {"rules": [{"id": "all", "then": "allow"}]}}
READS = {"read_resource", "grep_resource", "list_resources"}
WEB = {"read_web_resource", "grep_web_resource"}


def names(hf: holdfast.Runtime, **setup: Any) -> set[str]:
    return {one.name for one in hf.shell.services.tools(Setup.model_validate(setup)).all()}


def mounts(folder: Path) -> list[dict[str, Any]]:
    return [{"path": "/w", "host": str(folder)}]


async def test_only_who_has_something_to_read_is_given_functions_for_it(tmp_path: Path):
    async with holdfast.open("memory:", {}) as hf:
        bare = names(hf)
        assert not bare & (READS | WEB)
        assert names(hf, mounts=mounts(tmp_path)) & (READS | WEB) == READS
        assert names(hf, allow_hosts=["a.example"]) & (READS | WEB) == READS | WEB


async def test_what_somebody_brings_keeps_its_name(tmp_path: Path):
    @capability(side_effect="read")
    def read_resource(uri: str) -> str:
        """Read it my way."""
        return f"mine: {uri}"

    async with holdfast.open("memory:", FREE, capabilities=[read_resource]) as hf:
        run = await hf.shell.run(
            "read_resource('x:y')", setup=Setup.model_validate({"mounts": mounts(tmp_path)})
        )
        assert run.result == "mine: x:y"
        assert names(hf, mounts=mounts(tmp_path)) >= READS


async def test_code_reads_its_mounts_and_the_operator_the_settings(tmp_path: Path):
    (tmp_path / "log").write_text("one\ntwo\nthree\n")
    config = {**FREE, "session": {"mounts": mounts(tmp_path)}}
    async with holdfast.open("memory:", config) as hf:
        run = await hf.shell.run(
            "part = read_resource('file:///w/log', start=1, length=1, unit='lines')\n"
            "[part['text'], [m['line'] for m in grep_resource('file:///w/log', 't')['matches']]]"
        )
        assert run.result == ["two\n", [1, 2]]
        view = await hf.resources.read(ResourceRequest(uri="file:///w/log"))
        assert view.text == "one\ntwo\nthree\n"


# -- what calls keep ----------------------------------------------------------------------------------


def shot(*sizes: int, fails: bool = False, **limits: Any) -> Any:
    """A function that gives pictures by reference."""

    async def shoot(context: Context) -> list[str]:
        """Take pictures."""
        found = [
            await context.keep(b"%d" % (n % 10) * size, "image/x") for n, size in enumerate(sizes)
        ]
        if fails:
            raise ValueError("no film")
        return found

    return capability(shoot, side_effect="read", **limits)


async def kept(journal: Journal, session: str) -> list[tuple[str, str, str]]:
    return [
        (ref.digest, ref.mime, ref.retention.value)
        async for record in journal.read(session)
        for ref in record.content
        if ref.role == "kept"
    ]


async def test_what_a_call_keeps_is_read_again_and_erased_with_its_session(tmp_path: Path):
    config = {**FREE, "session": {"mounts": mounts(tmp_path)}}
    url = f"sqlite:///{tmp_path / 'j.db'}"
    code = "kept = await shoot()\n[read_resource('content:' + one)['byte_len'] for one in kept]"
    async with holdfast.open(url, config, capabilities=[shot(100_000, 7)]) as hf:
        run = await hf.shell.run(code, session="s")
        assert run.result == [100_000, 7]
        found = await kept(hf.journal, "s")
        assert [one[1:] for one in found] == [("image/x", "session_scoped")] * 2
        digest = found[0][0]
        # Another session has nothing by that name.
        other = await hf.shell.run(f"read_resource('content:{digest}')", session="t")
        assert other.error is not None
        assert "has no content" in other.error.message
    # In another process it is there, and the call is not made again.
    async with holdfast.open(url, config, capabilities=[shot(100_000, 7)]) as hf:
        again = await hf.shell.run(
            "[kept, read_resource('content:' + kept[0])['byte_len']]", session="s"
        )
        assert again.result == [[one[0] for one in found], 100_000]
        await hf.shell.destroy("s")
        with pytest.raises(HoldfastError) as caught:
            await hf.journal.content(digest)
        assert caught.value.code == "CONTENT_ERASED"
        assert (await hf.journal.verify()).ok


async def test_a_call_keeps_no_more_than_eight_times_its_limit():
    small = shot(500, 300, max_response_bytes=100)
    large = shot(500, 301, max_response_bytes=100)
    for tool, code in ((small, "RESPONSE_TOO_LARGE"), (large, "RESPONSE_TOO_LARGE")):
        async with holdfast.open("memory:", FREE, capabilities=[tool]) as hf:
            run = await hf.shell.run("await shoot()", session="s")
            if tool is small:  # the bodies fit; what the two digests take is the result's own limit
                assert run.error is not None
                assert "result of" in run.error.message
            else:
                assert run.error is not None
                assert "can be kept" in run.error.message
            assert run.error.code == code
            assert await kept(hf.journal, "s") == []


async def test_what_fails_keeps_nothing():
    async with holdfast.open("memory:", FREE, capabilities=[shot(5, fails=True)]) as hf:
        run = await hf.shell.run("await shoot()", session="s")
        assert run.status == "runtime_error"
        assert await kept(hf.journal, "s") == []


async def test_a_secret_is_not_kept():
    @capability(side_effect="read")
    async def shoot(context: Context) -> str:
        """Take a picture."""
        return await context.keep(b"pixels hunter2-hunter2 pixels", "image/x")

    secrets = {"film": "hunter2-hunter2"}
    async with holdfast.open("memory:", FREE, capabilities=[shoot], secrets=secrets) as hf:
        run = await hf.shell.run("await shoot()", session="s")
        assert b"hunter2" not in await hf.journal.content(str(run.result))


# -- a real server ------------------------------------------------------------------------------------


async def test_a_servers_pictures_and_resources_are_read_by_uri():
    config = {**FREE, "surfaces": {"all": npm("everything", connect_timeout_ms=30_000)}}
    async with holdfast.open("memory:", config) as hf:
        run = await hf.shell.run(
            "image = (await all_get_tiny_image())[1]\n"
            "view = read_resource('content:' + image['digest'])\n"
            "[image['mime'], view['format'], view['byte_len'] == image['bytes']]"
        )
        assert run.result == ["image/png", "image", True], run.error
        code = "read_resource('mcp://all/demo://resource/dynamic/text/1')['text']"
        assert "Resource 1" in str((await hf.shell.run(code)).result)
        listed = await hf.shell.run(
            "[one['uri'] for one in list_resources()['items']], len(list_resources('mcp://all/')['items']) > 3"
        )
        assert listed.result == [["mcp://all/"], True]
        assert not names(hf) & WEB  # it is started here: that is no network
        there = await hf.resources.list(ListRequest(prefix="mcp://all/"))
        assert len(there.items) > 3


async def test_the_operator_reads_what_another_process_wanted(tmp_path: Path):
    """The runtime has heard of no server yet; and whoever asks may do so for a session that has not run."""
    url = f"sqlite:///{tmp_path}/j.db"
    async with holdfast.open(url, FREE) as hf:
        await hf.surfaces.add("all", npm("everything", connect_timeout_ms=30_000))
    asked = ResourceRequest(uri="mcp://all/demo://resource/dynamic/text/1")
    for session_id in (None, "s"):
        async with holdfast.open(url, FREE) as hf:
            request = asked.model_copy(update={"session_id": session_id})
            assert "Resource 1" in str((await hf.resources.read(request)).text)


async def test_what_a_server_at_an_address_has_is_read_over_the_network():
    async with web(modern.server()) as url:
        surfaces = {"far": {"url": url, "connect_timeout_ms": 30_000}}
        async with holdfast.open("memory:", {"surfaces": surfaces}) as hf:
            # Reading it is asked about, as every use of the network is; listing it is not.
            run = await hf.shell.run("read_web_resource('mcp://far/mem://note')['text']")
            assert run.status == "waiting_for_approval"
            (item,) = await hf.approvals.list()
            assert (item.tool, item.side_effect) == ("read_web_resource", "network")
            code = "[one['uri'] for one in list_resources('mcp://far/')['items']]"
            listed = await hf.shell.run(code, session="t")
            assert "mcp://far/mem://note" in str(listed.result)
            wrong = await hf.shell.run("read_resource('mcp://far/mem://note')", session="t")
            assert wrong.error is not None
            assert "`mcp://far` is not read by this function" in wrong.error.message
            # Of a session that does not see it, there is nothing to read with.
            assert not names(hf, surfaces=[]) & (READS | WEB)

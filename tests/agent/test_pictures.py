"""Pictures that calls give, as a model sees them."""

import base64
import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agent.loop_support import ASKS_NOT, consistent, opened, results, scripted, tools
from tests.agent.providers_support import IDS, at
from tests.agent.providers_support import opened as opened_to_providers
from tests.mcp.support import npm

from holdfast import Agent, Context, capability
from holdfast.agent import pictures as module
from holdfast.agent.pictures import SHOWN, pictures_in
from holdfast.contracts import Privacy, digest
from holdfast.contracts.model import ModelProfile
from holdfast.models.catalog import model as provider_model
from holdfast.models.tokens import PICTURE_TOKENS, message_tokens
from holdfast.testing import ProviderServer, call, together, write_code

SEES = ModelProfile(pictures=True)


def png(width: int, height: int, shade: int = 0) -> bytes:
    """A picture of one grey."""

    def chunk(name: bytes, data: bytes) -> bytes:
        checked = name + data
        return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))

    rows = b"".join(b"\0" + bytes([shade]) * width for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


CAT, DOG = png(30, 20), png(30, 20, 99)


def named(data: bytes, mime: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "mime": mime, "digest": digest(data)}


@capability(side_effect="read")
async def photo(name: str, context: Context) -> dict[str, Any]:
    """Give a photo."""
    data = {"cat": CAT, "dog": DOG}[name]
    return {"type": "image", "mime": "image/png", "digest": await context.keep(data, "image/png")}


@capability(side_effect="read")
async def forged(of: str) -> dict[str, Any]:
    """Name a picture that was not given here."""
    return {"type": "image", "mime": "image/png", "digest": of}


def config(folder: Path) -> dict[str, Any]:
    (folder / "cat.png").write_bytes(CAT)
    return {**ASKS_NOT, "session": {"mounts": [{"path": "/w", "host": str(folder)}]}}


class TestAgents:
    async def test_a_tool_shows_a_picture(self, tmp_path: Path):
        model = scripted(
            call("read_resource", uri="file:///w/cat.png"), "A cat.", "Still.", profile=SEES
        )
        async with opened(config=config(tmp_path)) as (hf, _):
            agent = tools(model)
            assert (await agent.run("What is it?", session="s", runtime=hf)).output == "A cat."
            await agent.run("And now?", session="s", runtime=hf)
            (shown,) = await results(hf, "s")
            await consistent(hf, "s")
        (picture,) = shown.pictures
        assert (picture.digest, picture.mime) == (digest(CAT), "image/png")
        assert (picture.width, picture.height) == (30, 20)
        sent = [dict(one.pictures) for one in model.requests]
        assert sent == [{}, {digest(CAT): CAT}, {digest(CAT): CAT}]

    async def test_code_shows_pictures(self, tmp_path: Path):
        code = 'result = {"a": await photo("cat"), "b": [read_resource("file:///w/cat.png")]}'
        model = scripted(write_code(code), "Cats.", profile=SEES)
        async with opened(config=config(tmp_path), capabilities=[photo]) as (hf, _):
            await Agent(model).run("Look.", session="s", runtime=hf)
            await consistent(hf, "s")
        assert dict(model.requests[-1].pictures) == {digest(CAT): CAT}

    async def test_calls_at_once_each_show_theirs(self):
        both = together(call("photo", name="cat"), call("photo", name="dog"))
        model = scripted(both, "Both.", profile=SEES)
        async with opened(capabilities=[photo]) as (hf, _):
            await tools(model).run("Look.", session="s", runtime=hf)
            shown = await results(hf, "s")
            await consistent(hf, "s")
        assert [[p.digest for p in one.pictures] for one in shown] == [[digest(CAT)], [digest(DOG)]]
        assert dict(model.requests[-1].pictures) == {digest(CAT): CAT, digest(DOG): DOG}

    async def test_a_model_that_does_not_see_is_sent_none(self):
        model = scripted(call("photo", name="cat"), "I can't see.")
        async with opened(capabilities=[photo]) as (hf, _):
            await tools(model).run("Look.", session="s", runtime=hf)
        assert [dict(one.pictures) for one in model.requests] == [{}, {}]

    async def test_another_process_sends_the_same(self, tmp_path: Path):
        url = f"sqlite:///{tmp_path}/j.db"
        first = scripted(call("photo", name="cat"), "A cat.", profile=SEES)
        async with opened(url, capabilities=[photo]) as (hf, _):
            await tools(first).run("Look.", session="s", runtime=hf)
        second = scripted("The same cat.", profile=SEES)
        async with opened(url, capabilities=[photo]) as (hf, _):
            await tools(second).run("Again.", session="s", runtime=hf)
            await consistent(hf, "s")
        assert dict(second.requests[0].pictures) == {digest(CAT): CAT}
        assert second.requests[0].messages[:3] == first.requests[-1].messages[:3]

    async def test_an_erased_picture_is_gone(self):
        model = scripted(call("photo", name="cat"), "A cat.", "Which cat?", profile=SEES)
        async with opened(capabilities=[photo]) as (hf, _):
            agent = tools(model)
            await agent.run("Look.", session="s", runtime=hf)
            assert await hf.journal.erase(digest(CAT), reason="asked")
            await agent.run("Again.", session="s", runtime=hf)
        assert dict(model.requests[1].pictures) == {digest(CAT): CAT}
        assert dict(model.requests[2].pictures) == {}

    async def test_a_picture_of_a_real_mcp_server(self):
        surfaces = {"all": npm("everything", connect_timeout_ms=30_000)}
        model = scripted(call("all_get_tiny_image"), "A logo.", profile=SEES)
        async with opened(config={**ASKS_NOT, "surfaces": surfaces}) as (hf, _):
            await tools(model).run("Look.", session="s", runtime=hf)
            await consistent(hf, "s")
        (data,) = model.requests[-1].pictures.values()
        assert data.startswith(b"\x89PNG")


class TestWhatIsNotSent:
    async def test_a_picture_of_another_session(self):
        theirs = scripted(call("photo", name="cat"), "Mine.", profile=SEES)
        thief = scripted(call("forged", of=digest(CAT)), "Nothing.", profile=SEES)
        async with opened(capabilities=[photo, forged]) as (hf, _):
            await tools(theirs).run("Look.", session="theirs", runtime=hf)
            await tools(thief).run("Look.", session="mine", runtime=hf)
            (shown,) = await results(hf, "mine")
        assert [one.digest for one in shown.pictures] == [digest(CAT)]
        assert dict(thief.requests[-1].pictures) == {}

    async def test_what_only_claims_to_be_a_picture(self):
        @capability(side_effect="read")
        async def liar(context: Context) -> dict[str, Any]:
            """Say that a text is a picture."""
            name = await context.keep(b"a secret plan", "image/png")
            return {"type": "image", "mime": "image/png", "digest": name}

        model = scripted(call("liar"), "Hm.", profile=SEES)
        async with opened(capabilities=[liar]) as (hf, _):
            await tools(model).run("Look.", session="s", runtime=hf)
        assert dict(model.requests[-1].pictures) == {}

    async def test_privacy_is_enforced(self):
        @capability(side_effect="read")
        async def scan(context: Context) -> dict[str, Any]:
            """Give a picture that nobody is to see."""
            strict = list(Privacy)[-1]
            name = await context.keep(CAT, "image/png", privacy=strict)
            return {"type": "image", "mime": "image/png", "digest": name}

        model = scripted(call("scan"), "Hm.", profile=SEES)
        async with opened(capabilities=[scan]) as (hf, _):
            await tools(model).run("Look.", session="s", runtime=hf)
        assert dict(model.requests[-1].pictures) == {}

    async def test_sent_is_enforced(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(module, "SENT", 1)
        model = scripted(call("photo", name="cat"), call("photo", name="dog"), "Dog.", profile=SEES)
        async with opened(capabilities=[photo]) as (hf, _):
            await tools(model).run("Look.", session="s", runtime=hf)
        assert dict(model.requests[-1].pictures) == {digest(DOG): DOG}

    async def test_sent_bytes_is_enforced(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(module, "SENT_BYTES", len(DOG))
        model = scripted(call("photo", name="cat"), call("photo", name="dog"), "Dog.", profile=SEES)
        async with opened(capabilities=[photo]) as (hf, _):
            await tools(model).run("Look.", session="s", runtime=hf)
        assert dict(model.requests[-1].pictures) == {digest(DOG): DOG}


class TestFinding:
    def test_both_ways_to_name_one(self):
        view = {
            "format": "image",
            "mime": "image/png",
            "content": digest(CAT),
            "image": {"width": 3, "height": 4},
        }
        assert [one.width for one in pictures_in([view, named(DOG)])] == [3, None]

    @pytest.mark.parametrize(
        "value",
        [
            None,
            "image",
            {"type": "image"},
            {"type": "image", "mime": "image/png", "digest": "abc"},
            {"type": "image", "mime": "image/svg+xml", "digest": digest(CAT)},
            {"type": "image", "mime": ["image/png"], "digest": digest(CAT)},
            {"format": "image", "mime": "image/png", "content": None},
            {"a": {"b": {"c": {"d": {"e": named(CAT)}}}}},
            [*[None] * 2000, named(CAT)],
        ],
    )
    def test_anything_else_is_none(self, value: Any):
        assert pictures_in(value) == ()

    def test_shown_is_enforced(self):
        many: list[Any] = [named(bytes([at])) for at in range(SHOWN + 5)]
        assert [one.digest for one in pictures_in(many)] == [one["digest"] for one in many[:SHOWN]]

    def test_one_that_is_named_twice_is_shown_once(self):
        assert len(pictures_in([named(CAT), named(CAT)])) == 1

    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.just(digest(CAT)),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(["type", "format", "mime", "digest", "content", "image", "width"]),
                inner | st.sampled_from(["image", "image/png"]),
            )
        ),
        max_leaves=20,
    )

    @given(values)
    def test_no_value_breaks_it(self, value: Any):
        found = pictures_in(value)
        assert found == pictures_in(json.loads(json.dumps(value)))

    def test_a_picture_costs_tokens(self):
        from holdfast.contracts.message import ToolMessage

        def cost(*pictures: Any) -> int:
            return message_tokens(
                ToolMessage(call_id="c", name="t", text="abcd", pictures=pictures)
            )

        (unknown,) = pictures_in(named(CAT))
        known = unknown.model_copy(update={"width": 75, "height": 100})
        huge = unknown.model_copy(update={"width": 9000, "height": 9000})
        assert [cost(), cost(unknown), cost(known), cost(huge)] == [
            1,
            1 + PICTURE_TOKENS,
            1 + 11,
            1 + PICTURE_TOKENS,
        ]


class TestProviders:
    @pytest.mark.parametrize("id", IDS)
    async def test_the_picture_arrives(self, id: str):
        with ProviderServer([call("photo", name="cat"), "A cat."]) as server:
            sees = provider_model(at(server, id), pictures=True)
            async with opened_to_providers(capabilities=[photo]) as (hf, _):
                agent = Agent(sees, capabilities=[photo], code_mode=False)
                run = await agent.run("Look.", session="s", runtime=hf)
            assert run.output == "A cat."
            bodies = [one.body for one in server.requests]
        assert [[*_pictures(body)] for body in bodies] == [[], [CAT]]

    async def test_a_server_elsewhere_is_sent_none_unless_somebody_says_so(self):
        with ProviderServer([call("photo", name="cat"), "A cat."]) as server:
            id = at(server, "openai:gpt-5.2")
            assert not provider_model(id).profile.pictures
            assert provider_model("openai:gpt-5.2").profile.pictures
            assert not provider_model("ollama:llama3.2").profile.pictures
            assert not provider_model("openai:gpt-5.2", pictures=False).profile.pictures
            async with opened_to_providers(capabilities=[photo]) as (hf, _):
                agent = Agent(id, capabilities=[photo], code_mode=False)
                await agent.run("Look.", session="s", runtime=hf)
            assert [[*_pictures(one.body)] for one in server.requests] == [[], []]


def _pictures(body: Any) -> Iterator[bytes]:
    """What is in a request that is a picture, in the words of any protocol."""
    if isinstance(body, list):
        for one in body:
            yield from _pictures(one)
    elif isinstance(body, dict):
        for key, value in body.items():
            if isinstance(value, str) and (data := _data(key, value)) is not None:
                yield data
            else:
                yield from _pictures(value)


def _data(key: str, value: str) -> bytes | None:
    if value.startswith("data:image/png;base64,"):
        return base64.b64decode(value.partition(",")[2])
    if key == "data":
        return base64.urlsafe_b64decode(value)
    return None

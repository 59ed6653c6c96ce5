"""Where the browser comes back to."""

import anyio
import httpx
import pytest

from holdfast.errors import NotFound, OperatorError, PersonError
from holdfast.leases.loopback import free_port, listening


async def get(url: str) -> httpx.Response:
    async with httpx.AsyncClient() as browser:
        return await browser.get(url)


async def test_takes_what_the_browser_brings() -> None:
    came: list[str] = []
    answers: list[httpx.Response] = []

    async def finish(url: str) -> None:
        came.append(url)
        if "stranger" in url:
            raise NotFound("NOT_FOUND", "No sign-in waits for <that>.")

    async with listening() as door, anyio.create_task_group() as tasks:

        async def visits() -> None:
            base = door.redirect_uri.removesuffix("/callback")
            answers.append(await get(f"{base}/favicon.ico"))
            answers.append(await get(f"{door.redirect_uri}?state=stranger"))
            answers.append(await get(f"{door.redirect_uri}?code=1&state=2"))

        tasks.start_soon(visits)
        await door.wait(finish)
    assert [one.status_code for one in answers] == [404, 400, 200]
    assert "&lt;that&gt;" in answers[1].text
    assert len(came) == 2
    assert came[1].endswith("?code=1&state=2")


async def test_tells_what_went_wrong() -> None:
    async def finish(url: str) -> None:
        raise PersonError("SIGN_IN_REQUIRED", "It was refused.")

    async with listening() as door, anyio.create_task_group() as tasks:
        tasks.start_soon(get, door.redirect_uri)
        with pytest.raises(PersonError):
            await door.wait(finish)


async def test_noise_does_not_disturb() -> None:
    came: list[str] = []

    async def finish(url: str) -> None:
        came.append(url)

    async with listening() as door, anyio.create_task_group() as tasks:
        port = int(door.redirect_uri.split(":")[2].split("/")[0])

        async def knocks() -> None:
            for noise in (
                b"",
                b"\x00\xff\r\n\r\n",
                b"POST /callback HTTP/1.1\r\n\r\n",
                b"x" * 20_000,
            ):
                async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                    await stream.send(noise or b"\r\n\r\n")
            await get(f"{door.redirect_uri}?code=1")

        tasks.start_soon(knocks)
        await door.wait(finish)
    assert [one.partition("?")[2] for one in came] == ["code=1"]


async def test_taken_port_is_told() -> None:
    port = await free_port()
    async with listening(port):
        with pytest.raises(OperatorError) as caught:
            async with listening(port):
                pass
    assert caught.value.code == "IO_ERROR"

"""The text of a PDF, page by page, read by a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import PurePath
from typing import Any, cast

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, Process

from holdfast.errors import ModelError
from holdfast.resources._window import CHUNK
from holdfast.resources.parsers import _pdf_process as program
from holdfast.resources.parsers.part import Part
from holdfast.resources.source import Source

PARSER = "pdf/1"
MAX_PDF_BYTES = 64 << 20
"""A greater file is not read: its pages are found only in all of it."""
DEFAULT_PAGES = 20
"""Pages that come when nobody says how many."""
_TOO_LARGE = b'{"error": "it is too large"}'
_ROOM = 8
"""As JSON, text can take so many times its room."""


async def read_pdf(source: Source, start: int, length: int | None, *, most: int) -> Part:
    """The text of `length` pages from page `start` on, as far as it fits."""
    want = length or DEFAULT_PAGES
    found = await _ask(source, start, want, most)
    if error := found.get("error"):
        raise ModelError(
            "TOOL_ERROR", f"The PDF can't be read: {error}.", hint="Is it damaged, or locked?"
        )
    pages = cast("list[str]", found["pages"])
    total, cut = int(found["total"]), int(found["cut"])
    after = start + len(pages)
    text = "\f".join(pages)
    part = Part("pages", start, count=len(pages), text=text, took=len(text.encode()))
    if after < total:
        part.next = after
        part.short = length is None or len(pages) < want
    if cut:
        part.short = True
        part.notes = (f"The text of page {start} has {cut} bytes and is cut.",)
    elif pages and not text.strip():
        part.notes = ("No text: the pages may be pictures.",)
    return part


async def _ask(source: Source, start: int, length: int, most: int) -> dict[str, Any]:
    """What the program says. Whatever ends this ends it."""
    process = await anyio.open_process(
        [sys.executable, "-I", str(PurePath(program.__file__)), str(start), str(length), str(most)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={},
        start_new_session=True,
    )
    try:
        answer = await _converse(process, source, most * _ROOM + CHUNK)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        with anyio.CancelScope(shield=True):
            await process.aclose()
    try:
        return json.loads(answer)
    except ValueError:
        return {"error": "it takes more time or memory than a file may"}


async def _converse(process: Process, source: Source, limit: int) -> bytes:
    answer = bytearray()
    async with anyio.create_task_group() as group:

        async def tell() -> None:
            if not await _tell(cast("ByteSendStream", process.stdin), source):
                answer[:] = _TOO_LARGE
                group.cancel_scope.cancel()

        group.start_soon(tell)
        with suppress(anyio.EndOfStream):
            while len(answer) <= limit:
                answer += await cast("ByteReceiveStream", process.stdout).receive()
        group.cancel_scope.cancel()
    return bytes(answer)


async def _tell(stdin: ByteSendStream, source: Source) -> bool:
    """Hand the file over; `False`: it is too large."""
    at = 0
    # A program that ends early has said why, or its end says so.
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        while part := await source.read(at, CHUNK):
            at += len(part)
            if at > MAX_PDF_BYTES:
                return False
            await stdin.send(part)
        await stdin.aclose()
    return True

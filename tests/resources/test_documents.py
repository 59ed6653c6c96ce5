"""PDF and pictures: text by pages, sizes from headers, and files that are made to hurt."""

import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from tests.resources.support import holding, read

from holdfast.contracts import Privacy, Retention
from holdfast.contracts.canonical import digest
from holdfast.contracts.resource import ResourceRequest
from holdfast.errors import ModelError
from holdfast.resources import resources as front
from holdfast.resources.parsers import _pdf_process as program
from holdfast.resources.parsers import pdf


def pdf_of(*streams: bytes, packed: bool = False) -> bytes:
    """A file with one page for each content stream."""
    count = len(streams)
    kids = " ".join(f"{3 + 2 * n} 0 R" for n in range(count))
    font = "<< /Font << /F 99 0 R >> >>"
    objects: dict[int, bytes] = {
        1: b"<< /Type /Catalog /Pages 2 0 R >>",
        2: f"<< /Type /Pages /Kids [{kids}] /Count {count} >>".encode(),
        99: b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    }
    for n, stream in enumerate(streams):
        page, content = 3 + 2 * n, 4 + 2 * n
        objects[page] = (
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Resources {font}"
            f" /Contents {content} 0 R >>"
        ).encode()
        how = b"/Filter /FlateDecode " if packed else b""
        objects[content] = (
            b"<< %s/Length %d >>\nstream\n" % (how, len(stream)) + stream + b"\nendstream"
        )
    out, places = bytearray(b"%PDF-1.7\n"), dict[int, int]()
    for number, body in objects.items():
        places[number] = len(out)
        out += b"%d 0 obj\n" % number + body + b"\nendobj\n"
    table = len(out)
    out += b"xref\n"
    for number, at in sorted(places.items()):
        out += b"%d 1\n%010d 00000 n \n" % (number, at)
    out += b"trailer << /Root 1 0 R /Size 100 >>\nstartxref\n%d\n%%%%EOF\n" % table
    return bytes(out)


def saying(text: str) -> bytes:
    return f"BT /F 12 Tf 50 700 Td ({text}) Tj ET".encode()


PAGES = [saying(f"page {n}") for n in range(5)]


async def test_the_text_of_pages_comes_by_their_numbers():
    resources, _ = holding(pdf_of(*PAGES))
    view = await read(resources, start=1, length=2)
    assert (view.format, view.unit, view.text) == ("pdf", "pages", "page 1\fpage 2")
    assert (view.count, view.next, view.truncated) == (2, 3, False)
    view = await read(resources)
    assert (view.text, view.next) == ("\f".join(f"page {n}" for n in range(5)), None)


async def test_pages_that_do_not_fit_come_later():
    resources, _ = holding(pdf_of(*PAGES))
    view = await read(resources, max_bytes=14, length=5)
    assert (view.text, view.count, view.next, view.truncated) == ("page 0\fpage 1", 2, 2, True)
    view = await read(resources, max_bytes=3, length=1)
    assert (view.text, view.truncated, view.next) == ("pag", True, 1)
    assert "is cut" in view.notes[0]


async def test_without_a_number_there_is_a_bound_on_pages():
    resources, _ = holding(pdf_of(*[b""] * (pdf.DEFAULT_PAGES + 2)))
    view = await read(resources)
    assert (view.count, view.next, view.truncated) == (pdf.DEFAULT_PAGES, pdf.DEFAULT_PAGES, True)
    assert view.notes == ("No text: the pages may be pictures.",)


def bomb() -> bytes:
    """A page that unpacks to 300 megabytes."""
    pack = zlib.compressobj(1)
    zeros = b" " * (16 << 20)
    return pdf_of(b"".join(pack.compress(zeros) for _ in range(19)) + pack.flush(), packed=True)


async def test_a_pdf_that_unpacks_to_far_more_is_refused():
    data = bomb()
    assert len(data) < 4 << 20
    resources, _ = holding(data)
    with pytest.raises(ModelError, match="can't be read: LimitReachedError") as caught:
        await read(resources)
    assert caught.value.code == "TOOL_ERROR"


@pytest.mark.parametrize(
    ("does", "says"),
    [
        ("bytearray(1 << 30)", b"MemoryError"),
        ("open('grown', 'wb').write(b'x' * 100_000)", b""),
        ("import resource; print(resource.getrlimit(resource.RLIMIT_CPU)[0])", b"20"),
    ],
)
def test_the_process_that_reads_one_is_confined(does: str, says: bytes, tmp_path: Path):
    folder = Path(program.__file__).parent
    code = f"import sys; sys.path.insert(0, {str(folder)!r}); import _pdf_process as p; p.confine(); {does}"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, cwd=tmp_path)
    assert says in done.stdout + done.stderr
    assert bool(done.returncode) == (says != b"20")
    assert all(not one.stat().st_size for one in tmp_path.glob("grown"))


async def test_a_reader_that_dies_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    dying = tmp_path / "dying.py"
    dying.write_text("import os; os.kill(os.getpid(), 9)")
    monkeypatch.setattr(program, "__file__", str(dying))
    resources, _ = holding(pdf_of(*PAGES))
    with pytest.raises(ModelError, match="more time or memory"):
        await read(resources)


@pytest.mark.parametrize("cut", [8, 100, 400])
async def test_a_damaged_pdf_is_told(cut: int):
    resources, _ = holding(pdf_of(*PAGES)[:cut] + b"\xff\x00")
    with pytest.raises(ModelError, match="can't be read") as caught:
        await read(resources)
    assert caught.value.code == "TOOL_ERROR"


async def test_a_pdf_that_is_too_large_is_described(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pdf, "MAX_PDF_BYTES", 100)
    resources, memory = holding(pdf_of(*PAGES))
    view = await read(resources)
    assert (view.format, view.text) == ("binary", f"Not text: {view.summary}.")
    memory.unknown_size = True
    with pytest.raises(ModelError, match="it is too large"):
        await read(resources)


async def test_a_pdf_asked_for_as_text_is_described_and_text_as_pdf_refused():
    resources, _ = holding(pdf_of(*PAGES))
    view = await read(resources, format="text")
    assert view.format == "binary"
    assert "format='auto'" in view.notes[0]
    resources, _ = holding(b"text")
    for format_ in ("pdf", "image"):
        with pytest.raises(ModelError, match=f"It is not {format_}, but text/plain"):
            await read(resources, format=format_)


# -- pictures -----------------------------------------------------------------------------------------

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 640, 480) + b"\x08\x02\0\0\0"
GIF = b"GIF89a" + struct.pack("<HH", 640, 480) + b"\0\0\0"
BMP = b"BM" + b"\0" * 12 + struct.pack("<Iii", 40, 640, -480)
JPEG = (
    b"\xff\xd8\xff\xe0\x00\x10JFIF"
    + b"\0" * 10
    + b"\xff\xff\xc0\x00\x11\x08"
    + struct.pack(">HH", 480, 640)
    + b"\x03\x01\x22\x00"
)
WEBP = b"RIFF\0\0\0\0WEBP"
LOSSY = WEBP + b"VP8 " + b"\0" * 10 + struct.pack("<HH", 640, 480)
LOSSLESS = WEBP + b"VP8L" + b"\0\0\0\0\x2f" + struct.pack("<I", 639 | 479 << 14)
EXTENDED = WEBP + b"VP8X" + b"\0" * 8 + (639).to_bytes(3, "little") + (479).to_bytes(3, "little")


@pytest.mark.parametrize(
    ("data", "mime"),
    [
        (PNG, "image/png"),
        (GIF, "image/gif"),
        (BMP, "image/bmp"),
        (JPEG, "image/jpeg"),
        (LOSSY, "image/webp"),
        (LOSSLESS, "image/webp"),
        (EXTENDED, "image/webp"),
    ],
)
async def test_a_picture_has_its_size_and_is_given_by_reference(data: bytes, mime: str):
    resources, _ = holding(data, "x.txt")
    kept: dict[str, tuple[bytes, str]] = {}

    async def keep(data: bytes, mime: str, privacy: Privacy, retention: Retention) -> str:
        kept[digest(data)] = (data, mime)
        return digest(data)

    view = await resources.read(ResourceRequest(uri="mem:x.txt"), keep=keep)
    assert (view.format, view.mime, view.text) == ("image", mime, None)
    assert view.image is not None
    assert (view.image.width, view.image.height) == (640, 480)
    assert view.content is not None
    assert kept[view.content] == (data, mime)
    assert view.returned_bytes == len(data)


@pytest.mark.parametrize("data", [PNG, GIF, BMP, JPEG, LOSSY, LOSSLESS, EXTENDED])
async def test_a_picture_cut_anywhere_is_told_and_never_crashes(data: bytes):
    for cut in range(len(data)):
        resources, _ = holding(data[:cut])
        view = await read(resources)
        assert view.image is None or view.image.width == 640


async def test_a_jpeg_of_endless_parts_is_given_up_on():
    resources, memory = holding(b"\xff\xd8" + b"\xff\xe0\x00\x02" * 500_000)
    assert (await read(resources)).image is None
    assert sum(length for _, length in memory.reads) < 100_000


async def test_a_picture_that_is_too_large_is_not_stored(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(front, "MAX_KEPT_BYTES", 10)
    resources, _ = holding(PNG)

    async def keep(data: bytes, mime: str, privacy: Privacy, retention: Retention) -> str:
        raise AssertionError("stored")

    view = await resources.read(ResourceRequest(uri="mem:x"), keep=keep)
    assert (view.content, view.truncated) == (None, True)
    assert "is not stored" in view.notes[0]

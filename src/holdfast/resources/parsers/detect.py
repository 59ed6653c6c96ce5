"""What something is: by its first bytes, then by what it is said to be, and last by its name."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from holdfast.resources.parsers.image import image_mime

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"PK\x05\x06", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"BZh", "application/x-bzip2"),
    (b"\xfd7zXZ\x00", "application/x-xz"),
    (b"(\xb5/\xfd", "application/zstd"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"Rar!\x1a\x07", "application/vnd.rar"),
    (b"SQLite format 3\x00", "application/vnd.sqlite3"),
    (b"\x7fELF", "application/x-elf"),
    (b"\x00asm", "application/wasm"),
    (b"PAR1", "application/vnd.apache.parquet"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"fLaC", "audio/flac"),
)
_BOMS: tuple[tuple[bytes, str], ...] = (
    # The longer ones first: UTF-32's begins with UTF-16's.
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Encodings that a server may name, all of which have ASCII's line end.
_CHARSETS = frozenset(
    "utf-8 us-ascii iso-8859-1 iso-8859-2 iso-8859-15 windows-1250 windows-1251 windows-1252 shift_jis"
    " euc-jp euc-kr gb2312 gbk gb18030 big5 koi8-r".split()
)
_NAMES = {
    "csv": "text/csv",
    "tsv": "text/tab-separated-values",
    "jsonl": "application/jsonl",
    "ndjson": "application/jsonl",
    "json": "application/json",
    "md": "text/markdown",
    "html": "text/html",
    "htm": "text/html",
    "xml": "application/xml",
    "yaml": "application/yaml",
    "yml": "application/yaml",
    "toml": "application/toml",
    "py": "text/x-python",
}
# Besides white space, text may have a backspace, and an escape for colours.
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\v\f\r\b\x1b")) + b"\x7f"
_ODD_SHARE = 50
"""Of so many bytes, one that no text has makes it binary."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What something is."""

    mime: str
    format: str
    """`text`, `pdf`, `image` or `binary`."""
    encoding: str = ""
    """How text is encoded."""
    bom: int = 0
    """Bytes before the text that only say how it is encoded."""
    note: str | None = None

    @property
    def width(self) -> int:
        """Bytes that all characters are multiples of."""
        return {"utf-16": 2, "utf-32": 4}.get(self.encoding[:6], 1)

    @property
    def line_end(self) -> bytes:
        """A line end, encoded."""
        return "\n".encode(self.encoding)


def detect(head: bytes, *, whole: bool, hint: str | None, uri: str) -> Kind:
    """What begins with `head`; `whole`: there is nothing after it."""
    for magic, mime in _MAGIC:
        if head.startswith(magic):
            return Kind(mime, "pdf" if mime == "application/pdf" else "binary")
    if mime := image_mime(head):
        return Kind(mime, "image")
    said, charset = _said(hint)
    for bom, encoding in _BOMS:
        if head.startswith(bom):
            return Kind(_text_mime(said, uri), "text", encoding, len(bom))
    if not _is_text(head):
        # Of what no magic names, the word of whoever has it is the best there is; text it is not.
        known = said and not said.startswith("text/")
        return Kind(said if known else "application/octet-stream", "binary")
    mime = _text_mime(said, uri)
    if charset is not None:
        return Kind(mime, "text", charset)
    if _is_utf8(head, whole):
        return Kind(mime, "text", "utf-8")
    return Kind(mime, "text", "latin-1", note="Not UTF-8: read as Latin-1, which may be wrong.")


def _said(hint: str | None) -> tuple[str, str | None]:
    """The type that somebody names, and the encoding, if it is one that is known."""
    mime, *more = (hint or "").split(";")
    for one in more:
        name, _, value = one.partition("=")
        value = value.strip().strip("\"'").lower()
        if name.strip().lower() == "charset" and value in _CHARSETS:
            return mime.strip().lower(), value
    return mime.strip().lower(), None


def _text_mime(said: str, uri: str) -> str:
    if said and said not in ("text/plain", "application/octet-stream"):
        # It is text, whatever somebody says: no picture, no archive.
        major, _, minor = said.partition("/")
        if major == "text" or minor.endswith(("json", "xml", "yaml", "toml", "jsonl", "script")):
            return said
    name = uri.partition("?")[0].rpartition("/")[2]
    return _NAMES.get(name.rpartition(".")[2].lower(), "text/plain")


def _is_text(head: bytes) -> bool:
    if b"\x00" in head:
        return False
    odd = len(head) - len(head.translate(None, _CONTROLS))
    return odd * _ODD_SHARE <= len(head)


def _is_utf8(head: bytes, whole: bool) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, final=whole)
    except UnicodeDecodeError:
        return False
    return True

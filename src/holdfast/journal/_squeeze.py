# pyright: reportUnknownMemberType=false
"""How stored bytes get small: Zstandard, with a dictionary of the words that records, rows and bodies are made of.

Most of what a journal holds is a few hundred bytes long. Alone, that does not compress; against the dictionary it
shrinks to a fifth, in two microseconds. The dictionary is part of the file format: never change it, add another.

A checksum over the compressed bytes stands before them, for the same text can be compressed in many ways: without it,
a bit could be changed that makes no difference, and nobody would find out that the file was touched.

(zstandard's annotations leave some parts of its signatures out, hence the line above.)
"""

from __future__ import annotations

import threading
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from zstandard import ZstdCompressionDict

LEVEL = 1
"""How hard to try: 4 takes twice as long and gains a twentieth."""

_SUM = 4


class _Tools(threading.local):
    """What compresses and gives back: nothing that two threads may use at once."""

    def __init__(self) -> None:
        import zstandard as z  # only who opens a file needs it

        dictionary = _dictionary()
        plain = z.FORMAT_ZSTD1_MAGICLESS
        how = z.ZstdCompressionParameters.from_level(
            LEVEL, format=plain, write_content_size=1, write_checksum=0, write_dict_id=0
        )
        self.compress = z.ZstdCompressor(dict_data=dictionary, compression_params=how).compress
        self.decompress = z.ZstdDecompressor(dict_data=dictionary, format=plain).decompress
        self.failures = (z.ZstdError, MemoryError)


@cache
def _dictionary() -> ZstdCompressionDict:
    import zstandard as z

    found = z.ZstdCompressionDict(Path(__file__).with_name("dictionary-1.zdict").read_bytes())
    found.precompute_compress(level=LEVEL)
    return found


_tools: _Tools | None = None


def _own() -> _Tools:
    global _tools
    if _tools is None:
        _tools = _Tools()
    return _tools


def squeezed(data: bytes) -> bytes:
    """`data` in fewer bytes, as a rule."""
    frame = (_tools or _own()).compress(data)
    return crc32(frame).to_bytes(_SUM, "little") + frame


def unsqueezed(stored: bytes, start: int = 0) -> bytes | None:
    """What was squeezed, from byte `start` on, or `None` when that is not what these bytes are."""
    frame = stored[start + _SUM :]
    if crc32(frame) != int.from_bytes(stored[start : start + _SUM], "little"):
        return None
    tools = _tools or _own()
    try:
        return tools.decompress(frame, allow_extra_data=False)
    except tools.failures:
        return None

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

SMALL = 16 * 1024
"""Bytes up to which data is squeezed with small tables: beside a database that wants the processor's cache, too, they
are a fifth faster, and find as much."""

_SUM = 4


class _Tools(threading.local):
    """What compresses and gives back: nothing that two threads may use at once."""

    def __init__(self) -> None:
        import zstandard as z  # only who opens a file needs it

        plain = z.FORMAT_ZSTD1_MAGICLESS
        frame = {"format": plain, "write_content_size": 1, "write_checksum": 0, "write_dict_id": 0}
        small = z.ZstdCompressionParameters(
            window_log=14,
            hash_log=11,
            chain_log=11,
            min_match=5,
            strategy=z.STRATEGY_DFAST,
            **frame,
        )
        large = z.ZstdCompressionParameters.from_level(3, **frame)
        dictionary = _dictionary()
        tuned = _dictionary()
        tuned.precompute_compress(compression_params=small)
        self.small = z.ZstdCompressor(dict_data=tuned, compression_params=small).compress
        self.large = z.ZstdCompressor(dict_data=dictionary, compression_params=large).compress
        self.decompress = z.ZstdDecompressor(dict_data=dictionary, format=plain).decompress
        self.failures = (z.ZstdError, MemoryError)


def _dictionary() -> ZstdCompressionDict:
    import zstandard as z

    return z.ZstdCompressionDict(_words())


@cache
def _words() -> bytes:
    return Path(__file__).with_name("dictionary-1.zdict").read_bytes()


_tools: _Tools | None = None


def _own() -> _Tools:
    global _tools
    if _tools is None:
        _tools = _Tools()
    return _tools


def squeezed(data: bytes) -> bytes:
    """`data` in fewer bytes, as a rule."""
    tools = _tools or _own()
    frame = tools.small(data) if len(data) <= SMALL else tools.large(data)
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

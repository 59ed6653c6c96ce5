"""Pictures: what kind, and how large, from the header alone. Nothing is decoded."""

from __future__ import annotations

import struct

from holdfast.resources._window import OutOfBudget, Window

_MAX_SEGMENTS = 500
"""Parts of a JPEG before the one that has its size."""
# Start of a frame, of any kind of coding; the others between them are tables.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def image_mime(head: bytes) -> str | None:
    """The type of a picture that models take; `None` for anything else."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    if head.startswith(b"BM") and head[14:18] in (b"\x28\0\0\0", b"\x6c\0\0\0", b"\x7c\0\0\0"):
        return "image/bmp"
    return None


def image_size(window: Window, mime: str) -> tuple[int, int] | None:
    """Width and height; `None` when the header does not say."""
    head = window.head
    try:
        match mime:
            case "image/png":
                found = struct.unpack_from(">II", head, 16) if head[12:16] == b"IHDR" else None
            case "image/gif":
                found = struct.unpack_from("<HH", head, 6)
            case "image/bmp":
                width, height = struct.unpack_from("<ii", head, 18)
                found = (width, abs(height))
            case "image/webp":
                found = _webp(head)
            case _:
                found = _jpeg(window)
    except (struct.error, IndexError, OutOfBudget):
        return None
    return (found[0], found[1]) if found and found[0] > 0 and found[1] > 0 else None


def _webp(head: bytes) -> tuple[int, int] | None:
    match head[12:16]:
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", head, 26)
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            (bits,) = struct.unpack_from("<I", head, 21)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            width = int.from_bytes(head[24:27], "little") + 1
            height = int.from_bytes(head[27:30], "little") + 1
            return (width, height) if len(head) >= 30 else None
        case _:
            return None


def _jpeg(window: Window) -> tuple[int, int] | None:
    at = 2
    for _ in range(_MAX_SEGMENTS):
        part = window.read(at, 9)
        if len(part) < 9 or part[0] != 0xFF:
            return None
        if part[1] == 0xFF:
            at += 1  # filling
            continue
        if part[1] in _FRAMES:
            height, width = struct.unpack_from(">HH", part, 5)
            return width, height
        at += 2 + struct.unpack_from(">H", part, 2)[0]
    return None

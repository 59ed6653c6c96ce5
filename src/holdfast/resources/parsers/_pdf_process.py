"""The program that reads one PDF, in a process of its own: a file made to hurt hurts only this process.

It is run by its path, isolated, with an empty environment; it imports nothing of holdfast. The file comes on
standard input, one line of JSON goes to standard output.
"""

from __future__ import annotations

import io
import json
import logging
import resource
import sys

MEMORY = 768 << 20
SECONDS = 20


def confine() -> None:
    """No more memory and time than a sound file needs, and no file to write."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def read(data: bytes, start: int, length: int, most: int) -> dict[str, object]:
    """The text of some pages, as much of it as there is room for."""
    from pypdf import PasswordType, PdfReader

    reader = PdfReader(io.BytesIO(data), strict=False)
    if reader.is_encrypted and reader.decrypt("") == PasswordType.NOT_DECRYPTED:
        return {"error": "it is locked with a password"}
    total = len(reader.pages)
    pages: list[str] = []
    size = 0
    for number in range(start, min(start + length, total)):
        # As text that can be written: fonts are able to give half a character.
        found = reader.pages[number].extract_text().encode(errors="replace").decode()
        room = most - size
        data = found.encode()
        if len(data) > room:
            if pages:
                break
            pages.append(data[:room].decode(errors="ignore"))
            return {"total": total, "pages": pages, "cut": len(data)}
        pages.append(found)
        size += len(data)
    return {"total": total, "pages": pages, "cut": 0}


def main() -> None:
    """Read, and say what was found or what is wrong."""
    start, length, most = map(int, sys.argv[1:])
    logging.disable()
    confine()
    try:
        found = read(sys.stdin.buffer.read(), start, length, most)
    except MemoryError:
        found = {"error": "it needs more memory than a file may"}
    except RecursionError:
        found = {"error": "it is nested too deeply"}
    except Exception as why:  # noqa: BLE001 - whatever such a file does to its reader is the file's fault
        found = {"error": f"{type(why).__name__}: {str(why)[:200]}"}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()

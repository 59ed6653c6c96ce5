"""An OpenAPI document: read from a file or an address, bounded, and with references that stay within it."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urljoin, urlsplit

import anyio
from anyio import to_thread

from holdfast.capabilities.builtin._hosts import Hosts
from holdfast.capabilities.openapi._failures import BadDocument, Unusable
from holdfast.capabilities.openapi._yaml import read_yaml
from holdfast.contracts import Json
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.capabilities.builtin._wire import Resolve

MAX_BYTES = 16 * 1024 * 1024
"""Of a document."""
MAX_NODES = 1_000_000
"""Values in a document, aliases followed."""
MAX_DEPTH = 100
"""How far objects and lists of a document may be within each other."""
MAX_REDIRECTS = 5
"""Followed from the address of a document, on its own host."""
_HOPS = 32

Object = dict[str, Json]


@dataclass(frozen=True, slots=True)
class Document:
    """A document that was read."""

    root: Object
    """All of it: JSON, and nothing else."""
    address: str | None
    """Where it came from; `None` for a file."""

    @property
    def label(self) -> str:
        """What it calls itself, and its version."""
        info = self.root.get("info")
        parts = [info.get("title"), info.get("version")] if isinstance(info, dict) else []
        return " ".join(str(one)[:80] for one in parts if isinstance(one, str | int | float))

    def object(self, key: str) -> Object:
        """One of its parts; empty where there is none."""
        found = self.root.get(key)
        return found if isinstance(found, dict) else {}

    def at(self, reference: Json) -> Json:
        """What a reference names; raises `Unusable` for one that leads out of the document or nowhere."""
        if not isinstance(reference, str):
            raise Unusable("a reference is no text")
        if not reference.startswith("#/"):
            raise Unusable(f"`{reference[:120]}` leads out of the document")
        found: Json = self.root
        for part in unquote(reference[2:]).split("/"):
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list):
                found = dict(zip(map(str, range(len(found))), found, strict=True))
            if not isinstance(found, dict) or name not in found:
                raise Unusable(f"`{reference[:120]}` leads nowhere")
            found = found[name]
        return found

    def followed(self, value: Json, what: str) -> Object:
        """The object that a value is or refers to; raises `Unusable` unless there is one."""
        for _ in range(_HOPS):
            if not isinstance(value, dict):
                raise Unusable(f"its {what} is no object")
            if "$ref" not in value:
                return value
            value = self.at(value["$ref"])
        raise Unusable(f"its {what} refers to itself")


async def read_document(
    where: str, *, headers: Mapping[str, str], seconds: float, resolve: Resolve | None
) -> Document:
    """The document at a path or an address; raises `BadDocument`.

    `headers` are sent to an address.
    """
    if where.startswith(("http://", "https://")):
        data, address = await _fetched(where, headers, seconds, resolve), where
    else:
        data, address = await to_thread.run_sync(_read, where), None
    # In a thread: a long document takes its time.
    root = await to_thread.run_sync(parse_document, data)
    return Document(root, address)


def parse_document(data: bytes) -> Object:
    """What the bytes of a document say; raises `BadDocument`."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadDocument("it is not UTF-8 text") from None
    if text.lstrip().startswith("{"):
        try:
            found: object = json.loads(text)
        except (ValueError, RecursionError) as why:
            raise BadDocument(f"it is not JSON: {str(why)[:200]}") from None
    else:
        found = read_yaml(text, most_nodes=MAX_NODES, most_depth=MAX_DEPTH)
    root = _Plain().plain(found, 0)
    if not isinstance(root, dict):
        raise BadDocument("it is no object")
    _check_version(root)
    return root


class _Plain:
    """Makes JSON of what was read: names are texts, and everything is counted."""

    def __init__(self) -> None:
        self._nodes = 0

    def plain(self, value: object, depth: int) -> Json:
        """The value; raises `BadDocument` for one that JSON has not, or for too much."""
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise BadDocument(f"it has more than {MAX_NODES} values")
        if depth > MAX_DEPTH:
            raise BadDocument(f"it is more than {MAX_DEPTH} deep")
        match value:
            case None | bool() | int():
                return value
            case str():
                return _text(value)
            case float() if value - value == 0:
                return value
            case list():
                return [self.plain(one, depth + 1) for one in cast("list[object]", value)]
            case dict():
                parts = cast("dict[object, object]", value).items()
                return {_key(name): self.plain(one, depth + 1) for name, one in parts}
            case _:
                raise BadDocument(f"it holds a `{type(value).__name__}`, which JSON has not")


def _text(text: str) -> str:
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise BadDocument("a text in it is no Unicode")
    return text


def _key(name: object) -> str:
    # `200:` is a number in YAML, and a name here.
    if isinstance(name, str):
        return _text(name)
    if name is None or isinstance(name, bool | int | float):
        return json.dumps(name)
    raise BadDocument("a name in it is no text")


def _check_version(root: Object) -> None:
    version = root.get("openapi")
    if version is None and "swagger" in root:
        raise BadDocument("it is a Swagger 2 document; a converter makes OpenAPI 3 of it")
    shown = str(version)
    if not shown.startswith(("3.0", "3.1")):
        raise BadDocument(f"it is of OpenAPI `{shown[:20]}`, and 3.0 and 3.1 are understood")


def _read(path: str) -> bytes:
    try:
        # Not to wait for whoever writes into a pipe.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise BadDocument(f"`{path[:200]}` is no file")
            with open(handle, "rb", closefd=False) as file:
                data = file.read(MAX_BYTES + 1)
        finally:
            os.close(handle)
    except OSError as why:
        raise BadDocument(f"`{path[:200]}` can't be read: {why.strerror}") from None
    except ValueError:
        raise BadDocument("its path is none") from None
    if len(data) > MAX_BYTES:
        raise BadDocument(f"it has more than {MAX_BYTES} bytes")
    return data


async def _fetched(
    address: str, headers: Mapping[str, str], seconds: float, resolve: Resolve | None
) -> bytes:
    from holdfast.capabilities.builtin import _wire as wire

    try:
        hosts = Hosts([origin(address)])
        line = wire.Wire(hosts, resolve or wire.resolve, max_bytes=MAX_BYTES, timeout=seconds)
        with anyio.fail_after(seconds):
            for _ in range(MAX_REDIRECTS + 1):
                target = hosts.check(address)
                answer = await line.send("GET", target, headers)
                if answer.location is None:
                    break
                address = urljoin(str(target), answer.location)
            else:
                raise BadDocument(f"its address leads on more than {MAX_REDIRECTS} times")
    except HoldfastError as why:
        raise BadDocument(f"its address can't be used: {why.message.rstrip('.')}") from None
    except (wire.Broken, ValueError) as why:
        raise BadDocument(f"it can't be fetched: {why}") from None
    except TimeoutError:
        raise BadDocument(f"it did not come within {seconds:g} s") from None
    if answer.status != 200:
        raise BadDocument(f"its address answered {answer.status}")
    return answer.body


def origin(address: str) -> str:
    """Scheme, host and port of an address, as a list of hosts has them; raises `BadDocument`."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc:
        raise BadDocument(f"`{address[:200]}` is not an address of http or https")
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}{f':{port}' if port is not None else ''}"


def text_of(value: Any) -> str:
    """The value if it is a text."""
    return value if isinstance(value, str) else ""

"""YAML as OpenAPI means it: what JSON can express, and no more of it than was written down.

An alias stands for a whole tree, so that a few lines can stand for more nodes than there is memory. What a document
stands for is counted from its events, before anything is made of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from holdfast.capabilities.openapi._failures import BadDocument

# YAML 1.1, which the library reads, has dates, `no` for false and 1:30 for 90; the JSON schema of YAML 1.2 has not.
_PLAIN = (
    ("bool", r"true|false", "tf"),
    ("null", r"null|~|", ["n", "~", ""]),
    ("int", r"-?(?:0|[1-9][0-9]*)", "-0123456789"),
    (
        "float",
        r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+(?:[eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)",
        "-0123456789",
    ),
    ("merge", r"<<", "<"),
)


def read_yaml(text: str, *, most_nodes: int, most_depth: int) -> object:
    """What a document says; raises `BadDocument` for one that is none, or that stands for too much."""
    import yaml

    loader = _loader()
    # `Any`: the library has hardly any types.
    parse: Any = yaml.parse  # type: ignore[reportUnknownMemberType]
    try:
        _count(parse(text, Loader=loader), most_nodes, most_depth)
        return yaml.load(text, Loader=loader)  # a SafeLoader: it makes plain values only
    except yaml.YAMLError as why:
        raise BadDocument(f"it is not YAML: {_said(why)}") from None
    except (ValueError, RecursionError) as why:
        raise BadDocument(f"it is not YAML: {str(why)[:200]}") from None


def _count(events: Iterator[Any], most_nodes: int, most_depth: int) -> None:
    """Raise if the document, all aliases followed, has too many nodes or is too deep."""
    import yaml

    sizes: dict[str, int] = {}
    depths: dict[str, int] = {}
    # Of each open list or object: its anchor, the nodes before it, and how deep it goes below itself.
    opened: list[tuple[str | None, int]] = []
    below: list[int] = [0]
    nodes = 0
    for event in events:
        if isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, nodes))
            below.append(0)
            nodes += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            depth = below.pop() + 1
            below[-1] = max(below[-1], depth)
            if anchor is not None:
                sizes[anchor], depths[anchor] = nodes - before, depth
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise BadDocument(f"the alias `*{event.anchor[:80]}` stands for itself or nothing")
            nodes += sizes[event.anchor]
            below[-1] = max(below[-1], depths[event.anchor])
        elif isinstance(event, yaml.ScalarEvent):
            nodes += 1
            if event.anchor is not None:
                sizes[event.anchor], depths[event.anchor] = 1, 0
        if nodes > most_nodes:
            raise BadDocument(f"it stands for more than {most_nodes} values")
        if len(opened) + below[-1] > most_depth:
            raise BadDocument(f"it is more than {most_depth} deep")


@cache
def _loader() -> Any:
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for tag, pattern, first in _PLAIN:
        for char in first:
            found = (f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"))
            resolvers.setdefault(char, []).append(found)
    return type("Loader", (base,), {"yaml_implicit_resolvers": resolvers})


def _said(why: Exception) -> str:
    return " ".join(str(why).split())[:200]

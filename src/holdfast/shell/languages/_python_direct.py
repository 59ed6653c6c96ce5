"""Calls of awaited capabilities that need not be awaited: at the top level, nothing else could go on meanwhile.

`n += await look(i)` stops the engine twice: at the call, where it is promised an answer, and at the await, where it
gets it. Read without its `await`, the same line stops once, and gives the same. So that is how it is fed, where the
text says for sure that it means the same: the call stands right behind the `await`, in no function (whose callers might
be gathered), and its name is a capability's and nobody else's.

The text keeps its length, so that every place in it stays where it was. At the start of a statement, blanks would be an
indent: there, `await f()` becomes `1 and f()`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from holdfast.shell.languages import _python_scope as scope

_AWAIT, _BLANK, _FIRST = b"await", b"     ", b"1 and"

_ELSEWHERE = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
    ast.JoinedStr,  # the host does not know where in a formatted string something is
)


def directly(text: str, names: frozenset[str]) -> tuple[str, dict[int, int]]:
    """The text to feed, and which calls in it are answered with their value at once.

    A call by where it starts, and to it where its `await` was; in bytes.
    """
    if not names or "await" not in text or "\r" in text or "\f" in text:
        return text, {}
    tree = scope.parse(text)
    if tree is None:
        return text, {}
    data = bytearray(text.encode())
    starts = _line_starts(data)
    calls: dict[int, int] = {}
    for first, node, call in _awaits(tree, names):
        at = starts[node.lineno - 1] + node.col_offset
        if data.startswith(_AWAIT, at):
            data[at : at + len(_AWAIT)] = _FIRST if first else _BLANK
            calls[starts[call.lineno - 1] + call.col_offset] = at
    return data.decode(), calls


def _line_starts(data: bytearray) -> list[int]:
    starts, at = [0], data.find(b"\n")
    while at >= 0:
        starts.append(at + 1)
        at = data.find(b"\n", at + 1)
    return starts


def _awaits(tree: ast.Module, names: frozenset[str]) -> Iterator[tuple[bool, ast.Await, ast.Call]]:
    """Each await at the top level of a call of one of `names`; first, whether a statement starts with it."""
    starts: set[tuple[int, int]] = set()
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Expr):
            starts.add((node.lineno, node.col_offset))
        match node:
            case ast.Await(value=ast.Call(func=ast.Name(id=name)) as call) if name in names:
                yield (node.lineno, node.col_offset) in starts, node, call
            case _:
                pass
        todo.extend(one for one in ast.iter_child_nodes(node) if not isinstance(one, _ELSEWHERE))

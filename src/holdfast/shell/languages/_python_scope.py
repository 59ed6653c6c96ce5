"""What a piece of Python binds, read from its syntax tree.

The text comes from an agent, so parsing it must never harm the host: its length is bounded (some constructs
take quadratic time), and whatever the parser raises means no more than "can't be read".
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator

from holdfast.contracts import Span

MAX_CHARS = 20_000
"""Longer code is not parsed by the host."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
_Scope = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def parse(code: str) -> ast.Module | None:
    """The syntax tree; `None` when the host can't or won't read it. The engine may: it knows newer syntax."""
    if len(code) > MAX_CHARS:
        return None
    try:
        if "\\" not in code:  # only escapes are remarked on, and silencing costs more than reading
            return ast.parse(code)
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # remarks on the agent's escapes are not the host's to print
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def span(node: ast.expr | ast.stmt, lines: list[str]) -> Span:
    """Where a node stands in the code of these lines."""
    end = node.end_lineno or node.lineno
    return Span(
        line=node.lineno,
        column=column(lines[node.lineno - 1], node.col_offset),
        end_line=end,
        end_column=column(lines[end - 1], node.end_col_offset or 0),
    )


def column(line: str, offset: int) -> int:
    """The column, in characters from 1, of an offset in bytes."""
    # Within an f-string, Python 3.11 is not exact.
    return len(line.encode()[:offset].decode(errors="ignore")) + 1


def statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Every statement of one scope, nested blocks included, nested scopes not."""
    todo = list(body)
    while todo:
        stmt = todo.pop()
        yield stmt
        if not isinstance(stmt, _Scope):
            todo.extend(_nested(stmt))


def _nested(stmt: ast.stmt) -> Iterator[ast.stmt]:
    for field in ("body", "orelse", "finalbody"):
        yield from getattr(stmt, field, ())
    for field in ("handlers", "cases"):
        for part in getattr(stmt, field, ()):
            yield from part.body


def bindings(body: Iterable[ast.AST], names: frozenset[str]) -> Iterator[tuple[str, ast.AST]]:
    """Each place in one scope that binds or deletes one of `names`."""
    for node in _nodes(body):
        name = _bound(node)
        if name is not None and name in names:
            yield name, node


def _nodes(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Every node that belongs to the scope of `body`."""
    todo = list(body)
    while todo:
        node = todo.pop()
        yield node
        if isinstance(node, _Scope):
            continue
        if isinstance(node, ast.comprehension):
            todo.extend((node.iter, *node.ifs))  # its target is a scope of its own
        elif isinstance(node, ast.AnnAssign) and node.value is None:
            continue  # `x: int` binds nothing
        else:
            todo.extend(ast.iter_child_nodes(node))


def _bound(node: ast.AST) -> str | None:
    """The name that this very node binds. Every node of a tree comes by, most of them names."""
    if isinstance(node, ast.Name):
        return None if isinstance(node.ctx, ast.Load) else node.id
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.alias):
        return node.asname or node.name.partition(".")[0]
    if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
        return node.name
    if isinstance(node, ast.MatchMapping):
        return node.rest
    return None


def globals_in(tree: ast.Module, name: str) -> Iterator[Function]:
    """The functions that declare `name` global."""
    for node in ast.walk(tree):
        if isinstance(node, Function) and any(
            isinstance(stmt, ast.Global) and name in stmt.names for stmt in statements(node.body)
        ):
            yield node


def mentions(tree: ast.Module, names: frozenset[str]) -> bool:
    """Whether one of `names` is used anywhere."""
    return any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(tree))


def surely_binds(body: Iterable[ast.stmt], name: str) -> bool:
    """Whether the block binds `name` on every way to its end."""
    return any(_surely(stmt, name) for stmt in body)


def _surely(stmt: ast.stmt, name: str) -> bool:
    match stmt:
        case ast.Raise():
            return True  # its end is never reached
        case ast.If(body=body, orelse=orelse):
            return surely_binds(body, name) and surely_binds(orelse, name)
        case ast.Try(body=body, handlers=handlers, orelse=orelse, finalbody=final):
            tried = surely_binds(body, name) or surely_binds(orelse, name)
            caught = all(surely_binds(one.body, name) for one in handlers)
            return (tried and caught) or surely_binds(final, name)
        case ast.Assign() | ast.AugAssign() | ast.AnnAssign() | ast.Import() | ast.ImportFrom():
            return binds_directly(stmt, name)
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return stmt.name == name
        case _:
            return False


def binds_directly(stmt: ast.stmt, name: str) -> bool:
    """Whether a plain assignment or import binds `name` whenever it is carried out."""
    match stmt:
        case ast.Assign(targets=targets):
            return any(True for _ in bindings(targets, frozenset((name,))))
        case ast.AugAssign(target=target):
            return isinstance(target, ast.Name) and target.id == name
        case ast.AnnAssign(target=target, value=value):
            return value is not None and isinstance(target, ast.Name) and target.id == name
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return any(_bound(alias) == name for alias in names)
        case _:
            return False

"""Finds calls of awaited capabilities whose value is used before it is there.

A call that is not awaited gives a promise, not a value. To keep it and await it later is fine, to gather several
is the point of it; to print it, to test it or to give it back as `result` is a mistake the type checker can't see.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from holdfast.shell.languages import _python_scope as scope
from holdfast.shell.languages._python_capture import RESULT

_TAKES_VALUES = frozenset(
    "abs bool bytes dict float format hash int isinstance len list print repr round set sorted str sum"
    " tuple type".split()
)


def unawaited(tree: ast.Module, awaited: frozenset[str]) -> Iterator[tuple[str, ast.expr]]:
    """Each place that uses the promise of a call as if it were its value, and the capability called."""
    promises = _promises(tree, awaited)
    for used in _used(tree):
        name = _called(used, awaited)
        if name is None and isinstance(used, ast.Name):
            name = promises.get(used.id)
        if name is not None:
            yield name, used


def _called(node: ast.expr, awaited: frozenset[str]) -> str | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in awaited:
        return node.func.id
    return None


def _promises(tree: ast.Module, awaited: frozenset[str]) -> dict[str, str]:
    """Variables that hold nothing but the promise of a call, wherever they are assigned."""
    found: dict[str, str] = {}
    bound: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound[node.id] = bound.get(node.id, 0) + 1
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, name = node.targets[0], _called(node.value, awaited)
            if isinstance(target, ast.Name) and name is not None:
                found[target.id] = name
    return {variable: name for variable, name in found.items() if bound.get(variable) == 1}


def _used(tree: ast.Module) -> Iterator[ast.expr]:
    """Every expression of which the code needs the value itself."""
    for node in ast.walk(tree):
        match node:
            case ast.FormattedValue():
                yield node.value
            case ast.If() | ast.While() | ast.IfExp() | ast.Assert():
                yield node.test
            case ast.Call(func=ast.Name(id=name)) if name in _TAKES_VALUES:
                yield from node.args
            case _:
                pass
    for stmt in scope.statements(tree.body):
        if isinstance(stmt, ast.Assign) and scope.binds_directly(stmt, RESULT):
            yield stmt.value
    if tree.body and isinstance(last := tree.body[-1], ast.Expr):
        yield last.value

"""Where code makes an exception with more than a text, which the engine refuses without saying where."""

from __future__ import annotations

import ast
import builtins
from typing import TypeGuard

from holdfast.contracts import Span
from holdfast.shell.languages import _python_scope as scope

_EXCEPTIONS = frozenset(
    name
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException)
)
_TEXTS = frozenset(("repr", "str"))


def odd_exception(code: str, lines: list[str]) -> Span | None:
    """The only place that it can be; `None` when there is none, or several: a guess would mislead."""
    tree = scope.parse(code)
    found = [] if tree is None else [node for node in ast.walk(tree) if _odd(node)]
    return scope.span(found[0], lines) if len(found) == 1 else None


def _odd(node: ast.AST) -> TypeGuard[ast.Call]:
    """Whether it makes an exception of something that may be no text."""
    match node:
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
            fits = not keywords and (not args or (len(args) == 1 and _text(args[0])))
            return name in _EXCEPTIONS and not fits
        case _:
            return False


def _text(node: ast.expr) -> bool:
    match node:
        case ast.JoinedStr() | ast.Constant(value=str()):
            return True
        case ast.BinOp(left=left, right=right):
            return _text(left) or _text(right)
        case ast.Call(func=ast.Name(id=name)):
            return name in _TEXTS
        case _:
            return False

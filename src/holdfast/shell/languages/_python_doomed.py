"""Code that is certain to fail, told before any of it runs: what it does before it fails would be done for nothing.

Only what every run of it comes to counts: statements at the top level, and in them what no condition, loop or `try`
stands before. There, a call of a name that nobody has bound and an import of a module that is not there end the run
whatever else happens. Everything else may go well, so the run itself finds out.

It stands before every run, so it costs next to nothing: a glance at the text tells of nearly all code that there is
nothing to look for, and what was parsed is remembered.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import NamedTuple

from holdfast.contracts import ErrorObject, Span
from holdfast.shell.box import ANYTHING, Known
from holdfast.shell.languages import _python_scope as scope
from holdfast.shell.languages._python_names import (
    absent,
    bound_in,
    complaint,
    defaults,
    no_module,
    top_level,
)
from holdfast.shell.languages._python_subset import BUILTINS, MODULES

_BUILT_IN = frozenset(BUILTINS)
_DYNAMIC = frozenset(("exec", "eval"))
_MODULES = frozenset(MODULES)
_MAX_REMEMBERED = 4096
# A name right before a bracket, unless it is an attribute or is being defined there. Keywords come along: harmless.
_CALLED = re.compile(r"(?<![\w.])(?<!def )(?<!class )([^\W\d]\w*+)[ \t]*+\(")
_DEFINED = re.compile(r"\b(?:def|class) ([^\W\d]\w*+)")
_IMPORT = re.compile(r"\bimport\b")
_PLAIN_IMPORT = re.compile(r"^(?:import (\w+)|from (\w+) import [\w, ]+)$", re.MULTILINE)
_KEYWORDS = frozenset("and assert await elif if in is lambda not or print return while".split())


class _Suspect(NamedTuple):
    """A call or an import that every run comes to; it fails unless the session knows the name."""

    name: str
    span: Span
    called: bool


def doomed(code: str, known: Known, *given: Collection[str]) -> ErrorObject | None:
    """Why the code is certain to fail; `given` are the names of what it can call and of its inputs."""
    if len(code) > scope.MAX_CHARS:
        return None
    short = len(code) <= _MAX_REMEMBERED
    called, imports = _glance_remembered(code) if short else _glance(code)
    if not imports and not (called and called.difference(*given)):
        return None
    suspects = _remembered(code) if short else _read(code)
    bound: Collection[str] | None = None
    for one in suspects:
        if not one.called:
            return no_module(one.name, one.span)
        if any(one.name in names for names in given):
            continue
        bound = known() if bound is None else bound
        if one.name not in bound and ANYTHING not in bound:
            near = {*bound, *(name for names in given for name in names), *_own(code)}
            return complaint(one.name, one.span, called=True, near=near)
    return None


def _glance(code: str) -> tuple[frozenset[str], bool]:
    """The names that may be called and that it does not define itself, and whether an import of it may fail."""
    names: frozenset[str] = frozenset()
    if "(" in code:
        names = frozenset(_CALLED.findall(code)) - _BUILT_IN - _KEYWORDS
        if names:
            names -= {*_DEFINED.findall(code)}
    if "import" not in code:
        return names, False
    plain = [one or other for one, other in _PLAIN_IMPORT.findall(code)]
    whole = len(plain) == len(_IMPORT.findall(code))
    return names, not whole or not _MODULES.issuperset(plain)


_glance_remembered = lru_cache(maxsize=256)(_glance)


@lru_cache(maxsize=256)
def _remembered(code: str) -> tuple[_Suspect, ...]:
    """Agents run the same code again."""
    return _read(code)


def _read(code: str) -> tuple[_Suspect, ...]:
    tree = scope.parse(code)
    if tree is None or scope.mentions(tree, _DYNAMIC):
        return ()
    lines = re.split(r"\r\n|\r|\n", code)
    bound = top_level(tree) | _BUILT_IN
    found: list[_Suspect] = []
    for stmt in tree.body:
        for node in _reached(stmt):
            match node:
                case ast.Call(func=ast.Name(id=name) as func) if name not in bound:
                    found.append(_Suspect(name, scope.span(func, lines), True))
                case ast.Import() | ast.ImportFrom():
                    place = scope.span(node, lines)
                    found += (_Suspect(name, place, False) for name in absent(node))
                case _:
                    pass
        if any(isinstance(one, ast.Return | ast.Raise) for one in scope.statements([stmt])):
            break  # what follows may never be come to
    return tuple(found)


def _own(code: str) -> frozenset[str]:
    tree = scope.parse(code)
    return frozenset() if tree is None else bound_in(tree)


def _reached(stmt: ast.stmt) -> Iterator[ast.AST]:
    """Each node that is come to whenever the statement is, in the order of the text."""
    todo: list[ast.AST] = [stmt]
    while todo:
        node = todo.pop()
        yield node
        todo.extend(reversed(_first(node)))


def _first(node: ast.AST) -> list[ast.AST]:
    """What is evaluated of a node whatever comes of it."""
    match node:
        case ast.If() | ast.While() | ast.IfExp() | ast.Assert():
            return [node.test]
        case ast.For():
            return [node.iter]
        case ast.With():
            return [node.items[0].context_expr]
        case ast.Match():
            return [node.subject]
        case ast.BoolOp():
            return [node.values[0]]
        case ast.Compare():
            return [node.left, node.comparators[0]]
        case ast.ListComp() | ast.SetComp() | ast.DictComp():
            return [node.generators[0].iter]
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return [*defaults(node)]
        case ast.AnnAssign():
            return [] if node.value is None else [node.value]
        case ast.Lambda() | ast.GeneratorExp():
            return []
        case ast.Expr() | ast.Assign() | ast.AugAssign() | ast.expr() | ast.keyword():
            return [*ast.iter_child_nodes(node)]
        case _:
            return []

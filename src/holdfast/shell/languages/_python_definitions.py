"""Which functions and modules a session's code surely bound to which names, with the text that makes them again.

Only what is certain is kept: a name counts as long as its last binding is a plain statement at the top level that
was carried out. What might be bound otherwise is forgotten; with it the function is there, but not its text, and
the session is not compacted.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from unicodedata import normalize

from holdfast.shell.languages import _python_scope as scope
from holdfast.shell.languages._python_names import bound_in

SHIFTY = ""
"""In place of a text: a function declares the name global, and may bind it at any time."""

_TELLING = re.compile(r"\b(?:def|import|lambda|global|exec|eval|locals)\b")
_DYNAMIC_MENTION = re.compile(r"\b(?:exec|eval)\b")
_WORD = re.compile(r"\w+")
# They bind names, or hand them out, without saying which.
_DYNAMIC = frozenset(("exec", "eval", "locals"))
# It keeps objects that code can change.
_CHANGEABLE = "sys"
_SMALL = 1 << 62


def defines(sources: dict[str, str], code: str, error: str | None) -> dict[str, str] | None:
    """`sources` after `code` ran, or failed with `error`; `None` when nothing can be said any more."""
    code = code.removeprefix("\ufeff")
    text = code if code.isascii() else normalize("NFKC", code)  # as the engine does with names
    if not _TELLING.search(text) and sources.keys().isdisjoint(_WORD.findall(text)):
        return sources
    tree = scope.parse(code)
    if tree is None:
        refused = error == "SYNTAX_ERROR" and not _DYNAMIC_MENTION.search(text)
        return sources if refused else None
    try:
        return _after(sources, code, tree, error is None)
    except RecursionError:
        return None


def _after(
    sources: dict[str, str], code: str, tree: ast.Module, ended: bool
) -> dict[str, str] | None:
    if scope.mentions(tree, _DYNAMIC) or _imports(tree, _CHANGEABLE):
        return None
    found = dict(sources)
    every = bound_in(tree)
    # The engine knows a `return` at the top level: what comes after it may not have run.
    ended = ended and not any(isinstance(one, ast.Return) for one in scope.statements(tree.body))
    for stmt in tree.body:
        made = dict(_made(code, stmt)) if ended else {}
        for name, _ in scope.bindings([stmt], every):
            if found.get(name) == SHIFTY:
                continue
            if name in made:
                found[name] = made[name]
            else:
                found.pop(name, None)
    for node in ast.walk(tree):
        if isinstance(node, ast.NamedExpr) and found.get(node.target.id) != SHIFTY:
            found.pop(node.target.id, None)  # it may stand in the head of a function, outside of it
        elif isinstance(node, ast.Global):
            found.update(dict.fromkeys(node.names, SHIFTY))
    return found


def _imports(tree: ast.Module, module: str) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(_top(one.name) == module for one in node.names):
            return True
        if isinstance(node, ast.ImportFrom) and _top(node.module or "") == module:
            return True
    return False


def _top(module: str) -> str:
    return module.partition(".")[0]


def _made(code: str, stmt: ast.stmt) -> Iterator[tuple[str, str]]:
    """The names that a statement surely binds to what its text, run again, makes again."""
    match stmt:
        case ast.FunctionDef() | ast.AsyncFunctionDef() if not stmt.decorator_list:
            if _plain(stmt, stmt.args):
                yield stmt.name, _in_place(code, stmt)
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda(args=args)):
            if _plain(stmt, args):
                yield name, _in_place(code, stmt)
        case ast.Import(names=names):
            for one in names:
                if one.asname or "." not in one.name:
                    yield one.asname or one.name, ast.unparse(ast.Import([one]))
        case ast.ImportFrom(module=module, names=names, level=level):
            for one in names:
                text = ast.unparse(ast.ImportFrom(module, [one], level))
                yield one.asname or one.name, text
        case _:
            return


def _plain(function: ast.AST, args: ast.arguments) -> bool:
    """Whether nothing that the function may hand out is an object of its own that outlives a call."""
    defaults = [*args.defaults, *(one for one in args.kw_defaults if one is not None)]
    return all(map(_literal, defaults)) and not any(map(_lasting, ast.walk(function)))


def _literal(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    return isinstance(node, ast.Constant)


def _lasting(node: ast.AST) -> bool:
    """Whether a constant is one object wherever it comes from, and another one in another box."""
    if not isinstance(node, ast.Constant):
        return False
    value = node.value
    return isinstance(value, bytes) or (isinstance(value, int) and value >= _SMALL)


def _in_place(code: str, stmt: ast.stmt) -> str:
    """The text of a statement on the lines it stood on, for the sake of tracebacks."""
    return "\n" * (stmt.lineno - 1) + (ast.get_source_segment(code, stmt) or "")

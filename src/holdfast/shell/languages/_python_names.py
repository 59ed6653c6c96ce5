"""Which names a piece of Python defines, and which it uses that nobody defines; read from its syntax tree."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from holdfast.contracts import ErrorObject, Span
from holdfast.shell.box import ANYTHING
from holdfast.shell.languages import _python_scope as scope
from holdfast.shell.languages._python_subset import BUILTINS, MODULES, nearest, shown

DISCOVERY = frozenset(("list_tools", "describe_tool", "search_tools", "current_policy"))
"""Functions that code always has."""

_DYNAMIC = frozenset(("exec", "eval"))
# What a text that the host can't parse seems to bind. It is long, so each part is looked at once.
_BINDS = re.compile(
    r"\b(?:def|class|as|import|for|global)[ \t]++([^\W\d]\w*+)"
    r"|\b([^\W\d]\w*+)[ \t]*+(?::[^=\n]{1,80}+)?+(?::=|[-+*/%&|^@]?=(?!=)|<<=|>>=|//=|\*\*=)"
)
_CATCHES_NAMES = frozenset(("NameError", "UnboundLocalError", "Exception", "BaseException"))
_CATCHES_IMPORTS = frozenset(("ImportError", "ModuleNotFoundError", "Exception", "BaseException"))
_COMPREHENSION = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_IMPLIED = frozenset(("__name__", "__doc__", "__file__", "__debug__"))
_MODULES = frozenset((*MODULES, "__future__"))


class _Every(frozenset[str]):
    """A set that has every name in it."""

    __slots__ = ()

    def __contains__(self, name: object) -> bool:
        return True


_EVERY = _Every()


class Use(NamedTuple):
    """A name that is used and that nobody defines."""

    name: str
    node: ast.Name
    called: bool


class _Todo(NamedTuple):
    node: ast.AST
    env: frozenset[str]
    guarded: bool = False
    """Whether the code is ready for the name to be missing."""
    called: bool = False


@lru_cache(maxsize=256)
def binds(code: str) -> frozenset[str]:
    """The top-level names that running the code may define; `*` among them says that it may define others, too."""
    tree = scope.parse(code)
    if tree is None:
        return frozenset((*(one or other for one, other in _BINDS.findall(code)), ANYTHING))
    found = top_level(tree)
    return found | {ANYTHING} if scope.mentions(tree, _DYNAMIC) else found


def unknown(tree: ast.Module, known: frozenset[str]) -> list[Use]:
    """Names that are neither known nor bound anywhere in the code, where it has to have them."""
    if ANYTHING in known or scope.mentions(tree, frozenset(("exec",))):
        return []
    env = known | top_level(tree) | _IMPLIED
    found: list[Use] = []
    todo = [_Todo(node, env) for node in tree.body]
    while todo:
        at = todo.pop()
        if not isinstance(at.node, ast.Name):
            todo.extend(_inside(at))
        elif isinstance(at.node.ctx, ast.Load) and at.node.id not in at.env and not at.guarded:
            found.append(Use(at.node.id, at.node, at.called))
    return sorted(found, key=lambda one: (one.node.lineno, one.node.col_offset))


def missing_imports(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """Each import of a module that the engine has not, unless the code is ready for that."""
    guarded = {
        id(node)
        for one in ast.walk(tree)
        if isinstance(one, ast.Try) and _catches(one, _CATCHES_IMPORTS)
        for stmt in one.body
        for node in ast.walk(stmt)
    }
    for node in ast.walk(tree):
        if id(node) in guarded:
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((name, node) for name in absent(node))


def absent(node: ast.Import | ast.ImportFrom) -> list[str]:
    """The modules that an import names and the engine has not."""
    if isinstance(node, ast.Import):
        names = [one.name for one in node.names]
    else:
        names = [node.module] if node.module else []
    return [name for name in names if name not in _MODULES]


def guarded_lines(tree: ast.Module) -> frozenset[int]:
    """The lines at which the code is ready for something to fail."""
    bodies = [one.body for one in ast.walk(tree) if isinstance(one, ast.Try) and one.handlers]
    return frozenset(
        line
        for body in bodies
        for line in range(body[0].lineno, (body[-1].end_lineno or body[-1].lineno) + 1)
    )


def complaint(name: str, span: Span, *, called: bool, near: Iterable[str]) -> ErrorObject:
    """What to say about a name that nobody defines."""
    if name == "open":
        return ErrorObject(
            code="UNSUPPORTED_FEATURE",
            message="The built-in `open` is not part of the supported subset: code sees no files.",
            hint="Use `read_text` and `write_text`, if this session has them: list_tools() tells.",
            span=span,
        )
    if name in dir(builtins):
        return ErrorObject(
            code="UNSUPPORTED_FEATURE",
            message=f"The built-in `{name}` is not part of the supported subset.",
            hint=_nearest(name, near, "Do without it."),
            span=span,
        )
    if called:
        return ErrorObject(
            code="UNKNOWN_TOOL",
            message=f"There is no `{shown(name)}` to call: no capability, built-in or variable has that name.",
            hint=_nearest(name, near, "list_tools() names the capabilities."),
            span=span,
        )
    hint = f"Write `import {name}` first." if name in MODULES else None
    return ErrorObject(
        code="TYPE_ERROR",
        message=f"Name `{shown(name)}` is not defined.",
        hint=hint or _nearest(name, near, "Define it first: no earlier run of this session did."),
        span=span,
    )


def no_module(name: str, span: Span) -> ErrorObject:
    """What to say about an import that can't succeed."""
    return ErrorObject(
        code="UNSUPPORTED_FEATURE",
        message=f"No module named '{shown(name)}'.",
        hint=f"Modules that can be imported: {', '.join(MODULES)}.",
        span=span,
    )


def bound_in(tree: ast.Module) -> frozenset[str]:
    """Every name that the code binds in any scope: what a slip of the pen may have meant."""
    functions = (node for node in ast.walk(tree) if isinstance(node, scope.Function))
    inner = (name for one in functions for name in _function(one))
    return top_level(tree).union(inner)


def _nearest(name: str, near: Iterable[str], otherwise: str) -> str:
    found = nearest(name, {*near, *BUILTINS} - {ANYTHING})
    return f"Did you mean `{found}`?" if found else otherwise


# -- scopes -------------------------------------------------------------------------------------------


def _bound(body: Iterable[ast.AST]) -> frozenset[str]:
    return frozenset(name for name, _ in scope.bindings(body, _EVERY))


def top_level(tree: ast.Module) -> frozenset[str]:
    """The names that the code may bind at the top level."""
    declared = (node.names for node in ast.walk(tree) if isinstance(node, ast.Global))
    return _bound(tree.body).union(*declared)


def _function(node: scope.Function | ast.Lambda) -> frozenset[str]:
    args = node.args
    every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
    body = [node.body] if isinstance(node, ast.Lambda) else node.body
    return _bound(body).union(one.arg for one in every if one is not None) | _type_params(node)


def _type_params(node: ast.AST) -> frozenset[str]:
    return frozenset(one.name for one in getattr(node, "type_params", ()))


def _inside(at: _Todo) -> Iterator[_Todo]:
    """What is to be looked at within a node, each part in its scope. Annotations are not evaluated."""
    node, env, guarded, _ = at
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            yield from _parts(defaults(node), env, guarded)
            body = [node.body] if isinstance(node, ast.Lambda) else node.body
            yield from _parts(body, env | _function(node), guarded)
        case ast.ClassDef():
            heads = [*node.decorator_list, *node.bases, *node.keywords]
            yield from _parts(heads, env, guarded)
            yield from _parts(node.body, env | _bound(node.body) | _type_params(node), guarded)
        case ast.Try():
            ready = guarded or _catches(node, _CATCHES_NAMES)
            yield from _parts(node.body, env, ready)
            rest = [*node.handlers, *node.orelse, *node.finalbody]
            yield from _parts(rest, env, guarded)
        case ast.AnnAssign():
            rest = [node.target, node.value] if node.value is not None else []
            yield from _parts(rest, env, guarded)
        case ast.Call():
            yield _Todo(node.func, env, guarded, called=True)
            yield from _parts([*node.args, *node.keywords], env, guarded)
        case _ if isinstance(node, _COMPREHENSION):
            targets = _bound(one.target for one in node.generators)
            yield from _parts(ast.iter_child_nodes(node), env | targets, guarded)
        case _:
            yield from _parts(ast.iter_child_nodes(node), env, guarded)


def _parts(nodes: Iterable[ast.AST], env: frozenset[str], guarded: bool) -> Iterator[_Todo]:
    return (_Todo(node, env, guarded) for node in nodes)


def defaults(node: scope.Function | ast.Lambda) -> list[ast.expr]:
    """What is evaluated of a function where it is defined."""
    args = node.args
    found = [*args.defaults, *(one for one in args.kw_defaults if one is not None)]
    return found if isinstance(node, ast.Lambda) else [*node.decorator_list, *found]


def _catches(node: ast.Try, names: frozenset[str]) -> bool:
    for handler in node.handlers:
        if handler.type is None:
            return True
        caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        if any(isinstance(one, ast.Name) and one.id in names for one in caught):
            return True
    return False

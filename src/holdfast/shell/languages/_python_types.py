"""What the engine's type checker says, sorted by whether it is surely so.

The checker reads code as if all of it were typed, and so complains about much that runs well: a list of integers
where a list of numbers is wanted, an optional value that is never missing. What is surely wrong is an error; what
may be is a warning. Where the checker is too strict about arguments, it is given stubs that are less so.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import lru_cache
from keyword import iskeyword
from typing import NamedTuple

from holdfast.contracts import Diagnostic, Severity, Span
from holdfast.errors import InternalError
from holdfast.shell.languages._python_names import DISCOVERY

# Under names that no capability has.
_HEAD = """from typing import Any as __Any
from collections.abc import Mapping as __Mapping, Sequence as __Sequence
"""
_DISCOVERY_STUBS = """
def list_tools() -> list[dict[str, __Any]]: ...
def describe_tool(name: str) -> dict[str, __Any]: ...
def search_tools(query: str) -> list[dict[str, __Any]]: ...
def current_policy() -> dict[str, __Any]: ...
"""

_ARITY = frozenset(
    "missing-argument unknown-argument too-many-positional-arguments parameter-already-assigned".split()
)
_ON_TYPES = frozenset(
    "call-non-callable not-iterable not-subscriptable unsupported-operator unresolved-attribute"
    " invalid-await".split()
)
_DOUBTFUL = frozenset(
    "invalid-key invalid-assignment invalid-return-type no-matching-overload unused-awaitable".split()
)
_BUILT_IN = re.compile(
    r"(?:Literal\[|(?:str|int|float|bool|bytes|list|dict|tuple|set|frozenset|CoroutineType)\b)"
)
_QUOTED = re.compile(r"`([^`]+)`")
_NO_MEMBER = re.compile(r"Module `([\w.]+)` has no member `(\w+)`")
_ARGUMENT = re.compile(r"function `(\w+)` is incorrect: Expected `(.+)`, found `(.+)`$", re.DOTALL)
_FUNCTION = re.compile(r"function `(\w+)`")
_LITERAL = re.compile(r"Literal\[[^\]]*\]")
_MAX_MESSAGE = 500


class Stubs(NamedTuple):
    """Stubs, and what they declare."""

    text: str
    """What the checker gets."""
    functions: dict[str, str]
    """How each capability is declared, on one line."""
    awaited: frozenset[str]
    """Those that code awaits."""
    classes: frozenset[str]
    """The types of objects they give."""


class Report(NamedTuple):
    """One complaint of the checker."""

    rule: str
    message: str
    span: Span


@lru_cache(maxsize=32)
def prepared(stubs: str) -> Stubs:
    """Stubs as the checker gets them."""
    try:
        tree = ast.parse(stubs)
    except (SyntaxError, ValueError) as why:
        raise InternalError(f"The stubs of the capabilities are not Python: {why}.") from None
    lines = stubs.splitlines()
    functions: dict[str, str] = {}
    awaited: set[str] = set()
    classes: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions[node.name] = lines[node.lineno - 1].removesuffix(" ...").rstrip(":")
            if isinstance(node, ast.AsyncFunctionDef):
                awaited.add(node.name)
        elif isinstance(node, ast.ClassDef):
            classes.add(node.name)
        elif isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name):
            classes.add(target.id)
    lenient = ast.unparse(ast.fix_missing_locations(_Lenient(frozenset(classes)).visit(tree)))
    text = f"{_HEAD}{lenient}{_DISCOVERY_STUBS}"
    return Stubs(text, functions, frozenset(awaited), frozenset(classes))


def declared(known: frozenset[str]) -> str:
    """Code on one line after which these variables may be anything. It is never run."""
    names = sorted(name for name in known if name.isidentifier() and not iskeyword(name))
    if not names:
        return ""
    targets = "=".join(names)
    return f'import json as __holdfast_json;{targets}=__holdfast_json.loads("")'


def reports(rendered: str, skipped: int) -> Iterator[Report]:
    """The checker's complaints about the code behind the first `skipped` lines."""
    for one in json.loads(rendered):
        start, end = one["location"], one["end_location"]
        if start["row"] > skipped:
            span = Span(
                line=start["row"] - skipped,
                column=start["column"],
                end_line=end["row"] - skipped,
                end_column=end["column"],
            )
            yield Report(one["code"], one["message"][:_MAX_MESSAGE], span)


def judged(
    report: Report, stubs: Stubs, *, shifting: bool, guarded: bool = False
) -> Diagnostic | None:
    """What to tell the agent; `None` for nothing.

    `shifting`: functions change variables of the module, so that their types can't be followed. `guarded`:
    the code is ready for a failure there.
    """
    member = _NO_MEMBER.search(report.message)
    if member is not None:
        return Diagnostic(
            severity=Severity.WARNING if guarded else Severity.ERROR,
            code="UNSUPPORTED_FEATURE",
            message=f"`{member[1]}.{member[2]}` is not part of the supported subset.",
            hint="Do without it, or use a capability: list_tools() names them.",
            span=report.span,
        )
    severity = _severity(report, stubs, shifting)
    if severity is None:
        return None
    message = report.message
    return Diagnostic(
        severity=Severity.WARNING if guarded else severity,
        code="TYPE_ERROR",
        message=message if message.endswith((".", "?")) else f"{message}.",
        hint=_hint(report, stubs),
        span=report.span,
    )


def _severity(report: Report, stubs: Stubs, shifting: bool) -> Severity | None:
    rule, message = report.rule, report.message
    if rule in _ARITY:
        return Severity.WARNING if " | " in message else Severity.ERROR
    if rule == "invalid-argument-type":
        return _argument(message, stubs)
    if rule in _ON_TYPES:
        sure = not shifting and _surely_of_type(rule, message, stubs)
        return Severity.ERROR if sure else Severity.WARNING
    return Severity.WARNING if rule in _DOUBTFUL else None


def _argument(message: str, stubs: Stubs) -> Severity:
    """Annotations bind capabilities only: other functions take what they can work with."""
    found = _ARGUMENT.search(message)
    if found is None or not (found[1] in stubs.functions or found[1] in DISCOVERY):
        return Severity.WARNING
    expected, given = _LITERAL.sub("Literal", found[2]), _LITERAL.sub("Literal", found[3])
    # A text that may be one of the allowed ones, or a value that may be missing.
    maybe = " | " in given or ("Literal" in expected and "Literal" not in given)
    return Severity.WARNING if maybe else Severity.ERROR


def _surely_of_type(rule: str, message: str, stubs: Stubs) -> bool:
    types = _QUOTED.findall(message)
    if rule == "unsupported-operator":
        types = types[1:]  # the operator
    elif types:
        types = types[:1]
    return bool(types) and all(
        " | " not in _LITERAL.sub("", one) and (_BUILT_IN.match(one) or one in stubs.classes)
        for one in types
    )


def _hint(report: Report, stubs: Stubs) -> str | None:
    if "CoroutineType" in report.message:
        return "Await the call: `await …`."
    called = _FUNCTION.search(report.message)
    if called is not None and called[1] in stubs.functions:
        return f"It is declared as `{stubs.functions[called[1]][:_MAX_MESSAGE]}`."
    types = _QUOTED.findall(report.message)
    if report.rule == "unresolved-attribute" and types and types[0] in stubs.classes:
        return 'It is a dict: write `value["…"]`.'
    return None


class _Lenient(ast.NodeTransformer):
    """Parameters that take every value which JSON makes the same: sequences for lists, mappings for objects."""

    def __init__(self, classes: frozenset[str]) -> None:
        self._classes = classes

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self._relax(node.args)
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AsyncFunctionDef:
        self._relax(node.args)
        return node

    def _relax(self, args: ast.arguments) -> None:
        for one in (*args.args, *args.kwonlyargs):
            if one.annotation is not None:
                one.annotation = self._relaxed(one.annotation)

    def _relaxed(self, hint: ast.expr) -> ast.expr:
        match hint:
            case ast.Subscript(value=ast.Name(id="list"), slice=inner):
                # Text is a sequence of texts, too, but not what is meant.
                mentioned = {one.id for one in ast.walk(inner) if isinstance(one, ast.Name)}
                if mentioned & {"str", "Any", "_Any"}:
                    return _expression("list[__Any] | tuple[__Any, ...]")
                return ast.Subscript(_expression("__Sequence"), self._relaxed(inner), ast.Load())
            case ast.Subscript(value=ast.Name(id="dict")):
                return _expression("__Mapping[str, __Any]")
            case ast.Name(id=name) if name in self._classes:
                return _expression("__Mapping[str, __Any]")
            case ast.BinOp(left=left, right=right):
                return ast.BinOp(self._relaxed(left), ast.BitOr(), self._relaxed(right))
            case _:
                return hint


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body

"""The language of `where` in a rule and of `{"auto": {"rule": …}}`: is this true of the call?

It looks like Python and is read with Python's parser, but nothing of Python is ever executed: every node of the
tree has to be one of the few below, and each becomes a small function over the call. So an expression can't
reach an object, a file or a loop, and its cost is bounded by its length and that of the arguments.

What can't be told is not a fact. An argument that was left out, or one of another type than the expression
wants, makes the part it is in *unknown*; `and`, `or` and `not` treat that as logic does (`false and unknown` is
false, `not unknown` is unknown), so the order of operands never matters. An expression holds if it is true:
unknown is not true.
"""

from __future__ import annotations

import ast
import math
import operator
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias, TypeVar, cast

from holdfast.contracts import Capability, Json
from holdfast.errors import CallerError, Span
from holdfast.gate._expression_patterns import glob, regex
from holdfast.gate._expression_values import (
    ARITHMETIC,
    COMPARISONS,
    OF_ONE,
    OF_TWO,
    Unknown,
    boolean,
    item,
    negated,
    text,
)

MAX_CHARS, MAX_NODES, MAX_DEPTH = 2000, 200, 40
"""Longer, larger or deeper expressions are refused."""

FACTS = ("tool", "side_effect", "session", "provenance", "risk")
"""The names that stand for a fact of the call; `args` stands for its arguments."""

_CONSTANTS: dict[str, Json] = {"true": True, "false": False, "null": None}
_PATTERNS = {"matches": glob, "regex": regex}
_FUNCTIONS = {**dict.fromkeys(OF_ONE, 1), **dict.fromkeys(OF_TWO, 2), **dict.fromkeys(_PATTERNS, 2)}


@dataclass(frozen=True, slots=True)
class Facts:
    """What an expression can ask about."""

    args: Mapping[str, Json]
    """The arguments, by name."""
    tool: str
    """The capability's name."""
    side_effect: str
    """What it may touch."""
    session: str
    """Session id."""
    provenance: str
    """Where the call comes from."""
    risk: str
    """How much harm a mistake would do."""


_Value: TypeAlias = Callable[[Facts], Json]
_Truth: TypeAlias = Callable[[Facts], bool]


class Expression:
    """One expression, checked and ready."""

    __slots__ = ("_evaluate", "arguments", "source")

    def __init__(self, source: str, evaluate: _Truth, arguments: frozenset[str]) -> None:
        self.source = source
        """As it was written."""
        self.arguments = arguments
        """The names of the arguments it asks about."""
        self._evaluate = evaluate

    def tell(self, facts: Facts) -> bool | str:
        """Whether it is true of the call, or, if that can't be told, why not. Raises nothing."""
        try:
            return self._evaluate(facts)
        except Unknown as why:
            return str(why)
        except RecursionError:
            return "an argument is nested too deep"

    def holds(self, facts: Facts) -> bool:
        """Whether it is true of the call; `False` if that can't be told. Raises nothing."""
        return self.tell(facts) is True

    def __repr__(self) -> str:
        return f"Expression({self.source!r})"


# -- reading ------------------------------------------------------------------------------------------

_quiet = threading.Lock()


@lru_cache(maxsize=1024)
def parse_expression(source: str) -> Expression:
    """The expression, ready; raises `POLICY_INVALID` that says where and why."""
    if len(source) > MAX_CHARS:
        raise _invalid(f"is {len(source)} characters long, {MAX_CHARS} are allowed", None)
    tree = _tree(source.strip())
    size = sum(isinstance(node, ast.expr) for node in ast.walk(tree))
    if size > MAX_NODES:
        raise _invalid(f"has {size} parts, {MAX_NODES} are allowed", None)
    reader = _Reader()
    return Expression(source, reader.truth(tree.body, 0), frozenset(reader.arguments))


def check_approval(capability: Capability) -> None:
    """Raise `POLICY_INVALID` unless the capability's own approval rule, if any, can be used.

    A rule that asks about an argument the capability does not have would never hold: it is refused, too.
    """
    if isinstance(capability.approval_policy, str):
        return
    found = parse_expression(capability.approval_policy.auto.rule)
    known = capability.input_schema.get("properties")
    if not isinstance(known, dict) or capability.input_schema.get("additionalProperties", True):
        return
    for name in sorted(found.arguments - known.keys()):
        raise CallerError(
            "POLICY_INVALID",
            f"The approval rule of `{capability.name}` asks about `{name}`, which is no argument of it.",
            hint=f"Its arguments: {', '.join(f'`{arg}`' for arg in sorted(known)) or 'none'}.",
        )


def _tree(source: str) -> ast.Expression:
    # An escape that Python only warns about (`"\d"`) is an error here: one day it will mean something else.
    try:
        with _quiet, warnings.catch_warnings():
            warnings.simplefilter("error")
            return ast.parse(source, mode="eval")
    except SyntaxError as why:
        span = Span(why.lineno or 1, why.offset or 1)
        hint = (
            'Write it raw: r"…".'
            if "escape" in why.msg
            else "See docs/guides/policy.md for what it may say."
        )
        raise _invalid(f"does not parse: {why.msg}", span, hint) from None
    except (ValueError, MemoryError, RecursionError):
        raise _invalid("does not parse: it is nested too deep or holds a NUL", None) from None


def _invalid(what: str, at: ast.expr | Span | None, hint: str | None = None) -> CallerError:
    span = Span(at.lineno, at.col_offset + 1) if isinstance(at, ast.expr) else at
    where = f" at line {span.line}, column {span.column}" if span else ""
    return CallerError(
        "POLICY_INVALID",
        f"The expression {what}{where}.",
        hint=hint or "See docs/guides/policy.md for what it may say.",
        span=span,
    )


class _Reader:
    """Turns a tree into functions, and notes which arguments they ask about."""

    def __init__(self) -> None:
        self.arguments: set[str] = set()

    def truth(self, node: ast.expr, depth: int) -> _Truth:
        """A function that gives true or false, or raises `Unknown`."""
        if isinstance(node, ast.BoolOp):
            parts = [self.truth(part, self._deeper(node, depth)) for part in node.values]
            return _decided_by(isinstance(node.op, ast.Or), parts)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            operand = self.truth(node.operand, self._deeper(node, depth))
            return lambda facts: not operand(facts)
        if _is_never_true_or_false(node):
            raise _invalid("needs something true or false", node, "Compare it: `… == …`, `… > …`.")
        value = self.value(node, depth)
        return lambda facts: boolean(value(facts))

    def value(self, node: ast.expr, depth: int) -> _Value:
        """A function that gives a value, or raises `Unknown`."""
        depth = self._deeper(node, depth)
        match node:
            case ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                return self.truth(node, depth)
            case ast.Constant(value=value):
                return _constant(node, value)
            case ast.Name(id=name):
                return self._named(node, name)
            case ast.Attribute(value=ast.Name(id="args"), attr=name):
                return self._argument(node, name)
            case ast.Subscript(value=ast.Name(id="args"), slice=ast.Constant(value=str(name))):
                return self._argument(node, name)
            case ast.Subscript(value=of, slice=index) if not isinstance(index, ast.Slice):
                return _with_two(item, self.value(of, depth), self.value(index, depth))
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                values = [self.value(each, depth) for each in items]
                return lambda facts: [value(facts) for value in values]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return _with_one(negated, self.value(operand, depth))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
                compute = ARITHMETIC[type(op)]
                return _with_two(compute, self.value(left, depth), self.value(right, depth))
            case ast.Compare():
                return self._compare(node, depth)
            case ast.Call():
                return self._call(node, depth)
            case _:
                raise _invalid(f"may not have {_name_of(node)}", node)

    def _deeper(self, node: ast.expr, depth: int) -> int:
        if depth >= MAX_DEPTH:
            raise _invalid("is nested too deep", node)
        return depth + 1

    def _named(self, node: ast.expr, name: str) -> _Value:
        if name in _CONSTANTS:
            constant = _CONSTANTS[name]
            return lambda facts: constant
        if name == "args":
            return lambda facts: cast("dict[str, Json]", facts.args)
        if name in FACTS:
            return cast("Callable[[Facts], str]", operator.attrgetter(name))
        if name in _FUNCTIONS:
            raise _invalid(f"names the function `{name}` without calling it", node)
        return self._argument(node, name)

    def _argument(self, node: ast.expr, name: str) -> _Value:
        if name.startswith("__"):
            raise _invalid(f"may not ask for `{name}`", node)
        self.arguments.add(name)

        def argument(facts: Facts) -> Json:
            try:
                return facts.args[name]
            except KeyError:
                raise Unknown(f"there is no argument `{name}`") from None

        return argument

    def _compare(self, node: ast.Compare, depth: int) -> _Value:
        operands = [self.value(part, depth) for part in (node.left, *node.comparators)]
        links: list[_Truth] = []
        for at, op in enumerate(node.ops):
            check = COMPARISONS.get(type(op))
            if check is None:
                raise _invalid("may not have `is`", node, "Compare with `==`, also with `null`.")
            links.append(_with_two(check, operands[at], operands[at + 1]))
        return links[0] if len(links) == 1 else _decided_by(False, links)

    def _call(self, node: ast.Call, depth: int) -> _Value:
        match node.func:
            case ast.Name(id=name):
                given = node.args
            case ast.Attribute(value=of, attr=name):
                given = [of, *node.args]
            case _:
                name, given = "", node.args
        if name not in _FUNCTIONS or node.keywords:
            known = ", ".join(f"`{known}`" for known in _FUNCTIONS)
            raise _invalid("calls what is no function of it", node, f"There are {known}.")
        if len(given) != _FUNCTIONS[name]:
            wanted = _FUNCTIONS[name]
            raise _invalid(f"gives `{name}` {len(given)} values, it takes {wanted}", node)
        first = self.value(given[0], depth)
        if name in _PATTERNS:
            return _pattern(name, first, given[1])
        if name in OF_ONE:
            return _with_one(OF_ONE[name], first)
        return _with_two(OF_TWO[name], first, self.value(given[1], depth))


_NAMES: dict[type[ast.AST], str] = {
    ast.Attribute: 'an attribute of anything but `args`; write `x["name"]`',
    ast.BinOp: "an operator other than `+`, `-` and `*`",
    ast.UnaryOp: "an operator other than `-` and `not`",
    ast.Subscript: "a slice",
    ast.Dict: "an object",
    ast.Starred: "a `*`",
    ast.NamedExpr: "an assignment",
    ast.IfExp: "`if`; use `and` and `or`",
    ast.Lambda: "a function",
    ast.JoinedStr: "an f-string",
}


def _name_of(node: ast.expr) -> str:
    return _NAMES.get(type(node), f"`{type(node).__name__}`")


def _is_never_true_or_false(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=value):
            return not isinstance(value, bool)
        case ast.Name(id=name):
            return name in FACTS or name in ("args", "null")
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name in OF_ONE
        case _:
            return isinstance(node, ast.BinOp | ast.UnaryOp | ast.List | ast.Tuple | ast.Set)


def _constant(node: ast.expr, value: object) -> _Value:
    if value is None or isinstance(value, bool | int | str):
        return lambda facts: value
    if isinstance(value, float) and math.isfinite(value):
        return lambda facts: value
    raise _invalid("may only have text, finite numbers, true, false and null", node)


# -- evaluating ---------------------------------------------------------------------------------------

_T = TypeVar("_T", bound=Json)


def _with_one(apply: Callable[[Json], Json], value: _Value) -> _Value:
    return lambda facts: apply(value(facts))


def _with_two(
    apply: Callable[[Json, Json], _T], one: _Value, other: _Value
) -> Callable[[Facts], _T]:
    return lambda facts: apply(one(facts), other(facts))


def _decided_by(decisive: bool, parts: Sequence[_Truth]) -> _Truth:
    """`or` if true decides, `and` if false does; unknown if none decides and one is unknown."""

    def decide(facts: Facts) -> bool:
        unknown: Unknown | None = None
        for part in parts:
            try:
                if part(facts) is decisive:
                    return decisive
            except Unknown as why:
                unknown = unknown or why
        if unknown is not None:
            raise unknown
        return not decisive

    return decide


def _pattern(name: str, value: _Value, pattern: ast.expr) -> _Value:
    # Written out in the expression, so that it is compiled once, and a bad one is refused when it is loaded.
    if not isinstance(pattern, ast.Constant) or not isinstance(pattern.value, str):
        raise _invalid(f"needs the pattern of `{name}` written out as text", pattern)
    try:
        matches = _PATTERNS[name](pattern.value)
    except ValueError as why:
        raise _invalid(f"has a pattern that is none ({why})", pattern) from None
    return lambda facts: matches(text(value(facts)))

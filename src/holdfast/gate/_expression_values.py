"""What the operators and functions of the expression language do with JSON values."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.contracts import Json

NUMBER_BITS = 256
"""Beyond this size an integer counts as infinite in `+`, `-` and `*`: a model can't make arithmetic slow."""


class Unknown(Exception):
    """It can't be told; the text says why."""


def kind(value: object) -> str:
    """What sort of JSON it is, for people."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "text"
    return "a list" if isinstance(value, list) else "an object"


def boolean(value: Json) -> bool:
    """`value` itself, if it is true or false."""
    if isinstance(value, bool):
        return value
    raise Unknown(f"{kind(value)} is not true or false")


def text(value: Json) -> str:
    """`value` itself, if it is text."""
    if isinstance(value, str):
        return value
    raise Unknown(f"{kind(value)} is not text")


def is_number(value: Json) -> bool:
    """Whether it is a number; `true` is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: Json) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unknown(f"{kind(value)} is not a number")
    if isinstance(value, int) and value.bit_length() > NUMBER_BITS:
        return math.inf if value > 0 else -math.inf
    return value


def negated(value: Json) -> Json:
    """`-value`."""
    return -_number(value)


def _arithmetic(compute: Callable[[float, float], float]) -> Callable[[Json, Json], Json]:
    def check(one: Json, other: Json) -> Json:
        found = compute(_number(one), _number(other))
        if found != found:
            raise Unknown("the numbers are too large")
        return found

    return check


def same(one: Json, other: Json) -> bool:
    """Whether two values are the same JSON: `1` is `1.0`, but `true` is not `1`."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return one == other


# `Any`: what `operator.lt` takes has no name; here it gets two texts or two numbers.
def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Json, Json], bool]:
    def check(one: Json, other: Json) -> bool:
        if (isinstance(one, str) and isinstance(other, str)) or (
            is_number(one) and is_number(other)
        ):
            return compare(one, other)
        raise Unknown(f"{kind(one)} and {kind(other)} have no order")

    return check


def contains(container: Json, item: Json) -> bool:
    """Whether a text has the part, a list the item, an object the key."""
    if isinstance(container, list):
        return any(same(item, each) for each in container)
    if isinstance(container, str | Mapping):
        return text(item) in container
    raise Unknown(f"{kind(container)} contains nothing")


def item(container: Json, at: Json) -> Json:
    """One item of a list, or one value of an object."""
    if isinstance(container, list) and isinstance(at, int) and not isinstance(at, bool):
        if -len(container) <= at < len(container):
            return container[at]
    elif isinstance(container, Mapping) and isinstance(at, str) and at in container:
        return container[at]
    raise Unknown(f"{kind(container)} has no such item")


def _length(value: Json) -> Json:
    if isinstance(value, str | list | Mapping):
        return len(value)
    raise Unknown(f"{kind(value)} has no length")


ARITHMETIC: dict[type[ast.operator], Callable[[Json, Json], Json]] = {
    ast.Add: _arithmetic(operator.add),
    ast.Sub: _arithmetic(operator.sub),
    ast.Mult: _arithmetic(operator.mul),
}

COMPARISONS: dict[type[ast.cmpop], Callable[[Json, Json], bool]] = {
    ast.Eq: same,
    ast.NotEq: lambda one, other: not same(one, other),
    ast.Lt: _ordered(operator.lt),
    ast.LtE: _ordered(operator.le),
    ast.Gt: _ordered(operator.gt),
    ast.GtE: _ordered(operator.ge),
    ast.In: lambda one, other: contains(other, one),
    ast.NotIn: lambda one, other: not contains(other, one),
}

OF_ONE: dict[str, Callable[[Json], Json]] = {
    "len": _length,
    "lower": lambda value: text(value).lower(),
    "upper": lambda value: text(value).upper(),
}
"""Functions of one value; none of them gives true or false."""

OF_TWO: dict[str, Callable[[Json, Json], bool]] = {
    "startswith": lambda value, part: text(value).startswith(text(part)),
    "endswith": lambda value, part: text(value).endswith(text(part)),
    "contains": contains,
}
"""Functions of two values; each gives true or false."""

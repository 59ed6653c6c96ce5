"""The expression language: what it can say, what it refuses, and that it never raises."""

import ast
import operator
import threading

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.contracts import Capability, Json
from holdfast.contracts.capability import AutoApproval, AutoRule
from holdfast.errors import CallerError
from holdfast.gate.expression import Facts, check_approval, parse_expression


def facts(**args: Json) -> Facts:
    return Facts(args, "send_invoice", "external_system", "s-1", "code", "high")


def holds(source: str, **args: Json) -> bool:
    return parse_expression(source).holds(facts(**args))


def refusal(source: str) -> CallerError:
    with pytest.raises(CallerError) as caught:
        parse_expression(source)
    assert caught.value.code == "POLICY_INVALID"
    assert caught.value.hint
    return caught.value


CALL: dict[str, Json] = {
    "cents": 1200,
    "to": "Ann@Example.com",
    "tags": ["a", "b"],
    "who": {"name": "Ann", "age": 40},
    "urgent": True,
    "ratio": 0.5,
    "note": None,
    "tool": "hammer",
}


@pytest.mark.parametrize(
    "source",
    [
        "args.cents <= 5000",
        "args['cents'] == 1200.0",
        "cents < 1201",
        "1000 < cents < 2000",
        "tool == 'send_invoice' and args.tool == 'hammer'",
        "side_effect == 'external_system' and session == 's-1'",
        "provenance == 'code' and risk in ('high', 'critical')",
        "urgent",
        "not (cents > 5000 or ratio >= 1)",
        "'a' in tags and 'z' not in tags",
        "'cents' in args and 'nothing' not in args",
        "'Example' in to",
        "tags == ['a', 'b'] and tags != ['a']",
        "tags[0] == 'a' and tags[-1] == 'b'",
        "who['name'] == 'Ann' and who == args.who",
        "len(tags) == 2 and len(to) > 3 and len(who) == 2",
        "lower(to) == 'ann@example.com' and to.lower() != to and upper('a') == 'A'",
        "to.lower().endswith('@example.com') and startswith(to, 'Ann')",
        "to.contains('@') and contains(tags, 'a') and contains(who, 'name')",
        "matches(to, '*@Example.???') and not to.matches('*@example.com')",
        r"regex(to, r'\w+@\w+\.com') and regex(to, '(?i)ann.*')",
        "not regex(to, 'Ann')",
        "note == null and note == None and urgent == true and urgent == True",
        "cents * 2 + 1 - 1 == 2400 and -cents < 0",
        "cents in {1200, 1300}",
        "(cents\n > 5)  # twelve hundred",
        "  urgent  ",
        "(urgent and cents > 1) == true and (not urgent) == false",
        "matches(to, '*') and to.matches('Ann@Example.com') and not matches(to, 'Ann')",
    ],
)
def test_it_holds(source: str):
    assert holds(source, **CALL)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("missing > 1", "there is no argument `missing`"),
        ("not missing", "there is no argument `missing`"),
        ("who['none'] == 1", "an object has no such item"),
        ("tags[2] == 'c'", "a list has no such item"),
        ("tags[true] == 'b'", "a list has no such item"),
        ("to > 1", "text and a number have no order"),
        ("urgent > 0", "a boolean and a number have no order"),
        ("note < 1", "null and a number have no order"),
        ("to + 1 == 1", "text is not a number"),
        ("-tags == 1", "a list is not a number"),
        ("urgent * 1 == 1", "a boolean is not a number"),
        ("len(cents) == 1", "a number has no length"),
        ("lower(cents) == '1200'", "a number is not text"),
        ("1 in cents", "a number contains nothing"),
        ("1 in to", "a number is not text"),
        ("matches(cents, '12*')", "a number is not text"),
        ("cents", "a number is not true or false"),
        ("cents and urgent", "a number is not true or false"),
    ],
)
def test_what_cannot_be_told_does_not_hold(source: str, why: str):
    assert parse_expression(source).tell(facts(**CALL)) == why
    assert not holds(source, **CALL)
    assert not holds(f"not ({source})", **CALL)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("missing == 1 or urgent", True),
        ("urgent or missing == 1", True),
        ("missing == 1 and not urgent", False),
        ("0 > missing > 1", "there is no argument `missing`"),
        ("1 > 2 > missing", False),
        ("missing > 2 > 3", False),
        ("missing == 1 and urgent", "there is no argument `missing`"),
        ("missing == 1 or other == 1", "there is no argument `missing`"),
    ],
)
def test_the_order_of_operands_does_not_matter(source: str, found: bool | str):
    assert parse_expression(source).tell(facts(urgent=True)) == found


def test_true_is_not_one():
    assert not holds("x == 1 or x == [1]", x=True)
    assert not holds("x == [1] or x == {1}", x=[True])
    assert holds("x != y", x={"a": 1}, y={"a": True})
    assert holds("x == y", x={"a": [1]}, y={"a": [1.0]})


def test_arithmetic_stays_cheap_and_counts_large_as_infinite():
    huge = 1 << 100_000
    product = " * ".join(["x"] * 35)
    assert holds(f"{product} > 1", x=huge)
    assert holds(f"{product} > 1", x=1e300)
    assert holds("x + 1 < 0", x=-huge)
    assert parse_expression("x - x == 0").tell(facts(x=huge)) == "the numbers are too large"


def test_patterns_take_linear_time():
    text = "a" * 1_000_000
    assert not holds("regex(x, '(a+)+b') or matches(x, '*a*a*a*a*a*a*a*b')", x=text)
    assert not holds(r"regex(x, '(a|aa)+$b') or regex(x, '((a{30}){30})*b')", x=text)


@pytest.mark.parametrize("value", ["etc/passwd\n", "\netc/passwd", "etc/passwd\ud800"])
def test_a_line_end_or_a_broken_character_does_not_hide_a_text(value: str):
    assert holds("regex(x, '.*passwd.*') and matches(x, '*passwd*')", x=value)


def test_special_characters_of_regular_expressions_mean_nothing_in_a_glob():
    odd = r"a.b+c(d)[e]{f}^$|\#&-~/é " + "\n"
    quoted = repr("*" + odd + "?")
    assert holds(f"matches(x, {quoted})", x=odd + "!")
    assert not holds("matches(x, 'a.c?')", x="abcd")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("", "does not parse"),
        ("1 +", "does not parse"),
        ("a = 1", "does not parse"),
        ("import os", "does not parse"),
        ("x == '\\d'", "escape"),
        ("a > 1\nb > 1", "does not parse"),
        ("x\0", "does not parse"),
        ("x == '\ud800'", "does not parse"),
        ("(" * 900 + "x" + ")" * 900, "does not parse"),
        ("-" * 1900 + "1 == 1", ""),
        ("x == 1" + " " * 2000, "2000 are allowed"),
        ("x in [" + "1," * 250 + "]", "200 are allowed"),
        ("not " * 60 + "x", "nested too deep"),
        ("len(" + "[" * 60 + "]" * 60 + ") == 1", "nested too deep"),
        ("__import__('os')", "no function"),
        ("open('/etc/passwd')", "no function"),
        ("args.__class__ == 1", "may not ask for `__class__`"),
        ("args['__class__'] == 1", "may not ask for `__class__`"),
        ("__builtins__ == 1", "may not ask for `__builtins__`"),
        ("args.x.y == 1", "attribute"),
        ("tool.x == 1", "attribute"),
        ("().__class__.__bases__[0] == 1", "attribute"),
        ("args.get('x')", "no function"),
        ("tool.format(args)", "no function"),
        ("(lambda: 1)()", "no function"),
        ("x()()", "no function"),
        ("startswith(x, part='a')", "no function"),
        ("len(*x) == 1", "`*`"),
        ("lambda: true", "a function"),
        ("[y for y in x] == x", "`ListComp`"),
        ("any(y for y in x)", "no function"),
        ("(y := 1) == 1", "assignment"),
        ("x if x else x", "`if`"),
        ("f'{x}' == 'a'", "f-string"),
        ("x ** 9 == 1", "operator"),
        ("x << 9 == 1", "operator"),
        ("x / 2 == 1", "operator"),
        ("x % 'a' == 1", "operator"),
        ("~x == 1", "operator"),
        ("x[0:1] == 'a'", "slice"),
        ("x == {'a': 1}", "an object"),
        ("x is null", "`is`"),
        ("x == b'a'", "may only have"),
        ("x == 1j", "may only have"),
        ("x == ...", "may only have"),
        ("x < 1e999", "may only have"),
        ("len", "without calling it"),
        ("len() == 1", "takes 1"),
        ("startswith(x)", "takes 2"),
        ("x.startswith('a', 'b')", "takes 2"),
        ("matches(x, y)", "written out"),
        ("regex(x, 1)", "written out"),
        ("regex(x, '(')", "unclosed group"),
        ("regex(x, '(?=a)')", "look-ahead"),
        (r"regex(x, r'(a)\1')", "backreferences"),
        ("regex(x, 'a)|(?:b')", "unopened group"),
        (r"regex(x, '((\\w{99}){99}){99}')", "size limit"),
        (r"regex(x, '\ud800')", "no Unicode text"),
        ("'yes'", "true or false"),
        ("tool", "true or false"),
        ("null", "true or false"),
        ("x and 1", "true or false"),
        ("len(x)", "true or false"),
        ("x.lower()", "true or false"),
        ("x + 1", "true or false"),
        ("not [x]", "true or false"),
    ],
)
def test_bad_expressions_are_refused_when_they_are_read(source: str, says: str):
    assert says in refusal(source).message


def test_a_refusal_says_where():
    why = refusal("x > 1 and\\\n   y ** 2 == 4")
    assert why.span is not None
    assert (why.span.line, why.span.column) == (2, 4)
    assert "line 2, column 4" in why.message
    assert refusal("x == '\\d'").hint == 'Write it raw: r"…".'


def test_an_expression_is_read_once():
    assert parse_expression("x == 1") is parse_expression("x == 1")
    assert repr(parse_expression("x == 1")) == "Expression('x == 1')"
    assert parse_expression("args.x == y or args['z']").arguments == {"x", "y", "z"}


def capability(rule: str, **schema: Json) -> Capability:
    approval = AutoApproval(auto=AutoRule(rule=rule))
    return Capability(name="pay", description="", approval_policy=approval, input_schema=schema)


def test_an_approval_rule_about_an_unknown_argument_is_refused():
    closed: dict[str, Json] = {"properties": {"cents": {}}, "additionalProperties": False}
    check_approval(capability("cents < 1", **closed))
    check_approval(capability("cent < 1"))
    check_approval(capability("cent < 1", properties={"cents": {}}))
    check_approval(Capability(name="pay", description=""))
    with pytest.raises(CallerError, match="`cent`, which is no argument") as caught:
        check_approval(capability("cent < 1", **closed))
    assert caught.value.hint == "Its arguments: `cents`."
    with pytest.raises(CallerError, match="POLICY_INVALID"):
        check_approval(capability("cents <"))


def test_arguments_nested_without_end_do_not_raise():
    deep: Json = []
    for _ in range(100_000):
        deep = [deep]
    other: Json = []
    for _ in range(100_000):
        other = [other]
    found: list[bool | str] = []
    # In a thread of its own: the comparison ends where the stack does.
    thread = threading.Thread(
        target=lambda: found.append(parse_expression("x == y").tell(facts(x=deep, y=other)))
    )
    thread.start()
    thread.join()
    assert found == ["an argument is nested too deep"]


# -- properties ---------------------------------------------------------------------------------------

names = st.sampled_from(["a", "b", "tool"])
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "a", "ab", "b"])
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=2),
    max_leaves=4,
)
arguments = st.dictionaries(names, values, max_size=3)


def _join(parts: list[str], word: str) -> str:
    return "(" + f" {word} ".join(parts) + ")"


leaves = st.sampled_from(
    "args.a args.b a b args['tool'] tool risk true false null 0 1 -1 0.5 'a' 'ab' [] [1] ['a']".split()
)
terms = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from("+-*"), inner),
        st.builds("len({})".format, inner),
        st.builds("lower({})".format, inner),
        st.builds("{}[{}]".format, st.sampled_from(["a", "args", "b"]), inner),
    ),
    max_leaves=4,
)
tests = st.one_of(
    st.builds(
        "({} {} {})".format,
        terms,
        st.sampled_from([*"== != < <= > >= in".split(), "not in"]),
        terms,
    ),
    st.builds("startswith({}, {})".format, terms, terms),
    st.builds("matches({}, 'a*')".format, terms),
    st.sampled_from(["args.a", "b", "true", "false"]),
)
sources = st.recursive(
    tests,
    lambda inner: st.one_of(
        st.builds(_join, st.lists(inner, min_size=2, max_size=3), st.sampled_from(["and", "or"])),
        st.builds("(not {})".format, inner),
    ),
    max_leaves=5,
)


class Cannot(Exception):
    pass


def is_number(value: object) -> bool:
    return type(value) in (int, float)


def typed(value: object) -> object:
    """A value that differs whenever the JSON does: booleans are told from numbers."""
    if isinstance(value, list):
        return ("list", *map(typed, value))
    if isinstance(value, dict):
        return ("object", *sorted((key, str(typed(each))) for key, each in value.items()))
    if is_number(value):
        return ("number", float(value))  # type: ignore[arg-type]
    return (type(value).__name__, value)


class Reference:
    """Another way to say what an expression means: one method, straight down the tree."""

    def __init__(self, call: Facts) -> None:
        self.names: dict[str, object] = {"tool": call.tool, "risk": call.risk, "args": call.args}
        self.names |= {"true": True, "false": False, "null": None}
        self.args = call.args

    def need(self, condition: object) -> None:
        if not condition:
            raise Cannot

    def value(self, node: ast.AST) -> object:
        return getattr(self, type(node).__name__.lower())(node)

    def truth(self, node: ast.AST) -> bool | None:
        try:
            found = self.value(node)
        except Cannot:
            return None
        return found if isinstance(found, bool) else None

    def constant(self, node: ast.Constant) -> object:
        return node.value

    def name(self, node: ast.Name) -> object:
        if node.id in self.names:
            return self.names[node.id]
        self.need(node.id in self.args)
        return self.args[node.id]

    def attribute(self, node: ast.Attribute) -> object:
        self.need(node.attr in self.args)
        return self.args[node.attr]

    def list(self, node: ast.List) -> object:
        return [self.value(each) for each in node.elts]

    def subscript(self, node: ast.Subscript) -> object:
        of, at = self.value(node.value), self.value(node.slice)
        if isinstance(of, dict):
            self.need(isinstance(at, str) and at in of)
        else:
            self.need(isinstance(of, list) and type(at) is int and at in range(-len(of), len(of)))
        return of[at]  # type: ignore[index]

    def binop(self, node: ast.BinOp) -> object:
        one, other = self.value(node.left), self.value(node.right)
        self.need(is_number(one) and is_number(other))
        with_op = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
        found = with_op[type(node.op)](one, other)
        self.need(found == found)
        return found

    def unaryop(self, node: ast.UnaryOp) -> object:
        if isinstance(node.op, ast.Not):
            truth = self.truth(node.operand)
            self.need(truth is not None)
            return not truth
        found = self.value(node.operand)
        self.need(is_number(found))
        return -found  # type: ignore[operator]

    def boolop(self, node: ast.BoolOp) -> object:
        found = [self.truth(each) for each in node.values]
        decisive = isinstance(node.op, ast.Or)
        if decisive in found:
            return decisive
        self.need(None not in found)
        return not decisive

    def compare(self, node: ast.Compare) -> object:
        one, other = self.value(node.left), self.value(node.comparators[0])
        op = type(node.ops[0])
        if op in (ast.Eq, ast.NotEq):
            return (typed(one) == typed(other)) is (op is ast.Eq)
        if op in (ast.In, ast.NotIn):
            return self.has(other, one) is (op is ast.In)
        alike = isinstance(one, str) and isinstance(other, str)
        self.need(alike or (is_number(one) and is_number(other)))
        order = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}[op]
        return getattr(operator, order)(one, other)

    def has(self, container: object, part: object) -> bool:
        if isinstance(container, list):
            return typed(part) in [typed(each) for each in container]
        self.need(isinstance(container, str | dict) and isinstance(part, str))
        return part in container  # type: ignore[operator]

    def call(self, node: ast.Call) -> object:
        assert isinstance(node.func, ast.Name)
        given = [self.value(each) for each in node.args]
        if node.func.id == "len":
            self.need(isinstance(given[0], str | list | dict))
            return len(given[0])  # type: ignore[arg-type]
        self.need(all(isinstance(each, str) for each in given))
        text = str(given[0])
        if node.func.id == "lower":
            return text.lower()
        return text.startswith("a" if node.func.id == "matches" else str(given[1]))


@given(sources, arguments)
@example("(not (a == 1))", {})
@example("(args[a] == 1)", {"a": "b"})
def test_it_means_what_the_reference_says(source: str, args: dict[str, Json]):
    call = facts(**args)
    tree = ast.parse(source, mode="eval").body
    expected = Reference(call).truth(tree)
    found = parse_expression(source).tell(call)
    assert expected is (found if isinstance(found, bool) else None)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(sources, st.dictionaries(names, anything))
def test_it_never_raises(source: str, args: dict[str, Json]):
    assert parse_expression(source).holds(facts(**args)) in (True, False)


@given(st.text(max_size=80) | st.text("abx.[]()'\"=<>+*{}:,\\ \n0", max_size=60))
def test_any_text_is_an_expression_or_refused(source: str):
    try:
        found = parse_expression(source)
    except CallerError as why:
        assert why.code == "POLICY_INVALID"  # noqa: PT017 - either outcome is right
    else:
        assert found.holds(facts(a=1, b="x")) in (True, False)
